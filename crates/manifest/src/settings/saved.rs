//! Whole entries of settings.yaml: one that is new, one that goes, hosts of ssh's configuration. Like every edit of the file
//! these are pure: they turn one text into another and leave every byte alone that they do not have to change.

use super::edit::{self, Edited, FieldPath};
use super::entry::runtime_spec;
use crate::document::report;
use crate::place::Context;
use crate::tree;
use hmz_api::{Backend, Error, RuntimeRef};
use serde_json::{Map, Value};

/// The settings of one runtime, as settings.yaml has them.
pub type Fields = Map<String, Value>;

/// What `made` says of a host that was imported.
const IMPORTED: &str = "imported";

/// Where the entry of a saved runtime is.
///
/// # Errors
/// When it has no name, or one that no runtime can have.
pub fn place(runtime: &RuntimeRef) -> Result<FieldPath, Error> {
    let Some(name) = &runtime.name else {
        return Err(Error::usage(format!("{runtime} names no saved runtime")).hint(format!("write {}/NAME", runtime.backend)));
    };
    RuntimeRef::check_name(name)?;
    // such a name has no quotes in it
    let name = if name.contains('.') { format!("\"{name}\"") } else { name.clone() };
    format!("runtimes.{}.{name}", runtime.backend).parse()
}

/// The text with one more runtime. Its fields are held to the rules of reading, in the same words.
///
/// # Errors
/// When there is an entry of that name, when a field is wrong, and as any edit.
pub fn add(text: &str, origin: &str, runtime: &RuntimeRef, fields: &Fields, context: &Context) -> Result<Edited, Error> {
    let path = place(runtime)?;
    let name = runtime.name.as_deref().unwrap_or_default();
    if matches!(runtime.backend, Backend::Local | Backend::AppleContainer | Backend::Slurm) {
        return Err(Error::usage(format!("runtimes of {} are not supported yet", runtime.backend)));
    }
    if edit::get(text, origin, &path)?.is_some() {
        return Err(Error::refused(format!("{} '{name}' already exists", runtime.backend.noun()))
            .hint(format!("change one of its settings: hmz settings set {path}.FIELD VALUE"))
            .hint(format!("or remove it first: hmz runtime remove {}", runtime.path())));
    }
    let value = written(fields);
    right(&value, runtime, context)?;
    edit::set(text, origin, &path, &value, context)
}

/// The text without a runtime.
///
/// # Errors
/// `NotFound` when there is none of that name, and as any edit.
pub fn remove(text: &str, origin: &str, runtime: &RuntimeRef, context: &Context) -> Result<Edited, Error> {
    edit::unset(text, origin, &place(runtime)?, context)
}

/// A host of ssh's configuration to be imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshHost {
    /// The `Host` of the configuration, which ssh is told to go to.
    pub alias: String,
    /// The configuration it is in, when that is not the user's own.
    pub config: Option<String>,
}

impl SshHost {
    /// The runtime it becomes: what a name cannot hold is a dash, and none begins with `.`, `_` or `-`. `None` when nothing is
    /// left of it.
    pub fn runtime(&self) -> Option<RuntimeRef> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let name: String = self.alias.chars().map(|c| if fits(c) { c } else { '-' }).collect();
        let name = name.trim_start_matches(['.', '_', '-']);
        (!name.is_empty()).then(|| RuntimeRef::named(Backend::Ssh, name))
    }
}

/// The text with a host of ssh's configuration. One that was imported before keeps what else its entry says.
///
/// # Errors
/// When its name is taken by one that was typed in, or by another host, and as any edit.
pub fn import(text: &str, origin: &str, host: &SshHost, context: &Context) -> Result<Edited, Error> {
    let alias = &host.alias;
    let cannot = |why: String| Error::refused(format!("{alias} cannot be imported: {why}"));
    let runtime = host.runtime().ok_or_else(|| cannot("it has no name".into()))?;
    let name = runtime.name.as_deref().unwrap_or_default();
    let path = place(&runtime)?;
    let mut fields = Fields::new();
    fields.insert("alias".into(), alias.clone().into());
    if let Some(config) = &host.config {
        fields.insert("config".into(), config.clone().into());
    }
    let Some(there) = edit::get(text, origin, &path)? else {
        fields.insert("made".into(), IMPORTED.into());
        return add(text, origin, &runtime, &fields, context);
    };
    let said = |field: &str| there.get(field).and_then(Value::as_str).unwrap_or_default();
    if said("made") != IMPORTED {
        return Err(cannot(format!("{name} was typed in, and an import does not write over it")));
    }
    if said("alias") != alias {
        return Err(cannot(format!("{} is imported as {name}", said("alias"))));
    }
    let config: FieldPath = format!("{path}.config").parse()?;
    match &host.config {
        Some(value) => edit::set(text, origin, &config, &Value::from(value.clone()).to_string(), context),
        None if said("config").is_empty() => Ok(Edited::Unchanged),
        None => edit::unset(text, origin, &config, context),
    }
}

/// The fields as YAML on one line: JSON is that.
fn written(fields: &Fields) -> String {
    Value::Object(fields.clone()).to_string()
}

/// Whether an entry could be read, in the words of reading and without the place of a text nobody has.
fn right(value: &str, runtime: &RuntimeRef, context: &Context) -> Result<(), Error> {
    let parsed = tree::parse(value).map_err(|broken| Error::usage(broken.message.clone()))?;
    let Some(node) = parsed.first() else { return Ok(()) };
    let faults = runtime_spec(node, Some(runtime), context).err().unwrap_or_default();
    let said: Vec<String> = faults
        .into_iter()
        .map(|fault| {
            let report = report(value, "", fault);
            report.suggestion.as_ref().map_or_else(|| report.message.clone(), |near| format!("{}, {near}", report.message))
        })
        .collect();
    if said.is_empty() { Ok(()) } else { Err(Error::usage(said.join("\n"))) }
}
