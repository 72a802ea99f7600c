//! Text of others made harmless for a terminal.

pub use hmz_api::columns::align::cut;
use std::borrow::Cow;

/// The text with every control character but newline and tab shown instead of sent: a C0 character by its picture, a C1
/// character, a change of writing direction or an invisible one by its number. `\r\n` is a newline.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => out.push(c),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\0'..='\x1f' => out.push(char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}')),
            '\x7f' => out.push('\u{2421}'),
            '\u{80}'..='\u{9f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'
            | '\u{2029}' => out.push_str(&format!("<U+{:04X}>", c as u32)),
            _ => out.push(c),
        }
    }
    out
}

/// The same on one line: each newline and tab is a space.
pub fn one_line(text: &str) -> String {
    line(text).into_owned()
}

/// The same, and the text itself where nothing in it is to be changed, as in nearly all.
pub fn line(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(clean(text).replace(['\n', '\t'], " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves_the_cursor() {
        let hostile = "\x1b]0;title\x07 \x1b[2J\x1b[H a\rb\x08 \u{9b}31m \u{202e}evil\u{2066} ok\r\nnext\tcell \x7f\0";
        let shown = clean(hostile);
        assert_eq!(shown, "␛]0;title␇ ␛[2J␛[H a␍b␈ <U+009B>31m <U+202E>evil<U+2066> ok\nnext\tcell ␡␀");
        assert!(shown.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'));
        assert_eq!(clean("grüße 🙂 日本"), "grüße 🙂 日本");
        assert_eq!(one_line("a\nb\tc"), "a b c");
        assert!(matches!(line(" plain ~"), Cow::Borrowed(" plain ~")) && matches!(line("\x7f"), Cow::Owned(_)));
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
    }
}
