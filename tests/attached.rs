//! Environments in a container that runs already (`container:`): nothing of it is started, counted, limited or stopped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

use std::time::Duration;
use support::docker::docker;
use support::far::Far;
use support::held::Held;
use support::home::TestHome;
use support::project::{BUGGY, Project};
use support::{LIMIT, eventually};

/// A home with a runtime `held` that names a container of nobody's of hmz's.
struct Scene {
    home: TestHome,
    held: Held,
    projects: [Project; 2],
}

impl Scene {
    fn new(more: &str) -> Self {
        let home = TestHome::new();
        let projects = [home.project("one"), home.project("two")];
        let mounts = projects.each_ref().map(|p| format!("{0}:{0}", p.path()));
        let held = Held::start(&home, "busybox", &["-v", &mounts[0], "-v", &mounts[1]]);
        let name = &held.name;
        home.settings(&format!(
            "runtimes:\n  docker:\n    held: {{endpoint: local, harness: local, container: {name}{more}}}\n    gone: {{endpoint: \
             local, harness: local, container: {name}-gone}}\n    inside: {{endpoint: local, container: {name}}}\n"
        ));
        Self { home, held, projects }
    }

    fn name(&self) -> &str {
        &self.held.name
    }

    fn inside(&self, line: &str) -> String {
        self.held.inside(line)
    }

    #[track_caller]
    fn assert_left(&self) {
        self.held.assert_left(&self.home);
    }
}

#[test]
fn a_box_in_a_container_that_runs_comes_and_goes_without_a_trace() {
    let held = Scene::new(", exec_user: '1234:2345', exec_env: [MARK=set], exec_wrapper: [/bin/env, WRAPPED=yes]");
    let home = &held.home;
    let before = held.held.started();
    let manifest = home.home().join("box.yaml");
    let text = "apiVersion: hmz/v1\nkind: Environment\nmetadata: {name: box}\nspec: {runtime: 'docker:held', workdir: /home, cpus: \
                0.5, memory: 64M}\n";
    std::fs::write(&manifest, text).unwrap();
    let _ = home.hmz(["apply", "-f"]).arg(&manifest).run().ok();
    let _ = home.hmz(["wait", "--for=condition=Ready", "env/box", "--timeout", "2m"]).run().ok();
    let sh = |line: &str| home.hmz(["sh", "env/box", "--", "sh", "-c", line]).run();
    let said = sh("pwd; id -u; id -g; echo $MARK $WRAPPED; hostname").ok().out();
    let id = docker(&["inspect", "-f", "{{.Id}}", held.name()]);
    assert_eq!(said, format!("/home\n1234\n2345\nset yes\n{}\n", &id[..12]));
    let _ = sh("exit 9").expect_code(9);
    let shown = home.hmz(["get", "envs"]).run().ok().out();
    assert!(shown.contains(&format!(" container:{} ", held.name())), "{shown}");
    // what stands for it on the daemon was never started
    let marks = home.containers();
    assert_eq!(docker(&["inspect", "-f", "{{.State.Status}}", &marks[0]]), "created");
    let _ = home.hmz(["delete", "env/box"]).run().ok();
    held.assert_left();
    assert_eq!(held.held.started(), before, "it was started anew, or limited");
}

/// What the script agent does.
const STEPS: &str = "- run: hostname >host.txt\n- wait_for: go\n- edit: {path: calc.py, old: return a - b, new: return a + b}\n- run: cat \
                     calc.py\n- say: Fixed.\n";

#[test]
fn two_runs_in_one_container_do_not_meet() {
    let held = Scene::new("");
    let home = &held.home;
    let running: Vec<_> = held
        .projects
        .iter()
        .map(|project| {
            project.write("steps.yaml", STEPS);
            let agent = format!("coder=script/{}", project.file("steps.yaml").display());
            home.hmz(["exec", "-f", "boxed", "-a", &agent, "-e", &format!("box=docker@held{}", project.path()), "fix it"]).start()
        })
        .collect();
    for project in &held.projects {
        eventually("its first command", LIMIT, || project.file("host.txt").exists().then_some(()));
    }
    assert_eq!(held.inside("ls -d /.hmz-* | wc -l"), "2");
    let [first, second] = <[_; 2]>::try_from(running).ok().unwrap();
    held.projects[0].write("go", "");
    assert_eq!(first.wait().ok().out(), "Fixed.\n");
    held.projects[0].assert_fixed();
    // the end of one is nothing to the other
    eventually("one guest is out", LIMIT, || (held.inside("ls -d /.hmz-* | wc -l") == "1").then_some(()));
    assert_eq!(held.projects[1].read("calc.py"), BUGGY);
    held.projects[1].write("go", "");
    assert_eq!(second.wait().ok().out(), "Fixed.\n");
    held.projects[1].assert_fixed();
    held.assert_left();
}

