//! What a person is told of a text that cannot be read: one table of faults, each with the whole of what is printed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod held;

use hmz_manifest::{Context, into_error, read, settings};
use std::fmt::Write as _;

/// What most of the manifests begin with.
const BOX: &str = "apiVersion: hmz/v1\nkind: Environment\nmetadata: {name: box}\n";
/// The others begin as they stand.
const NONE: &str = "";

/// What is wrong, how the text begins, and how it goes on.
const MANIFESTS: &[(&str, &str, &str)] = &[
    ("tab indent", NONE, "apiVersion: hmz/v1\nkind: Environment\nmetadata:\n\tname: box\nspec: {runtime: docker:here}\n"),
    (
        "tab after colon",
        NONE,
        "apiVersion:\thmz/v1\nkind: Environment\nmetadata: {name: box}\nspec:\n  runtime: docker:here\n\tcpus: 1\n",
    ),
    (
        "nbsp indent",
        NONE,
        "apiVersion: hmz/v1\nkind: Environment\nmetadata:\n\u{a0}\u{a0}name: box\nspec: {runtime: docker:here}\n",
    ),
    ("nbsp value", BOX, "spec:\n  runtime:\u{a0}docker:here\n"),
    ("nbsp in key", BOX, "spec:\n  runtime: docker:here\n  workdir\u{a0}: .\n"),
    ("zwsp key", BOX, "spec:\n  run\u{200b}time: docker:here\n"),
    ("zwsp kind", NONE, "apiVersion: hmz/v1\nkind: Environment\u{200b}\nmetadata: {name: box}\nspec: {runtime: docker:here}\n"),
    ("zwj name", NONE, "apiVersion: hmz/v1\nkind: Environment\nmetadata: {name: bo\u{200d}x}\nspec: {runtime: docker:here}\n"),
    ("smart quotes", BOX, "spec:\n  runtime: “docker:here”\n  image: ‘busybox’\n"),
    ("smart quotes kind", NONE, "apiVersion: hmz/v1\nkind: “Environment”\nmetadata: {name: box}\nspec: {runtime: docker:here}\n"),
    ("fullwidth colon", NONE, "apiVersion: hmz/v1\nkind：Environment\nmetadata: {name: box}\nspec: {runtime: docker:here}\n"),
    ("en dash", BOX, "spec:\n  runtime: docker:here\n  cpus: –1\n"),
    (
        "bom crlf",
        NONE,
        "\u{feff}apiVersion: hmz/v1\r\nkind: Environment\r\nmetadata: {name: box}\r\nspec: {runtime: 'docker:here', workdir: .}\r\n",
    ),
    (
        "bom crlf bad",
        NONE,
        "\u{feff}apiVersion: hmz/v1\r\nkind: Environment\r\nmetadata: {name: box}\r\nspec: {runtme: docker:here}\r\n",
    ),
    ("unknown anchor", BOX, "spec: *nope\n"),
    ("list on the line of its key", BOX, "spec: - a\n"),
    ("dup key", BOX, "spec:\n  runtime: docker:here\n  cpus: 1\n  cpus: 2\n"),
    ("wrong cpus", BOX, "spec: {runtime: docker:here, cpus: lots}\n"),
    ("wrong memory", BOX, "spec: {runtime: docker:here, memory: 4 gigs}\n"),
    ("wrong list", BOX, "spec: {runtime: docker:here, run_args: {a: b}}\n"),
    ("map for string", BOX, "spec: {runtime: {docker: here}}\n"),
    (
        "labels list",
        NONE,
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {name: box, labels: [a, b]}\nspec: {runtime: docker:here}\n",
    ),
    (
        "bool for string",
        NONE,
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {name: box, labels: {a: {b: c}}}\nspec: {runtime: docker:here}\n",
    ),
    ("restart enum", BOX, "spec: {runtime: docker:here, restart: allways}\n"),
    ("restart bool", BOX, "spec: {runtime: docker:here, restart: no}\n"),
    ("missing runtime", BOX, "spec: {image: busybox}\n"),
    ("spec empty", BOX, "spec:\n"),
    ("spec string", BOX, "spec: docker:here\n"),
    (
        "multi doc",
        BOX,
        "spec: {runtime: 'docker:here', workdir: .}\n---\napiVersion: hmz/v1\nkind: Environment\nmetadata: {name: two}\nspec: {runtme: docker:here}\n---\napiVersion: hmz/v1\nkind: Run\nmetadata: {name: r}\nspec: {flow: boxed, agents: {coder: nope}}\n",
    ),
    ("unclosed bracket", BOX, "spec: {runtime: docker:here, cpus: 1\n"),
    ("unclosed quote", BOX, "spec:\n  runtime: \"docker:here\n  cpus: 1\n"),
    ("bad indent", BOX, "spec:\n  runtime: docker:here\n   cpus: 1\n"),
    ("missing space", BOX, "spec:\n  runtime:docker:here\n  cpus: 1\n"),
    ("missing space2", NONE, "apiVersion:hmz/v1\nkind: Environment\n"),
    ("at sign", BOX, "spec:\n  runtime: @here\n"),
    ("percent", BOX, "spec:\n  runtime: %x\n"),
    ("backtick", BOX, "spec:\n  image: `busybox`\n"),
    ("star", BOX, "spec:\n  image: *.busybox\n"),
    ("colon in value", NONE, "apiVersion: hmz/v1\nkind: Run\nmetadata: {name: r}\nspec:\n  flow: boxed\n  task: Fix this: now\n"),
    ("template", NONE, "apiVersion: hmz/v1\nkind: Run\nmetadata: {name: r}\nspec:\n  flow: boxed\n  task: {{ task }}\n"),
    ("list root", NONE, "- a\n- b\n"),
    ("scalar root", NONE, "hello\n"),
    (
        "json",
        NONE,
        "{\"apiVersion\": \"hmz/v1\", \"kind\": \"Environment\", \"metadata\": {\"name\": \"box\"}, \"spec\": {\"runtime\": \"docker:here\", \"cpus\": 1,}}\n",
    ),
    (
        "json bad",
        NONE,
        "{\"apiVersion\": \"hmz/v1\", \"kind\": \"Environment\", \"metadata\": {\"name\": \"box\"} \"spec\": {\"runtime\": \"docker:here\"}}\n",
    ),
    ("merge", BOX, "spec:\n  <<: 3\n  runtime: docker:here\n"),
    ("k8s api", NONE, "apiVersion: v1\nkind: Pod\nmetadata: {name: box}\nspec: {}\n"),
    ("kind case", NONE, "apiVersion: hmz/v1\nkind: environment\nmetadata: {name: box}\nspec: {runtime: docker:here}\n"),
    ("name bad", NONE, "apiVersion: hmz/v1\nkind: Environment\nmetadata: {name: My_Box}\nspec: {runtime: docker:here}\n"),
    ("name int", NONE, "apiVersion: hmz/v1\nkind: Environment\nmetadata: {name: 12}\nspec: {runtime: docker:here, workdir: .}\n"),
    (
        "budget",
        NONE,
        "apiVersion: hmz/v1\nkind: Run\nmetadata: {name: r}\nspec:\n  flow: boxed\n  task: t\n  agents: {coder: script/x}\n  environments: {box: {runtime: docker:here, workdir: .}}\n  params: {budget: {duration: soon}}\n",
    ),
    (
        "flow steps",
        NONE,
        "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: f}\nspec:\n  environments: {box: {}}\n  steps:\n    - exec: {enviroment: box, command: ls}\n    - turn: 3\n",
    ),
    (
        "flow template",
        NONE,
        "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: f}\nspec:\n  environments: {box: {}}\n  steps:\n    - exec: {environment: box, command: '{{ tsk | lower }}'}\n",
    ),
    ("control", NONE, "apiVersion: hmz/v1\nkind: Env\u{1}\n"),
    ("nul", NONE, "apiVersion: hmz/v1\nkind: \u{0}\n"),
    (
        "wide column",
        NONE,
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {name: box, annotations: {t: 漢字漢字, z: 1, name: }}\nspec: {runtme: docker:here}\n",
    ),
    (
        "emoji col",
        NONE,
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {name: '🙂🙂', lables: {}}\nspec: {runtime: docker:here}\n",
    ),
    ("doc marker", NONE, "---\n---\n...\n"),
    ("yaml11 bool", BOX, "spec: {runtime: docker:here, gpus: yes}\n"),
    ("empty", NONE, ""),
    ("comment only", NONE, "# nothing\n"),
    ("tag", BOX, "spec: !!python/object {runtime: docker:here}\n"),
    ("complex key", BOX, "spec:\n  ? [a, b]\n  : c\n"),
    ("null key", BOX, "spec:\n  : c\n"),
    ("neg", BOX, "spec: {runtime: docker:here, cpus: -1, memory: 0}\n"),
    ("unknown many", BOX, "spec: {runtime: docker:here, cpu: 1, mem: 2, img: x, totallyelse: 1}\n"),
    (
        "dash no space",
        NONE,
        "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: f}\nspec:\n  environments: {box: {}}\n  steps:\n    -exec: {environment: box, command: ls}\n",
    ),
];

