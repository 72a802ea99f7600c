//! What keeps a text from being YAML, in the words of somebody who writes one: the parser says what it was about to read, and
//! what is on the line says what was probably meant.

use crate::de::Fault;
use crate::report::{At, lines};
use crate::tree::{Broken, MAX_DEPTH};

/// The fault that a person is told.
pub(crate) fn explained(text: &str, broken: &Broken) -> Fault {
    let at = broken.at;
    let line = lines(text).nth(at.line.saturating_sub(1)).unwrap_or_default();
    let rest: String = line.chars().skip(at.column.saturating_sub(1)).collect();
    let said = broken.message.as_str();
    let quoted = |rest: &str| format!("quote it: {}", quote(rest.trim_end()));
    if said.contains("recursion limit") {
        return Fault::new(at, format!("nested more than {MAX_DEPTH} levels deep"));
    }
    if said.starts_with("block sequence entries are not allowed") {
        let fault = Fault::new(at, "a list of '-' lines does not begin on the line of its key");
        return fault.suggest(Some("put each '-' on a line below it, or write [a, b]".into()));
    }
    if said.starts_with("mapping values are not allowed") {
        return no_mapping_here(text, at, line);
    }
    if said.starts_with("unexpected character") || said.contains("found character that cannot start any token") {
        // the place is where the word begins
        if let Some(ahead) = rest.chars().position(char::is_control) {
            let at = At { column: at.column + ahead, ..at };
            let code = rest.chars().nth(ahead).map_or(0, u32::from);
            return Fault::new(at, format!("a control character (U+{code:04X}) cannot be in a text"))
                .suggest(Some("take it out".into()));
        }
        return match rest.chars().next() {
            Some(c) => Fault::new(at, format!("a text cannot begin with '{c}'")).suggest(Some(quoted(&rest))),
            None => Fault::new(at, said),
        };
    }
    if said.contains("unknown anchor") {
        let name: String = rest.chars().skip(1).take_while(|c| !c.is_whitespace() && !",]}".contains(*c)).collect();
        let anchors: Vec<&str> = text
            .split('&')
            .skip(1)
            .filter_map(|rest| rest.split(|c: char| c.is_whitespace() || ",]}".contains(c)).next())
            .collect();
        let near = crate::nearest(&name, anchors).map(|near| format!("did you mean '*{near}'?"));
        let meant = near.or_else(|| Some(format!("for a text that begins with '*' {}", quoted(&rest))));
        return Fault::new(at, format!("there is no anchor '&{name}' above this")).suggest(meant);
    }
    if said.starts_with("a key has to be a text") && rest.starts_with('{') && before(line, at).ends_with('{') {
        let value = &line[byte(line, at).saturating_sub(1)..];
        let at = At { column: at.column - 1, ..at };
        return Fault::new(at, "a text that begins with '{{' is read as a mapping").suggest(Some(quoted(value)));
    }
    if said.starts_with("simple key expected") || said.starts_with("while scanning a simple key") {
        return Fault::new(at, "a ':' and a space are missing after this key");
    }
    if said.contains("expected ',' or '}'") {
        return Fault::new(at, "a ',' or a '}' is missing before this");
    }
    if said.contains("expected ',' or ']'") {
        return Fault::new(at, "a ',' or a ']' is missing before this");
    }
    if said.contains("tab") {
        // the parser tells where what holds the tab begins
        let found = lines(text).enumerate().skip(at.line.saturating_sub(1)).find_map(|(index, line)| {
            let column = line.len() - line.trim_start().len();
            line[..column].find('\t').map(|column| At { line: index + 1, column: column + 1 })
        });
        return Fault::new(found.unwrap_or(at), "a tab cannot indent: YAML is indented with spaces");
    }
    Fault::new(at, said)
}

/// A `: ` where no mapping can begin: three slips make one.
fn no_mapping_here(text: &str, at: At, line: &str) -> Fault {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let head = before(line, at);
    // `task: Fix this: now`
    if let Some((key, value)) = head.split_once(": ") {
        let whole = &line[key.len() + 2..];
        let column = key.chars().count() + 3 + (value.chars().count() - value.trim_start().chars().count());
        let fault = Fault::new(At { column, ..at }, "a text with ': ' in it is read as a mapping");
        return fault.suggest(Some(format!("quote it: {}", quote(whole.trim()))));
    }
    let above = lines(text).enumerate().take(at.line.saturating_sub(1)).filter(|(_, line)| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#')
    });
    let Some((index, above)) = above.last() else { return Fault::new(at, "a ':' is not expected here") };
    // `runtime:docker:here` above, which is a text
    let word = above.trim_start().trim_start_matches("- ");
    if let Some((key, value)) =
        word.split_once(':').filter(|(key, value)| !value.is_empty() && !value.starts_with(' ') && is_key(key))
    {
        let column = above.chars().count() - word.chars().count() + key.chars().count() + 1;
        let fault = Fault::new(At { line: index + 1, column }, format!("a space is missing after the ':' of '{key}'"));
        return fault.suggest(Some(format!("write '{key}: {value}'")));
    }
    if indent(line) > indent(above) {
        let column = indent(line) + 1;
        return Fault::new(
            At { column, ..at },
            format!("this is indented deeper than line {}, which has a value already", index + 1),
        );
    }
    Fault::new(at, "a ':' is not expected here")
}

fn is_key(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

fn byte(line: &str, at: At) -> usize {
    line.char_indices().nth(at.column.saturating_sub(1)).map_or(line.len(), |(byte, _)| byte)
}

fn before(line: &str, at: At) -> &str {
    &line[..byte(line, at)]
}

/// A text in quotes; only its beginning, when it is long.
fn quote(text: &str) -> String {
    let shown: String = text.chars().take(40).collect();
    let shown = if shown.len() < text.len() { format!("{shown}…") } else { shown };
    if shown.contains('\'') { format!("\"{}\"", shown.replace('"', "\\\"")) } else { format!("'{shown}'") }
}
