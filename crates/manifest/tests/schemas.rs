//! The schemas in the repository are those of the types, and what is in the repository is valid by them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod held;

use hmz_api::RuntimeRef;
use hmz_api::grammar::{AgentSpec, EnvSpec};
use hmz_api::kinds::{Endpoint, Harness};
use hmz_manifest::{Context, read, settings};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Of another crate's types, and held to them there.
const ELSEWHERE: &str = "steps.json";

#[test]
fn the_schemas_are_current() {
    let folder = held::root().join("schemas");
    let expected = hmz_manifest::schema::files();
    for (name, text) in &expected {
        let written = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(&written == text, "schemas/{name} is not what the types say; run: cargo run -p hmz-manifest --example schemas");
    }
    let mut names: Vec<String> =
        std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let mut known: Vec<&str> = expected.iter().map(|(name, _)| name.as_str()).chain([ELSEWHERE]).collect();
    known.sort_unstable();
    assert_eq!(names, known, "a schema nobody generates");
}

/// Every YAML file of a folder and those below it.
fn yaml(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries
        .flat_map(|path| if path.is_dir() { yaml(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .collect();
    found.sort();
    found
}

/// Each file by the schema it names; those of other programs name one that is not here.
#[test]
fn every_example_is_valid_by_the_schema_it_names() {
    let mut held = 0;
    for path in ["examples", "manifests"].iter().flat_map(|folder| yaml(&held::root().join(folder))) {
        let text = std::fs::read_to_string(&path).unwrap();
        let named = text.lines().next().unwrap().strip_prefix("# yaml-language-server: $schema=");
        let named = named.unwrap_or_else(|| panic!("{} names no schema", path.display()));
        if !named.contains("://") {
            held::assert_valid(named.rsplit('/').next().unwrap(), &text);
            held += 1;
        }
    }
    assert!(held >= 5, "{held}");
}

/// The YAML of the pages, which is settings unless it is of a kind.
#[test]
fn what_the_pages_show_is_valid() {
    let pages = std::fs::read_dir(held::root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut held = 0;
    for page in pages.filter(|page| page.extension().is_some_and(|e| e == "md")).chain([held::root().join("README.md")]) {
        let text = std::fs::read_to_string(&page).unwrap();
        for block in text.split("```yaml\n").skip(1) {
            let block = block.split("```").next().unwrap();
            held::assert_valid(if block.contains("kind:") { "manifest.json" } else { "settings.json" }, block);
            held += 1;
        }
    }
    assert!(held >= 5, "{held}");
}

fn context() -> Context {
    Context::new("/m", Some("/home/me".into()))
}

/// What an editor says of settings and of manifests is what the reader says.
#[test]
fn the_schemas_say_what_the_reader_says() {
    let entry = |backend: &str, fields: &str| ("settings.json", format!("runtimes: {{{backend}: {{x: {fields}}}}}\n"));
    let head = "apiVersion: hmz/v1\nkind: Environment\n";
    let of = |text: String| ("manifest.json", text);
    let list = |items: &str| of(format!("kind: List\nitems: {items}\n"));
    let flow = |spec: &str| of(format!("apiVersion: hmz/v1\nkind: Flow\nmetadata: {{name: f}}\nspec: {{{spec}}}\n"));
    let runtime =
        |name: &str, rest: &str| of(format!("apiVersion: hmz/v1\nkind: Runtime\nmetadata: {{name: '{name}'}}\n{rest}\n"));
    let mut odd = Vec::new();
    for ((schema, text), is_fine) in [
        (entry("docker", "{gpus: [0, 1]}"), true),
        (entry("docker", "{exec_wrapper: [nice, 5], exec_user: 7, image: 3.12}"), true),
        (entry("docker", "{exec_wrapper: [nice, null]}"), false),
        (entry("docker", "{constraints: [a==b]}"), false),
        (entry("docker", "{max_tasks: 3}"), false),
        (entry("docker", "{host: x}"), false),
        (entry("docker", "{endpoint: 'ftp://x'}"), false),
        (entry("docker", "{endpoint: 5}"), false),
        (entry("docker", "{memory: lots}"), false),
        (entry("docker", "{harness: nowhere}"), false),
        (entry("docker", "{harness: ''}"), true),
        (entry("docker", "{gpus: 0}"), false),
        (entry("docker", "{gpus: }"), true),
        (entry("docker", "{max_containers: two}"), false),
        (entry("docker", "{default_request: {cpus: 1, disk: 1G}}"), false),
        (entry("docker", "{made: typed, backend: docker, name: x}"), true),
        (entry("docker", "[]"), false),
        (entry("docker", ""), false),
        (entry("ssh", "{host: 10.1, port: 22, options: {ServerAliveInterval: 30, Compression: true}}"), true),
        (entry("ssh", "{host: h, options: {Port: 22}}"), false),
        (entry("ssh", "{host: h, port: '22'}"), false),
        (entry("ssh", "{host: h, gpus: [0]}"), false),
        (entry("ssh", "{alias: '', host: }"), false),
        (entry("swarm", "{nodes: {w1: 7}, max_tasks: 0}"), true),
        (entry("swarm", "{exec_user: 7}"), false),
        (entry("slurm", "{}"), false),
        (entry("podman", "{}"), false),
        (("settings.json", "runtimes: {docker: {-x: {}}}\n".into()), false),
        (("settings.json", "runtimes: {docker: , slurm: {}}\nmetrics:\n".into()), true),
        (("settings.json", "runtimes: [docker]\n".into()), false),
        (("settings.json", "runtime: {}\n".into()), false),
        (("settings.json", "runtime: {}\nruntimes: {}\n".into()), true),
        (("settings.json", "workspaces: [a]\nspelling: 2\n".into()), true),
        (of(format!("{head}metadata: {{name: 12, labels: {{n: 1, b: true}}}}\nspec: {{runtime: docker, workdir: .}}\n")), true),
        (of(format!("{head}metadata: {{name: a, labels: {{n: }}}}\nspec: {{runtime: docker, workdir: .}}\n")), false),
        (of(format!("{head}metadata: {{name: a, labels: }}\nspec: {{runtime: docker, image: 3.12}}\nstatus:\n")), true),
        (of(format!("{head}metadata: {{generateName: a-}}\nspec: {{runtime: docker}}\n")), true),
        (of(format!("{head}metadata: {{generateName: }}\nspec: {{runtime: docker}}\n")), false),
        (of(format!("{head}metadata:\nspec: {{runtime: docker}}\n")), false),
        (flow("agents: {coder: }, environments: {box: }, steps: [{exec: {environment: box, command: [sleep, 1]}}]"), true),
        (flow("environments: {box: }, steps: [{exec: {environment: box, command: 1}}]"), false),
        (flow("environments: {box: }, steps: [{exec: {environment: box, command: ' '}}]"), false),
        (flow("environments: {box: }, params: {budget: }, steps: [{exec: {environment: box, command: a}}]"), false),
        (flow("steps: "), false),
        (list("[]"), true),
        (list(""), false),
        (list("[{apiVersion: hmz/v1, kind: Runtime, metadata: {name: docker}}]"), true),
        (list("[{kind: List, items: []}]"), false),
        (runtime("docker@x", ""), true),
        (runtime("docker:x", "spec: {cpus: 1, max_tasks: 3}"), false),
        (runtime("swarm/x", "spec: {max_tasks: 3}"), true),
        (runtime("swarm:x", "spec: {container: c}"), false),
        (runtime("ssh:x", "spec: {host: h}"), true),
        (runtime("ssh:x", ""), false),
        (runtime("x", ""), false),
    ] {
        let told = match schema {
            "settings.json" => settings::check(&text, "s", &context()),
            _ => read(&text, "m", &context()).err().unwrap_or_default(),
        };
        assert_eq!(told.is_empty(), is_fine, "the reader, of {text}: {told:?}");
        if held::is_valid(schema, &text) != is_fine {
            odd.push(text);
        }
    }
    assert_eq!(odd, Vec::<String>::new());
}

/// The patterns of words are their grammars.
#[test]
fn a_word_is_valid_where_it_is_read() {
    #[track_caller]
    fn same<T: FromStr>(definition: &str, words: &[&str]) {
        for word in words {
            let is_read = word.parse::<T>().is_ok();
            assert_eq!(held::is_word_of("manifest.json", definition, word), is_read, "{definition} {word:?}");
        }
    }
    let endpoints = "local Local unix:///a unix:///  unix://a unix:///a?b tcp://h:1 tcp://h:0 tcp://h:65535 tcp://h:65536 tcp://h:007 \
        tcp://h tcp://:1 tcp://-h:1 tcp://h/x:1 tcp://[::1]:1 tcp://[x]:1 tcp://h:+1 ssh://h ssh://u@h:22 ssh:// ssh://-l@h ssh://u@@h \
        ssh://h:x ssh://h/x ssh:h ssh: ssh:-h context:a.b context: context:a/b http://h:1 ftp://h";
    let endpoints: Vec<&str> =
        endpoints.split_whitespace().chain(["", " local", "local\n", "unix:///a b", "unix:///a\nb"]).collect();
    same::<Endpoint>("Endpoint", &endpoints);
    let references = "docker docker:a docker@a docker/a docker: docker:-a docker:a:b docker:a/b local local:x podman podman:a swarm:a.b \
        ssh slurm:1 apple-container:x Docker:a env";
    let references: Vec<&str> = references.split_whitespace().chain(["", " docker", "docker:a\n"]).collect();
    same::<RuntimeRef>("RuntimeRef", &references);
    same::<Harness>("Harness", &references);
    same::<AgentSpec>(
        "AgentSpec",
        &[
            "claude/opus",
            "claude@me/opus:low",
            " claude @ me / opus : low ",
            "claude",
            "claude/",
            "/opus",
            "claude/:low",
            "claude/ :",
            "claude/::low",
            "claude/a:b:c",
            "claude@/opus",
            "cl aude/opus",
            "a=b/c",
            "a,b/c",
            "a@b@c/d",
            "script/./a b.yaml",
            "claude/a\nb",
            "claude/a\n",
            "",
        ],
    );
    same::<EnvSpec>(
        "EnvironmentRequest",
        &[
            "docker/x",
            "docker@a",
            "docker@a/x",
            "docker@a/~/x",
            "docker",
            "docker@",
            "docker@/x",
            "docker@-a/x",
            "local/x",
            "local@a/x",
            "local",
            "ssh/x",
            "ssh@a",
            "ssh@[a]/x",
            "podman/x",
            "/x",
            " docker @ a /x ",
            "docker:a",
            "",
        ],
    );
}