/// The same of settings.yaml.
const SETTINGS: &[(&str, &str)] = &[
    ("a tab indents", "runtimes:\n\tdocker:\n    here: {}\n"),
    ("a space that is none", "runtimes:\n\u{a0} docker:\n    here: {}\n"),
    ("a zero-width space", "runtimes:\n  doc\u{200b}ker: {here: {}}\n"),
    ("smart quotes", "runtimes: {docker: {here: {endpoint: “local”}}}\n"),
    ("an unknown field", "runtimes: {docker: {here: {endpont: local}}}\n"),
    ("an unknown backend", "runtimes: {dokcer: {here: {}}}\n"),
    ("an unknown section", "runtime: {docker: {here: {}}}\n"),
    ("a key twice", "runtimes:\n  docker:\n    here: {}\n    here: {}\n"),
    ("a wrong number", "runtimes: {docker: {here: {cpus: many, memory: 8 gigs, max_containers: few}}}\n"),
    ("a list", "- runtimes\n"),
    ("two documents", "runtimes: {}\n---\nruntimes: {}\n"),
    ("unclosed", "runtimes: {docker: {here: {}}\n"),
];

/// What only the reader says: of two keys that are the same, of what is inside a text, of YAML's tags.
const NOT_IN_THE_SCHEMAS: [&str; 3] = ["dup key", "flow template", "tag"];

