//! What an apply does to one resource, from what is there and what is asked. Pure.

use super::merge::{asked, merge};
use hmz_api::kinds::{Admission, RuntimeSource, annotation, label};
use hmz_api::{AnyResource, Error, ErrorKind, Metadata, RuntimeRef, name};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What somebody who applies by hand may do of a run that has started.
pub const ANEW: &str = "or have it ended and begun anew with hmz apply --replace";
/// Labels and annotations that begin so are ours: no manifest sets them.
pub(super) const OURS: &str = "hmz/";

/// How it is applied.
#[derive(Debug, Clone, Copy, Default)]
pub struct How<'a> {
    /// Whether it becomes what is asked in all, whoever set the rest; a run that has started is begun anew for it.
    pub replace: bool,
    /// The set it is a member of from now on.
    pub set: Option<&'a str>,
    /// Whether a run belongs to the verb that applies it.
    pub attached: bool,
    /// The directory of whoever applies it.
    pub cwd: &'a str,
    /// The trace of whoever applies it.
    pub trace: Option<&'a str>,
}

/// What is asked for: the resource with a name as it is stored, and its spec as far as the manifest writes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The resource, without anything that only we write.
    pub resource: AnyResource,
    /// Its labels, annotations and spec, as they are merged and remembered.
    fields: Value,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// It is made.
    Create(AnyResource),
    /// It is changed to this.
    Change(AnyResource),
    /// It is as asked; what was applied last is remembered anew.
    Note(AnyResource),
    /// It is as asked.
    Nothing,
    /// It is removed with all it started, and made again.
    Anew(AnyResource),
}

