//! Splitting one flag's value into items.

/// Splits at each comma that is followed (after spaces) by an identifier-like key and `=`. Any other comma belongs to
/// the value before it.
pub(super) fn items(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices(',') {
        let rest = text[at + 1..].trim_start();
        let key_len = rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))).unwrap_or(rest.len());
        let is_key = key_len > 0
            && rest.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
            && rest[key_len..].starts_with('=');
        if is_key {
            found.push(text[start..at].trim());
            start = at + 1;
        }
    }
    found.push(text[start..].trim());
    found
}
