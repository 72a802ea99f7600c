//! Characters that look like others, or like nothing: named where a fault is beside them, since nobody sees them.

use crate::report::{At, lines};

/// What stands where an ordinary space was meant.
const SPACES: [(char, &str); 6] = [
    ('\u{a0}', "no-break space"),
    ('\u{202f}', "narrow no-break space"),
    ('\u{2007}', "figure space"),
    ('\u{2003}', "em space"),
    ('\u{2009}', "thin space"),
    ('\u{3000}', "ideographic space"),
];

/// What takes no room at all.
const NOTHINGS: [(char, &str); 7] = [
    ('\u{200b}', "zero-width space"),
    ('\u{200c}', "zero-width non-joiner"),
    ('\u{200d}', "zero-width joiner"),
    ('\u{2060}', "word joiner"),
    ('\u{ad}', "soft hyphen"),
    ('\u{200e}', "left-to-right mark"),
    ('\u{feff}', "byte-order mark"),
];

/// What an editor or a chat makes of what was typed: the character, its name, and what YAML takes.
const LOOKALIKES: [(char, &str, &str); 13] = [
    ('\u{201c}', "left double quotation mark", "\""),
    ('\u{201d}', "right double quotation mark", "\""),
    ('\u{201e}', "low double quotation mark", "\""),
    ('\u{ab}', "left guillemet", "\""),
    ('\u{bb}', "right guillemet", "\""),
    ('\u{2018}', "left single quotation mark", "'"),
    ('\u{2019}', "right single quotation mark", "'"),
    ('\u{2013}', "en dash", "-"),
    ('\u{2014}', "em dash", "-"),
    ('\u{2212}', "minus sign", "-"),
    ('\u{ff1a}', "fullwidth colon", ": "),
    ('\u{ff0c}', "fullwidth comma", ", "),
    ('\u{2026}', "ellipsis", "..."),
];

/// The odd character that a fault at `at` is probably about: on its line or the one before it.
pub(crate) fn beside(text: &str, at: At) -> Option<String> {
    let first = at.line.saturating_sub(2);
    let near: Vec<(usize, &str)> = lines(text).enumerate().skip(first).take(at.line - first).collect();
    for (index, line) in near.into_iter().rev() {
        let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(column) = line[..indent].find('\t') {
            return Some(format!("line {}, column {}: a tab; YAML is indented with spaces", index + 1, column + 1));
        }
        for (column, c) in line.chars().enumerate() {
            let place = format!("line {}, column {}", index + 1, column + 1);
            let code = u32::from(c);
            if let Some((_, name)) = SPACES.iter().find(|(odd, _)| *odd == c) {
                return Some(format!("{place}: {} {name} (U+{code:04X}); write an ordinary space", article(name)));
            }
            if let Some((_, name)) = NOTHINGS.iter().find(|(odd, _)| *odd == c) {
                return Some(format!("{place}: {} {name} (U+{code:04X}); take it out", article(name)));
            }
        }
    }
    // these are at home in texts, so only the word that is at fault is looked at
    let line = lines(text).nth(at.line.saturating_sub(1))?;
    let word = line.chars().enumerate().skip(at.column.saturating_sub(1)).take_while(|(_, c)| !c.is_whitespace());
    word.into_iter().find_map(|(column, c)| {
        let (_, name, meant) = LOOKALIKES.iter().find(|(odd, ..)| *odd == c)?;
        let meant = if *meant == "'" { "\"'\"".to_owned() } else { format!("'{}'", meant.trim_end()) };
        let code = u32::from(c);
        Some(format!("line {}, column {}: {} {name} (U+{code:04X}); write {meant}", at.line, column + 1, article(name)))
    })
}

/// Whether a word has a character that nobody sees, or that looks like a space.
pub(crate) fn has_unseen(word: &str) -> bool {
    word.chars().any(|c| unseen().any(|odd| odd == c))
}

/// The characters that nobody sees, or that look like a space.
pub(crate) fn unseen() -> impl Iterator<Item = char> {
    SPACES.iter().chain(&NOTHINGS).map(|(odd, _)| *odd)
}

fn article(name: &str) -> &'static str {
    if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}
