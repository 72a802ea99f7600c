//! Whole manifests: what is read, and what each fault says, word for word.
#![cfg(test)]

mod held;

use hmz_api::AnyResource;
use hmz_manifest::{Context, read, to_yaml, to_yaml_all};
use proptest::prelude::*;
use std::fmt::Write as _;

fn context() -> Context {
    Context::new("/work/m", Some("/home/me".into()))
}

/// What is read, which no schema may refuse.
#[track_caller]
fn good(text: &str) -> Vec<AnyResource> {
    let found = read(text, "run.yaml", &context()).unwrap_or_else(|reports| {
        let mut all = String::new();
        for report in reports {
            let _ = writeln!(all, "{report}");
        }
        panic!("{all}")
    });
    held::assert_manifest(text);
    found
}

fn bad(text: &str) -> String {
    let reports = read(text, "run.yaml", &context()).expect_err("this is to be refused");
    let mut all = String::new();
    for report in reports {
        let _ = writeln!(all, "{report}");
    }
    all
}

/// One resource of each kind, which together are a whole run.
const WHOLE: &str = r#"apiVersion: hmz/v1
kind: Runtime
metadata: {name: "docker:gpubox"}
spec: {endpoint: local, harness: local, cpus: 4, memory: 8G, max_containers: 2}
---
apiVersion: hmz/v1
kind: Environment
metadata: {name: box}
spec: {runtime: "docker:gpubox", workdir: /home/me/p, image: "python:3.12-slim", cpus: 2, memory: 4G, gpus: 1}
---
apiVersion: hmz/v1
kind: Flow
metadata: {name: boxed}
spec:
  description: One agent at work in a container of its own.
  agents: {coder: {}}
  environments: {box: {image: "python:3.12-slim"}}
  steps:
    - turn: {agent: coder, environment: box, prompt: "{{ task }}"}
---
apiVersion: hmz/v1
kind: Run
metadata: {name: fix-add}
spec:
  flow: boxed
  task: fix add() in calc.py
  agents: {coder: "claude/claude-haiku-4-5-20251001:low"}
  environments: {box: docker@here/home/me/p}
  params: {budget: {duration: 10m}}
"#;

#[test]
fn every_kind_is_read() {
    insta::assert_json_snapshot!(good(WHOLE));
}

#[test]
fn what_is_written_reads_back_equal() {
    for resource in good(WHOLE) {
        let yaml = to_yaml(&resource).unwrap();
        assert_eq!(good(&yaml), vec![resource], "{yaml}");
    }
}

#[test]
fn texts_that_look_like_something_else_survive_being_written() {
    let mut resources = good(WHOLE);
    let odd = [
        "yes",
        "no",
        "on",
        "~",
        "null",
        "1e3",
        "0x10",
        "1_000",
        "- a",
        "a: b",
        "# c",
        "",
        " ",
        "{}",
        "[a]",
        "&a",
        "*a",
        "!x",
        "|",
        ">",
        "%d",
        "@a",
        "`a`",
        "1:30",
        "01:30:00",
        "tab\there",
        "two\nlines\n",
        "\n",
        "\u{a0}",
        "\u{1b}[31m",
        "\u{feff}",
        "'",
        "\"",
        "\\",
        "---",
        "...",
        "a #b",
        "=",
        "<<",
        ".inf",
        "NaN",
        "ü",
        "🙂",
        "trailing ",
        "\r\n",
        "\u{85}",
        "\u{2028}",
    ];
    for text in odd {
        for resource in &mut resources {
            if let AnyResource::Run(run) = resource {
                run.spec.task = text.into();
                run.metadata.annotations.insert("a".into(), text.into());
                run.spec.params.own.insert("p".into(), text.into());
            }
            let yaml = to_yaml(resource).unwrap();
            assert_eq!(good(&yaml), vec![resource.clone()], "{text:?}\n{yaml}");
        }
    }
}

