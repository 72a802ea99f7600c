//! Manifests, as somebody might write them, and how they are applied.

use crate::daemon::{CPUS, NO_IMAGE, THEIRS};
use crate::scenario::Sim;
use hmz_api::launch::CallerContext;
use hmz_api::rest::ApplyRequest;
use hmz_manifest::{Context, Declared, Report, read_declared};

fn read(texts: &str) -> Result<Vec<Declared>, Vec<Report>> {
    read_declared(texts, "m.yaml", &Context::new("/w", None))
}

/// A request for what these texts declare.
pub fn of(texts: &str) -> ApplyRequest {
    let declared = read(texts).unwrap_or_else(|e| panic!("{e:?}\n{texts}"));
    let (resources, written) = declared.into_iter().map(|one| (one.resource, one.written)).unzip();
    let caller = CallerContext { cwd: "/w".into(), docker_endpoint: Some("unix:///a.sock".into()), ..CallerContext::default() };
    ApplyRequest { resources, written, caller, ..ApplyRequest::default() }
}

/// One environment.
pub fn environment(name: &str, runtime: &str, more: &str) -> String {
    format!(
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: {name}}}\nspec: {{runtime: '{runtime}', workdir: /w{more}}}\n"
    )
}

/// One runtime at a daemon.
pub fn runtime(name: &str, daemon: &str, more: &str) -> String {
    format!(
        "apiVersion: hmz/v1\nkind: Runtime\nmetadata: {{name: '{name}'}}\nspec: {{endpoint: 'unix:///{daemon}.sock'{more}}}\n"
    )
}

/// Runtimes for all that comes, as somebody begins with them.
pub fn ground(sim: &Sim) -> ApplyRequest {
    let runtimes: std::collections::BTreeMap<String, String> = (0..6).map(|_| some_runtime(sim)).collect();
    let set = sim.dice.pick(&[None, Some("one"), Some("one")]).flatten().map(str::to_owned);
    ApplyRequest { set, ..of(&runtimes.into_values().collect::<Vec<_>>().join("---\n")) }
}

/// Any runtime of two docker runtimes, one that works in a container of somebody's, and a swarm's.
fn some_runtime(sim: &Sim) -> (String, String) {
    let dice = &sim.dice;
    let name = dice.pick(&["docker:c", "docker:c", "docker:d", "docker:d", "swarm:s", "docker:k"]).unwrap();
    let daemon = if name == "swarm:s" { "s" } else { dice.pick(&["a", "a", "b"]).unwrap() };
    let mut more = String::new();
    if name == "docker:k" {
        let container = dice.pick(&[THEIRS, THEIRS, THEIRS, "nowhere"]).unwrap();
        return (name.to_owned(), runtime(name, daemon, &format!(", container: {container}")));
    }
    more += dice.pick(&["", ", cpus: 1", ", cpus: 2", ", cpus: 3", ", cpus: 4"]).unwrap();
    more += dice.pick(&["", "", "", "", ", memory: 1G", ", memory: 4G"]).unwrap();
    more += match daemon {
        "b" => dice.pick(&["", "", ", gpus: ['0']"]).unwrap(),
        "s" => dice.pick(&["", ", gpu_resource: GPU"]).unwrap(),
        _ => "",
    };
    let fallback = match (name, dice.below(3)) {
        ("docker:c", 0) => ", fallback: ['docker:d']",
        ("docker:c", 1) => ", fallback: ['docker:none', 'docker:b', 'docker:d']",
        ("docker:d", 0) => ", fallback: ['docker:b']",
        _ => "",
    };
    more += fallback;
    let bad = format!(", image: '{NO_IMAGE}'");
    more += dice.pick(&["", "", "", ", image: 'node:20'", &bad]).unwrap();
    if name != "swarm:s" {
        more += dice.pick(&["", "", ", max_containers: 1", ", max_containers: 2"]).unwrap();
        more += dice.pick(&["", "", "", "", ", default_request: {cpus: 1}", ", default_request: {cpus: 1, memory: 1G}"]).unwrap();
        more += dice.pick(&["", "", "", ", lease: 40s"]).unwrap();
        let other = if name == "docker:c" { "'docker:d'" } else { "'docker:c'" };
        let harness = dice.pick(&["", "", "", "'docker:a'", "'docker:k'", other]).unwrap();
        more += &if harness.is_empty() { String::new() } else { format!(", harness: {harness}") };
    }
    (name.to_owned(), runtime(name, daemon, &more))
}

/// A flow of one or two environments that is called as a built-in one is, or of none that is.
fn some_flow(sim: &Sim) -> String {
    let name = sim.dice.pick(&["one", "one", "two", "none"]).unwrap();
    let cpus = sim.dice.pick(&["", "cpus: 1", "cpus: 2"]).unwrap();
    let roles = if sim.dice.one_in(2) { format!("e_0: {{{cpus}}}") } else { format!("e_0: {{{cpus}}}, e_1: {{}}") };
    format!(
        "apiVersion: hmz/v1\nkind: Flow\nmetadata: {{name: {name}}}\nspec:\n  environments: {{{roles}}}\n  steps: [{{exec: \
         {{environment: e_0, command: ls}}}}]\n"
    )
}

