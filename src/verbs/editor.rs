//! A text in the user's editor, with what is wrong with it told above it.

use crate::edge;
use hmz_api::Error;
use hmz_manifest::Report;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use tempfile::NamedTempFile;

/// What begins a line that tells the editor's user what is wrong, and is no part of the file.
const TOLD: &str = "#! ";

/// The user's editor, as a shell has it.
pub fn command() -> String {
    let said = |name: &str| std::env::var(name).ok().filter(|editor| !editor.trim().is_empty());
    said("VISUAL").or_else(|| said("EDITOR")).unwrap_or_else(|| "vi".to_owned())
}

/// Opens a file in it, and waits until it is closed.
///
/// # Errors
/// When it cannot be started.
pub fn open(editor: &str, path: &Path) -> Result<ExitStatus, Error> {
    let started = Command::new("/bin/sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("hmz").arg(path).status();
    started.map_err(|e| edge::io(editor, &e))
}

/// A file for a copy.
///
/// # Errors
/// When it cannot be made.
pub fn copy(name: &str) -> Result<NamedTempFile, Error> {
    let made = tempfile::Builder::new().prefix(&format!("{name}-")).suffix(".yaml").tempfile();
    made.map_err(|e| edge::io(&format!("a copy of {name}"), &e))
}

/// The text with what is wrong above it; lines are numbered as the editor shows them.
pub fn told(text: &str, wrong: &[Report]) -> String {
    if wrong.is_empty() {
        return text.to_owned();
    }
    let lines = |wrong: &[Report]| -> Vec<String> {
        let said: Vec<String> =
            wrong.iter().flat_map(|report| report.to_string().lines().map(str::to_owned).collect::<Vec<_>>()).collect();
        said.iter().map(|line| format!("{TOLD}{line}")).collect()
    };
    let above = lines(wrong).len();
    let shifted: Vec<Report> = wrong
        .iter()
        .map(|report| Report { line: if report.line == 0 { 0 } else { report.line + above }, ..report.clone() })
        .collect();
    let (mark, body) = text.strip_prefix('\u{feff}').map_or(("", text), |body| ("\u{feff}", body));
    format!("{mark}{}\n{body}", lines(&shifted).join("\n"))
}

/// The text without what was told above it.
pub fn untold(text: &str) -> String {
    let (mark, mut body) = text.strip_prefix('\u{feff}').map_or(("", text), |body| ("\u{feff}", body));
    while body.starts_with(TOLD) {
        body = body.split_once('\n').map_or("", |(_, rest)| rest);
    }
    format!("{mark}{body}")
}

/// Writes the copy.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, text: &str) -> Result<(), Error> {
    // in place: an editor may have been told of this file before
    std::fs::File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|e| edge::io(&path.display().to_string(), &e))
}

/// Keeps a copy where it is.
pub fn keep(copy: NamedTempFile) -> PathBuf {
    let path = copy.path().to_owned();
    // one that cannot be kept is gone with this process, and the error that follows says where it was
    copy.keep().map_or(path, |(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_above_the_text_and_no_part_of_it() {
        let report = Report {
            origin: "settings.yaml".into(),
            line: 2,
            column: 3,
            message: "no".into(),
            snippet: "  |\n2 | b\n  | ^".into(),
            suggestion: None,
        };
        let text = "\u{feff}a\nb\n";
        let shown = told(text, std::slice::from_ref(&report));
        assert_eq!(shown, "\u{feff}#! settings.yaml:6:3: no\n#!   |\n#! 2 | b\n#!   | ^\na\nb\n");
        assert_eq!(shown.trim_start_matches('\u{feff}').lines().nth(6 - 1), Some("b"), "the line that is named");
        assert_eq!(untold(&shown), text);
        assert_eq!(told(text, &[]), text);
    }
}
