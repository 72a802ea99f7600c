//! `GET /v1/settings`: settings.yaml as it is now, and what became of it; watched, each time that changes.

use super::{Api, Failure, watch};
use crate::metrics::Told;
use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use hmz_api::condition::ConditionStatus::{self, False, True, Unknown};
use hmz_api::kinds::RuntimeSource;
use hmz_api::kinds::condition::{LISTENING, SAVED, SETTINGS_VALID};
use hmz_api::rest::{SettingsAnswer, SettingsLine};
use hmz_api::{Error, ErrorKind, Kind, Resource, Runtime};
use hmz_manifest::settings::{Loaded, glance};
use serde::Deserialize;

/// What may be asked.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    /// Whether what changes follows.
    #[serde(default)]
    watch: bool,
}

/// What is made of it; with `watch=true` a stream of lines, each the whole.
pub(crate) async fn settings(State(api): State<Api>, Query(asked): Query<Asked>) -> Result<Response, Failure> {
    if !asked.watch {
        return Ok(Json(answer(&api).await?).into_response());
    }
    // both are followed before the first look, so that nothing falls between that and the first change
    let mut file = api.world.settings.clone();
    file.mark_unchanged();
    let stored = api.store.watch(Some(Runtime::KIND), None)?;
    let first = answer(&api).await?;
    let told = api.told.clone();
    let state = (api, file, stored, told, first.clone());
    let later = futures::stream::unfold(state, |(api, mut file, mut stored, mut told, last)| async move {
        loop {
            tokio::select! {
                changed = file.changed() => changed.ok()?,
                change = stored.next() => change?.map(drop).ok()?,
                changed = told.changed() => changed.ok()?,
            }
            let now = answer(&api).await.ok()?;
            if now != last {
                return Some((now.clone(), (api, file, stored, told, now)));
            }
        }
    });
    Ok(watch::stream(futures::stream::iter([first]).chain(later)))
}

/// The file is read anew: nobody who has just saved it is told of the time before.
async fn answer(api: &Api) -> Result<SettingsAnswer, Failure> {
    let file = api.settings.clone();
    let path = file.path.display().to_string();
    let read = tokio::task::spawn_blocking(move || glance(&file.path, file.context)).await;
    let loaded = read.map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
    let stored = api.store.list::<Runtime>().await?;
    let mut conditions = lines(&loaded, &stored);
    conditions.extend(metrics(&loaded, &api.told.borrow()));
    Ok(SettingsAnswer { path, conditions })
}

fn line(name: &str, kind: &str, status: ConditionStatus, reason: &str, message: String) -> SettingsLine {
    SettingsLine { name: name.to_owned(), kind: kind.to_owned(), status, reason: reason.to_owned(), message }
}

fn lines(loaded: &Loaded, stored: &[Resource<Runtime>]) -> Vec<SettingsLine> {
    let faults: Vec<String> =
        loaded.problem.iter().chain(&loaded.settings.problems).map(hmz_manifest::Report::headline).collect();
    let (status, reason) = match &loaded.problem {
        Some(_) => (False, "Unreadable"),
        None if loaded.settings.reports().next().is_some() => (False, "Faults"),
        None => (True, "Read"),
    };
    let mut all = vec![line("settings.yaml", SETTINGS_VALID, status, reason, faults.join("; "))];
    for (runtime, entry) in &loaded.settings.runtimes {
        let name = runtime.resource_name();
        all.push(match entry {
            Ok(_) => line(&name, SETTINGS_VALID, True, "Read", String::new()),
            Err(report) => line(&name, SETTINGS_VALID, False, "Unreadable", report.headline()),
        });
    }
    for runtime in stored.iter().filter(|r| r.status.source == RuntimeSource::Settings) {
        let saved = runtime.status.conditions.get(SAVED).filter(|c| c.status == False);
        if loaded.problem.is_some() {
            let why = "as it was when the file could be read last".to_owned();
            all.push(line(runtime.name(), SETTINGS_VALID, Unknown, "Kept", why));
        } else if let Some(saved) = saved.filter(|_| !all.iter().any(|line| line.name == runtime.name())) {
            all.push(line(runtime.name(), SAVED, False, &saved.reason, saved.message.clone()));
        }
    }
    all
}

/// What it says of metrics, and what became of that.
fn metrics(loaded: &Loaded, told: &Told) -> Vec<SettingsLine> {
    const NAME: &str = "metrics";
    let mut all = Vec::new();
    match &loaded.settings.metrics {
        Some(Ok(_)) => all.push(line(NAME, SETTINGS_VALID, True, "Read", String::new())),
        Some(Err(report)) => all.push(line(NAME, SETTINGS_VALID, False, "Unreadable", report.headline())),
        None if loaded.problem.is_some() && *told != Told::Nowhere => {
            all.push(line(NAME, SETTINGS_VALID, Unknown, "Kept", "as it was when the file could be read last".to_owned()));
        }
        None => return all,
    }
    let (status, reason, message) = match told {
        Told::At(address) => (True, "Bound", format!("http://{address}/metrics")),
        Told::Not(why) => (False, "NotBound", why.clone()),
        Told::Overruled(said) => (False, "Overruled", format!("--metrics or HMZ_METRICS said {said}, which holds")),
        Told::Nowhere => return all,
    };
    all.push(line(NAME, LISTENING, status, reason, message));
    all
}