#[test]
fn an_agent_is_in_the_container_itself_too() {
    let held = Scene::new("");
    let (home, project) = (&held.home, &held.projects[0]);
    project.write("go", "");
    project.write("steps.yaml", STEPS);
    let agent = format!("coder=script/{}", project.file("steps.yaml").display());
    let place = format!("box=docker@inside{}", project.path());
    let done = home.hmz(["exec", "-f", "boxed", "-a", &agent, "-e", &place, "fix it"]).run().ok();
    assert_eq!(done.out(), "Fixed.\n");
    project.assert_fixed();
    held.assert_left();
}

/// A box `box` of a manifest, in the container.
fn applied(held: &Scene) {
    let home = &held.home;
    let manifest = home.home().join("box.yaml");
    let text = "apiVersion: hmz/v1\nkind: Environment\nmetadata: {name: box}\nspec: {runtime: 'docker:held', workdir: /home}\n";
    std::fs::write(&manifest, text).unwrap();
    let _ = home.hmz(["apply", "-f"]).arg(&manifest).run().ok();
    let _ = home.hmz(["wait", "--for=condition=Ready", "env/box", "--timeout", "2m"]).run().ok();
}

#[test]
fn the_end_of_the_container_is_told_to_all_that_is_in_it() {
    for (end, reason, said) in [
        (&["stop", "-t", "60"][..], "Stopped", "the box was stopped, by somebody or with its daemon"),
        (&["kill"], "KilledByHand", "the box was killed by signal 9, which somebody sent"),
        (&["rm", "-f"], "RemovedByHand", "the box was removed by somebody"),
    ] {
        let held = Scene::new("");
        let (home, project) = (&held.home, &held.projects[0]);
        applied(&held);
        project.write("steps.yaml", STEPS);
        let agent = format!("coder=script/{}", project.file("steps.yaml").display());
        let place = format!("box=docker@held{}", project.path());
        let running = home.hmz(["exec", "-f", "boxed", "-a", &agent, "-e", &place, "fix it"]).start();
        eventually("its first command", LIMIT, || project.file("host.txt").exists().then_some(()));
        docker(&[end, &[held.name()]].concat());
        let told = eventually("the environment says so", LIMIT, || {
            let env: serde_json::Value =
                serde_json::from_str(&home.hmz(["get", "env/box", "-o", "json"]).run().ok().out()).unwrap();
            let all = env["status"]["conditions"].as_array().unwrap();
            let ready = all.iter().find(|c| c["type"] == "Ready").unwrap();
            (ready["status"] == "False").then(|| (ready["reason"].clone(), ready["message"].clone()))
        });
        assert_eq!(told, (reason.into(), said.into()), "{end:?}");
        let _ = running.wait().expect_code(1).says("the box of 'box' on docker:held is gone");
        let runs = home.hmz(["get", "runs", "-o", "json"]).run().ok();
        assert!(runs.out().contains(&format!("; {said}\"")), "{end:?}: {runs}");
        let _ = home.hmz(["delete", "env/box"]).run().ok();
        home.assert_no_container_left(LIMIT);
    }
}

#[test]
fn half_of_a_guest_goes_out_too() {
    let held = Scene::new("");
    applied(&held);
    // as a connection leaves it that was cut on the way in
    let _ = held.inside("cd /.hmz-* && rm whole && touch half && mv half hmz");
    let _ = held.home.hmz(["delete", "env/box"]).run().ok();
    held.assert_left();
}

#[test]
fn what_does_not_go_at_once_is_gone_at_last() {
    let held = Scene::new("");
    applied(&held);
    // nothing is executed in a container that stands still
    docker(&["pause", held.name()]);
    let deleting = held.home.hmz(["delete", "env/box"]).start();
    let tried = || held.home.hmz(["get", "env/box", "-o", "yaml"]).run().out().contains("is still in a container").then_some(());
    eventually("it was tried", LIMIT, tried);
    docker(&["unpause", held.name()]);
    let _ = deleting.wait().ok();
    held.assert_left();
}

