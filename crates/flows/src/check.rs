//! What can be refused of a run before anything of it starts.

use crate::template::{self, Names};
use hmz_agents::of_cli;
use hmz_api::Error;
use hmz_api::grammar::AgentSpec;
use hmz_api::kinds::{BoxedAgent, Command, FlowSpec, RunParams, Step};
use hmz_api::launch::CallerContext;
use hmz_manifest::template::Known;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Whether the roles of a flow are given exactly what they need: an agent for every agent role, a place for every
/// environment role, and none besides. `places` are the environment roles that were given one.
///
/// # Errors
/// A refusal that names the role.
pub fn roles<'a>(
    name: &str,
    flow: &FlowSpec,
    agents: &BTreeMap<String, AgentSpec>,
    places: impl IntoIterator<Item = &'a str>,
) -> Result<(), Error> {
    let places: Vec<&str> = places.into_iter().collect();
    if let Some(role) = flow.agents.keys().find(|role| !agents.contains_key(*role)) {
        return Err(Error::refused(format!("{name} needs an agent for '{role}'; specify each with -a ROLE=CLI/MODEL:EFFORT"))
            .hint(format!("-a {role}=claude/claude-haiku-4-5:low")));
    }
    if let Some(role) = agents.keys().find(|role| !flow.agents.contains_key(*role)) {
        return Err(Error::refused(format!(
            "{name} has no agent role '{role}'; available roles are {}",
            quoted(flow.agents.keys())
        )));
    }
    if let Some(role) = flow.environments.keys().find(|role| !places.contains(&role.as_str())) {
        let message = format!("{name} needs an environment for '{role}'; specify each with -e ROLE=BACKEND[@PROVIDER]/WORKDIR");
        return Err(Error::refused(message).hint(format!("-e {role}=docker@here$PWD")));
    }
    if let Some(role) = places.iter().find(|role| !flow.environments.contains_key(**role)) {
        let available = quoted(flow.environments.keys());
        return Err(Error::refused(format!("{name} has no environment role '{role}'; available roles are {available}")));
    }
    Ok(())
}

/// Whether the steps of a flow hold together. Starts nothing.
///
/// # Errors
/// A refusal.
pub fn check(name: &str, flow: &FlowSpec, task: &str, params: &RunParams) -> Result<(), Error> {
    if flow.steps.is_empty() {
        return Err(Error::refused(format!("{name} has no steps")));
    }
    let given = template::params(flow, &params.own);
    let names = Names { task, params: &given, steps: BTreeMap::new(), last: None };
    let declared: Vec<&str> = flow.params.keys().map(String::as_str).collect();
    let mut ids: Vec<&str> = Vec::new();
    for (n, step) in flow.steps.iter().enumerate() {
        let refuse = |what: String| Err(Error::refused(format!("{name}: step {}: {what}", n + 1)));
        let (environment, texts, id) = match step {
            Step::Turn { agent, environment, prompt, id } => {
                if !flow.agents.contains_key(agent) {
                    return refuse(format!("'{agent}' is not one of its agent roles: {}", quoted(flow.agents.keys())));
                }
                (environment, vec![prompt.as_str()], id)
            }
            Step::Exec { environment, command, id, .. } => {
                let texts = match command {
                    Command::Shell(text) => vec![text.as_str()],
                    Command::Words(words) => words.iter().map(String::as_str).collect(),
                };
                (environment, texts, id)
            }
        };
        if !flow.environments.contains_key(environment) {
            return refuse(format!("'{environment}' is not one of its environment roles: {}", quoted(flow.environments.keys())));
        }
        for text in texts {
            if let Err(what) = template::check(text, Known { params: &declared, steps: &ids }, n == 0, &names) {
                return refuse(what);
            }
        }
        ids.extend(id.as_deref());
    }
    Ok(())
}

