//! `hmz settings edit`: a copy in an editor, until it can be read; only then it is saved, whole.

use super::{Place, faults};
use crate::show;
use crate::verbs::editor::{self, keep, told, untold, write};
use hmz_api::{Error, ErrorKind};
use hmz_manifest::Report;
use hmz_manifest::settings::edit::Edited;
use hmz_manifest::settings::file;
use tempfile::NamedTempFile;

pub(super) fn run() -> Result<String, Error> {
    let place = Place::of_home()?;
    let editor = editor::command();
    let before = file::read_text(&place.path)?;
    let old = before.clone().unwrap_or_default();
    let known: Vec<String> = faults(&old, "", &place.context).into_iter().map(|report| report.message).collect();
    let copy = editor::copy("settings")?;
    let (mut text, mut wrong) = (old.clone(), broken(&place, &old));
    loop {
        write(copy.path(), &told(&text, &wrong))?;
        let status = editor::open(&editor, copy.path())?;
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

/// What keeps the file as a whole from being read.
fn broken(place: &Place, text: &str) -> Vec<Report> {
    if text.is_empty() {
        return Vec::new();
    }
    hmz_manifest::settings::read(text, "settings.yaml", &place.context).err().into_iter().collect()
}

/// Nothing is saved; what was typed is kept, where anything was.
fn kept(copy: NamedTempFile, place: &Place, why: String, old: &str) -> Result<String, Error> {
    let error = Error::failed(format!("{why}; {} is as it was", place.origin()));
    let typed = file::read_text(copy.path()).ok().flatten().is_some_and(|text| untold(&text) != old);
    Err(if typed { error.hint(format!("your text is in {}", keep(copy).display())) } else { error })
}
