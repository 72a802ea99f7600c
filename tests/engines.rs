//! Engines of other versions than the one that the other tests use: what a user has of a box is the same on each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod provider;
mod support;

#[path = "engines/engine.rs"]
mod engine;
#[path = "engines/gpus.rs"]
mod gpus;

use engine::Scene;
use provider::Provider;
use provider::script::{Step, bash, edit, read};
use std::os::unix::fs::MetadataExt as _;
use support::home::TestHome;
use support::{LIMIT, eventually};

/// An environment from its manifest to its end by hand, and one that is deleted.
fn an_environment(engine: &str) {
    let scene = Scene::on(engine, ", cpus: 2, memory: 1G, max_containers: 1");
    let version = scene.engine.docker(&["version", "--format", "{{.Server.Version}}"]);
    let checked = scene.hmz(&["runtime", "check", &scene.runtime]);
    assert!(checked.contains(&format!(" {version}; ")), "{version} is not in {checked}");

    let spec = "{runtime: 'docker:$R', workdir: ., image: 'busybox:latest', cpus: 0.75, memory: 100M}";
    scene.apply("Environment", "box", spec);
    scene.wait("env/box", "Ready");
    let id = scene.container();
    let inspect = |what: &str| scene.engine.docker(&["inspect", "--format", what, &id]);
    assert_eq!(inspect("{{.HostConfig.CpuQuota}} {{.HostConfig.CpuPeriod}}"), "75000 100000");
    assert_eq!(inspect("{{.HostConfig.Memory}} {{.HostConfig.MemorySwap}}"), format!("{0} {0}", 100 << 20));
    assert_eq!(inspect("{{.HostConfig.PidsLimit}}"), "4096");
    let said = scene.hmz(&["sh", "env/box", "--", "/bin/sh", "-c", "hostname; id -u; pwd; echo here > made"]);
    assert_eq!(said, format!("{}\n{}\n{}\n", &id[..12], scene.home.uid(), scene.project.path()));
    assert_eq!(scene.project.read("made"), "here\n");

    let top: serde_json::Value = serde_json::from_str(&scene.hmz(&["top", "envs", "box", "-o", "json"])).unwrap();
    let row = &top["items"][0];
    assert_eq!((&row["cpuLimit"], &row["memoryLimit"]), (&0.75.into(), &(100 << 20).into()), "{row}");
    assert!(row["cpus"].is_number() && row["memory"].as_u64().is_some_and(|n| n > 0), "{row}");

    room_is_refused(&scene);
    assert_eq!(scene.container(), id);

    scene.engine.docker(&["kill", &id]);
    let (reason, message) = eventually("that it was killed is told", LIMIT, || not_ready(&scene, "env/box"));
    assert!(reason == "KilledByHand" && message.contains("killed"), "{reason}: {message}");
    eventually("what died is removed", LIMIT, || scene.containers().is_empty().then_some(()));
    scene.hmz(&["delete", "env/box"]);

    scene.apply("Environment", "other", &spec.replace("100M", "24M"));
    scene.wait("env/other", "Ready");
    let other = scene.container();
    assert_ne!(other, id);
    // a command wants more memory than there is, and the box's first process is what the kernel ends for it
    let pid = scene.engine.docker(&["inspect", "--format", "{{.State.Pid}}", &other]);
    std::fs::write(format!("/proc/{}/oom_score_adj", pid.trim()), "1000").unwrap();
    scene.engine.docker(&["exec", "-d", &other, "sh", "-c", "x=a; while :; do x=$x$x; done"]);
    let (reason, message) = eventually("that it lacked memory is told", LIMIT, || not_ready(&scene, "env/other"));
    assert_eq!((reason.as_str(), message.as_str()), ("OutOfMemory", "the box was killed for want of memory"));
    scene.hmz(&["delete", "env/other"]);
    scene.assert_nothing_left();
}

