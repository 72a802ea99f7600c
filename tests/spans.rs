//! One run is one tree of spans, from its verb to the commands in its box, as a collector is told of it. Its own program, and only
//! with the feature `otel`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

#[path = "spans/collector.rs"]
mod collector;
mod support;

use collector::{Collector, Span};
use std::collections::BTreeMap;
use support::home::TestHome;
use support::{LIMIT, eventually, runs};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const OUTSIDE: &str = "00f067aa0ba902b7";

const FLOW: &str = "agents: {coder: {}}\nenvironments: {box: {image: \"busybox:latest\"}}\nsteps:\n  - exec: {environment: box, command: \
                    \"sleep 0.2; exit 0\"}\n  - turn: {agent: coder, environment: box, prompt: \"{{ task }}\"}";

/// The one span of that name.
fn only<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "{name} in {spans:#?}");
    found[0]
}

#[test]
fn a_run_is_one_tree_of_spans_of_every_process() {
    let collector = Collector::start();
    let mut home = TestHome::new();
    home.set("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url());
    let project = home.project("p");
    runs::flow(&home, "both", FLOW);
    let steps = runs::script(&home, "works", "- run: 'sleep 0.1; exit 3'\n- run: 'kill -9 $$'\n- say: done\n");
    let run = runs::exec(&home, "both", &steps, &project, "t").env("TRACEPARENT", format!("00-{TRACE}-{OUTSIDE}-01"));
    drop(run.run().ok());
    let spans = eventually("the verb and the end of the box are told", LIMIT, || {
        let spans = collector.spans();
        ["verb", "teardown"].iter().all(|name| spans.iter().any(|span| span.name == *name)).then_some(spans)
    });
    assert!(spans.iter().all(|span| span.trace == TRACE), "{spans:#?}");

    // the tree: each piece once, below what it is a part of, and within its time
    let by_id: BTreeMap<&str, &Span> = spans.iter().map(|span| (span.id.as_str(), span)).collect();
    assert_eq!(by_id.len(), spans.len(), "an id is used twice: {spans:#?}");
    let mut told: Vec<(&str, &str, &str)> = Vec::new();
    for span in &spans {
        let parent = by_id.get(span.parent.as_str());
        assert_eq!(parent.is_none(), span.parent == OUTSIDE, "nobody told what this is below: {span:#?}\n{spans:#?}");
        if let Some(parent) = parent {
            let nested = parent.began <= span.began && span.began <= span.ended && span.ended <= parent.ended;
            assert!(nested, "{span:#?}\nis not within\n{parent:#?}");
        }
        told.push((parent.map_or("", |parent| &parent.name), &span.process, &span.name));
    }
    told.sort_unstable();
    let expected = [
        ("", "verb", "verb"),
        ("environment", "daemon", "admission"),
        ("environment", "daemon", "place"),
        ("environment", "daemon", "probe"),
        ("environment", "daemon", "pull"),
        ("environment", "daemon", "start"),
        ("run", "guest", "command"),
        ("run", "runner", "turn"),
        ("run", "supervisor", "session"),
        ("session", "guest", "command"),
        ("session", "guest", "command"),
        ("verb", "daemon", "environment"),
        ("verb", "daemon", "runner"),
        ("verb", "daemon", "teardown"),
        ("verb", "runner", "run"),
    ];
    assert_eq!(told, expected);

    // in their order, as a person would look for them
    let order = ["admission", "pull", "place", "start", "probe"].map(|name| only(&spans, name));
    assert!(order.windows(2).all(|pair| pair[0].ended <= pair[1].ended), "{order:#?}");
    assert!(only(&spans, "environment").ended <= only(&spans, "teardown").began);
    assert!(order[0].number("waited_ms").is_some());
    // what the guest measured: how long each ran, and how it ended
    let mut commands: Vec<&Span> = spans.iter().filter(|span| span.name == "command").collect();
    commands.sort_unstable_by_key(|span| span.began);
    let ends: Vec<_> = commands.iter().map(|span| (span.number("exit_status"), span.number("signal"))).collect();
    assert_eq!(ends, [(Some(0), None), (Some(3), None), (None, Some(9))]);
    for (command, least) in commands.iter().zip([200, 100, 0]) {
        assert!(command.ended - command.began >= least * 1_000_000, "{command:#?}");
        assert!(command.text("program").is_some_and(|program| program.ends_with("sh")), "{command:#?}");
    }
    let words = format!("{spans:?}");
    assert!(!words.contains("sleep 0."), "what was run is told: {words}");
}

#[test]
fn a_shell_in_an_environment_is_a_trace_of_its_own() {
    let collector = Collector::start();
    let mut home = TestHome::new();
    home.set("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url());
    let project = home.project("p");
    runs::environment(&home, "box", "busybox:latest", &project);
    drop(runs::sh(&home, "box", "exit 7").env("TRACEPARENT", format!("00-{TRACE}-{OUTSIDE}-01")).run().expect_code(7));
    let mut spans = collector.spans();
    spans.retain(|span| span.trace == TRACE);
    let (verb, command) = (only(&spans, "verb"), only(&spans, "command"));
    assert_eq!((command.parent.as_str(), command.number("exit_status")), (verb.id.as_str(), Some(7)));
    assert!(verb.began <= command.began && command.ended <= verb.ended, "{spans:#?}");
}
