//! Leaving a run whose teardown waits for a docker daemon that does not answer: what is left behind is said, and who goes
//! on with it.

use crate::client::Client;
use crate::edge;
use hmz_api::kinds::{Endpoint, Runtime};
use hmz_api::{AnyResource, Environment, Error, Kind, Resource, Run, RuntimeRef};
use hmz_drivers::docker;
use std::time::Duration;

/// How long a teardown may take until its daemons are asked whether they answer, and how long they may take to.
const PATIENCE: Duration = Duration::from_secs(1);

/// What may be left of a run on one daemon.
struct Part {
    runtime: RuntimeRef,
    endpoint: String,
    /// The environment, when there is one already.
    environment: Option<Resource<Environment>>,
}

/// Returns when a daemon that a part of the run is on does not answer, with what is to be said then. While all answer it does
/// not return: what is taken down is waited for.
pub async fn when_nobody_answers(client: Client, run: String) -> Error {
    loop {
        tokio::time::sleep(PATIENCE).await;
        for part in parts(&client, &run).await.unwrap_or_default() {
            if !docker::answers(&part.endpoint, PATIENCE).await {
                return left(&part, &run);
            }
        }
    }
}

/// What is said of a part whose daemon does not answer.
fn left(part: &Part, run: &str) -> Error {
    let what = match &part.environment {
        Some(environment) => {
            let container = environment.status.container_name.as_ref().map(|name| format!(" (container {name})"));
            format!("env/{}{} may be left behind", environment.name(), container.unwrap_or_default())
        }
        None => "what was begun there may be left behind".to_owned(),
    };
    let why = format!("{} does not answer at {}", part.runtime.at(), part.endpoint);
    Error::failed(format!("{why}: {what}; hmz's daemon goes on taking run/{run} down as soon as it does"))
        .hint(format!("hmz describe run/{run}"))
        .hint(format!("hmz delete --abandon run/{run}   # when it is gone for good"))
}

async fn parts(client: &Client, run: &str) -> Result<Vec<Part>, Error> {
    let run = client.get_as::<Run>(run).await?;
    let mut parts = Vec::new();
    for found in client.list(Environment::KIND).await? {
        let AnyResource::Environment(environment) = found else { continue };
        let owned = environment.metadata.owner_references.iter().any(|owner| Some(owner.uid) == run.metadata.uid);
        if let (true, Some(endpoint)) = (owned, environment.status.endpoint.clone()) {
            let runtime = environment.status.used.clone().unwrap_or_else(|| environment.spec.runtime.clone());
            parts.push(Part { runtime, endpoint, environment: Some(*environment) });
        }
    }
    if parts.is_empty() && !run.status.is_complete() {
        for request in run.spec.environments.values() {
            let runtime = request.place().runtime;
            let saved = client.get_as::<Runtime>(&runtime.resource_name()).await?.spec.endpoint;
            let endpoint = match saved {
                Endpoint::Local => edge::caller().docker_endpoint,
                Endpoint::Unix(path) => Some(format!("unix://{path}")),
                _ => None,
            };
            parts.extend(endpoint.map(|endpoint| Part { runtime, endpoint, environment: None }));
        }
    }
    Ok(parts)
}
