//! Which resources are meant: label selectors and field selectors, and the order they are shown in.

use super::explain;
use super::jsonpath::{Path, compare, text};
use hmz_api::{AnyResource, Error};
use serde_json::Value;
use std::collections::BTreeMap;

/// What is selected; everything, when nothing is said.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selection {
    labels: Vec<(String, Rule)>,
    fields: Vec<(Path, bool, String)>,
}

/// What a label has to be.
#[derive(Debug, Clone, PartialEq)]
enum Rule {
    There,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl Selection {
    /// Reads `-l` and `--field-selector`; a comma stands for "and".
    ///
    /// # Errors
    /// A usage error that quotes the requirement.
    pub fn read(labels: Option<&str>, fields: Option<&str>) -> Result<Self, Error> {
        let mut selection = Self::default();
        for requirement in labels.map(requirements).into_iter().flatten() {
            selection.labels.push(label(&requirement)?);
        }
        for requirement in fields.map(requirements).into_iter().flatten() {
            selection.fields.push(field(&requirement)?);
        }
        Ok(selection)
    }

    /// Whether resources of one of these kinds can have its fields.
    ///
    /// # Errors
    /// A usage error that names the field that there is not, with the one that was probably meant.
    pub fn check(&self, kinds: &[&str]) -> Result<(), Error> {
        self.fields.iter().try_for_each(|(path, _, _)| check_path("--field-selector", kinds, path))
    }

    /// Whether everything is.
    pub fn is_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether a resource is meant.
    pub fn matches(&self, resource: &AnyResource) -> bool {
        let labels = &resource.metadata().labels;
        if !self.labels.iter().all(|(key, rule)| holds(rule, labels.get(key))) {
            return false;
        }
        if self.fields.is_empty() {
            return true;
        }
        let document = serde_json::to_value(resource).unwrap_or_default();
        self.fields.iter().all(|(path, equal, wanted)| {
            let is = path.find(&document).into_iter().any(|found| text(found) == *wanted);
            // what is not there is as one that is empty
            let is = is || (wanted.is_empty() && path.find(&document).is_empty());
            is == *equal
        })
    }
}

/// Whether resources of one of these kinds can have something at a path: of a slip, all would be alike.
///
/// # Errors
/// A usage error that names the field that there is not, with the one that was probably meant.
pub fn check_path(option: &str, kinds: &[&str], path: &Path) -> Result<(), Error> {
    for names in path.names() {
        let mut wrong = None;
        for kind in kinds {
            match explain::check(kind, &explain::schema_of(kind)?, &names) {
                Ok(()) => {
                    wrong = None;
                    break;
                }
                Err(e) => wrong = Some(e),
            }
        }
        match (wrong, kinds) {
            (None, _) => {}
            (Some(e), [_]) => return Err(Error { message: format!("{option}: {}", e.message), ..e }),
            (Some(_), _) => return Err(Error::usage(format!("{option}: no kind has a field '{}'", names.join(".")))),
        }
    }
    Ok(())
}

/// Orders resources by the value at a path; those that have none come first, and the order of equals stays.
pub fn sort(items: &mut [AnyResource], by: &Path) {
    items.sort_by_cached_key(|item| {
        let document = serde_json::to_value(item).unwrap_or_default();
        Key(by.find(&document).first().map(|found| (*found).clone()))
    });
}

#[derive(PartialEq)]
struct Key(Option<Value>);

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => compare(a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        }
    }
}

fn holds(rule: &Rule, value: Option<&String>) -> bool {
    match rule {
        Rule::There => value.is_some(),
        Rule::Absent => value.is_none(),
        Rule::In(values) => value.is_some_and(|value| values.contains(value)),
        // kubectl's: one that is not there is not in it either
        Rule::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
    }
}

/// The parts between commas, but for those in parentheses.
fn requirements(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth <= 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts.into_iter().map(|part| part.trim().to_owned()).collect()
}

