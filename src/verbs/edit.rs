//! `hmz edit`: one resource in an editor, until it can be read; only then it is stored, as a whole.

use crate::cli;
use crate::client::Client;
use crate::verbs::editor::{self, keep, told, untold, write};
use crate::verbs::name;
use crate::{edge, show};
use hmz_api::rest::{Applied, Edit};
use hmz_api::{AnyResource, Error};
use hmz_manifest::settings::file::read_text;
use std::process::ExitCode;
use tempfile::NamedTempFile;

/// Runs it.
///
/// # Errors
/// When it is not there, the editor fails, it was changed meanwhile by somebody else, or it may not become that.
pub async fn run(client: Client, args: cli::Named) -> Result<ExitCode, Error> {
    let (kind, name) = name::one(&args.what, args.name.as_deref())?;
    let shown = name::shown(kind, &name);
    let found = client.get(kind, &name).await?;
    if found.metadata().uid.is_none() {
        return Err(Error::refused(format!("{shown} is not stored, but found on disk"))
            .hint(format!("hmz get {shown} -o yaml | hmz apply -f -")));
    }
    let old = declared(&found)?;
    let editor = editor::command();
    let copy = editor::copy(&shown.replace(['/', ':'], "-"))?;
    let (mut text, mut wrong) = (old.clone(), Vec::new());
    let edited = loop {
        write(copy.path(), &told(&text, &wrong))?;
        let status = editor::open(&editor, copy.path())?;
        if !status.success() {
            return kept(copy, &old, Error::failed(format!("'{editor}' ended with {status}; {shown} is as it was")));
        }
        let new = untold(&read_text(copy.path())?.unwrap_or_default());
        if new == old {
            show::print(&format!("{shown} unchanged\n"));
            return Ok(ExitCode::SUCCESS);
        }
        if !wrong.is_empty() && new == text {
            return kept(copy, &old, Error::failed(format!("what is wrong was not mended; {shown} is as it was")));
        }
        text = new;
        match hmz_manifest::read(&text, &shown, &show::context()?) {
            Ok(read) => match <[AnyResource; 1]>::try_from(read) {
                Ok([one]) => break one,
                Err(_) => {
                    return kept(copy, &old, Error::usage(format!("that is not one resource any more; {shown} is as it was")));
                }
            },
            Err(reports) => wrong = reports,
        }
        wrong.iter().for_each(|report| show::note("edit", &report.headline()));
    };
    let edit = Edit { whole: Some(edited), base: Some(found), caller: edge::caller(), ..Edit::default() };
    match client.edit(kind, &name, &edit).await {
        Ok(applied) => {
            show::print(&format!("{shown} {}\n", if applied == Applied::Unchanged { "unchanged" } else { "edited" }));
            Ok(ExitCode::SUCCESS)
        }
        Err(e) => kept(copy, &old, Error { message: format!("{shown}: {}", e.message), ..e }),
    }
}

/// What is declared of it.
fn declared(found: &AnyResource) -> Result<String, Error> {
    let mut one = found.clone();
    let metadata = one.metadata_mut();
    metadata.annotations.retain(|key, _| !key.starts_with("hmz/"));
    metadata.uid = None;
    metadata.generation = 0;
    metadata.resource_version = 0;
    metadata.creation_timestamp = None;
    metadata.finalizers.clear();
    match &mut one {
        AnyResource::Run(run) => run.status = Default::default(),
        AnyResource::Environment(environment) => environment.status = Default::default(),
        AnyResource::Runtime(runtime) => runtime.status = Default::default(),
        AnyResource::Flow(flow) => flow.status = Default::default(),
    }
    hmz_manifest::to_yaml(&one)
}

/// Nothing is stored; what was typed is kept, where anything was.
fn kept(copy: NamedTempFile, old: &str, error: Error) -> Result<ExitCode, Error> {
    let typed = read_text(copy.path()).ok().flatten().is_some_and(|text| untold(&text) != old);
    Err(if typed { error.hint(format!("your text is in {}", keep(copy).display())) } else { error })
}
