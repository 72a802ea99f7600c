//! `hmz settings edit`: a copy in an editor, until it can be read; only then it is saved, whole.

use super::{Place, faults};
use crate::{edge, show};
use hmz_api::{Error, ErrorKind};
use hmz_manifest::Report;
use hmz_manifest::settings::edit::Edited;
use hmz_manifest::settings::file;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::NamedTempFile;

/// What begins a line that tells the editor's user what is wrong, and is no part of the file.
const TOLD: &str = "#! ";

pub(super) fn run() -> Result<String, Error> {
    let place = Place::of_home()?;
    let editor = editor()?;
    let before = file::read_text(&place.path)?;
    let old = before.clone().unwrap_or_default();
    let known: Vec<String> = faults(&old, "", &place.context).into_iter().map(|report| report.message).collect();
    let copy = tempfile::Builder::new()
        .prefix("settings-")
        .suffix(".yaml")
        .tempfile()
        .map_err(|e| edge::io("a copy of settings.yaml", &e))?;
    let (mut text, mut wrong) = (old.clone(), broken(&place, &old));
    loop {
        write(copy.path(), &told(&text, &wrong))?;
        let started = Command::new("/bin/sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("hmz").arg(copy.path()).status();
        let status = started.map_err(|e| edge::io(&editor, &e))?;
        if !status.success() {
            return kept(copy, &place, format!("'{editor}' ended with {status}"), &old);
        }
        let read = file::read_text(copy.path())?.unwrap_or_default();
        let new = untold(&read);
        if new == old {
            return Ok(format!("{} unchanged\n", place.origin()));
        }
        if !wrong.is_empty() && new == text {
            return kept(copy, &place, "what is wrong was not mended".to_owned(), &old);
        }
        // what was wrong before is no reason to refuse what was changed beside it
        wrong = faults(&new, "settings.yaml", &place.context)
            .into_iter()
            .filter(|report| !known.contains(&report.message) || !broken(&place, &new).is_empty())
            .collect();
        text = new;
        if wrong.is_empty() {
            break;
        }
        wrong.iter().for_each(|report| show::note("settings edit", &report.headline()));
    }
    let saved = file::change(&place.path, |now| {
        if now == old {
            return Ok(Edited::Changed(text.clone()));
        }
        Err(Error::new(ErrorKind::Conflict, format!("{} was changed by somebody else meanwhile", place.origin())))
    });
    match saved {
        Ok(_) => Ok(format!("{} saved\n", place.origin())),
        Err(e) => {
            let kept = keep(copy);
            Err(e.hint(format!("your text is in {}", kept.display())))
        }
    }
}

fn editor() -> Result<String, Error> {
    let said = |name: &str| std::env::var(name).ok().filter(|editor| !editor.trim().is_empty());
    Ok(said("VISUAL").or_else(|| said("EDITOR")).unwrap_or_else(|| "vi".to_owned()))
}

/// What keeps the file as a whole from being read.
fn broken(place: &Place, text: &str) -> Vec<Report> {
    if text.is_empty() {
        return Vec::new();
    }
    hmz_manifest::settings::read(text, "settings.yaml", &place.context).err().into_iter().collect()
}

/// The text with what is wrong above it; lines are numbered as the editor shows them.
fn told(text: &str, wrong: &[Report]) -> String {
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
fn untold(text: &str) -> String {
    let (mark, mut body) = text.strip_prefix('\u{feff}').map_or(("", text), |body| ("\u{feff}", body));
    while body.starts_with(TOLD) {
        body = body.split_once('\n').map_or("", |(_, rest)| rest);
    }
    format!("{mark}{body}")
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    // in place: an editor may have been told of this file before
    std::fs::File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|e| edge::io(&path.display().to_string(), &e))
}

fn keep(copy: NamedTempFile) -> PathBuf {
    let path = copy.path().to_owned();
    // one that cannot be kept is gone with this process, and the error that follows says where it was
    copy.keep().map_or(path, |(_, path)| path)
}

/// Nothing is saved; what was typed is kept, where anything was.
fn kept(copy: NamedTempFile, place: &Place, why: String, old: &str) -> Result<String, Error> {
    let error = Error::failed(format!("{why}; {} is as it was", place.origin()));
    let typed = file::read_text(copy.path()).ok().flatten().is_some_and(|text| untold(&text) != old);
    Err(if typed { error.hint(format!("your text is in {}", keep(copy).display())) } else { error })
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
