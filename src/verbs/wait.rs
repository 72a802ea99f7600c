//! `hmz wait`: until a condition holds for the generation that is declared, a field is so, or a resource is gone.

use crate::cli;
use crate::client::Client;
use crate::output::jsonpath::{self, Path};
use crate::show;
use crate::verbs::{delete, name};
use futures::StreamExt;
use hmz_api::kinds::{RestartPolicy, condition};
use hmz_api::rest::{SET_KIND, WatchLine};
use hmz_api::verdict::{self, Verdict};
use hmz_api::{AnyResource, Condition, ConditionStatus, Conditions, Error, ErrorKind, Span};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How many are looked at side by side: each is a connection of its own, here and in the daemon, and the files of a process are
/// limited, often to 1,024. As many may be about to be closed when the next ones are opened.
pub const TOGETHER: usize = 64;

/// What is waited for.
#[derive(Debug, Clone, PartialEq)]
pub enum Wish {
    /// A condition has a status.
    Condition {
        /// Which.
        name: String,
        /// The status.
        status: ConditionStatus,
    },
    /// A field has a value, or is there at all.
    Field {
        /// Where it is.
        path: Path,
        /// The same as it was typed.
        typed: String,
        /// What it is to be.
        value: Option<String>,
    },
}

impl std::fmt::Display for Wish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Condition { name, status } => write!(f, "{name} {status:?}"),
            Self::Field { typed, value: Some(value), .. } => write!(f, "{typed} to be '{value}'"),
            Self::Field { typed, value: None, .. } => write!(f, "{typed} to be there"),
        }
    }
}

/// How long it is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// At most so long; absent: as long as it takes.
    pub limit: Option<Duration>,
    /// The same as it was typed.
    pub typed: Option<Span>,
    /// Whether an environment that would only come to be by somebody's doing ends the wait.
    pub ends_when_hopeless: bool,
}

/// Runs it: for all of them at once, each said when it is so.
///
/// # Errors
/// The command line is wrong, or nothing is meant by it. What became of one is said as it comes: the time is up (it says what
/// it saw), it is not there or goes away, or a run that was waited for ended other than well.
pub async fn run(client: Client, args: cli::Wait) -> Result<ExitCode, Error> {
    let wish = if args.until == "delete" { None } else { Some(wish(&args.until)?) };
    let is_set = args.what.as_deref().is_some_and(|what| name::is_set(what.split('/').next().unwrap_or_default()));
    let wanted = if is_set { sets(&args)? } else { wanted(&client, &args).await? };
    if wanted.is_empty() && wish.is_some() {
        return Err(Error::not_found("nothing of that kind is there to be waited for"));
    }
    let (begun, wish) = (Instant::now(), wish.as_ref());
    let each = wanted.iter().map(|(kind, name)| {
        let client = &client;
        async move {
            let limit = args.timeout.duration().saturating_sub(begun.elapsed());
            let patience = Patience { limit: Some(limit), typed: Some(args.timeout), ends_when_hopeless: false };
            let done = match wish {
                Some(wish) if *kind == SET_KIND => until_set(client, name, wish, args.timeout).await,
                None if *kind == SET_KIND => Err(Error::usage("a set is gone when nothing is in it; wait for its members")),
                Some(wish) => until(client, kind, name, wish, patience).await,
                None => gone(client, kind, name, limit, args.timeout).await,
            };
            (name::shown(kind, name), done)
        }
    });
    let mut waiting = futures::stream::iter(each).buffer_unordered(TOGETHER);
    let mut worst = 0;
    while let Some((shown, done)) = waiting.next().await {
        match done {
            Ok(()) => show::print(&format!("{shown} {}\n", if wish.is_some() { "condition met" } else { "is gone" })),
            Err(e) => {
                worst = worst.max(e.exit_code());
                let named = e.message.starts_with(&shown) || e.message.contains(&format!(" {shown}"));
                show::error("wait", &if named { e } else { Error { message: format!("{shown}: {}", e.message), ..e } });
            }
        }
    }
    Ok(ExitCode::from(worst))
}