fn label(text: &str) -> Result<(String, Rule), Error> {
    let wrong = || {
        Error::usage(format!(
            "-l '{text}': expected KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY or !KEY, several with commas between"
        ))
    };
    let is_word = |word: &str| !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "=!(),".contains(c));
    // what a key never has is an operator that there is not
    let is_key = |word: &str| is_word(word) && !word.contains(|c: char| c.is_control() || "<>&|~^;'\"`$*?{}[]\\".contains(c));
    let is_value = |word: &str| word.is_empty() || is_word(word);
    let (key, rule) = if let Some((key, value)) = text.split_once("!=") {
        (key.trim(), Rule::NotIn(vec![value.trim().to_owned()]))
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (key.trim(), Rule::In(vec![value.trim().to_owned()]))
    } else if let Some((head, list)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let values: Vec<String> = list.split(',').map(|value| value.trim().to_owned()).collect();
        if values.iter().all(String::is_empty) {
            return Err(wrong());
        }
        match head.trim().rsplit_once(char::is_whitespace) {
            Some((key, "in")) => (key.trim(), Rule::In(values)),
            Some((key, "notin")) => (key.trim(), Rule::NotIn(values)),
            _ => return Err(wrong()),
        }
    } else if let Some(key) = text.strip_prefix('!') {
        (key.trim(), Rule::Absent)
    } else {
        (text, Rule::There)
    };
    let values = match &rule {
        Rule::In(values) | Rule::NotIn(values) => values.as_slice(),
        _ => &[],
    };
    if !is_key(key) || !values.iter().all(|value| is_value(value)) { Err(wrong()) } else { Ok((key.to_owned(), rule)) }
}

fn field(text: &str) -> Result<(Path, bool, String), Error> {
    let wrong = || {
        Error::usage(format!("--field-selector '{text}': expected PATH=VALUE or PATH!=VALUE, such as status.used=docker:here"))
    };
    let (path, equal, value) = match text.split_once("!=") {
        Some((path, value)) => (path, false, value),
        None => {
            let (path, value) = text.split_once("==").or_else(|| text.split_once('=')).ok_or_else(wrong)?;
            (path, true, value)
        }
    };
    let path = path.trim();
    let path = Path::read(&if path.starts_with('.') { path.to_owned() } else { format!(".{path}") })?;
    Ok((path, equal, value.trim().to_owned()))
}