/// Beside the one box it may run, which holds 0.75 of its 2 CPUs.
fn room_is_refused(scene: &Scene) {
    let runtime = &scene.runtime;
    scene.project.write("steps.yaml", "- run: 'true'\n");
    let refused = |cpus: &str| {
        let flow = format!(
            "apiVersion: hmz/v1\nkind: Flow\nmetadata: {{name: asks}}\nspec:\n  agents: {{coder: {{}}}}\n  environments: {{box: \
             {{image: 'busybox:latest', cpus: {cpus}}}}}\n  steps: [{{turn: {{agent: coder, environment: box, prompt: t}}}}]\n"
        );
        scene.project.write(".hmz/flows/asks.yaml", &flow);
        let place = format!("box=docker@{runtime}{}", scene.project.path());
        let words = ["exec", "-f", "asks", "-a", "script/./steps.yaml", "-e", &place, "-p", "budget.duration=5m", "go"];
        scene.home.hmz(words).cwd(scene.project.dir()).run().expect_code(2).err()
    };
    let full = refused("1");
    assert!(full.contains(&format!("docker@{runtime} runs 1 of the 1 containers it may\n")), "{full}");
    let short = refused("8");
    assert!(short.contains(&format!("docker@{runtime} has ")), "{short}");
    assert!(short.contains(" of 2 CPUs free, and 'box' asks for 8"), "{short}");
}

