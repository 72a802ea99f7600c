//! The journal's lines: every event goes out and comes in equal, and one of a newer version is not an error.
#![cfg(test)]

use hmz_api::journal::{Event, Outcome, Record};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn record(event: Event) -> Record {
    Record { at: 1_700_000_000.25, agent: "coder".into(), cli: "claude".into(), model: "m".into(), session: "s".into(), event }
}

fn every() -> Vec<Event> {
    let t = || "text\n\u{1b}[0m".to_owned();
    let mut events = vec![
        Event::Began {
            run: "r".into(),
            uid: "u".into(),
            flow: "f".into(),
            envs: BTreeMap::from([("box".into(), "docker@here/w".into())]),
            used: BTreeMap::from([("box".into(), "docker:here".into())]),
        },
        Event::Placed { text: t() },
        Event::Begins,
        Event::Text { text: t() },
        Event::Reasoning { text: t() },
        Event::Tool { name: "Bash".into(), about: "ls".into() },
        Event::ToolResult { is_error: true, text: t() },
        Event::Exec { environment: "box".into(), command: "x".into(), status: -1, stdout: t(), stderr: t() },
        Event::Notice { text: t() },
        Event::Failed { text: t() },
        Event::Result { spent: BTreeMap::from([("input".into(), u64::MAX)]), cost: Some(0.07) },
        Event::Result { spent: BTreeMap::new(), cost: None },
        Event::Ends { seconds: 12.5, answer: t() },
        Event::Unknown,
    ];
    for outcome in [Outcome::Succeeded, Outcome::BudgetExceeded, Outcome::Failed, Outcome::Cancelled, Outcome::Refused] {
        events.push(Event::Ended { outcome, message: "m".into() });
    }
    events
}

#[test]
fn every_event_survives() {
    for event in every() {
        let line = serde_json::to_string(&record(event.clone())).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record(event), "{line}");
    }
}

/// What is in the files of runs that ended: a change here is a change of format.
#[test]
fn the_lines_are_what_they_were() {
    let lines: Vec<String> = every().into_iter().map(|e| serde_json::to_string(&record(e)).unwrap()).collect();
    insta::assert_snapshot!("journal", lines.join("\n"));
}

#[test]
fn a_newer_version_is_read_as_far_as_it_is_known() {
    let read = |line: &str| serde_json::from_str::<Record>(line).unwrap();
    let newer = read(r#"{"at":1,"agent":"coder","kind":"teleported","to":{"x":[1]},"text":"t"}"#);
    assert_eq!((newer.event, newer.agent.as_str(), newer.at), (Event::Unknown, "coder", 1.0));
    let more = read(r#"{"at":1.5,"kind":"text","text":"t","mood":"good"}"#);
    assert_eq!(more.event, Event::Text { text: "t".into() });
    assert_eq!(read(r#"{"kind":"begins","at":1e9}"#).event, Event::Begins);
    assert!(serde_json::from_str::<Record>(r#"{"at":1}"#).is_err());
    assert!(serde_json::from_str::<Record>(r#"{"at":1,"kind":"text"}"#).is_err());
}

proptest! {
    #[test]
    fn any_text_and_number_survives(text in any::<String>(), at in 0..1u64 << 43, status: i32, tokens: u64, cost in 0..1u64 << 40) {
        // thousandths: the last bit of a longer fraction may be lost in JSON
        let (at, cost) = (at as f64 / 1e3, cost as f64 / 1e3);
        for event in [
            Event::Text { text: text.clone() },
            Event::Exec { environment: text.clone(), command: text.clone(), status, stdout: text.clone(), stderr: String::new() },
            Event::Result { spent: BTreeMap::from([(text.clone(), tokens)]), cost: Some(cost) },
            Event::Ends { seconds: at, answer: text.clone() },
        ] {
            let record = Record { at, ..record(event) };
            let line = serde_json::to_string(&record).unwrap();
            prop_assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record);
        }
    }
}
