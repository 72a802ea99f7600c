//! From the words of `hmz exec` to a Run.

use crate::cli;
use crate::client::Client;
use crate::edge;
use hmz_api::grammar::{AgentArg, AgentSpec, EnvArg, ParamArg};
use hmz_api::kinds::{Admission, EnvironmentRequest, FlowSpec, RunSpec};
use hmz_api::{Error, Resource, Run, Span};
use std::collections::BTreeMap;
use std::path::Path;

/// How long a run that `exec` made is listed after its end.
const LISTED: Span = Span::from_secs(24 * 3600);

/// The run that the arguments ask for.
///
/// # Errors
/// When the words are wrong, or the flow is not there.
pub async fn run(client: &Client, args: &cli::Exec) -> Result<Resource<Run>, Error> {
    let flow = client.flow(&args.flow).await?;
    let agents = agents(&args.flow, &flow.spec, &args.agent)?;
    let environments = environments(&args.env)?;
    let mut params = Vec::new();
    for value in &args.param {
        params.extend(ParamArg::parse_all(value)?);
    }
    let mut run = Resource::<Run>::new(
        "",
        RunSpec {
            flow: args.flow.clone(),
            task: args.task.clone(),
            agents,
            environments,
            params: ParamArg::collect(&params)?,
            admission: Some(Admission::Refuse),
            wait_for: None,
            ttl_after_finish: Some(LISTED),
        },
    );
    run.metadata.generate_name = Some(format!("{}-", prefix(&args.flow)));
    Ok(run)
}

/// What a run's generated name begins with: the flow's name as far as a resource's name allows.
fn prefix(flow: &str) -> String {
    let text: String =
        flow.to_ascii_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    let text = text.trim_matches('-').to_owned();
    if text.is_empty() { "run".into() } else { text }
}

fn agents(name: &str, flow: &FlowSpec, values: &[String]) -> Result<BTreeMap<String, AgentSpec>, Error> {
    let mut given = Vec::new();
    for value in values {
        given.extend(AgentArg::parse_all(value)?);
    }
    let mut found: BTreeMap<String, AgentSpec> = BTreeMap::new();
    let mut positional = Vec::new();
    for arg in given {
        match arg.role {
            None => positional.push(arg.spec),
            Some(role) => {
                if found.insert(role.clone(), arg.spec).is_some() {
                    return Err(Error::usage(format!("-a: the role '{role}' is given twice")));
                }
            }
        }
    }
    for spec in positional {
        let free = flow
            .agents
            .keys()
            .find(|role| !found.contains_key(*role))
            .cloned()
            .ok_or_else(|| Error::usage(format!("-a '{spec}': every agent role of {name} has an agent already")))?;
        found.insert(free, spec);
    }
    for spec in found.values_mut() {
        if spec.cli == "script" {
            spec.model = absolute(&spec.model)?;
        }
    }
    Ok(found)
}

fn environments(values: &[String]) -> Result<BTreeMap<String, EnvironmentRequest>, Error> {
    let mut found = BTreeMap::new();
    for value in values {
        for mut arg in EnvArg::parse_all(value)? {
            if let Some(dir) = &arg.spec.workdir
                && !dir.starts_with('/')
            {
                if climbs(dir) {
                    let why = format!("-e '{}={}': {dir} climbs out of the home directory it is under", arg.role, arg.spec);
                    return Err(Error::usage(why));
                }
                arg.spec.workdir = Some(absolute(dir)?);
            }
            if found.insert(arg.role.clone(), EnvironmentRequest::Text(arg.spec)).is_some() {
                return Err(Error::usage(format!("-e: the role '{}' is given twice", arg.role)));
            }
        }
    }
    Ok(found)
}

/// Whether a path below `~` leaves it, by its words alone.
fn climbs(dir: &str) -> bool {
    let mut depth = 0_i32;
    dir.split('/').skip(1).any(|part| {
        depth += match part {
            "" | "." => 0,
            ".." => -1,
            _ => 1,
        };
        depth < 0
    })
}

/// A path as the caller means it: `~` is HOME, anything relative is below the current directory.
fn absolute(text: &str) -> Result<String, Error> {
    let path = match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            let home = edge::environment().remove("HOME").ok_or_else(|| Error::usage(format!("'{text}': HOME is not set")))?;
            format!("{home}{rest}")
        }
        _ => text.to_owned(),
    };
    let path = std::path::absolute(Path::new(&path)).map_err(|e| edge::io(text, &e))?;
    path.into_os_string().into_string().map_err(|_| Error::usage(format!("'{text}' is not UTF-8")))
}