#[test]
fn a_byte_order_mark_and_carriage_returns_change_nothing() {
    let windows = format!("\u{feff}{}", WHOLE.replace('\n', "\r\n"));
    assert_eq!(good(&windows), good(WHOLE));
}

#[test]
fn empty_documents_are_left_out() {
    assert_eq!(good("---\n---\n# only a comment\n---\n...\n"), vec![]);
    assert_eq!(good(""), vec![]);
    assert_eq!(good(&format!("---\n# nothing\n---\n{WHOLE}---\n")).len(), 4);
}

#[test]
fn json_and_lists_are_manifests_too() {
    let json = serde_json::to_string_pretty(&good(WHOLE)[1]).unwrap();
    assert_eq!(good(&json), vec![good(WHOLE)[1].clone()]);
    let list = serde_json::json!({"apiVersion": "hmz/v1", "kind": "List", "items": good(WHOLE)});
    assert_eq!(good(&list.to_string()), good(WHOLE));
}

#[test]
fn anchors_and_merge_keys_are_expanded() {
    let text = r"
apiVersion: hmz/v1
kind: Flow
metadata: {name: two}
spec:
  agents: {a: {}}
  environments:
    small: &small {image: busybox, cpus: 1, memory: 1G}
    big:
      <<: *small
      cpus: 4
    same: *small
  steps:
    - turn: {agent: a, environment: big, prompt: go}
";
    let AnyResource::Flow(flow) = &good(text)[0] else { panic!("a flow") };
    insta::assert_json_snapshot!(flow.spec.environments);
}

