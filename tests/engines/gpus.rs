//! GPUs that a daemon lists and that do not answer, as a person meets them. Each is a program in place of NVIDIA's.

use super::engine::Scene;
use crate::support::{LIMIT, eventually};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

/// What the daemon is told to list, for as long as it lives.
struct Listed {
    spec: PathBuf,
    programs: tempfile::TempDir,
    numbers: [String; 2],
}

impl Listed {
    /// One that answers and one that does not.
    fn new() -> Self {
        Self::saying(|alive| format!("echo '0, GPU-{alive}'"))
    }

    /// One that answers, whose program does what a shell is told here of its number, and one that does not.
    fn saying(program: impl FnOnce(&str) -> String) -> Self {
        let id = uuid::Uuid::new_v4();
        let base = 2_000_000_000 + u32::from_be_bytes(id.as_bytes()[..4].try_into().unwrap()) % 1_000_000_000;
        let numbers = [base.to_string(), (base + 1).to_string()];
        let programs = tempfile::tempdir().unwrap();
        let says = [program(&numbers[0]), "echo 'No devices were found'; exit 6".to_owned()];
        let device = |(number, says): (&String, String)| {
            let program = programs.path().join(number);
            std::fs::write(&program, format!("#!/bin/sh\n{says}\n")).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            let mount = json!({"hostPath": program, "containerPath": "/usr/bin/nvidia-smi", "options": ["ro", "bind"]});
            json!({"name": number, "containerEdits": {"mounts": [mount]}})
        };
        let devices: Vec<Value> = numbers.iter().zip(says).map(device).collect();
        let text = json!({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}).to_string();
        std::fs::create_dir_all("/etc/cdi").unwrap();
        let spec = PathBuf::from(format!("/etc/cdi/hmz-test-{}.json", id.simple()));
        std::fs::write(spec.with_extension("part"), text).unwrap();
        std::fs::rename(spec.with_extension("part"), &spec).unwrap();
        Self { spec, programs, numbers }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let _ = (std::fs::remove_file(&self.spec), self.programs.path());
    }
}

#[test]
fn one_that_does_not_answer_is_told_wherever_it_matters() {
    let listed = Listed::new();
    let [alive, dead] = &listed.numbers;
    let scene = Scene::on("docker28", &format!(", image: 'busybox:latest', cpus: 2, memory: 1G, gpus: [{alive}, {dead}]"));
    let runtime = scene.runtime.clone();
    eventually("the daemon lists them", LIMIT, || {
        scene.engine.docker(&["info", "--format", "{{json .DiscoveredDevices}}"]).contains(dead).then_some(())
    });
    let checked = scene.home.hmz(["runtime", "check", &runtime]).run().expect_code(1);
    let _ = checked.says(&format!("\nlacks configured resources: GPU {dead} does not answer\n"));

    scene.project.write("steps.yaml", "- run: 'true'\n");
    let flow = "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: two}\nspec:\n  agents: {coder: {}}\n  environments: {box: {gpus: 2}}\n  \
                steps: [{turn: {agent: coder, environment: box, prompt: t}}]\n";
    scene.project.write(".hmz/flows/two.yaml", flow);
    let place = format!("box=docker@{runtime}{}", scene.project.path());
    let words = ["exec", "-f", "two", "-a", "script/./steps.yaml", "-e", &place, "-p", "budget.duration=5m", "go"];
    let refused = scene.home.hmz(words).cwd(scene.project.dir()).run().expect_code(2).err();
    let said = format!("docker@{runtime} has 1 of 2 GPUs free, and 'box' asks for 2 (GPU {dead} does not answer)\n");
    assert!(refused.contains(&said), "{refused}");

    scene.apply("Environment", "box", "{runtime: 'docker:$R', workdir: ., gpus: 1}");
    scene.wait("env/box", "Ready");
    assert_eq!(scene.hmz(&["sh", "env/box", "--", "nvidia-smi"]), format!("0, GPU-{alive}\n"));
    let resource = format!("runtime/docker:{runtime}");
    let described = eventually("that one is silent is told", LIMIT, || {
        let described = scene.hmz(&["describe", &resource]);
        described.contains("GPUs silent:").then_some(described)
    });
    assert!(described.contains(&format!("{dead} (they did not answer when they were asked last)")), "{described}");
    assert!(described.contains(&format!("GPU {dead} does not answer")), "{described}");
    eventually("what is free is shown", LIMIT, || {
        let row = scene.hmz(&["get", &resource, "-o", "wide"]);
        row.contains(" 0/2 ").then_some(())
    });
    scene.hmz(&["delete", "env/box"]);
    scene.assert_nothing_left();
}