/// Which are meant: those that are named, each once, or those there are now.
async fn wanted(client: &Client, args: &cli::Wait) -> Result<Vec<(&'static str, String)>, Error> {
    let mut wanted = Vec::new();
    for resource in show::manifests(&args.files)? {
        wanted.push(name::declared(&resource)?);
    }
    let Some(what) = &args.what else { return Ok(wanted) };
    if args.all || args.which.is_said() {
        if what.contains('/') || !args.names.is_empty() {
            return Err(Error::usage("-l, --field-selector and --all are for one kind, without names"));
        }
        let kind = name::kind(what)?;
        let selection = args.which.selection(&[kind])?;
        let found = client.list(kind).await?;
        let meant = found.iter().filter(|one| selection.matches(one) && one.metadata().uid.is_some());
        return Ok(meant.map(|one| (kind, one.metadata().name.clone())).collect());
    }
    match what.contains('/') || args.names.is_empty() {
        true => {
            for typed in std::iter::once(what).chain(&args.names) {
                wanted.push(name::one(typed, None)?);
            }
        }
        false => {
            for typed in &args.names {
                wanted.push(name::one(what, Some(typed))?);
            }
        }
    }
    let mut seen = BTreeSet::new();
    wanted.retain(|one| seen.insert(one.clone()));
    Ok(wanted)
}

/// The sets that are named.
fn sets(args: &cli::Wait) -> Result<Vec<(&'static str, String)>, Error> {
    let what = args.what.as_deref().unwrap_or_default();
    let typed: Vec<(&str, Option<&str>)> = match what.contains('/') {
        true => std::iter::once(what).chain(args.names.iter().map(String::as_str)).map(|one| (one, None)).collect(),
        false => args.names.iter().map(|one| (what, Some(one.as_str()))).collect(),
    };
    let named = |(what, name): (&str, Option<&str>)| {
        let shown = name.map_or_else(|| what.to_owned(), |name| format!("{what} {name}"));
        name::set(what, name).ok_or_else(|| Error::usage(format!("'{shown}' names no set")).hint("write it as set/name"))
    };
    if typed.is_empty() || args.all || args.which.is_said() {
        return Err(Error::usage("sets are waited for by name, such as set/team"));
    }
    typed.into_iter().map(|one| Ok((SET_KIND, named(one)?))).collect()
}

/// Waits until a set is as wished. It may still be to come: a controller that keeps it has only just been started.
async fn until_set(client: &Client, name: &str, wish: &Wish, limit: Span) -> Result<(), Error> {
    let mut last = "there is no such set".to_owned();
    let looked = async {
        loop {
            if let Some(set) = client.sets(matches!(wish, Wish::Field { .. })).await?.into_iter().find(|set| set.name == name) {
                let (is, saw) = match wish {
                    Wish::Condition { name, status } => match called(&set.conditions, name) {
                        None => (false, none_such(&set.conditions)),
                        Some(c) => (c.status == *status, format!("{} is {:?} ({}{})", c.kind, c.status, c.reason, tail(c))),
                    },
                    Wish::Field { path, value, .. } => {
                        let document = serde_json::json!({"metadata": {"name": set.name}, "status": set});
                        let found: Vec<String> = path.find(&document).into_iter().map(jsonpath::text).collect();
                        let is = !found.is_empty() && value.as_ref().is_none_or(|value| found.iter().all(|one| one == value));
                        (is, if found.is_empty() { "there is none".to_owned() } else { format!("it is '{}'", found.join(" ")) })
                    }
                };
                if is {
                    return Ok(());
                }
                last = saw;
            }
            tokio::time::sleep(BETWEEN).await;
        }
    };
    match tokio::time::timeout(limit.duration(), looked).await {
        Ok(done) => done,
        Err(_) => Err(Error::failed(format!("set/{name}: wanted {wish} within {limit}, and {last}"))),
    }
}

/// How often a set is looked at: it is no resource, and is not watched.
const BETWEEN: Duration = Duration::from_millis(200);