/// Why it is not ready; nothing while it is.
fn not_ready(scene: &Scene, what: &str) -> Option<(String, String)> {
    let got: serde_json::Value = serde_json::from_str(&scene.hmz(&["get", what, "-o", "json"])).unwrap();
    let ready = got["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == "Ready" && c["status"] == "False")?;
    Some((ready["reason"].as_str()?.to_owned(), ready["message"].as_str()?.to_owned()))
}

/// A run whose agent edits a file, from its manifest to its deletion.
fn a_run(engine: &str) {
    let scene = Scene::on(engine, "");
    let steps = "- run: hostname > name.txt; id -u > owner.txt\n- wait_for: go\n- edit: {path: calc.py, old: return a - b, new: return a + b}\n\
                 - run: cat calc.py > seen.txt\n- say: Fixed by the script.\n";
    scene.project.write("steps.yaml", steps);
    let spec = "flow: boxed\ntask: fix add()\nagents: {coder: script/./steps.yaml}\nenvironments:\n  box: {runtime: 'docker:$R', \
                workdir: ., image: 'busybox:latest', cpus: 0.5, memory: 128M}\nparams: {budget: {duration: 10m}}";
    scene.apply("Run", "fix", spec);
    let owner = scene.project.file("owner.txt");
    eventually("the agent's command has run", LIMIT, || {
        (owner.exists() && !scene.project.read("owner.txt").is_empty()).then_some(())
    });
    let id = scene.container();
    assert_eq!(scene.project.read("name.txt").trim(), &id[..12]);
    assert_eq!(
        scene.engine.docker(&["inspect", "--format", "{{.HostConfig.CpuQuota}} {{.HostConfig.Memory}}", &id]),
        format!("50000 {}", 128 << 20)
    );
    scene.project.write("go", "");
    scene.wait("run/fix", "Complete");
    scene.project.assert_fixed();
    assert_eq!(scene.project.read("seen.txt"), scene.project.read("calc.py"));
    for file in ["calc.py", "seen.txt", "owner.txt"] {
        assert_eq!(std::fs::metadata(scene.project.file(file)).unwrap().uid(), scene.home.uid(), "{file}");
    }
    let logs = scene.hmz(&["logs", "run/fix"]);
    assert!(logs.contains("Fixed by the script."), "{logs}");
    scene.hmz(&["delete", "run/fix"]);
    scene.assert_nothing_left();
}

#[test]
fn an_environment_lives_and_ends_on_docker_26() {
    an_environment("docker26");
}

#[test]
fn an_environment_lives_and_ends_on_the_newest_docker() {
    an_environment("docker28");
}

#[test]
fn an_environment_lives_and_ends_on_podman() {
    an_environment("podman");
}

#[test]
fn a_box_is_run_by_the_oci_runtime_that_the_runtime_names() {
    // every docker of that age knows it by this name, beside its default
    let other = "io.containerd.runc.v2";
    let scene = Scene::on("docker28", &format!(", runtime: {other}"));
    scene.apply("Environment", "box", "{runtime: 'docker:$R', workdir: ., image: 'busybox:latest'}");
    scene.wait("env/box", "Ready");
    let inspected = scene.engine.docker(&["inspect", "--format", "{{.HostConfig.Runtime}}", &scene.container()]);
    assert_eq!(inspected, other);
    assert_eq!(scene.hmz(&["sh", "env/box", "--", "echo", "hello"]), "hello\n");
    scene.hmz(&["delete", "env/box"]);
    scene.assert_nothing_left();
    // one that it does not know is refused in its words
    let scene = Scene::on("docker28", ", runtime: none-such");
    let spec = "{runtime: 'docker:$R', workdir: ., image: 'busybox:latest'}";
    scene.apply("Environment", "box", spec);
    let (reason, message) = eventually("it is refused", LIMIT, || not_ready(&scene, "env/box").filter(|(r, _)| r == "Refused"));
    assert!(
        message.contains("could not start a container of busybox:latest") && message.contains("none-such"),
        "{reason}: {message}"
    );
    scene.hmz(&["delete", "env/box"]);
    scene.assert_nothing_left();
}

#[test]
fn what_podman_refuses_as_if_it_were_trouble_refuses_a_run() {
    let scene = Scene::on("podman", ", run_args: ['--network=hmz-test-none']");
    scene.project.write("steps.yaml", "- run: 'true'\n");
    let place = format!("box=docker@{}{}", scene.runtime, scene.project.path());
    let words = ["exec", "-f", "boxed", "-a", "script/./steps.yaml", "-e", &place, "go"];
    let refused = scene.home.hmz(words).cwd(scene.project.dir()).run().expect_code(2);
    let said = format!("could not start a container of python:3.12-slim on {}: ", scene.engine.endpoint());
    assert!(refused.err().contains(&said) && refused.err().contains("network not found"), "{refused}");
    scene.assert_nothing_left();
}

#[test]
fn a_run_edits_a_file_on_docker_26() {
    a_run("docker26");
}

#[test]
fn a_run_edits_a_file_on_the_newest_docker() {
    a_run("docker28");
}

#[test]
fn a_run_edits_a_file_on_podman() {
    a_run("podman");
}

/// The main job, with the real claude.
fn the_main_job(engine: &str) {
    let provider = Provider::start().script(
        "main",
        [
            Step::call(bash("hostname && uname -a")),
            Step::call(read("calc.py")),
            Step::call(edit("calc.py", "return a - b", "return a + b")),
            Step::call(bash("id -u > owner.txt && cat calc.py")),
            Step::say("Fixed.").gated("end"),
        ],
    );
    let scene = Scene::of(engine, "", TestHome::new().with_claude(&provider.url()));
    let place = format!("box=docker@{}{}", scene.runtime, scene.project.path());
    let words = ["exec", "-f", "boxed", "-a", "coder=claude/scripted-1:low", "-e", &place, "-p", "budget.duration=10m"];
    let running = scene.home.hmz(words).arg("Fix add() in calc.py. [[script:main]]").start();
    provider.wait_for_round("main", 4, LIMIT);
    let id = scene.container();
    provider.open("end");
    let finished = running.wait().ok();
    assert_eq!(finished.out(), "Fixed.\n", "{finished}");
    scene.assert_nothing_left();
    let results = provider.results("main");
    assert!(results.iter().all(|result| !result.is_error), "{results:#?}");
    assert!(results[0].text.starts_with(&format!("{0}\nLinux {0} ", &id[..12])), "{results:#?}");
    assert!(results[3].text.ends_with("return a + b"), "{results:#?}");
    scene.project.assert_fixed();
    for file in ["calc.py", "owner.txt"] {
        assert_eq!(std::fs::metadata(scene.project.file(file)).unwrap().uid(), scene.home.uid(), "{file}");
    }
}

#[test]
fn the_real_claude_works_in_a_container_of_docker_26() {
    the_main_job("docker26");
}

#[test]
fn the_real_claude_works_in_a_container_of_the_newest_docker() {
    the_main_job("docker28");
}

#[test]
fn the_real_claude_works_in_a_container_of_podman() {
    the_main_job("podman");
}
