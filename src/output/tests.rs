//! Whole outputs as a person sees them.

use super::style::Style;
use super::transcript::{Transcript, answer};
use super::{describe, record, table};
use hmz_api::journal::{Event, Outcome, Record};
use hmz_api::kinds::{Holder, RoleStatus, RuntimeSource, Share, condition as c};
use hmz_api::{AnyResource, ConditionStatus, Conditions, Cpus, Memory};
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeMap;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn read(value: serde_json::Value) -> AnyResource {
    serde_json::from_value(value).unwrap()
}

fn conditions(all: &[(&str, ConditionStatus, &str, &str)]) -> Conditions {
    let mut conditions = Conditions::default();
    for (i, (kind, status, reason, message)) in all.iter().enumerate() {
        conditions.set(kind, *status, reason, *message, 1, at(i as i64));
    }
    conditions
}

const UID: &str = "6f2d9c1e-0000-4000-8000-000000000001";

/// One of each kind and some more, in the states a listing shows.
fn world() -> Vec<AnyResource> {
    use ConditionStatus::{False, True};
    let metadata = |name: &str, second: i64| json!({"name": name, "uid": UID, "generation": 1, "resourceVersion": 7, "creationTimestamp": at(second).to_string()});
    let resource = |kind: &str, name: &str, second: i64, spec: serde_json::Value| {
        read(json!({"apiVersion": "hmz/v1", "kind": kind, "metadata": metadata(name, second), "spec": spec}))
    };
    let mut ready = resource(
        "Environment",
        "box",
        0,
        json!({"runtime": "docker:gpubox", "workdir": "/home/me/p", "image": "python:3.12-slim", "cpus": 2, "memory": "4G"}),
    );
    let mut pulling = resource("Environment", "pulling", 60, json!({"runtime": "docker", "cpus": 0.5}));
    let mut run = resource(
        "Run",
        "fix-add",
        0,
        json!({"flow": "boxed", "task": "fix add() in calc.py\nand say so", "agents": {"coder": "claude/claude-haiku-4-5:low"},
               "environments": {"box": "docker@here/home/me/p"}, "params": {"budget": {"duration": "10m"}, "tries": 3}}),
    );
    let waiting = resource("Run", "waiting", 3, json!({"flow": "boxed8"}));
    let mut runtime = resource(
        "Runtime",
        "docker:gpubox",
        -90_000,
        json!({"harness": "local", "cpus": 4, "memory": "8G", "max_containers": 2}),
    );
    let unsaved = resource("Runtime", "docker", -10, json!({}));
    let flow = resource(
        "Flow",
        "boxed",
        0,
        json!({"description": "One agent at work in a container of its own.", "agents": {"coder": {}},
               "environments": {"box": {"image": "python:3.12-slim", "cpus": 2}},
               "params": {"depth": {"description": "How deep."}, "width": {"default": 2}},
               "steps": [{"turn": {"agent": "coder", "environment": "box", "prompt": "{{ task }}"}},
                         {"exec": {"environment": "box", "command": ["pytest", "-q"]}}]}),
    );
    if let AnyResource::Environment(e) = &mut ready {
        e.status.conditions = conditions(&[
            (c::SCHEDULED, True, "Held", ""),
            (c::IMAGE_READY, True, "Present", ""),
            (c::CREATED, True, "Started", ""),
            (c::GUEST_READY, True, "Answers", ""),
            (c::READY, True, "Ready", ""),
        ]);
        e.status.incarnation = 1;
        e.status.used = Some("docker:gpubox".parse().unwrap());
        e.status.endpoint = Some("unix:///var/run/docker.sock".into());
        e.status.container_id = Some("14a684eac2e0".into());
        e.status.container_name = Some("hmz-box-6f2d9c1e-1".into());
        e.status.pid = Some(4242);
        e.status.share = Some(Share { cpus: Some(Cpus::whole(2)), memory: Some(Memory::from_bytes(4 << 30)), gpus: vec![] });
        e.status.lease_seconds = Some(120);
        e.status.started_at = Some(at(2));
    }
    if let AnyResource::Environment(e) = &mut pulling {
        e.status.conditions = conditions(&[
            (c::SCHEDULED, True, "Held", ""),
            (c::IMAGE_READY, False, "Pulling", "pulling python:3.12-slim: 12 of 40 MB"),
            (c::READY, False, "ImageNotReady", ""),
        ]);
    }
    if let AnyResource::Run(r) = &mut run {
        r.status.conditions = conditions(&[
            (c::ACCEPTED, True, "Accepted", ""),
            (c::ENVIRONMENTS_READY, True, "Ready", ""),
            (c::RUNNING, False, "Ended", ""),
            (c::COMPLETE, True, "BudgetExceeded", "its budget's duration is spent"),
        ]);
        let used = RoleStatus {
            environment: Some("fix-add-box".into()),
            used: Some("docker:here".parse().unwrap()),
            ..RoleStatus::default()
        };
        r.status.environments.insert("box".into(), used);
        r.status.epic = Some("/home/me/.hmz/epics/fix-add".into());
        r.status.started_at = Some(at(5));
        r.status.finished_at = Some(at(56));
    }
    if let AnyResource::Runtime(r) = &mut runtime {
        r.status.conditions = conditions(&[(c::REACHABLE, True, "Answers", ""), (c::SUFFICIENT, True, "Sufficient", "")]);
        r.status.source = RuntimeSource::Settings;
        r.status.version = Some("29.4.3".into());
        r.status.cpus = Some(Cpus::whole(64));
        r.status.memory = Some(Memory::from_bytes(2_163_589_754_880));
        r.status.gpus = vec!["0".into(), "1".into()];
        r.status.runtimes = vec!["nvidia".into(), "runc".into()];
        r.status.held_cpus = Some(Cpus::from_millis(2500));
        r.status.held_memory = Some(Memory::from_bytes(4 << 30));
        r.status.containers = Some(1);
        r.status.holders = vec![Holder {
            name: "hmz-box-6f2d9c1e-1".into(),
            host: "laptop".into(),
            role: "box".into(),
            cpus: Some(Cpus::from_millis(2500)),
            memory: Some(Memory::from_bytes(4 << 30)),
            gpus: vec!["0".into()],
            run: Some("fix-add".into()),
        }];
        r.status.held_gpus = vec!["0".into()];
    }
    vec![run, waiting, ready, pulling, runtime, unsaved, flow]
}