#[test]
fn a_daemon_that_dies_while_it_asks_them_leaves_nothing() {
    let listed = Listed::new();
    let alive = &listed.numbers[0];
    let scene = Scene::on("docker28", &format!(", image: 'busybox:latest', cpus: 2, memory: 1G, gpus: [{alive}]"));
    eventually("the daemon lists them", LIMIT, || {
        scene.engine.docker(&["info", "--format", "{{json .DiscoveredDevices}}"]).contains(alive).then_some(())
    });
    let mut daemon = scene.home.hmz(["controller"]).env("HMZ_FAILPOINT", "docker.probe").start();
    daemon.wait_for("listening");
    scene.apply("Environment", "box", "{runtime: 'docker:$R', workdir: ., gpus: 1}");
    let dead = daemon.wait();
    assert!(dead.code() == 134 && dead.err().contains("failpoint: docker.probe\n"), "{dead}");
    let label = format!("label={}", scene.home.label().unwrap());
    let asks = || scene.engine.docker(&["ps", "-aq", "--filter", &label, "--filter", "label=hmz.purpose=probe"]);
    // the next daemon asks them again, and clears away first
    scene.wait("env/box", "Ready");
    eventually("the container that asked is gone", LIMIT, || asks().is_empty().then_some(()));
    assert_eq!(scene.hmz(&["sh", "env/box", "--", "nvidia-smi"]), format!("0, GPU-{alive}\n"));
    scene.hmz(&["delete", "env/box"]);
    scene.assert_nothing_left();
}

#[test]
fn what_a_gpu_does_is_shown_beside_what_its_box_uses() {
    // what is asked of it decides: whether it answers, or what it does
    let listed = Listed::saying(|alive| {
        format!(
            "case \"$*\" in *utilization.gpu,memory.used,memory.total*) echo '37, 1536, 24576';; *) echo '0, GPU-{alive}';; esac"
        )
    });
    let alive = &listed.numbers[0];
    let scene = Scene::on("docker28", &format!(", image: 'busybox:latest', cpus: 2, memory: 1G, gpus: [{alive}]"));
    eventually("the daemon lists them", LIMIT, || {
        scene.engine.docker(&["info", "--format", "{{json .DiscoveredDevices}}"]).contains(alive).then_some(())
    });
    scene.apply("Environment", "box", "{runtime: 'docker:$R', workdir: ., gpus: 1}");
    scene.apply("Environment", "plain", "{runtime: 'docker:$R', workdir: .}");
    scene.wait("env/box", "Ready");
    scene.wait("env/plain", "Ready");
    let json = |words: &[&str]| -> Value {
        let said = scene.hmz(&[&["top"], words, &["-o", "json"]].concat());
        serde_json::from_str::<Value>(&said).unwrap()["items"][0].clone()
    };
    let row = json(&["envs", "box"]);
    let gpus = json!({"percent": 37, "memory": "1536M", "memoryLimit": "24G"});
    assert_eq!((&row["gpus"], &row["share"]["gpus"]), (&gpus, &json!([alive])), "{row}");
    assert_eq!(json(&["envs", "plain"])["gpus"], Value::Null);
    let cells = |shown: &str, name: &str| -> Vec<String> {
        let row = |line: &str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect();
        let head: Vec<String> = row(shown.lines().next().unwrap());
        let at = head.iter().position(|cell| cell == "GPUS").unwrap();
        let line: Vec<String> = row(shown.lines().find(|line| line.starts_with(name)).unwrap());
        line[at..].to_vec()
    };
    let shown = scene.hmz(&["top", "envs"]);
    assert_eq!(cells(&shown, "box"), ["1", "37%", "1.5G/24G"], "{shown}");
    assert_eq!(cells(&shown, "plain"), ["-", "-", "-"], "{shown}");
    let runtime = format!("docker:{}", scene.runtime);
    assert_eq!(json(&["runtimes", &runtime])["heldGpus"], 1);
    let shown = scene.hmz(&["top", "runtimes", &runtime]);
    assert_eq!(cells(&shown, &runtime), ["1"], "{shown}");
    scene.hmz(&["delete", "env/box", "env/plain"]);
    scene.assert_nothing_left();
}