/// Waits until it is gone, for what is left of the time that was typed.
///
/// # Errors
/// The time is up: it says what it saw.
pub async fn gone(client: &Client, kind: &str, name: &str, left: Duration, typed: Span) -> Result<(), Error> {
    if let Ok(done) = tokio::time::timeout(left, delete::gone(client, kind, name)).await {
        return done;
    }
    let shown = name::shown(kind, name);
    let saw = match client.get(kind, name).await {
        Ok(there) if there.metadata().is_deleting() => "what it started is still being ended".to_owned(),
        Ok(_) => "nobody has asked for its deletion".to_owned(),
        // it went when all the time had been waited for others
        Err(e) if e.kind == ErrorKind::NotFound => return Ok(()),
        Err(e) => e.message,
    };
    Err(Error::failed(format!("{shown} is still there after {typed}, and {saw}")))
}

/// Waits until a resource is as wished.
///
/// # Errors
/// As [`run`].
pub async fn until(client: &Client, kind: &str, name: &str, wish: &Wish, patience: Patience) -> Result<(), Error> {
    let shown = name::shown(kind, name);
    let see = |resource: &AnyResource| match look(resource, wish) {
        Look::Not(saw) => {
            let hopeless = patience.ends_when_hopeless.then(|| hopeless(resource)).flatten();
            hopeless.map_or(Look::Not(saw), |hopeless| Look::Is(Err(hopeless)))
        }
        is => is,
    };
    let mut last = None;
    let looked = async {
        let mut lines = Box::pin(client.watch(kind, Some(name)).await?);
        let mut seen = false;
        while let Some(line) = lines.next().await {
            match line? {
                WatchLine::Modified(resource) => {
                    seen = true;
                    match see(&resource) {
                        Look::Is(done) => return done,
                        Look::Not(saw) => last = Some(saw),
                    }
                }
                WatchLine::Deleted(_) => return Err(Error::failed(format!("{shown} was deleted"))),
                WatchLine::Bookmark if !seen => return Err(Error::not_found(format!("there is no {shown}"))),
                WatchLine::Bookmark => {}
            }
        }
        Err(Error::failed("the daemon ended"))
    };
    let Some(limit) = patience.limit else { return looked.await };
    match tokio::time::timeout(limit, looked).await {
        Ok(done) => done,
        Err(_) => {
            // where all the time was waited for others, it is looked at once
            if last.is_none()
                && let Ok(found) = tokio::time::timeout(ONE_LOOK, client.get(kind, name)).await
            {
                match see(&found?) {
                    Look::Is(done) => return done,
                    Look::Not(saw) => last = Some(saw),
                }
            }
            let last = last.as_deref().unwrap_or("nothing was seen of it");
            let limit = patience.typed.map_or_else(|| format!("{limit:?}"), |typed| typed.to_string());
            Err(Error::failed(format!("{shown}: wanted {wish} within {limit}, and {last}")))
        }
    }
}

/// How long one look may take.
const ONE_LOOK: Duration = Duration::from_secs(2);

/// What is seen of a wish.
enum Look {
    /// It is met, or never will be.
    Is(Result<(), Error>),
    /// Not yet: what was seen instead.
    Not(String),
}

fn look(resource: &AnyResource, wish: &Wish) -> Look {
    let generation = resource.metadata().generation;
    match wish {
        Wish::Condition { name, status } => {
            let Some(conditions) = resource.conditions() else {
                let shown = name::shown(resource.kind(), &resource.metadata().name);
                return Look::Is(Err(Error::usage(format!("{shown} has no conditions"))));
            };
            let mut last = none_such(conditions);
            let found = called(conditions, name);
            if let Some(found) = found {
                last = format!("{} is {:?} ({}{})", found.kind, found.status, found.reason, tail(found));
                if found.observed_generation < generation {
                    last.push_str(&stale(found.observed_generation, generation));
                } else if found.status == *status {
                    return Look::Is(ended(resource, found));
                }
            }
            never(resource, name, *status).map_or(Look::Not(last), |never| Look::Is(Err(never)))
        }
        Wish::Field { path, value, .. } => {
            let document = serde_json::to_value(resource).unwrap_or_default();
            let found: Vec<String> = path.find(&document).into_iter().map(jsonpath::text).collect();
            let mut last = match found.as_slice() {
                [] => "there is none".to_owned(),
                several => format!("it is '{}'", several.join(" ")),
            };
            // what is observed counts once what is declared was looked at, and of a box once no part of it is an earlier one's
            let all = resource.conditions().into_iter().flat_map(|all| &all.0).map(|c| c.observed_generation);
            let is_of_a_box = matches!(resource, AnyResource::Environment(_)) && !path.begins_with(&["status", "conditions"]);
            let observed = if is_of_a_box { all.min() } else { all.max() };
            let is_old = path.begins_with(&["status"]) && observed.is_some_and(|observed| observed < generation);
            if is_old {
                last.push_str(&stale(observed.unwrap_or_default(), generation));
                return Look::Not(last);
            }
            let is = match value {
                Some(value) => !found.is_empty() && found.iter().all(|found| found == value),
                None => !found.is_empty(),
            };
            if is { Look::Is(Ok(())) } else { Look::Not(last) }
        }
    }
}