#[test]
fn tables_of_every_kind() {
    insta::assert_snapshot!("tables", table::render(&world(), false, at(72), None));
    insta::assert_snapshot!("tables_wide", table::render(&world(), true, at(72), None));
}

#[test]
fn a_listing_as_cells_looks_as_the_resources_do() {
    use hmz_api::rest::table::{Row, write_headers};
    let mut world = world();
    let strange = "a\tb\\t\x1b[2J\nc \u{202e}é ";
    if let AnyResource::Environment(e) = &mut world[3] {
        e.metadata.name = "pulling\\".into();
        e.status.image = Some(strange.into());
        e.status.workdir = Some(strange.into());
    }
    for kind in ["Run", "Environment", "Runtime", "Flow"] {
        let of_kind: Vec<AnyResource> = world.iter().filter(|item| item.kind() == kind).cloned().collect();
        for (wide, width, items) in
            [(false, None, &*of_kind), (true, None, &of_kind), (true, Some(40), &of_kind), (true, None, &[])]
        {
            let mut listing = String::new();
            write_headers(kind, wide, &mut listing);
            items.iter().for_each(|item| Row::of(item).write(wide, at(72), &mut listing));
            assert_eq!(table::render_listing(&listing, width), table::render(items, wide, at(72), width), "{kind}");
        }
    }
}

#[test]
fn one_kind_has_bare_names_and_a_terminal_cuts() {
    let world = world();
    insta::assert_snapshot!("runs_cut", table::render(&world[..2], true, at(72), Some(40)));
    assert_eq!(
        table::names(&world),
        "run/fix-add\nrun/waiting\nenv/box\nenv/pulling\nruntime/docker:gpubox\nruntime/docker\nflow/boxed\n"
    );
    assert_eq!(table::names_of("Environment", &["box".into(), "b\n".into()]), "env/box\nenv/b \n");
    assert_eq!(table::render(&[], false, at(0), None), "");
}

