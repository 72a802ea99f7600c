//! Several want the same room at once: it is handed out once, whoever asks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

#[path = "race/failpoints.rs"]
mod failpoints;
#[path = "crash/scene.rs"]
mod scene;
#[path = "race/two_users.rs"]
mod two_users;

use scene::{Scene, condition};
use support::{LIMIT, docker, eventually};

/// How often ten environments race each other.
const GANGS: usize = 20;

/// A flow whose box asks for that many CPUs, and whose agent does nothing.
fn asks_for(scene: &Scene, flow: &str, cpus: u32) {
    let text = format!(
        "apiVersion: hmz/v1\nkind: Flow\nmetadata: {{name: {flow}}}\nspec:\n  description: One agent in a box with a share.\n  \
         agents: {{coder: {{}}}}\n  environments: {{box: {{image: 'busybox:latest', cpus: {cpus}}}}}\n  steps:\n    - turn: \
         {{agent: coder, environment: box, prompt: t}}\n"
    );
    let flows = scene.home.hmz_home().join("flows");
    std::fs::create_dir_all(&flows).unwrap();
    std::fs::write(flows.join(format!("{flow}.yaml")), text).unwrap();
}

fn exec(scene: &Scene, flow: &str) -> support::command::Invocation {
    let (agent, dir) = (format!("coder=script/{}", scene.project.file("steps.yaml").display()), scene.project.path());
    scene.home.hmz(["exec", "-f", flow, "-a", &agent, "-e", &format!("box=docker@{}{dir}", scene.runtime), "t"])
}

#[test]
fn a_role_that_asks_for_more_than_there_is_is_refused() {
    let scene = Scene::with("      cpus: 4\n");
    asks_for(&scene, "greedy", 8);
    let refused = exec(&scene, "greedy").run().expect_code(2);
    // how many are free depends on what others hold on this daemon
    let (has, asks) = (format!("docker@{} has ", scene.runtime), " of 4 CPUs free, and 'box' asks for 8");
    assert!(refused.err().contains(&has) && refused.err().contains(asks), "{refused}");
    scene.assert_nothing_left();
}

#[test]
fn five_environments_of_one_run_start_concurrently() {
    let scene = Scene::new();
    let roles = ["a", "b", "c", "d", "e"];
    let environments: Vec<String> = roles.iter().map(|r| format!("{r}: {{image: 'busybox:latest'}}")).collect();
    // the last of them waits until it has been looked at
    let command = |role: &str| format!("touch was-{role}; [ {role} != e ] || while [ ! -e go ]; do sleep 0.05; done");
    let steps: Vec<String> =
        roles.iter().map(|r| format!("    - exec: {{environment: {r}, command: '{}'}}\n", command(r))).collect();
    let flow = format!(
        "apiVersion: hmz/v1\nkind: Flow\nmetadata: {{name: five}}\nspec:\n  description: Five boxes.\n  environments: {{{}}}\n  \
         steps:\n{}",
        environments.join(", "),
        steps.concat()
    );
    scene.project.write(".hmz/flows/five.yaml", &flow);
    let mut words = vec!["exec".to_owned(), "-f".to_owned(), "five".to_owned()];
    for role in roles {
        words.extend(["-e".to_owned(), format!("{role}=docker@{}{}", scene.runtime, scene.project.path())]);
    }
    words.push("t".to_owned());
    let exec = scene.home.hmz(words).cwd(scene.project.dir()).start();
    for role in roles {
        let was = scene.project.file(&format!("was-{role}"));
        eventually("its command has run", LIMIT, || was.exists().then_some(()));
    }
    // each was begun before the first of them was ready: from the conditions' own times
    let times = |kind: &str| -> Vec<String> {
        let envs = scene.list("envs");
        let conditions = envs.iter().flat_map(|env| env["status"]["conditions"].as_array().cloned().unwrap_or_default());
        let found = conditions.filter(|c| c["type"] == kind && c["status"] == "True");
        found.filter_map(|c| Some(c["lastTransitionTime"].as_str()?.to_owned())).collect()
    };
    let (begun, ready) = (times("ImageReady"), times("Ready"));
    scene.go();
    let _ = exec.wait().ok();
    assert_eq!((begun.len(), ready.len()), (5, 5), "{begun:?} {ready:?}");
    let (last_begun, first_ready) = (begun.iter().max().unwrap(), ready.iter().min().unwrap());
    assert!(last_begun < first_ready, "begun {begun:?}, ready {ready:?}");
    scene.assert_nothing_left();
}

#[test]
fn ten_environments_in_room_for_five() {
    let scene = Scene::with("      max_containers: 5\n");
    let _ = scene.home.hmz(["get", "runs"]).run().ok();
    let instance = || scene.home.label().expect("a daemon has been there");
    for round in 0..GANGS {
        let manifests: Vec<String> =
            (0..10).map(|n| std::fs::read_to_string(scene.environment_manifest(&format!("e{n}"), "")).unwrap()).collect();
        let applying = scene.home.hmz(["apply", "-f", "-"]).stdin(manifests.join("---\n")).start();
        let mut most = 0;
        let ready = || {
            let envs = scene.list("envs");
            let ready = envs.iter().filter(|e| condition(e, "Ready").is_some_and(|c| c.0 == "True")).count();
            let waiting: Vec<String> = envs
                .iter()
                .filter_map(|e| condition(e, "Scheduled"))
                .filter(|c| c.0 == "False" && c.1 == "Insufficient")
                .map(|c| c.2)
                .collect();
            (ready, waiting)
        };
        let mut running = || {
            let filters = [format!("label={}", instance()), "label=hmz.incarnation".to_owned()];
            let listed = docker::docker(&["ps", "-q", "--filter", &filters[0], "--filter", &filters[1]]);
            most = most.max(listed.lines().count());
            most
        };
        let waiting = eventually(&format!("round {round}: five run and five wait"), LIMIT, || {
            assert!(running() <= 5, "round {round}: more than five run");
            match ready() {
                (5, waiting) if waiting.len() == 5 => Some(waiting),
                _ => None,
            }
        });
        let words = format!("docker@{} runs 5 of the 5 containers it may", scene.runtime);
        assert!(waiting.iter().all(|w| w.contains(&words)), "{waiting:?}");
        // one that waits is no refusal of the manifest, and the verb says which it is
        let _ = applying.wait();
        let all: Vec<String> = (0..10).map(|n| format!("env/e{n}")).collect();
        let deleting = scene.home.hmz(["delete"]).args(&all).start();
        eventually(&format!("round {round}: all are gone"), LIMIT, || {
            assert!(running() <= 5, "round {round}: more than five run");
            scene.list("envs").is_empty().then_some(())
        });
        let _ = deleting.wait().ok();
        assert!(scene.home.containers().is_empty(), "round {round}");
    }
    scene.assert_nothing_left();
}