impl Asked {
    /// Checks what the types cannot, and fills in what an apply means. `written` is the spec as the manifest has it, where
    /// that is known.
    ///
    /// # Errors
    /// A usage error: it has no name, or not one that can be.
    pub fn of(declared: &AnyResource, written: Option<&Value>) -> Result<Self, Error> {
        let mut resource = declared.clone();
        let metadata = declared.metadata();
        let mut name = metadata.name.clone();
        match (name.as_str(), &metadata.generate_name) {
            ("", None) => return Err(Error::usage("metadata has neither name nor generateName")),
            ("", Some(prefix)) => name::check(prefix.trim_end_matches('-'))?,
            _ if matches!(declared, AnyResource::Runtime(_)) => name = name.parse::<RuntimeRef>()?.resource_name(),
            _ => name::check(&name)?,
        }
        let theirs = |map: &BTreeMap<String, String>| -> BTreeMap<String, String> {
            map.iter().filter(|(key, _)| !key.starts_with(OURS)).map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        *resource.metadata_mut() = Metadata {
            name,
            generate_name: metadata.generate_name.clone(),
            labels: theirs(&metadata.labels),
            annotations: theirs(&metadata.annotations),
            ..Metadata::default()
        };
        let read = spec(&resource)?;
        let fields = json!({
            "labels": resource.metadata().labels,
            "annotations": resource.metadata().annotations,
            "spec": written.map_or_else(|| read.clone(), |written| asked(&read, written)),
        });
        match &mut resource {
            AnyResource::Run(run) => {
                run.status = Default::default();
                run.spec.admission.get_or_insert(Admission::Wait);
            }
            AnyResource::Environment(environment) => environment.status = Default::default(),
            AnyResource::Runtime(runtime) => runtime.status = Default::default(),
            AnyResource::Flow(flow) => flow.status = Default::default(),
        }
        Ok(Self { resource, fields })
    }

    /// The kind and name.
    pub fn key(&self) -> (&'static str, &str) {
        (self.resource.kind(), &self.resource.metadata().name)
    }

    fn remembered(&self) -> String {
        self.fields.to_string()
    }

    /// As it is made when there is none.
    fn made(&self, how: &How<'_>) -> AnyResource {
        let mut new = self.resource.clone();
        let metadata = new.metadata_mut();
        metadata.annotations.insert(annotation::LAST_APPLIED.into(), self.remembered());
        if let Some(set) = how.set {
            metadata.labels.insert(label::SET.into(), set.into());
        }
        if let (AnyResource::Run(_) | AnyResource::Environment(_), Some(trace)) = (&new, how.trace) {
            new.metadata_mut().annotations.insert(annotation::TRACE.into(), trace.into());
        }
        if let AnyResource::Run(run) = &mut new {
            run.metadata.annotations.insert(annotation::CWD.into(), how.cwd.into());
            if how.attached {
                run.metadata.annotations.insert(annotation::ATTACHED.into(), "true".into());
            }
        }
        new
    }
}

/// What is to be done so that what is there, if anything, is as asked.
///
/// # Errors
/// A refusal: it is somebody else's, it is going, or it is a run that has started.
pub fn decide(current: Option<&AnyResource>, asked: &Asked, how: &How<'_>) -> Result<Decision, Error> {
    let Some(current) = current else { return Ok(Decision::Create(asked.made(how))) };
    let shown = format!("{}/{}", current.kind().to_ascii_lowercase(), current.metadata().name);
    if current.metadata().is_deleting() {
        return Err(Error::new(ErrorKind::Conflict, "it is being deleted").hint(format!("hmz wait --for=delete {shown}")));
    }
    is_free(current, how)?;
    let next = next(current, asked, how)?;
    if next == *current {
        return Ok(Decision::Nothing);
    }
    if spec(&next)? != spec(current)?
        && let AnyResource::Run(run) = current
        && !run.status.conditions.0.is_empty()
    {
        if how.replace {
            return Ok(Decision::Anew(asked.made(how)));
        }
        return Err(Error::refused("it has started, so what it does cannot be changed")
            .hint(format!("delete it first: hmz delete {shown}"))
            .hint(ANEW)
            .hint("or give the new one a name of its own"));
    }
    let seen = |resource: &AnyResource| {
        let mut seen = resource.clone();
        seen.metadata_mut().annotations.remove(annotation::LAST_APPLIED);
        seen
    };
    if seen(&next) == seen(current) {
        return Ok(Decision::Note(next));
    }
    let mut next = next;
    if let AnyResource::Run(run) = &mut next {
        run.metadata.annotations.insert(annotation::CWD.into(), how.cwd.into());
    }
    Ok(Decision::Change(next))
}

/// A resource with the spec that somebody has edited into another.
///
/// # Errors
/// A refusal, as [`decide`] has it.
pub(super) fn may_become(current: &AnyResource, edited: &AnyResource) -> Result<AnyResource, Error> {
    let next = with_spec(current, spec(edited)?)?;
    if spec(&next)? == spec(current)? {
        return Ok(next);
    }
    is_free(current, &How::default())?;
    if current.metadata().is_deleting() {
        return Err(Error::new(ErrorKind::Conflict, "it is being deleted"));
    }
    match current {
        AnyResource::Run(run) if !run.status.conditions.0.is_empty() => {
            Err(Error::refused("it has started, so what it does cannot be changed")
                .hint(format!("for the same once more: hmz rerun run/{}", run.metadata.name)))
        }
        _ => Ok(next),
    }
}

/// Whether it may be applied to at all.
fn is_free(current: &AnyResource, how: &How<'_>) -> Result<(), Error> {
    if let Some(owner) = current.metadata().owner_references.first() {
        return Err(Error::refused(format!("it belongs to {}/{}", owner.kind.to_ascii_lowercase(), owner.name)));
    }
    if matches!(current, AnyResource::Runtime(runtime) if runtime.status.source == RuntimeSource::Settings) {
        return Err(Error::refused("settings.yaml declares it, and owns what it names"));
    }
    let (set, metadata) = (current.metadata().labels.get(label::SET), current.metadata());
    match (set, how.set) {
        (Some(set), Some(wanted)) if set != wanted => {
            let word = if current.kind() == "Environment" { "env" } else { current.kind() };
            Err(Error::refused(format!("it is a member of the set '{set}'")).hint(format!(
                "to take it out of there: hmz label {}/{} {}-",
                word.to_ascii_lowercase(),
                metadata.name,
                label::SET
            )))
        }
        _ => Ok(()),
    }
}

/// The stored resource as it becomes.
fn next(current: &AnyResource, asked: &Asked, how: &How<'_>) -> Result<AnyResource, Error> {
    let (metadata, given) = (current.metadata(), asked.resource.metadata());
    let (mut labels, mut annotations, merged) = if how.replace {
        (given.labels.clone(), given.annotations.clone(), spec(&asked.resource)?)
    } else {
        let said = metadata.annotations.get(annotation::LAST_APPLIED).and_then(|text| serde_json::from_str::<Value>(text).ok());
        let live = spec(current)?;
        // one of a version that remembered nothing was as it had been applied last
        let before = said.as_ref().map_or(Some(&live), |said| said.get("spec"));
        let merged = merge(before, &live, &asked.fields["spec"]);
        let last = |name: &str| said.as_ref().and_then(|said| said.get(name));
        (
            texts(last("labels"), &metadata.labels, &given.labels),
            texts(last("annotations"), &metadata.annotations, &given.annotations),
            merged,
        )
    };
    let ours = |map: &BTreeMap<String, String>| -> Vec<(String, String)> {
        map.iter().filter(|(key, _)| key.starts_with(OURS)).map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    labels.extend(ours(&metadata.labels));
    labels.extend(how.set.map(|set| (label::SET.to_owned(), set.to_owned())));
    annotations.extend(ours(&metadata.annotations));
    annotations.insert(annotation::LAST_APPLIED.into(), asked.remembered());
    let mut next = with_spec(current, merged).or_else(|_| {
        // something is written that is read as nothing
        let read = spec(&asked.resource)?;
        with_spec(current, merge(Some(&read), &spec(current)?, &read))
    })?;
    next.metadata_mut().labels = labels;
    next.metadata_mut().annotations = annotations;
    Ok(next)
}

/// Labels or annotations, merged.
fn texts(last: Option<&Value>, live: &BTreeMap<String, String>, asked: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let none = Map::new();
    let last = last.and_then(Value::as_object).unwrap_or(&none);
    let kept = live.iter().filter(|(key, _)| asked.contains_key(*key) || !last.contains_key(*key));
    kept.chain(asked).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// What is declared of a resource, as JSON.
///
/// # Errors
/// A fault of ours.
pub fn spec(resource: &AnyResource) -> Result<Value, Error> {
    let value = match resource {
        AnyResource::Run(run) => serde_json::to_value(&run.spec),
        AnyResource::Environment(environment) => serde_json::to_value(&environment.spec),
        AnyResource::Runtime(runtime) => serde_json::to_value(&runtime.spec),
        AnyResource::Flow(flow) => serde_json::to_value(&flow.spec),
    };
    value.map_err(internal)
}

fn with_spec(current: &AnyResource, spec: Value) -> Result<AnyResource, Error> {
    let mut next = current.clone();
    match &mut next {
        AnyResource::Run(run) => run.spec = serde_json::from_value(spec).map_err(internal)?,
        AnyResource::Environment(environment) => environment.spec = serde_json::from_value(spec).map_err(internal)?,
        AnyResource::Runtime(runtime) => runtime.spec = serde_json::from_value(spec).map_err(internal)?,
        AnyResource::Flow(flow) => flow.spec = serde_json::from_value(spec).map_err(internal)?,
    }
    Ok(next)
}

fn internal(error: serde_json::Error) -> Error {
    Error::new(ErrorKind::Internal, format!("it cannot be merged: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(text: &str) -> (AnyResource, Value) {
        let read = hmz_manifest::read_declared(text, "m.yaml", &hmz_manifest::Context::new("/w", None));
        let declared = read.unwrap_or_else(|e| panic!("{text}: {e:?}")).remove(0);
        (declared.resource, declared.written)
    }

    fn asked(metadata: &str, spec: &str) -> Asked {
        let text = format!(
            "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: box{metadata}}}\nspec: {{runtime: docker:a{spec}}}\n"
        );
        let (resource, written) = resource(&text);
        Asked::of(&resource, Some(&written)).unwrap()
    }

    /// What is there after an apply.
    fn applied(current: Option<&AnyResource>, asked: &Asked, how: &How<'_>) -> Option<AnyResource> {
        match decide(current, asked, how).unwrap() {
            Decision::Create(next) | Decision::Change(next) | Decision::Note(next) | Decision::Anew(next) => Some(next),
            Decision::Nothing => None,
        }
    }

    fn environment(of: &AnyResource) -> &hmz_api::kinds::EnvironmentSpec {
        let AnyResource::Environment(environment) = of else { panic!("{of:?}") };
        &environment.spec
    }

    #[test]
    fn what_somebody_else_set_stays_and_what_a_manifest_says_is_put_back() {
        let first = asked(", labels: {team: red, old: x}", ", cpus: 1, memory: 1G, restart: never");
        let how = How::default();
        let mut there = applied(None, &first, &how).unwrap();
        assert_eq!(applied(Some(&there), &first, &how), None);
        // by hand: one field the manifest has, one it says the default of, and two it does not have
        if let AnyResource::Environment(environment) = &mut there {
            environment.spec.cpus = "2".parse().ok();
            environment.spec.restart = hmz_api::kinds::RestartPolicy::Always;
            environment.spec.image = Some("theirs".into());
            environment.metadata.labels.insert("theirs".into(), "y".into());
        }
        let second = asked(", labels: {team: blue}", ", cpus: 1, restart: never");
        let next = applied(Some(&there), &second, &how).unwrap();
        let spec = serde_json::to_value(environment(&next)).unwrap();
        assert_eq!(spec, json!({"runtime": "docker:a", "cpus": 1, "image": "theirs"}));
        let labels: Vec<_> = next.metadata().labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(labels, ["team=blue", "theirs=y"]);
        // all of it is asked for
        let replaced = applied(Some(&next), &second, &How { replace: true, ..how }).unwrap();
        assert_eq!(serde_json::to_value(environment(&replaced)).unwrap(), json!({"runtime": "docker:a", "cpus": 1}));
        assert_eq!(replaced.metadata().labels.len(), 1);
        assert_eq!(applied(Some(&replaced), &second, &How { replace: true, ..how }), None);
    }

    #[test]
    fn one_that_was_applied_by_a_version_that_remembered_nothing_is_as_it_had_been_applied() {
        let mut there = applied(None, &asked("", ", cpus: 1, memory: 1G"), &How::default()).unwrap();
        there.metadata_mut().annotations.clear();
        let next = applied(Some(&there), &asked("", ", cpus: 1"), &How::default()).unwrap();
        assert_eq!(environment(&next).memory, None);
        // and one that differs in nothing else is noted, not changed
        let same = decide(Some(&there), &asked("", ", cpus: 1, memory: 1G"), &How::default()).unwrap();
        assert!(matches!(same, Decision::Note(_)), "{same:?}");
    }

    #[test]
    fn a_set_owns_its_members_and_what_is_ours_is_nobodys_to_set() {
        let one = How { set: Some("one"), ..How::default() };
        let asked = asked(", labels: {hmz/set: planted}, annotations: {hmz/cancel: now}", "");
        let there = applied(None, &asked, &one).unwrap();
        assert_eq!(there.metadata().labels[label::SET], "one");
        assert!(!there.metadata().annotations.contains_key(annotation::CANCEL));
        let other = decide(Some(&there), &asked, &How { set: Some("two"), ..How::default() }).unwrap_err();
        assert_eq!(
            (other.message.as_str(), other.hints),
            ("it is a member of the set 'one'", vec!["to take it out of there: hmz label env/box hmz/set-".to_owned()])
        );
        // applied without a set it stays in its own, also as a whole
        for replace in [false, true] {
            let how = How { replace, ..How::default() };
            assert_eq!(applied(Some(&there), &asked, &how), None);
        }
    }

    #[test]
    fn a_run_that_has_started_is_not_changed() {
        let of = |task: &str| {
            let (resource, written) =
                resource(&format!("apiVersion: hmz/v1\nkind: Run\nmetadata: {{name: r}}\nspec: {{flow: f, task: {task}}}\n"));
            Asked::of(&resource, Some(&written)).unwrap()
        };
        let how = How { cwd: "/w", ..How::default() };
        let mut there = applied(None, &of("a"), &how).unwrap();
        assert!(matches!(decide(Some(&there), &of("b"), &how), Ok(Decision::Change(_))));
        if let AnyResource::Run(run) = &mut there {
            let now = jiff::Timestamp::UNIX_EPOCH;
            run.status.conditions.set("Accepted", hmz_api::ConditionStatus::True, "Accepted", "", 1, now);
        }
        assert_eq!(decide(Some(&there), &of("a"), &how), Ok(Decision::Nothing));
        let refused = decide(Some(&there), &of("b"), &how).unwrap_err();
        assert_eq!(refused.hints.len(), 3, "{refused:?}");
        let anew = decide(Some(&there), &of("b"), &How { replace: true, ..how });
        assert!(matches!(&anew, Ok(Decision::Anew(AnyResource::Run(run))) if run.status.conditions.0.is_empty()), "{anew:?}");
        // what it is labelled with may change all the same
        let mut labelled = of("a");
        labelled.resource.metadata_mut().labels.insert("x".into(), "y".into());
        assert!(matches!(decide(Some(&there), &labelled, &how), Ok(Decision::Change(_))));
    }
}
