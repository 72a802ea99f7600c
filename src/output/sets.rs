//! Sets: what each is kept in step with, and how that goes.

use super::clean::{clean, one_line};
use super::rows::Watched;
use super::table::Table;
use hmz_api::columns::age::age;
use hmz_api::kinds::condition::{FETCHED, SYNCED};
use hmz_api::rest::{SET_KIND, SetState};
use hmz_api::{Condition, ConditionStatus, Error};
use jiff::Timestamp;
use serde_json::Value;

/// What nothing looks like.
const NONE: &str = "<none>";

impl Watched for SetState {
    fn name(&self) -> &str {
        &self.name
    }

    fn shown(&self) -> String {
        format!("set/{}", one_line(&self.name))
    }

    fn row(&self, wide: bool, now: Timestamp) -> Table {
        table(std::slice::from_ref(self), wide, now)
    }

    fn whole(&self) -> Result<Value, Error> {
        Ok(serde_json::json!({
            "apiVersion": hmz_api::API_VERSION,
            "kind": SET_KIND,
            "metadata": {"name": self.name},
            "status": self,
        }))
    }
}

/// A row a set. Wide adds where it comes from.
pub fn table(sets: &[SetState], wide: bool, now: Timestamp) -> Table {
    let mut headers = vec!["NAME", "SOURCE", "REVISION", "SYNCED", "READY", "AGE"];
    headers.extend(if wide { &["REF", "PATHS", "SEEN", "MESSAGE"][..] } else { &["MESSAGE"] });
    let row = |set: &SetState| {
        let said = |text: Option<&String>| text.cloned().unwrap_or_else(|| NONE.into());
        let mut cells = vec![
            set.name.clone(),
            said(set.source.as_ref()),
            set.revision.as_deref().map_or_else(|| NONE.into(), short),
            synced(set),
            members(set),
            set.synced_at.map_or_else(|| NONE.into(), |at| age(Some(at), now)),
        ];
        if wide {
            cells.push(said(set.reference.as_ref()));
            cells.push(if set.paths.is_empty() { NONE.into() } else { set.paths.join(",") });
            cells.push(set.seen.as_deref().map_or_else(|| NONE.into(), short));
        }
        cells.push(wrong(set).map_or_else(String::new, |c| one_line(c.message.lines().next().unwrap_or_default())));
        cells
    };
    Table { headers, rows: sets.iter().map(row).collect() }
}

/// All of one, with whole messages.
pub fn describe(set: &SetState, now: Timestamp) -> String {
    let mut out = format!("Name:      {}\nKind:      Set\n", set.name);
    let mut line = |name: &str, text: Option<String>| {
        if let Some(text) = text {
            out.push_str(&format!("{:<11}{}\n", format!("{name}:"), one_line(&text)));
        }
    };
    line("Source", set.source.clone());
    line("Ref", set.reference.clone());
    line("Paths", (!set.paths.is_empty()).then(|| set.paths.join(", ")));
    line("Recursive", set.recursive.then(|| "true".to_owned()));
    let subject = set.subject.as_ref().map(|subject| format!(" ({subject})")).unwrap_or_default();
    line("Revision", set.revision.as_ref().map(|revision| format!("{revision}{subject}")));
    line("Seen", set.seen.clone().filter(|seen| Some(seen) != set.revision.as_ref()));
    line("Synced", set.synced_at.map(|at| format!("{at} ({} ago)", age(Some(at), now))));
    line("Ready", Some(members(set)));
    if !set.conditions.0.is_empty() {
        out.push_str("Conditions:\n");
    }
    for condition in &set.conditions.0 {
        out.push_str(&format!("  {}={:?}   {}\n", condition.kind, condition.status, condition.reason));
        condition.message.lines().for_each(|text| out.push_str(&format!("    {}\n", clean(text))));
    }
    out
}

/// How many of its members are ready, where that was looked at.
fn members(set: &SetState) -> String {
    set.ready.map_or_else(|| format!("-/{}", set.members), |ready| format!("{ready}/{}", set.members))
}

/// As short as it is still told apart.
fn short(revision: &str) -> String {
    let text = revision.strip_prefix("sha256:").unwrap_or(revision);
    text.chars().take(12).collect()
}

fn synced(set: &SetState) -> String {
    match set.conditions.get(SYNCED) {
        None if set.source.is_none() => NONE.into(),
        None => "Unknown".into(),
        Some(condition) if condition.status == ConditionStatus::True => "True".into(),
        Some(condition) => format!("{:?} ({})", condition.status, condition.reason),
    }
}

/// What is not as it should be, the worst first.
fn wrong(set: &SetState) -> Option<&Condition> {
    let of = |kind: &str| set.conditions.get(kind).filter(|c| c.status != ConditionStatus::True);
    of(SYNCED).or_else(|| of(FETCHED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_says_what_it_is_in_step_with_and_what_is_wrong() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut good = SetState {
            name: "fleet".into(),
            source: Some("https://example.com/fleet.git".into()),
            revision: Some("0123456789abcdef0123456789abcdef01234567".into()),
            subject: Some("More boxes".into()),
            seen: Some("fedcba9876543210fedcba9876543210fedcba98".into()),
            synced_at: Some(at(0)),
            members: 3,
            ready: Some(2),
            active: true,
            ..SetState::default()
        };
        good.conditions.set(FETCHED, ConditionStatus::True, "Fetched", "", 0, at(0));
        let message =
            "commit fedcba987654 (Oops): envs/b.yaml:2:7: 'Environmnt' is not a kind\n  |\n2 | kind: Environmnt\n  |       ^";
        good.conditions.set(SYNCED, ConditionStatus::False, "Invalid", message, 0, at(0));
        let by_hand = SetState { name: "hand".into(), members: 1, ..SetState::default() };
        let all = [good, by_hand];
        insta::assert_snapshot!(format!(
            "{}\n{}\n{}",
            table(&all, false, at(90)).render(None),
            table(&all, true, at(90)).render(None),
            describe(&all[0], at(90))
        ));
    }
}
