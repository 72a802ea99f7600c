//! Which field is meant: `runtimes.docker.gpubox.cpus`.

use hmz_api::Error;
use std::fmt;
use std::str::FromStr;

/// The keys from the top of the file to a field, one at least. A key that holds a dot or a quote is written in quotes:
/// `workspaces."/home/me/a.b".flow`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath(Vec<String>);

impl FieldPath {
    /// The keys, from the top.
    pub fn keys(&self) -> &[String] {
        &self.0
    }
}

impl FromStr for FieldPath {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |why: &str| {
            Error::usage(format!("'{text}' is not the path of a field: {why}"))
                .hint("a path is keys with dots between, such as runtimes.docker.here.cpus")
        };
        let mut keys = Vec::new();
        let mut rest = text;
        loop {
            let (key, after) = match rest.chars().next() {
                Some(quote @ ('"' | '\'')) => {
                    let inner = &rest[1..];
                    let end = inner.find(quote).ok_or_else(|| wrong("a quote is not closed"))?;
                    (&inner[..end], &inner[end + 1..])
                }
                _ => rest.split_at(rest.find('.').unwrap_or(rest.len())),
            };
            if key.is_empty() {
                return Err(wrong("a key is empty"));
            }
            keys.push(key.to_owned());
            if after.is_empty() {
                return Ok(Self(keys));
            }
            rest = after.strip_prefix('.').ok_or_else(|| wrong("a dot is expected after a key in quotes"))?;
        }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, key) in self.0.iter().enumerate() {
            let dot = if index == 0 { "" } else { "." };
            let quote = match key {
                _ if !key.contains(['.', '"', '\'']) => "",
                _ if key.contains('"') => "'",
                _ => "\"",
            };
            write!(f, "{dot}{quote}{key}{quote}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_keys_with_dots_between() {
        for (text, keys) in [
            ("a", &["a"][..]),
            ("runtimes.docker.gpu-1.cpus", &["runtimes", "docker", "gpu-1", "cpus"]),
            ("w.\"/a.b\".f", &["w", "/a.b", "f"]),
            ("'a\"b'.c", &["a\"b", "c"]),
        ] {
            let path: FieldPath = text.parse().unwrap();
            assert_eq!(path.keys(), keys, "{text}");
            assert_eq!(path.to_string(), text);
        }
        for text in ["", ".", "a.", ".a", "a..b", "\"a", "\"a\"b", "\"\""] {
            assert!(text.parse::<FieldPath>().is_err(), "{text}");
        }
    }
}