/// The condition of a name, in whatever case it was typed.
fn called<'a>(conditions: &'a Conditions, name: &str) -> Option<&'a Condition> {
    conditions.0.iter().find(|condition| condition.kind.eq_ignore_ascii_case(name))
}

/// That there is none of that name, with those there are.
fn none_such(conditions: &Conditions) -> String {
    let all: Vec<&str> = conditions.0.iter().map(|condition| condition.kind.as_str()).collect();
    match all.as_slice() {
        [] => "it has no condition yet".into(),
        all => format!("it has no such condition, but {}", all.join(", ")),
    }
}

fn stale(observed: u64, declared: u64) -> String {
    format!(", as seen of generation {observed} while {declared} is declared")
}

/// A run that is complete is what was waited for, and how it ended is this verb's end too: whoever goes on after it goes on
/// after a success.
fn ended(resource: &AnyResource, found: &Condition) -> Result<(), Error> {
    let is_end =
        matches!(resource, AnyResource::Run(_)) && found.kind == condition::COMPLETE && found.status == ConditionStatus::True;
    match found.reason.as_str() {
        _ if !is_end => Ok(()),
        "Succeeded" | "BudgetExceeded" => Ok(()),
        "Refused" => Err(verdict::refusal(&found.message)),
        reason => Err(Error::failed(format!("run/{} has ended ({reason}{})", resource.metadata().name, tail(found)))),
    }
}

fn tail(condition: &Condition) -> String {
    if condition.message.is_empty() { String::new() } else { format!(": {}", condition.message) }
}

/// `condition=NAME[=STATUS]` or `jsonpath={PATH}[=VALUE]`.
fn wish(text: &str) -> Result<Wish, Error> {
    let wrong = || {
        Error::usage(format!("--for={text}: expected condition=NAME[=true|false|unknown], jsonpath={{PATH}}[=VALUE] or delete"))
    };
    if let Some(rest) = text.strip_prefix("jsonpath=") {
        // a filter has equal signs of its own
        let end = rest.rfind('}').map_or_else(|| rest.find('=').unwrap_or(rest.len()), |brace| brace + 1);
        let (path, value) = rest.split_at(end);
        let value = match value.strip_prefix('=') {
            Some(value) => Some(value.to_owned()),
            None if value.is_empty() => None,
            None => return Err(wrong()),
        };
        return Ok(Wish::Field { path: Path::read(path)?, typed: path.trim_matches(['{', '}']).to_owned(), value });
    }
    let rest = text.strip_prefix("condition=").filter(|r| !r.is_empty()).ok_or_else(wrong)?;
    let (name, status) = rest.split_once('=').unwrap_or((rest, "true"));
    let status = match status.to_ascii_lowercase().as_str() {
        "true" => ConditionStatus::True,
        "false" => ConditionStatus::False,
        "unknown" => ConditionStatus::Unknown,
        _ => return Err(wrong()),
    };
    Ok(Wish::Condition { name: name.to_owned(), status })
}