#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    let held = Scene::new("");
    let home = &held.home;
    held.projects[0].write("steps.yaml", "- say: no\n");
    let agent = format!("coder=script/{}", held.projects[0].file("steps.yaml").display());
    let refused = |place: &str, said: &str| {
        let place = format!("box={place}");
        let done = home.hmz(["exec", "-f", "boxed", "-a", &agent, "-e", &place, "x"]).run().expect_code(2);
        assert!(done.err().ends_with(&format!("{said}\n")), "{done}");
        held.assert_left();
    };
    let name = held.name();
    let lacks = |runtime: &str, what: &str| {
        let done = home.hmz(["runtime", "check", runtime]).run().expect_code(1);
        let _ = done.says(&format!("lacks configured resources: {what}\n"));
    };
    lacks("docker/gone", &format!("it has no container {name}-gone"));
    let _ = home.hmz(["runtime", "check", "docker/held"]).run().ok();
    refused("docker@gone/tmp", &format!("docker@gone: cannot work in the container {name}-gone: there is none of that name"));
    refused("docker@held/nowhere", &format!("docker@held has no /nowhere: there is no such directory in the container {name}"));
    refused(
        "docker@held/home",
        "coder: its harness runs here, and /home on docker:held is not the directory of that path here, which it has to be, \
         since files are not copied yet",
    );
    // what it has is what it was given, else its machine's
    docker(&["update", "--cpus", "1.5", "--memory", "8g", "--memory-swap", "-1", name]);
    for (asks, said) in [
        ("cpus: 2", format!("docker@held: the container {name} has 1.5 CPUs, and 'box' asks for 2")),
        ("memory: 16G", format!("docker@held: the container {name} has 8 GiB of memory, and 'box' asks for 16 GiB")),
        ("gpus: 1", format!("docker@held hands out no GPUs of the container {name}, and 'box' asks for 1")),
    ] {
        let spec = format!("environments: {{box: {{{asks}}}}}\nsteps:\n  - exec: {{environment: box, command: 'true'}}");
        support::runs::flow(home, "asks", &spec);
        let done = home.hmz(["exec", "-f", "asks", "-e", "box=docker@held/tmp", "x"]).run().expect_code(2);
        assert!(done.err().ends_with(&format!("{said}\n")), "{done}");
        held.assert_left();
    }
    docker(&["stop", "-t", "5", name]);
    lacks("docker/held", &format!("its container {name} is not running"));
    let done = home.hmz(["exec", "-f", "boxed", "-a", &agent, "-e", "box=docker@held/tmp", "x"]).run().expect_code(2);
    assert!(done.err().contains(&format!("docker@held: cannot work in the container {name}: it is not running\n")), "{done}");
    docker(&["start", name]);
    held.assert_left();
}

#[test]
fn one_on_another_machine_is_worked_in_too() {
    let far = Far::new(Duration::from_millis(50));
    let home = &far.home;
    let name = format!("hmz-test-{}", home.root().file_name().unwrap().to_str().unwrap());
    far.docker(&["run", "-d", "--name", &name, "busybox", "sleep", "100000"]);
    let settings = std::fs::read_to_string(home.hmz_home().join("settings.yaml")).unwrap();
    home.settings(&settings.replace("{endpoint: 'ssh:far', ", &format!("{{endpoint: 'ssh:far', container: {name}, ")));
    let manifest = home.home().join("box.yaml");
    let text = "apiVersion: hmz/v1\nkind: Environment\nmetadata: {name: box}\nspec: {runtime: 'docker:ssh', workdir: /etc}\n";
    std::fs::write(&manifest, text).unwrap();
    let _ = home.hmz(["apply", "-f"]).arg(&manifest).run().ok();
    let waited = home.hmz(["wait", "--for=condition=Ready", "env/box", "--timeout", "2m"]).run();
    let said = home.hmz(["sh", "env/box", "--", "sh", "-c", "pwd; hostname"]).run();
    let deleted = home.hmz(["delete", "env/box"]).run();
    let left = far.docker(&["exec", &name, "sh", "-c", "ls -d /.hmz-* 2>/dev/null; true"]);
    let id = far.docker(&["inspect", "-f", "{{.Id}}", &name]);
    // its first process reaps nobody
    let reaped = || {
        let zombies = far.docker(&["exec", &name, "sh", "-c", "ps -o stat,args | grep '^Z' || true"]);
        zombies.is_empty().then_some(())
    };
    eventually("nothing dead is left", LIMIT, reaped);
    far.docker(&["rm", "-fv", &name]);
    let _ = (waited.ok(), deleted.ok());
    assert_eq!(said.ok().out(), format!("/etc\n{}\n", &id[..12]));
    assert_eq!(left, "");
    far.assert_nothing_left();
}
