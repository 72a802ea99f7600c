//! `hmz runtime`: runtimes saved, asked, removed and imported, in this process: no daemon of ours is started for it, and one
//! that runs sees by itself what changed.

mod add;
mod import;

use crate::cli::{Check, CheckOutput, Remove, Runtime, RuntimeAction};
use crate::client::Client;
use crate::output::checked;
use crate::{edge, show};
use hmz_api::rest::{CheckState, Checked};
use hmz_api::{AnyResource, Error, ErrorKind, RuntimeRef};
use hmz_server::{Paths, SavedRuntimes};
use std::process::ExitCode;

/// What every action works on.
struct Place {
    paths: Paths,
    saved: SavedRuntimes,
}

/// Runs it.
pub fn run(args: Runtime) -> ExitCode {
    let verb = match &args.action {
        RuntimeAction::Add(_) => "runtime add",
        RuntimeAction::Check(_) => "runtime check",
        RuntimeAction::Remove(_) => "runtime remove",
        RuntimeAction::ImportSsh(_) => "runtime import-ssh",
    };
    let done = edge::paths().and_then(|paths| {
        let saved = SavedRuntimes::new(&paths, &edge::environment());
        let place = Place { paths, saved };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| edge::io("could not start", &e))?;
        runtime.block_on(async {
            match args.action {
                RuntimeAction::Add(args) => add::run(&place, *args).await,
                RuntimeAction::Check(args) => check(&place, &args).await,
                RuntimeAction::Remove(args) => remove(&place, &args).await,
                RuntimeAction::ImportSsh(args) => import::run(&place, args).await,
            }
        })
    });
    done.unwrap_or_else(|e| edge::fail(verb, &e))
}

async fn check(place: &Place, args: &Check) -> Result<ExitCode, Error> {
    let runtime = place.saved.named(&args.name)?;
    let checked = match place.saved.check(&runtime, None).await? {
        Some(checked) => checked,
        None => declared(place, &runtime).await?,
    };
    if checked.state == CheckState::NotAsked && args.output.is_none() {
        return Err(Error::refused(format!("{} cannot be asked: {}", checked.runtime.path(), checked.why)));
    }
    tell(&checked, args.output)?;
    Ok(code(&checked))
}

/// Of a runtime that settings.yaml does not name a manifest may have: only the daemon knows.
async fn declared(place: &Place, runtime: &RuntimeRef) -> Result<Checked, Error> {
    let client = Client::new(place.paths.clone());
    match client.get_as::<hmz_api::Runtime>(&runtime.resource_name()).await {
        Ok(found) => Ok(place.saved.check_as(runtime, &found.spec, None).await),
        Err(e) if e.kind == ErrorKind::NotFound => {
            let name = runtime.name.as_deref().unwrap_or_default();
            let near = e.message.split_once("; did you mean").map(|(_, near)| format!("; did you mean{near}"));
            Err(Error::not_found(format!("no {} runtime is saved as '{name}'{}", runtime.backend, near.unwrap_or_default()))
                .hint(format!("hmz runtime add {} {name}", runtime.backend)))
        }
        Err(e) => Err(e),
    }
}

fn tell(checked: &Checked, output: Option<CheckOutput>) -> Result<(), Error> {
    show::print(&match output {
        Some(CheckOutput::Json) => show::json_line(checked)?,
        None => checked::lines(checked, show::stdout_style()),
    });
    Ok(())
}

fn code(checked: &Checked) -> ExitCode {
    ExitCode::from(match checked.state {
        CheckState::Answers => 0,
        CheckState::Lacks | CheckState::NoAnswer => 1,
        CheckState::NotAsked => 2,
    })
}

async fn remove(place: &Place, args: &Remove) -> Result<ExitCode, Error> {
    let removed = place.saved.remove(&place.saved.named(&args.name)?).await?;
    show::print(&format!("{} removed from {}\n", removed.runtime.path(), removed.path));
    for sentence in &removed.dangling {
        show::note("runtime remove", sentence);
    }
    let users = users(place, &removed.runtime).await;
    if !users.is_empty() {
        let path = removed.runtime.path();
        show::note("runtime remove", &format!("{path} takes nothing new and goes with what is on it: {}", users.join(", ")));
    }
    Ok(ExitCode::SUCCESS)
}

/// The environments on a runtime, as far as a daemon runs that knows of any: without one nothing was asked of it for a while,
/// and what it left is found when the next one starts.
async fn users(place: &Place, runtime: &RuntimeRef) -> Vec<String> {
    let listed = Client::new(place.paths.clone()).list_of_running("Environment").await.unwrap_or_default();
    let on = listed.iter().filter_map(|found| match found {
        AnyResource::Environment(e) if e.status.used.as_ref() == Some(runtime) && e.status.container_id.is_some() => {
            Some(format!("env/{}", e.name()))
        }
        _ => None,
    });
    on.collect()
}