#[test]
fn paths_begin_in_the_folder_of_the_manifest() {
    let text = r"
apiVersion: hmz/v1
kind: Run
metadata: {name: r}
spec:
  flow: f
  agents: {a: script/./steps.yaml, b: script/~/s.yaml, c: script//abs/s.yaml, d: claude/opus}
  environments:
    a: {runtime: docker/here, workdir: ./p}
    b: docker@here/~/p
    c: docker@here/abs/../p
    d: docker@x
    e: {runtime: docker, workdir: ~/q}
";
    let AnyResource::Run(run) = &good(text)[0] else { panic!("a run") };
    let agents: Vec<String> = run.spec.agents.values().map(ToString::to_string).collect();
    assert_eq!(agents, ["script//work/m/steps.yaml", "script//home/me/s.yaml", "script//abs/s.yaml", "claude/opus"]);
    let places: Vec<Option<String>> = run.spec.environments.values().map(|e| e.place().workdir).collect();
    let expected = [Some("/work/m/p"), Some("/home/me/p"), Some("/p"), None, Some("/home/me/q")];
    assert_eq!(places, expected.map(|p| p.map(str::to_owned)));
    let yaml = to_yaml(&good(text)[0]).unwrap();
    assert_eq!(good(&yaml), good(text), "{yaml}");
}

#[test]
fn a_runtime_is_named_three_ways_and_is_one() {
    for name in ["docker:gpubox", "docker@gpubox", "docker/gpubox"] {
        let text = format!("apiVersion: hmz/v1\nkind: Runtime\nmetadata: {{name: '{name}'}}\nspec: {{}}\n");
        assert_eq!(good(&text)[0].metadata().name, "docker:gpubox");
    }
    insta::assert_snapshot!(bad("apiVersion: hmz/v1\nkind: Runtime\nmetadata: {name: gpubox}\nspec: {}\n"));
}

#[test]
fn texts_are_taken_as_written() {
    let text = r"
apiVersion: hmz/v1
kind: Flow
metadata: {name: f, annotations: {version: 1.0, on: yes}}
spec:
  agents: {}
  environments: {box: {image: 3.12}}
  steps:
    - exec: {environment: box, command: [sleep, 1.0, 0x10, no, 1000:10]}
    - exec: {environment: box, command: echo hi}
";
    insta::assert_json_snapshot!(good(text));
}

#[test]
fn every_unknown_field_is_reported_with_what_was_meant() {
    let text = r"apiVersion: hmz/v1
kind: Environment
metadata:
  name: box
  lables: {a: b}
spec:
  runtme: docker
  workdir: /p
  volumes: []
stauts: {}
---
apiVersion: hmz/v1
kind: Run
metadata: {name: r}
spec:
  flow: f
  environments:
    box: {runtime: docker, wrkdir: /p}
  params:
    budget: {duraton: 10m}
";
    insta::assert_snapshot!(bad(text));
}

/// What only the reader says, of the next table: how one thing goes with another, and what is inside a text.
const NOT_IN_THE_SCHEMAS: [&str; 19] = [
    "duplicate key",
    "cpus too fine",
    "workdir out of home",
    "dangling agent",
    "dangling environment",
    "two ids",
    "a word of a text",
    "a text in lines",
    "a text that does not end",
    "a step that comes later",
    "a text that is folded",
    "a parameter nobody declares",
    "a parameter the flow has not",
    "tag",
    "declared twice",
    "role the flow has not",
    "an argument without its value",
    "a fallback to itself",
    "harness of itself",
];

#[test]
fn every_kind_of_fault_says_where_and_what() {
    let run = |rest: &str| format!("apiVersion: hmz/v1\nkind: Run\nmetadata: {{name: r}}\nspec:\n  flow: f\n{rest}\n");
    let env =
        |rest: &str| format!("apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: e}}\nspec:\n  runtime: docker\n{rest}\n");
    let flow = |rest: &str| {
        format!(
            "apiVersion: hmz/v1\nkind: Flow\nmetadata: {{name: f}}\nspec:\n  agents: {{a: }}\n  environments: {{box: }}\n  steps:\n{rest}\n"
        )
    };
    let cases = [
        ("no mapping", "just a text\n".to_owned()),
        ("no kind", "apiVersion: hmz/v1\nmetadata: {name: x}\n".into()),
        ("no apiVersion", "kind: Run\nmetadata: {name: x}\nspec: {flow: f}\n".into()),
        ("wrong kind", "apiVersion: hmz/v1\nkind: Enviroment\nmetadata: {name: x}\nspec: {}\n".into()),
        ("wrong apiVersion", "apiVersion: v1\nkind: Run\nmetadata: {name: x}\nspec: {flow: f}\n".into()),
        ("no name", "apiVersion: hmz/v1\nkind: Run\nmetadata: {}\nspec: {flow: f}\n".into()),
        ("bad name", "apiVersion: hmz/v1\nkind: Run\nmetadata: {name: My_Run}\nspec: {flow: f}\n".into()),
        ("no spec", "apiVersion: hmz/v1\nkind: Run\nmetadata: {name: x}\n".into()),
        ("no flow", "apiVersion: hmz/v1\nkind: Run\nmetadata: {name: x}\nspec: {task: t}\n".into()),
        ("duplicate key", env("  cpus: 1\n  image: a\n  cpus: 2")),
        ("memory without a unit that is one", env("  memory: 8X")),
        ("cpus in words", env("  cpus: four")),
        ("cpus too fine", env("  cpus: 0.0001")),
        ("negative cpus", env("  cpus: -1")),
        ("infinite cpus", env("  cpus: .inf")),
        ("cpus that are no number", env("  cpus: .nan")),
        ("no cpus", env("  cpus: 0")),
        ("no cpus and no memory", env("  cpus: 0.000\n  memory: 0G")),
        ("no cpus for a role's place", run("  environments: {box: {runtime: docker, cpus: 0m}}")),
        (
            "no cpus for a role of a flow",
            "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: f}\nspec:\n  environments:\n    box:\n      cpus: 0\n  steps:\n    - exec: {environment: box, command: a}\n"
                .into(),
        ),
        ("gpus as text", env("  gpus: '1'")),
        ("negative gpus", env("  gpus: -1")),
        ("fractional gpus", env("  gpus: 1.5")),
        ("restart word", env("  restart: alwys")),
        ("yes is no boolean", flow("    - exec: {environment: box, command: 'true', allow_failure: yes}")),
        ("image with a space", env("  image: a b")),
        ("workdir out of home", env("  workdir: ~/../x")),
        ("backend", run("  environments: {box: podman/x}")),
        ("agent", run("  agents: {coder: claude}")),
        ("role", run("  agents: {my-coder: claude/x}")),
        ("duration", run("  params: {budget: {duration: abc}}")),
        ("admission", run("  admission: refused")),
        ("admission of an environment", env("  admission: decline\n  wait_for: 5x")),
        ("list for mapping", run("  agents: [a]")),
        ("dangling agent", flow("    - turn: {agent: coder, environment: box, prompt: p}")),
        ("dangling environment", flow("    - turn: {agent: a, environment: bx, prompt: p}")),
        ("unknown step", flow("    - trun: {agent: a, environment: box, prompt: p}")),
        (
            "two steps in one",
            flow("    - turn: {agent: a, environment: box, prompt: p}\n      exec: {environment: box, command: a}"),
        ),
        ("stray field beside a step", flow("    - turn: {agent: a, environment: box, prompt: p}\n      id: x")),
        ("step without", flow("    - turn: {agent: a, environment: box}")),
        ("two ids", flow("    - exec: {environment: box, command: a, id: x}\n    - exec: {environment: box, command: a, id: x}")),
        ("empty command", flow("    - exec: {environment: box, command: []}")),
        ("no steps", flow("")),
        ("a word of a text", flow("    - turn: {agent: a, environment: box, prompt: 'do: {{ tsk }}'}")),
        (
            "a text in lines",
            flow(
                "    - turn:\n        agent: a\n        environment: box\n        prompt: |\n          Do it.\n            ä {{ task }} {{ steps.tset }}",
            ),
        ),
        ("a text that does not end", flow("    - exec: {environment: box, command: [echo, \"{{ task\"]}")),
        (
            "a step that comes later",
            flow(
                "    - exec: {environment: box, command: 'echo {{ steps.b.stdout }}'}\n    - exec: {environment: box, command: b, id: b}",
            ),
        ),
        (
            "a text that is folded",
            flow("    - exec:\n        environment: box\n        command: >\n          echo\n          {{ params.x }}"),
        ),
        (
            "a parameter nobody declares",
            flow("    - exec: {environment: box, command: 'echo {{ params.dpeth }}'}\n  params: {depth: }"),
        ),
        ("parameters' names", flow("    - exec: {environment: box, command: a}\n  params: {my-x: , budget: }")),
        ("a parameter's default", flow("    - exec: {environment: box, command: a}\n  params: {a: {defualt: 1}}")),
        (
            "a parameter the flow has not",
            format!(
                "{}---\n{}",
                flow("    - exec: {environment: box, command: a}\n  params: {depth: }"),
                run("  params: {dpeth: 1}")
            ),
        ),
        ("tab", "apiVersion: hmz/v1\nkind: Run\nmetadata:\n\tname: x\nspec: {flow: f}\n".into()),
        ("no-break space", "apiVersion: hmz/v1\nkind: Run\nmetadata:\n  name:\u{a0}x\nspec: {flow: f}\n".into()),
        ("no-break indent", "apiVersion: hmz/v1\nkind: Run\nmetadata: {name: x}\nspec:\n  flow: f\n\u{a0} task: t\n".into()),
        ("unclosed", "apiVersion: hmz/v1\nkind: Run\nmetadata: {name: x\nspec: {flow: f}\n".into()),
        ("unknown alias", env("  image: *nope")),
        ("tag", env("  image: !secret x")),
        ("declared twice", format!("{}---\n{}", env(""), env("  cpus: 1"))),
        (
            "role the flow has not",
            format!(
                "{}---\n{}",
                flow("    - exec: {environment: box, command: a}"),
                run("  agents: {b: claude/x}\n  environments: {bx: docker/x}")
            ),
        ),
        (
            "an argument without its value",
            "apiVersion: hmz/v1\nkind: Runtime\nmetadata: {name: 'docker:x'}\nspec: {run_args: [-v]}\n".into(),
        ),
        (
            "a fallback to itself",
            "apiVersion: hmz/v1\nkind: Runtime\nmetadata: {name: 'docker:x'}\nspec: {fallback: ['docker:x']}\n".into(),
        ),
        (
            "harness of itself",
            "apiVersion: hmz/v1\nkind: Runtime\nmetadata: {name: 'docker:x'}\nspec: {harness: 'docker:x'}\n".into(),
        ),
        ("list without items", "apiVersion: hmz/v1\nkind: List\n".into()),
    ];
    let mut all = String::new();
    for (name, text) in &cases {
        let _ = writeln!(all, "== {name}\n{}", bad(text));
    }
    let unseen = cases.iter().filter(|(_, text)| held::is_valid("manifest.json", text)).map(|(name, _)| *name);
    assert_eq!(unseen.collect::<Vec<_>>(), NOT_IN_THE_SCHEMAS);
    insta::assert_snapshot!(all);
}

#[test]
fn an_alias_bomb_costs_nothing() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for n in 1..40 {
        let _ = writeln!(text, "a{n}: &a{n} [{}]", vec![format!("*a{}", n - 1); 9].join(", "));
    }
    let said = bad(&text);
    assert!(said.contains("more than 50000 nodes"), "{said}");
    let mut merges = String::from("a0: &a0 {k0: 1}\n");
    for n in 1..400 {
        let _ = writeln!(merges, "a{n}: &a{n}\n  <<: [*a{}, *a{}]\n  k{n}: 1", n - 1, n - 1);
    }
    assert!(bad(&merges).contains("more than 50000 nodes"));
    let nested = format!("a: {}{}", "[".repeat(2000), "]".repeat(2000));
    assert!(read(&nested, "x", &context()).is_err());
    assert!(bad("a: &a {b: *a}\n").contains("alias"));
}

