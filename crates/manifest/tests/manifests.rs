//! Whole manifests: what is read, and what each fault says, word for word.
#![cfg(test)]

use hmz_api::AnyResource;
use hmz_manifest::{Context, read, to_yaml};
use std::fmt::Write as _;

fn context() -> Context {
    Context::new("/work/m", Some("/home/me".into()))
}

fn good(text: &str) -> Vec<AnyResource> {
    read(text, "run.yaml", &context()).unwrap_or_else(|reports| {
        let mut all = String::new();
        for report in reports {
            let _ = writeln!(all, "{report}");
        }
        panic!("{all}")
    })
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
        ("not yet", "apiVersion: hmz/v1\nkind: Runtime\nmetadata: {name: 'docker:x'}\nspec: {run_args: [-v]}\n".into()),
        (
            "no fallback yet",
            "apiVersion: hmz/v1\nkind: Runtime\nmetadata: {name: 'docker:x'}\nspec: {fallback: ['docker:spare']}\n".into(),
        ),
        (
            "harness of itself",
            "apiVersion: hmz/v1\nkind: Runtime\nmetadata: {name: 'docker:x'}\nspec: {harness: 'docker:x'}\n".into(),
        ),
        ("list without items", "apiVersion: hmz/v1\nkind: List\n".into()),
    ];
    let mut all = String::new();
    for (name, text) in cases {
        let _ = writeln!(all, "== {name}\n{}", bad(&text));
    }
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