/// An ended run becomes nothing else any more, nor does an environment that was refused for good: waiting for it would be
/// waiting for ever.
fn never(resource: &AnyResource, wanted: &str, status: ConditionStatus) -> Option<Error> {
    let run = match resource {
        AnyResource::Run(run) => run,
        AnyResource::Environment(environment) if environment.is_refused() => return hopeless(resource),
        _ => return None,
    };
    let end = run.status.conditions.get(condition::COMPLETE).filter(|c| c.status == ConditionStatus::True)?;
    (!wanted.eq_ignore_ascii_case(condition::COMPLETE) || status != ConditionStatus::True)
        .then(|| Error::failed(format!("run/{} has ended ({}{})", run.metadata.name, end.reason, tail(end))))
}

/// Why an environment will not become ready by itself.
fn hopeless(resource: &AnyResource) -> Option<Error> {
    let AnyResource::Environment(environment) = resource else { return None };
    if let Some(Verdict::Refused(error)) = verdict::of(resource) {
        return Some(error);
    }
    let generation = environment.metadata.generation;
    let ready = environment.status.conditions.get(condition::READY).filter(|c| c.observed_generation >= generation)?;
    let is_over = environment.spec.restart == RestartPolicy::Never && condition::DEATHS.contains(&ready.reason.as_str());
    is_over.then(|| Error::failed(format!("it ended ({}{})", ready.reason, tail(ready))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::Resource;
    use hmz_api::kinds::{Environment, EnvironmentSpec};
    use jiff::Timestamp;

    #[test]
    fn a_condition_is_meant_in_any_case_and_a_slip_is_met_with_those_there_are() {
        let text = r#"{"apiVersion": "hmz/v1", "kind": "Run", "metadata": {"name": "r", "generation": 1}, "spec": {"flow": "boxed"},
            "status": {"conditions": [
                {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 1,
                    "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Complete", "status": "True", "reason": "Failed", "message": "no", "observedGeneration": 1,
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}"#;
        let run: AnyResource = serde_json::from_str(text).unwrap();
        let seen = |text: &str| match look(&run, &wish(text).unwrap()) {
            Look::Is(Ok(())) => "met".to_owned(),
            Look::Is(Err(e)) => e.message,
            Look::Not(saw) => saw,
        };
        assert_eq!(seen("condition=accepted"), "met");
        assert_eq!(seen("condition=COMPLETE"), "run/r has ended (Failed: no)");
        let AnyResource::Run(run) = &run else { unreachable!() };
        assert_eq!(none_such(&run.status.conditions), "it has no such condition, but Accepted, Complete");
        assert_eq!(none_such(&Conditions::default()), "it has no condition yet");
    }

    #[test]
    fn a_field_of_a_box_that_is_on_its_way_out_does_not_count() {
        let spec: EnvironmentSpec = serde_json::from_str(r#"{"runtime": "docker:here"}"#).unwrap();
        let mut env = Resource::<Environment>::new("box".to_owned(), spec);
        env.metadata.generation = 2;
        env.status.container_id = Some("old".into());
        let mut set = |kind: &str, status, reason: &str, generation| {
            env.status.conditions.set(kind, status, reason, "", generation, Timestamp::UNIX_EPOCH);
        };
        set(condition::SCHEDULED, ConditionStatus::True, "Held", 1);
        set(condition::CREATED, ConditionStatus::False, "Replacing", 2);
        set(condition::READY, ConditionStatus::False, "Replacing", 2);
        let mut any = AnyResource::Environment(Box::new(env));
        let is = |any: &AnyResource, text: &str| match look(any, &wish(text).unwrap()) {
            Look::Is(done) => done.is_ok(),
            Look::Not(_) => false,
        };
        assert!(!is(&any, "jsonpath={.status.container_id}"));
        // a condition says itself of which generation it is
        assert!(is(&any, "jsonpath={.status.conditions[?(@.type==\"Ready\")].reason}=Replacing"));
        assert!(is(&any, "jsonpath={.spec.runtime}=docker:here"));
        let AnyResource::Environment(env) = &mut any else { unreachable!() };
        env.status.conditions.set(condition::SCHEDULED, ConditionStatus::True, "Held", "", 2, Timestamp::UNIX_EPOCH);
        assert!(is(&any, "jsonpath={.status.container_id}"));
    }
}