/// An editor says that something is wrong where the reader does, and nowhere else.
#[track_caller]
fn hold(what: &str, schema: &str, text: &str, is_read: bool, odd: &mut Vec<String>) {
    if held::is_valid(schema, text) != is_read {
        odd.push(what.to_owned());
    }
}

fn context() -> Context {
    Context::new("/m", Some("/home/me".into()))
}

#[test]
fn what_is_told_of_a_manifest() {
    let (mut all, mut odd) = (String::new(), Vec::new());
    for (what, head, rest) in MANIFESTS {
        let text = format!("{head}{rest}");
        let told = match read(&text, "m.yaml", &context()) {
            Ok(read) => format!("(nothing is wrong: {} resources)", read.len()),
            Err(reports) => into_error(reports).message,
        };
        hold(what, "manifest.json", &text, told.starts_with("(nothing is wrong"), &mut odd);
        writeln!(all, "# {what}\n{told}\n").unwrap();
    }
    assert_eq!(odd, NOT_IN_THE_SCHEMAS);
    insta::assert_snapshot!(all);
}

#[test]
fn what_is_told_of_settings() {
    let (mut all, mut odd) = (String::new(), Vec::new());
    for (what, text) in SETTINGS {
        let reports = settings::check(text, "settings.yaml", &context());
        hold(what, "settings.json", text, reports.is_empty(), &mut odd);
        writeln!(all, "# {what}\n{}\n", into_error(reports).message).unwrap();
    }
    assert_eq!(odd, ["a key twice", "two documents"]);
    insta::assert_snapshot!(all);
}

/// A text that is small and means something large is refused at once: by how many nodes it would have, and how deep they lie.
#[test]
fn a_bomb_costs_nothing() {
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for pair in ('a'..='z').collect::<Vec<_>>().windows(2) {
        let nine = vec![format!("*{}", pair[0]); 9].join(", ");
        writeln!(bomb, "{}: &{} [{nine}]", pair[1], pair[1]).unwrap();
    }
    let mut merges = "a: &a {k0: 1, k1: 1, k2: 1, k3: 1}\n".to_owned();
    for pair in ('a'..='z').collect::<Vec<_>>().windows(2) {
        writeln!(merges, "{}: &{} {{<<: [*{}, *{}], x{}: 1}}", pair[1], pair[1], pair[0], pair[0], pair[1]).unwrap();
    }
    let deep = |open: &str, close: &str| format!("{BOX}spec:\n  {}{}\n", open.repeat(100_000), close.repeat(100_000));
    let told = |text: &str| into_error(read(text, "m.yaml", &context()).unwrap_err()).message;
    assert!(told(&bomb).contains("the document has more than 50000 nodes, aliases written out"), "{}", told(&bomb));
    for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", "")] {
        let told = told(&deep(open, close));
        assert!(told.contains("nested more than 64 levels deep"), "{open}: {told}");
        assert!(told.len() < 1000, "{open}: {} bytes", told.len());
    }
    // merged again and again it stays small, or is refused
    assert!(read(&merges, "m.yaml", &context()).is_err());
    let long = format!("{BOX}spec: {{runtime: {}}}\n", "x".repeat(5 << 20));
    assert!(told(&long).contains("the text is longer than 4 MiB"), "{}", &told(&long)[..200]);
}
