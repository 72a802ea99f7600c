//! Completion for bash, which splits a line at `=`, `@` and `:` as well as at spaces and replaces only a part of the last word: the
//! pieces are put together before the question, and what is before that part is left out of the answer.

use clap_complete::env::EnvCompleter;
use std::ffi::OsString;
use std::io::{Error, Write};
use std::path::Path;

/// The variable in which bash says where it splits.
const BREAKS: &str = "_HMZ_WORDBREAKS";

/// The variable in which it says what it replaces: the last piece, with the `@` before it, or all that is in quotes.
const REPLACED: &str = "_HMZ_REPLACED";

/// Where it splits unless it says otherwise.
const USUAL: &str = "\"'@><=;|&(:";

/// The adapter.
pub struct Bash;

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn is(&self, name: &str) -> bool {
        name == "bash"
    }

    fn write_registration(&self, var: &str, name: &str, bin: &str, completer: &str, buf: &mut dyn Write) -> Result<(), Error> {
        let completer = completer.replace('\'', r"'\''");
        writeln!(
            buf,
            "_{name}_complete() {{
    local IFS=$'\\n'
    COMPREPLY=($({var}=bash {BREAKS}=\"${{COMP_WORDBREAKS-}}\" {REPLACED}=\"$2\" '{completer}' -- \"${{COMP_WORDS[@]:0:COMP_CWORD+1}}\"))
    if [[ ${{#COMPREPLY[@]}} -eq 1 && ${{COMPREPLY[0]}} == *[=/:@] ]]; then
        compopt -o nospace 2>/dev/null || true
    fi
}}
complete -o bashdefault -o default -F _{name}_complete {bin}"
        )
    }

    fn write_complete(
        &self,
        cmd: &mut clap::Command,
        args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn Write,
    ) -> Result<(), Error> {
        let breaks = std::env::var(BREAKS).ok().filter(|said| !said.is_empty()).unwrap_or_else(|| USUAL.to_owned());
        let breaks: Vec<char> = breaks.chars().filter(|c| matches!(c, '=' | '@' | ':')).collect();
        let replaced = std::env::var(REPLACED).unwrap_or_default();
        let words = joined(args.iter().map(|word| unquoted(&word.to_string_lossy())), &breaks);
        let had = words.last().and_then(|last| last.strip_suffix(replaced.as_str())).map_or(0, str::len);
        let index = words.len().saturating_sub(1);
        let _ = super::LINE.set(words.clone());
        let found = clap_complete::engine::complete(cmd, words.into_iter().map(OsString::from).collect(), index, current_dir)?;
        for candidate in found {
            let value = candidate.get_value().to_string_lossy();
            writeln!(buf, "{}", value.get(had..).unwrap_or_default())?;
        }
        Ok(())
    }
}

/// A piece without its quotes, of which the last may be open.
fn unquoted(piece: &str) -> String {
    let (mut plain, mut quote) = (String::new(), None);
    let mut rest = piece.chars();
    while let Some(c) = rest.next() {
        match (c, quote) {
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            ('\\', None | Some('"')) => plain.extend(rest.next()),
            (c, _) => plain.push(c),
        }
    }
    plain
}

/// The words as they were typed: a piece of nothing but breaks joins what is around it.
fn joined(pieces: impl Iterator<Item = String>, breaks: &[char]) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut joins = false;
    for piece in pieces {
        let is_break = !piece.is_empty() && piece.chars().all(|c| breaks.contains(&c));
        match words.last_mut() {
            // the program stands by itself
            Some(word) if joins || is_break => word.push_str(&piece),
            _ => words.push(piece),
        }
        joins = is_break;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_no_part_of_a_word() {
        let told: Vec<_> =
            ["a", "'a b", r#""a'\"b"#, r"a\ b'c'd", "'a'\"b\"", r"'a\b'"].iter().map(|piece| unquoted(piece)).collect();
        assert_eq!(told, ["a", "a b", "a'\"b", "a bcd", "ab", r"a\b"]);
    }

    #[test]
    fn pieces_become_words_again() {
        let joined = |pieces: &[&str]| joined(pieces.iter().map(|p| (*p).to_owned()), &['=', '@', ':']);
        assert_eq!(joined(&["hmz", "exec", "-e", "box", "=", "docker", "@", "gp"]), ["hmz", "exec", "-e", "box=docker@gp"]);
        assert_eq!(joined(&["hmz", "exec", "-e", "box", "="]), ["hmz", "exec", "-e", "box="]);
        assert_eq!(
            joined(&["hmz", "exec", "-a", "coder", "=", "claude/x", ":", "low", ""]),
            ["hmz", "exec", "-a", "coder=claude/x:low", ""]
        );
        assert_eq!(joined(&["hmz", "get", ""]), ["hmz", "get", ""]);
    }
}