/// A manifest of an environment or a run. `small`: what it asks for fits, whatever else is there.
fn manifest(sim: &Sim, nth: u64, small: bool) -> String {
    let dice = &sim.dice;
    // of what is nowhere, and of what cannot be read, now and then
    let wrong = ["docker:nope", "docker:broken"];
    let right = [
        "docker:a", "docker@a", "docker:b", "docker:b", "docker", "docker:c", "docker:c", "docker:c", "docker:d", "docker:d",
        "docker:k", "docker:k", "swarm:s",
    ];
    let mut runtime = dice.pick(if dice.one_in(12) { &wrong[..] } else { &right }).unwrap();
    let cpus = if small { "0.1".to_owned() } else { (1 + dice.below(5)).to_string() };
    let cpus = if dice.one_in(6) { String::new() } else { format!(", cpus: {cpus}") };
    let memory = dice.pick(if small { &["", ", memory: 100M"] } else { &["", "", "", ", memory: 2G", ", memory: 6G"] }).unwrap();
    let memory = if !small && dice.one_in(20) { ", memory: 9G" } else { memory };
    let gpus = if small { "" } else { dice.pick(&["", "", "", "", ", gpus: 1", ", gpus: 2"]).unwrap() };
    let amounts = format!("{cpus}{memory}{gpus}");
    let bad = format!(", image: '{NO_IMAGE}'");
    let labels = dice.pick(&["", ", labels: {team: red}", ", labels: {team: blue, more: x}"]).unwrap();
    if dice.below(5) < 2 {
        let flows = [("one", 1), ("one", 1), ("two", 2), ("paired", 2), ("paired", 2), ("five", 5), ("none", 0)];
        let (flow, n) = dice.pick(&flows).unwrap();
        // where agents may work in a second box
        if flow == "paired" {
            runtime = dice.pick(&["docker:b", "docker:c", "docker:c", "docker:d"]).unwrap();
        }
        let image = if dice.one_in(9) { bad.as_str() } else { "" };
        let role = |i| format!("e_{i}: {{runtime: '{runtime}', workdir: /w{amounts}{image}}}");
        let roles: Vec<String> = (0..n).map(role).collect();
        let agents = if flow == "paired" { ", agents: {coder: script/s}" } else { "" };
        let roles = if dice.one_in(8) { String::new() } else { roles.join(", ") };
        let admission = dice.pick(&["", ", admission: wait", ", admission: wait", ", admission: refuse"]).unwrap();
        return format!(
            "apiVersion: hmz/v1\nkind: Run\nmetadata: {{name: run{nth}{labels}}}\nspec: {{flow: {flow}, environments: \
             {{{roles}}}{agents}{admission}}}\n"
        );
    }
    let image = dice.pick(&["", "", "", ", image: 'node:22'", ", image: 'node:22'", &bad]).unwrap();
    let restart = dice.pick(&["", ", restart: never", ", restart: always"]).unwrap();
    let admission = dice.pick(&["", "", ", admission: refuse"]).unwrap();
    let workdir = if dice.one_in(9) { "" } else { ", workdir: /w" };
    format!(
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: env{nth}{labels}}}\nspec: {{runtime: \
         '{runtime}'{workdir}{amounts}{image}{restart}{admission}}}\n"
    )
}

/// Several, and how they are applied.
pub fn request(sim: &Sim) -> ApplyRequest {
    let dice = &sim.dice;
    // where several ask for the last room, who has it is chance: most often one asks, or there is room for all
    let is_full = sim.daemons.iter().any(|daemon| daemon.state().held(&[]) + 1000 > CPUS * 1000);
    let alone = (is_full && !dice.one_in(6)) || dice.one_in(2);
    let small = !alone && !dice.one_in(6);
    let mut texts = Vec::new();
    let mut runtimes = std::collections::BTreeMap::new();
    for _ in 0..dice.pick(&[0, 1, 1, 2]).unwrap() {
        let (name, text) = some_runtime(sim);
        runtimes.insert(name, text);
    }
    let n = if alone { u64::from(runtimes.is_empty() || dice.one_in(2)) } else { 2 + dice.below(3) };
    texts.extend(runtimes.into_values());
    let mut names: Vec<u64> = (0..5).collect();
    for _ in 0..n {
        let nth = names.remove(dice.below(names.len() as u64) as usize);
        texts.push(manifest(sim, nth, small));
    }
    // one that the runs beside it do not fit is a mistake that is found before anything is asked
    let with_flow = [texts.as_slice(), &[some_flow(sim)]].concat();
    if dice.one_in(5) && read(&with_flow.join("---\n")).is_ok() {
        texts = with_flow;
    }
    // what is another set's is refused
    let set = if dice.one_in(10) { Some("two") } else { dice.pick(&[None, Some("one"), Some("one")]).flatten() };
    let set = set.map(str::to_owned);
    let (prune, replace) = (set.is_some() && dice.one_in(2), dice.one_in(3));
    ApplyRequest { set, prune, replace, ..of(&texts.join("---\n")) }
}