/// Whether each agent can do as it is told, and those whose roles are in `here` are installed here. Starts nothing.
///
/// # Errors
/// A refusal.
pub fn check_agents(
    agents: &BTreeMap<String, AgentSpec>,
    caller: &CallerContext,
    here: &BTreeSet<String>,
    exe: &Path,
) -> Result<(), Error> {
    for (role, spec) in agents {
        let about = |e: Error| Error { message: format!("{role}={spec}: {}", e.message), ..e };
        let agent = of_cli(&spec.cli, exe).map_err(about)?;
        // what is not installed is said in words of its own, which can be pasted
        if here.contains(role) {
            agent.check(caller)?;
        }
        agent.accepts(spec, caller).map_err(about)?;
    }
    Ok(())
}

/// Whether the CLI of one agent is installed here.
///
/// # Errors
/// A refusal, with the line that installs it.
pub fn is_here(agent: &AgentSpec, caller: &CallerContext, exe: &Path) -> Result<(), Error> {
    of_cli(&agent.cli, exe)?.check(caller).map(drop)
}

/// What a box needs of an agent to run its CLI there; `None` when every box has it, or nobody knows the agent.
pub fn boxed(agent: &AgentSpec, exe: &Path) -> Option<BoxedAgent> {
    let program = of_cli(&agent.cli, exe).ok()?.boxed_program()?;
    Some(BoxedAgent { cli: agent.cli.clone(), program: program.name.to_owned(), install: program.install.to_owned() })
}

fn quoted<'a>(roles: impl Iterator<Item = &'a String>) -> String {
    let roles: Vec<String> = roles.map(|role| format!("'{role}'")).collect();
    if roles.is_empty() { "none".to_owned() } else { roles.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxed() -> FlowSpec {
        crate::find("boxed", Path::new("/nonexistent"), Path::new("/nonexistent")).unwrap().spec
    }

    fn agents(text: &str) -> BTreeMap<String, AgentSpec> {
        text.split(',')
            .filter(|t| !t.is_empty())
            .map(|t| t.split_once('=').unwrap())
            .map(|(r, s)| (r.into(), s.parse().unwrap()))
            .collect()
    }

    #[test]
    fn roles_are_given_what_they_need_and_nothing_else() {
        let say = |a: &str, e: &[&str]| roles("boxed", &boxed(), &agents(a), e.iter().copied()).map_err(|e| e.message);
        assert_eq!(say("coder=claude/m", &["box"]), Ok(()));
        insta::assert_debug_snapshot!([
            say("", &["box"]),
            say("coder=claude/m,other=claude/m", &["box"]),
            say("coder=claude/m", &[]),
            say("coder=claude/m", &["box", "bax"]),
        ]);
    }

    #[test]
    fn what_cannot_work_is_refused_before_anything_starts() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("s.yaml"), "- say: hi\n").unwrap();
        let caller = CallerContext {
            cwd: dir.path().to_string_lossy().into_owned(),
            env: [("PATH".to_owned(), "/nonexistent".to_owned())].into(),
            ..CallerContext::default()
        };
        let say = |flow: &FlowSpec, a: &str| {
            let (agents, here) = (agents(a), agents(a).into_keys().collect());
            check("boxed", flow, "task", &RunParams::default())
                .and_then(|()| check_agents(&agents, &caller, &here, Path::new("/hmz")))
                .map_err(|e| e.message.replace(&caller.cwd, "DIR"))
        };
        assert_eq!(say(&boxed(), "coder=script/s.yaml"), Ok(()));
        // one that runs in its box need not be here
        let elsewhere = check_agents(&agents("coder=claude/m"), &caller, &BTreeSet::new(), Path::new("/hmz"));
        assert_eq!(elsewhere.map_err(|e| e.message), Ok(()));
        let mut other = boxed();
        other.steps.push(Step::Exec {
            environment: "bax".into(),
            command: Command::Shell("ls".into()),
            id: None,
            allow_failure: false,
        });
        let mut misspelt = boxed();
        misspelt.steps.push(Step::Exec {
            environment: "box".into(),
            command: Command::Words(vec!["echo".into(), "{{ steps.tset }}".into()]),
            id: None,
            allow_failure: false,
        });
        insta::assert_debug_snapshot!([
            say(&boxed(), "coder=claude/m"),
            say(&boxed(), "coder=script/none.yaml"),
            say(&boxed(), "coder=codex/m"),
            say(&other, "coder=script/s.yaml"),
            say(&misspelt, "coder=script/s.yaml"),
        ]);
    }
}
