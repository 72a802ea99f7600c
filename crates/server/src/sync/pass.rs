//! One pass: what a revision declares becomes what is stored, whole or not at all.

use super::files::Declaration;
use crate::callers::Callers;
use crate::routes::ByVerb;
use hmz_api::launch::CallerContext;
use hmz_api::rest::{ApplyRequest, ApplyResult};
use hmz_api::{Error, ErrorKind};
use hmz_controllers::declare;
use hmz_store::Store;
use std::sync::Arc;

/// What became of it.
#[derive(Debug)]
pub(super) enum Outcome {
    /// All of it is declared now: what that changed.
    Applied(Vec<(String, &'static str)>),
    /// Nothing of it was done, for this reason; `waits` when that will pass by itself.
    Left {
        /// One CamelCase word.
        reason: &'static str,
        /// What is in its way.
        message: String,
        /// Whether it is only a matter of time.
        waits: bool,
    },
}

/// How it is applied.
pub(super) struct How<'a> {
    pub store: &'a Store,
    pub callers: &'a Arc<Callers>,
    pub caller: &'a CallerContext,
    pub set: &'a str,
    pub allow_empty: bool,
}

/// Applies what is declared, and deletes what the set has lost. `ready` is called when nothing is in its way, before anything
/// is done.
pub(super) async fn apply(how: &How<'_>, declared: &Declaration, ready: impl AsyncFnOnce() -> Result<(), Error>) -> Outcome {
    let request = ApplyRequest {
        resources: declared.resources.clone(),
        written: declared.written.clone(),
        caller: how.caller.clone(),
        attached: false,
        replace: false,
        set: Some(how.set.to_owned()),
        prune: true,
        allow_empty: how.allow_empty,
    };
    if request.resources.is_empty() && !how.allow_empty {
        let message = format!(
            "nothing is declared, so every member of the set '{}' would be deleted; if that is meant: --sync-allow-empty",
            how.set
        );
        return Outcome::Left { reason: "Empty", message, waits: false };
    }
    let refused = match declare::refusals(how.store, &request).await {
        Ok(refused) => refused,
        Err(e) => return failed(&e),
    };
    if !refused.is_empty() {
        // one that is going is gone in a while; whatever else is wrong stays so
        let waits = refused.iter().all(|(_, _, e)| e.kind == ErrorKind::Conflict);
        let lines: Vec<String> = refused.iter().map(|(kind, name, e)| line(kind, name, e)).collect();
        return Outcome::Left { reason: if waits { "Waiting" } else { "Refused" }, message: lines.join("\n"), waits };
    }
    if let Err(e) = ready().await {
        return failed(&e);
    }
    let results = match declare::apply(how.store, &ByVerb(Arc::clone(how.callers)), &request).await {
        Ok(results) => results,
        Err(e) => return failed(&e),
    };
    // somebody came in between
    let wrong: Vec<String> =
        results.iter().filter_map(|one| Some(line(&one.kind, &one.name, one.outcome.as_ref().err()?))).collect();
    if !wrong.is_empty() {
        return Outcome::Left { reason: "Failed", message: wrong.join("\n"), waits: true };
    }
    Outcome::Applied(results.iter().filter_map(changed).collect())
}

fn changed(one: &ApplyResult) -> Option<(String, &'static str)> {
    let applied = one.outcome.as_ref().ok().filter(|applied| applied.is_change())?;
    Some((shown(&one.kind, &one.name), applied.word()))
}

fn failed(e: &Error) -> Outcome {
    Outcome::Left { reason: "Failed", message: e.message.clone(), waits: true }
}

fn line(kind: &str, name: &str, e: &Error) -> String {
    // nobody applies this by hand: what is deleted is made again as it is declared
    let hints = e.hints.iter().filter(|hint| *hint != declare::ANEW);
    let hints: String = hints.map(|hint| format!("\n    {hint}")).collect();
    format!("{}: {}{hints}", shown(kind, name), e.message)
}

/// `env/box`.
fn shown(kind: &str, name: &str) -> String {
    let word = if kind == "Environment" { "env".to_owned() } else { kind.to_ascii_lowercase() };
    format!("{word}/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_done_of_a_set_that_is_kept_is_no_advice() {
        let refused = Error::refused("it has started").hint("delete it first: hmz delete run/r").hint(declare::ANEW);
        assert_eq!(line("Run", "r", &refused), "run/r: it has started\n    delete it first: hmz delete run/r");
    }
}