/// A resource of each kind as the store holds it, its status included.
fn observed() -> Vec<AnyResource> {
    let conditions = serde_json::json!([{"type": "Ready", "status": "True", "reason": "Ready", "message": "a: b # c",
        "observedGeneration": 3, "lastTransitionTime": "2023-11-14T22:13:20.123456789Z"}]);
    let metadata = |name: &str| {
        serde_json::json!({"name": name, "uid": "6f2d9c1e-0000-4000-8000-000000000001", "generation": 3, "resourceVersion": 12,
            "labels": {"a": "1", "b": "yes"}, "creationTimestamp": "2023-11-14T22:13:20Z", "finalizers": ["hmz/box"],
            "ownerReferences": [{"kind": "Run", "name": "r", "uid": "6f2d9c1e-0000-4000-8000-000000000002"}]})
    };
    let of = |kind: &str, name: &str, spec: serde_json::Value, status: serde_json::Value| {
        let value =
            serde_json::json!({"apiVersion": "hmz/v1", "kind": kind, "metadata": metadata(name), "spec": spec, "status": status});
        serde_json::from_value::<AnyResource>(value).unwrap()
    };
    vec![
        of(
            "Environment",
            "box",
            serde_json::json!({"runtime": "docker", "cpus": 0.5, "memory": 1000, "restart": "always",
                "admission": "refuse", "wait_for": "5m"}),
            serde_json::json!({"conditions": conditions, "incarnation": 2, "used": "docker:here", "container_id": "0123456",
                "pid": 42, "waiting_since": "2023-11-14T22:13:20Z", "refused_generation": 3, "share": {"cpus": 0.5, "gpus": ["0", "1"]}, "lease_seconds": 120, "started_at": "2023-11-14T22:13:20Z"}),
        ),
        of(
            "Runtime",
            "docker:here",
            serde_json::json!({"endpoint": "unix:///run/d.sock", "harness": "docker:spare", "lease": "1m30s"}),
            serde_json::json!({"conditions": conditions, "source": "settings", "held_cpus": 1.25, "containers": 0,
                "holders": [{"name": "n", "host": "h", "role": "r", "memory": "8G"}]}),
        ),
        of(
            "Run",
            "r",
            serde_json::json!({"flow": "f", "task": "t\n", "environments": {"a": {"runtime": "docker:x", "workdir": "/p"}, "b": "docker@x/~/q"},
                "admission": "refuse", "wait_for": "1h", "params": {"n": 1.5, "list": [1, null, "x"], "deep": {"a": true}}}),
            serde_json::json!({"conditions": conditions, "environments": {"a": {"environment": "r-a", "used": "docker:x"}}, "runner": "12:345"}),
        ),
        of(
            "Flow",
            "f",
            serde_json::json!({"steps": [{"exec": {"environment": "a", "command": ["a b", "1"], "allow_failure": true, "id": "x"}}],
                "environments": {"a": {"memory": "8G"}, "b": {}},
                "params": {"n": {}, "list": {"default": null}, "deep": {"default": {"a": [1]}, "description": "d"}}}),
            serde_json::json!({"source": "builtin"}),
        ),
    ]
}

