//! `hmz settings`: settings.yaml read and changed here, without the daemon; one that runs sees the change by itself.

mod edit;

use crate::cli::{Settings, SettingsAction, SettingsOutput};
use crate::{edge, show};
use hmz_api::{Error, ErrorKind};
use hmz_manifest::settings::edit::{self as field, Edited, FieldPath};
use hmz_manifest::settings::{self, file};
use hmz_manifest::{Context, Report, into_error, value_to_yaml};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The file, and what its relative paths mean.
struct Place {
    path: PathBuf,
    context: Context,
}

impl Place {
    fn of_home() -> Result<Self, Error> {
        let paths = edge::paths()?;
        let home = edge::environment().remove("HOME").map(PathBuf::from);
        Ok(Self { path: paths.settings(), context: Context { base: paths.home, home } })
    }

    /// As messages name it.
    fn origin(&self) -> String {
        self.path.display().to_string()
    }

    fn text(&self) -> Result<String, Error> {
        Ok(file::read_text(&self.path)?.unwrap_or_default())
    }
}

/// Runs it.
pub fn run(args: Settings) -> ExitCode {
    let (verb, done) = match args.action {
        SettingsAction::Get { path, output } => ("settings get", get(path.as_deref(), output)),
        SettingsAction::Set { path, value } => ("settings set", set(&path, &value)),
        SettingsAction::Unset { path } => ("settings unset", unset(&path)),
        SettingsAction::Edit => ("settings edit", edit::run()),
        SettingsAction::Validate { file } => ("settings validate", validate(file.as_deref())),
    };
    match done {
        Ok(text) => {
            show::print(&text);
            ExitCode::SUCCESS
        }
        Err(e) => edge::fail(verb, &e),
    }
}

fn get(path: Option<&str>, output: Option<SettingsOutput>) -> Result<String, Error> {
    let place = Place::of_home()?;
    let text = place.text()?;
    let value = match path {
        // as it stands, with its comments
        None if output.is_none() => return Ok(text),
        None => field::all(&text, &place.origin())?,
        Some(path) => {
            let path: FieldPath = path.parse()?;
            let absent = || Error::not_found(format!("there is no {path} in {}", place.origin()));
            field::get(&text, &place.origin(), &path)?.ok_or_else(absent)?
        }
    };
    match (output, &value) {
        (Some(SettingsOutput::Json), _) => serde_json::to_string_pretty(&value)
            .map(|text| format!("{text}\n"))
            .map_err(|e| Error::new(ErrorKind::Internal, e.to_string())),
        (None, Value::String(text)) => Ok(format!("{text}\n")),
        _ => value_to_yaml(&value),
    }
}

fn set(path: &str, value: &str) -> Result<String, Error> {
    let (place, path) = (Place::of_home()?, path.parse::<FieldPath>()?);
    let origin = place.origin();
    let done = file::change(&place.path, |text| field::set(text, &origin, &path, value, &place.context))?;
    Ok(said(&path, &done, "set"))
}

fn unset(path: &str) -> Result<String, Error> {
    let (place, path) = (Place::of_home()?, path.parse::<FieldPath>()?);
    let origin = place.origin();
    let done = file::change(&place.path, |text| field::unset(text, &origin, &path, &place.context))?;
    Ok(said(&path, &done, "unset"))
}

fn said(path: &FieldPath, done: &Edited, word: &str) -> String {
    format!("{path} {}\n", if *done == Edited::Unchanged { "unchanged" } else { word })
}

fn validate(file: Option<&Path>) -> Result<String, Error> {
    let place = Place::of_home()?;
    let (text, origin) = match file {
        None => match file::read_text(&place.path)? {
            Some(text) => (text, place.origin()),
            None => return Ok(format!("there is no {}: no runtime is saved\n", place.origin())),
        },
        Some(path) if path.as_os_str() == "-" => {
            (std::io::read_to_string(std::io::stdin()).map_err(|e| edge::io("standard input", &e))?, "-".to_owned())
        }
        Some(path) => {
            let origin = path.display().to_string();
            let absent = || Error::not_found(format!("there is no {origin}"));
            (file::read_text(path)?.ok_or_else(absent)?, origin)
        }
    };
    let reports = faults(&text, &origin, &place.context);
    if !reports.is_empty() {
        return Err(into_error(reports));
    }
    let settings = settings::read(&text, &origin, &place.context)?;
    for sentence in settings.dangling() {
        show::note("settings validate", &sentence);
    }
    let runtimes = settings.runtimes.len();
    Ok(format!("{origin} is valid: {runtimes} {}\n", if runtimes == 1 { "runtime" } else { "runtimes" }))
}

/// Everything that keeps a text from being what settings.yaml says.
fn faults(text: &str, origin: &str, context: &Context) -> Vec<Report> {
    if settings::is_blank(text) {
        return vec![Report::without_place(origin, "the file is empty; for no runtimes write 'runtimes: {}', or remove it")];
    }
    settings::check(text, origin, context)
}