#[test]
fn a_cell_cannot_escape_its_row() {
    let mut run = world().remove(0);
    if let AnyResource::Run(r) = &mut run {
        r.spec.flow = "a\nb\x1b[2J".into();
    }
    insta::assert_snapshot!(table::render(&[run], false, at(72), None));
}

#[test]
fn each_kind_in_full() {
    let texts: Vec<String> = world().iter().map(|r| describe::describe(r, at(72))).collect();
    insta::assert_snapshot!("describe", texts.join("\n"));
}

#[test]
fn a_resource_on_its_way_out_says_what_it_waits_for() {
    let mut environment = world().remove(2);
    let metadata = environment.metadata_mut();
    metadata.deletion_timestamp = Some(at(70));
    metadata.finalizers = vec!["hmz/box".into()];
    let text = describe::describe(&environment, at(72));
    assert!(text.contains("Deleting since:  2023-11-14T22:14:30Z (2s ago)\nWaiting for:     hmz/box\n"), "{text}");
    assert!(text.contains("  Ready:         Deleting\n"), "{text}");
}

fn by(agent: &str, event: Event) -> Record {
    let (cli, model) = if agent.is_empty() { ("", "") } else { ("claude", "claude-haiku-4-5-20251001") };
    Record { at: 1_700_000_000.5, agent: agent.into(), cli: cli.into(), model: model.into(), session: "s-1".into(), event }
}

fn story() -> Vec<Record> {
    let spent = [("input", 122), ("output", 2512), ("cache_read", 357_900), ("cache_write", 14_500), ("web", 1)];
    let spent: BTreeMap<String, u64> = spent.iter().map(|(k, n)| ((*k).to_owned(), *n)).collect();
    let used = BTreeMap::from([("box".to_owned(), "docker:here".to_owned())]);
    let tool = |name: &str, about: &str| Event::Tool { name: name.into(), about: about.into() };
    vec![
        by("", Event::Began { run: "fix-add".into(), uid: UID.into(), flow: "boxed".into(), envs: BTreeMap::new(), used }),
        by("coder", Event::Placed { text: "coder's harness runs here".into() }),
        by("coder", Event::Begins),
        by("coder", Event::Reasoning { text: "Where am I?\nLet me look.".into() }),
        by("coder", tool("Bash", "hostname && uname -a")),
        by("coder", Event::ToolResult { is_error: false, text: "14a684eac2e0".into() }),
        by("coder", tool("Read", "/home/me/p/calc.py")),
        by("coder", tool("TodoWrite", "")),
        by("coder", tool("Bash", &format!("cat <<EOF\n{}\nEOF", "x".repeat(200)))),
        by("coder", Event::Text { text: "**Hostname:** 14a684eac2e0\n\nPerfect! ✓ Both tasks are complete:\n1. done\n".into() }),
        by("coder", Event::Notice { text: "the CLI was asked again: it was overloaded".into() }),
        by("coder", Event::Result { spent, cost: Some(0.0712) }),
        by("coder", Event::Ends { seconds: 12.4, answer: "Fixed.".into() }),
        by(
            "",
            Event::Exec {
                environment: "box".into(),
                command: "pytest -q".into(),
                status: 1,
                stdout: (0..30).map(|n| format!("line {n}\n")).collect(),
                stderr: "oh\n".into(),
            },
        ),
        by("coder", Event::Failed { text: "the CLI ended in the middle of its turn".into() }),
        by("", Event::Unknown),
        by("", Event::Ended { outcome: Outcome::BudgetExceeded, message: "its budget's duration is spent".into() }),
    ]
}

#[test]
fn a_run_as_a_transcript() {
    let mut plain = Transcript::new(Style::PLAIN);
    let mut coloured = Transcript::new(Style { colour: true });
    let text: String = story().iter().map(|r| plain.lines(r)).collect();
    let colours: String = story().iter().map(|r| coloured.lines(r)).collect();
    insta::assert_snapshot!("transcript", text);
    let shown = colours.replace('\x1b', "␛");
    insta::assert_snapshot!("transcript_in_colour", shown);
    // the same characters without the colours
    let mut bare = String::new();
    let mut rest = colours.as_str();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        bare.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    bare.push_str(rest);
    assert_eq!(bare, text);
}