#[test]
fn what_the_store_holds_reads_back_equal() {
    let mut expected = observed();
    let text = to_yaml_all(&expected).unwrap();
    // reading makes `~` absolute, and that is all it does
    if let AnyResource::Run(run) = &mut expected[2] {
        run.spec.environments.insert("b".into(), serde_json::from_str("\"docker@x/home/me/q\"").unwrap());
    }
    assert_eq!(good(&text), expected, "{text}");
    assert_eq!(good(&to_yaml_all(&expected).unwrap()), expected);
}

#[test]
fn what_the_parser_takes_for_a_line_after_the_last_has_a_place_on_it() {
    for text in ["?\n", "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: f}\nspec:\n  ?\n"] {
        let reports = read(text, "x", &context()).expect_err("a fault");
        for report in reports {
            assert!((1..=text.lines().count()).contains(&report.line), "{text:?} {report}");
        }
    }
}

proptest! {
    #[test]
    fn any_text_survives(task: String, label: String, param: String, number in proptest::num::f64::NORMAL, whole: i64) {
        let mut resources = observed();
        let AnyResource::Run(run) = &mut resources[2] else { panic!("a run") };
        run.spec.environments.remove("b");
        run.spec.task = task;
        run.metadata.labels.insert(label.clone(), label);
        run.spec.params.own.insert("text".into(), param.clone().into());
        run.spec.params.own.insert("list".into(), serde_json::json!([param, number, whole, {"x": param}]));
        let yaml = to_yaml(&resources[2]).unwrap();
        prop_assert_eq!(good(&yaml), vec![resources[2].clone()], "{}", yaml);
    }

    #[test]
    fn no_text_panics_and_every_fault_has_a_place(text in "([ \t]{0,4}[-?:&*!|>%@`{}\\[\\],'\"#a-z~0-9<.\u{a0}]{0,8}[\r\n]{0,2}){0,12}") {
        for text in [text.clone(), format!("apiVersion: hmz/v1\nkind: Flow\nmetadata: {{name: f}}\nspec:\n  {text}")] {
            for report in read(&text, "x", &context()).err().unwrap_or_default() {
                prop_assert!(report.line >= 1 && report.column >= 1, "{}", report);
                let lines = text.replace("\r\n", "\n").replace('\r', "\n").lines().count();
                prop_assert!(report.line <= lines.max(1), "{:?} {}", text, report);
            }
            let _ = hmz_manifest::settings::read(&text, "x", &context());
        }
    }
}