/// What is to be done to labels or annotations: `KEY=VALUE` sets, `KEY-` takes away.
///
/// # Errors
/// A usage error that quotes the change.
pub fn changes(words: &[String]) -> Result<BTreeMap<String, Option<String>>, Error> {
    let mut changes = BTreeMap::new();
    for word in words {
        let (key, value) = match (word.split_once('='), word.strip_suffix('-')) {
            (Some((key, value)), _) => (key, Some(value.to_owned())),
            (None, Some(key)) => (key, None),
            (None, None) => return Err(Error::usage(format!("'{word}': expected KEY=VALUE, or KEY- to take it away"))),
        };
        if key.is_empty() || key.contains(|c: char| c.is_whitespace() || c.is_control() || "!(),".contains(c)) {
            return Err(Error::usage(format!("'{word}': '{key}' is not a key")));
        }
        if changes.insert(key.to_owned(), value).is_some() {
            return Err(Error::usage(format!("'{key}' is changed twice")));
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn env(name: &str, labels: Value, cpus: u64) -> AnyResource {
        let whole = json!({"apiVersion": "hmz/v1", "kind": "Environment", "metadata": {"name": name, "labels": labels},
            "spec": {"runtime": "docker:here", "cpus": cpus}, "status": {"used": "docker:spare"}});
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn a_selector_means_what_kubectls_does() {
        let red = env("a", json!({"team": "red", "hmz/set": "x"}), 2);
        let plain = env("b", json!({}), 10);
        for (labels, fields, a, b) in [
            (Some("team=red"), None, true, false),
            (Some("team==red,hmz/set=x"), None, true, false),
            (Some("team!=red"), None, false, true),
            (Some("team"), None, true, false),
            (Some("!team"), None, false, true),
            (Some("team in (red, blue)"), None, true, false),
            (Some("team notin (blue),hmz/set"), None, true, false),
            (None, Some("metadata.name=b"), false, true),
            (None, Some("status.used=docker:spare,spec.cpus!=2"), false, true),
            (None, Some("spec.image="), true, true),
            (Some("team=red"), Some("spec.cpus=10"), false, false),
        ] {
            let selection = Selection::read(labels, fields).unwrap();
            assert_eq!((selection.matches(&red), selection.matches(&plain)), (a, b), "{labels:?} {fields:?}");
        }
        for wrong in
            ["", "=x", "a b", "a in b", "a=b=c", "a in (b", "a,", "team>1", "team<1", "team in ()", "team notin ( )", "te'am=x"]
        {
            assert!(Selection::read(Some(wrong), None).is_err(), "{wrong}");
        }
        assert!(Selection::read(None, Some("status.used")).is_err());
    }

    #[test]
    fn a_slip_in_a_field_selects_nothing_and_is_said() {
        let said = |kinds: &[&str], fields: &str| {
            Selection::read(None, Some(fields)).and_then(|selection| selection.check(kinds)).map_err(|e| e.message)
        };
        for (kinds, fields) in [
            (&["Environment"][..], "metadata.name=a,status.used=docker:here,spec.cpus!=1"),
            (&["Environment"], "metadata.labels.team=red,metadata.annotations['a.b/c']=d,kind=Environment"),
            (&["Environment"], "status.conditions[0].status=True,metadata.ownerReferences[0].name=x"),
            (
                &["Run"],
                "spec.environments.box.image=busybox,spec.params.depth=1,spec.agents.coder=x,status.conditions[*].reason=x",
            ),
            (&["Runtime"], "spec.endpoint=local,status.source=Settings,metadata.creationTimestamp!="),
            (&["Flow", "Run"], "spec.flow=boxed,spec.steps[0].exec.environment=x,..name=x"),
        ] {
            assert_eq!(said(kinds, fields), Ok(()), "{fields}");
        }
        for (kinds, fields, wrong) in [
            (&["Environment"][..], "metadata.nmae!=z", "Environment.metadata has no field 'nmae'; did you mean 'name'?"),
            (&["Environment"], "spec.nope!=x", "Environment.spec has no field 'nope'"),
            (&["Run"], "status.conditions[*].resaon=x", "Run.status.conditions has no field 'resaon'; did you mean 'reason'?"),
            (&["Run"], "metadata.name.x=", "Run.metadata.name has no field 'x'"),
            (&["Flow", "Run"], "spec.nope=x", "no kind has a field 'spec.nope'"),
        ] {
            assert_eq!(said(kinds, fields), Err(format!("--field-selector: {wrong}")), "{fields}");
        }
        let by = |text: &str| check_path("--sort-by", &["Run"], &Path::read(text).unwrap()).map_err(|e| e.message);
        assert_eq!(by(".metadata.creationTimestamp"), Ok(()));
        assert_eq!(by(".nope"), Err("--sort-by: Run has no field 'nope'".into()));
    }

    #[test]
    fn numbers_are_sorted_as_numbers_and_nothing_comes_first() {
        let mut items = [env("a", json!({}), 10), env("b", json!({"x": "1"}), 9)];
        sort(&mut items, &Path::read(".spec.cpus").unwrap());
        assert_eq!(items[0].metadata().name, "b");
        sort(&mut items, &Path::read("{.metadata.labels.x}").unwrap());
        assert_eq!(items[0].metadata().name, "a");
    }

    #[test]
    fn changes_are_read_as_they_are_typed() {
        let read = |words: &[&str]| changes(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read(&["a=b=c", "x-", "e="]).unwrap().into_values().collect::<Vec<_>>(), [some("b=c"), some(""), None]);
        for wrong in [&["a"][..], &["=b"], &["a=1", "a-"], &["a b=1"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