#[test]
fn the_ends_of_a_run() {
    let mut all = String::new();
    for (outcome, message) in [
        (Outcome::Succeeded, ""),
        (Outcome::BudgetExceeded, "its budget's duration is spent"),
        (Outcome::Failed, "step 2: exit status 1"),
        (Outcome::Cancelled, ""),
        (Outcome::Refused, "no room"),
        // as a runner says them
        (Outcome::BudgetExceeded, "stopped -- boxed: its budget's duration is spent"),
        (Outcome::Cancelled, "cancelled"),
        (Outcome::Refused, "boxed: step 1: no such variable"),
    ] {
        let mut transcript = Transcript::new(Style::PLAIN);
        transcript.lines(&story()[0]);
        all.push_str(&transcript.lines(&by("", Event::Ended { outcome, message: message.into() })));
    }
    assert_eq!(
        all,
        "stopped -- boxed: its budget's duration is spent\nfailed -- boxed: step 2: exit status 1\ncancelled -- boxed\nrefused -- boxed: no room\n\
         stopped -- boxed: its budget's duration is spent\ncancelled -- boxed\nrefused -- boxed: step 1: no such variable\n"
    );
}

#[test]
fn an_agent_cannot_drive_the_terminal() {
    let evil = "\x1b]0;owned\x07\x1b[2J\x1b[H\r\u{9b}31m\u{202e}x";
    let events = [
        Event::Text { text: evil.into() },
        Event::Reasoning { text: evil.into() },
        Event::Tool { name: evil.into(), about: evil.into() },
        Event::Notice { text: evil.into() },
        Event::Placed { text: evil.into() },
        Event::Failed { text: evil.into() },
        Event::Exec { environment: evil.into(), command: evil.into(), status: 1, stdout: evil.into(), stderr: evil.into() },
        Event::Result { spent: BTreeMap::from([(evil.to_owned(), 1)]), cost: None },
        Event::Ends { seconds: f64::NAN, answer: String::new() },
        Event::Begins,
        Event::Began { run: evil.into(), uid: evil.into(), flow: evil.into(), envs: BTreeMap::new(), used: BTreeMap::new() },
        Event::Ended { outcome: Outcome::Failed, message: evil.into() },
    ];
    let mut transcript = Transcript::new(Style::PLAIN);
    for event in events {
        let mut record = by(evil, event);
        record.model = evil.into();
        let text = transcript.lines(&record);
        assert!(text.chars().all(|c| !c.is_control() || c == '\n'), "{text:?}");
        assert!(!text.contains('\u{202e}'), "{text:?}");
        assert!(record::json(&record).unwrap().trim_end().chars().all(|c| !c.is_ascii_control()));
    }
}

#[test]
fn a_run_as_json() {
    let lines: Vec<String> = story().iter().filter_map(record::json).collect();
    let keys = ["at", "agent", "cli", "model", "session", "kind", "text", "whose", "tokens", "spent"];
    for line in &lines {
        assert_eq!(line.matches('\n').count(), 1);
        let value: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).unwrap();
        assert_eq!(value.keys().map(String::as_str).collect::<Vec<_>>(), keys);
    }
    insta::assert_snapshot!("json", lines.concat());
}

#[test]
fn the_answer_goes_to_stdout_once() {
    let ends = |text: &str| by("coder", Event::Ends { seconds: 1.0, answer: text.into() });
    assert_eq!(answer(&ends("Fixed."), false, true).as_deref(), Some("Fixed.\n"));
    assert_eq!(answer(&ends("Fixed."), true, true), None);
    assert_eq!(answer(&ends(""), false, false), None);
    assert_eq!(answer(&by("coder", Event::Begins), false, false), None);
    assert_eq!(answer(&ends("\x1b[2J"), false, false).as_deref(), Some("\x1b[2J\n"));
    assert_eq!(answer(&ends("\x1b[2J"), true, false).as_deref(), Some("␛[2J\n"));
}
