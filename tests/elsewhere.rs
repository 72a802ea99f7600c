//! Environments on a docker daemon of another machine, or as good as: over TLS and over ssh, on a line of 50 ms each way.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod provider;
mod support;

use provider::Provider;
use provider::script::{Step, bash, edit, read};
use rustix::process::Signal;
use std::time::Duration;
use support::far::Far;
use support::home::TestHome;
use support::processes;
use support::{LIMIT, eventually};

/// How long a byte takes each way.
const DELAY: Duration = Duration::from_millis(50);

fn environment(runtime: &str, dir: &str) -> String {
    format!(
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: box}}\nspec: {{runtime: 'docker:{runtime}', workdir: {dir}, \
         image: busybox, cpus: 0.5, memory: 128M}}\n"
    )
}

/// An environment in a directory only the other machine has, from its declaration to its deletion.
fn a_box_over(runtime: &str) {
    let far = Far::new(DELAY);
    let home = &far.home;
    let manifest = home.home().join("box.yaml");
    std::fs::write(&manifest, environment(runtime, far.work.0.to_str().unwrap())).unwrap();
    std::fs::write(far.work.1.join("there"), "on the other machine\n").unwrap();
    let _ = home.hmz(["apply", "-f"]).arg(&manifest).run().ok();
    let _ = home.hmz(["wait", "--for=condition=Ready", "env/box", "--timeout", "2m"]).run().ok();
    let id = far.containers().into_iter().next().expect("a container there");
    assert_eq!(home.containers(), Vec::<String>::new(), "it is not here");
    let sh = |line: &str| home.hmz(["sh", "env/box", "--", "sh", "-c", line]).run();
    let said = sh("hostname; pwd; cat there; echo made >made; exec cat /nonexistent").expect_code(1);
    assert_eq!(said.out(), format!("{}\n{}\non the other machine\n", &id[..12], far.work.0.display()), "{said}");
    assert!(said.err().contains("/nonexistent"), "{said}");
    assert_eq!(std::fs::read_to_string(far.work.1.join("made")).unwrap(), "made\n");
    let upper = home.hmz(["sh", "env/box", "--", "tr", "a-z", "A-Z"]).stdin("over there").run().ok();
    assert_eq!(upper.out(), "OVER THERE");
    let top: serde_json::Value = serde_json::from_str(&home.hmz(["top", "envs", "-o", "json"]).run().ok().out()).unwrap();
    let row = &top["items"][0];
    assert_eq!((&row["cpuLimit"], &row["memoryLimit"]), (&0.5.into(), &(128 << 20).into()), "{row}");
    assert!(row["cpus"].is_number() && row["memory"].is_number() && row["receivedPerSecond"].is_number(), "{row}");
    // our daemon is killed, and with it the shorter way
    assert!(kill_daemon(home));
    assert_eq!(sh("cat made").ok().out(), "made\n");
    let _ = home.hmz(["delete", "env/box"]).run().ok();
    far.assert_nothing_left();
}

/// Kills our daemon; whether there was one.
fn kill_daemon(home: &TestHome) -> bool {
    let pids = home.processes();
    let found = pids.into_iter().find(|pid| processes::line(*pid).contains(" controller --background"));
    let Some(process) = found.and_then(processes::Process::of) else { return false };
    process.signal(Signal::KILL);
    eventually("it is dead", LIMIT, || (!process.is_alive()).then_some(true))
}

#[test]
fn a_box_is_made_worked_in_and_removed_over_tls() {
    a_box_over("tls");
}

#[test]
fn a_box_is_made_worked_in_and_removed_over_ssh() {
    a_box_over("ssh");
}

#[test]
fn what_docker_host_and_its_certificates_say_is_followed_as_docker_does() {
    let far = Far::new(Duration::from_millis(5));
    let home = &far.home;
    let manifest = home.home().join("box.yaml");
    std::fs::write(&manifest, environment("plain", far.work.0.to_str().unwrap())).unwrap();
    home.settings("runtimes:\n  docker:\n    plain: {endpoint: local}\n");
    let place = far.tls();
    let (endpoint, tls_dir) = place.split_once(", tls_dir: ").unwrap();
    let endpoint = endpoint.trim_start_matches("endpoint: ").trim_matches('\'').to_owned();
    let vars = [("DOCKER_HOST", endpoint.as_str()), ("DOCKER_TLS_VERIFY", "1"), ("DOCKER_CERT_PATH", tls_dir)];
    let hmz = |words: &[&str]| home.hmz(words).envs(vars.map(|(name, value)| (name, value.to_owned())));
    let _ = hmz(&["apply", "-f"]).arg(&manifest).run().ok();
    let _ = hmz(&["wait", "--for=condition=Ready", "env/box", "--timeout", "2m"]).run().ok();
    assert_eq!((far.containers().len(), home.containers().len()), (1, 0), "it is there and not here");
    // our daemon knows the way without them
    assert!(kill_daemon(home));
    assert_eq!(home.hmz(["sh", "env/box", "--", "pwd"]).run().ok().out(), format!("{}\n", far.work.0.display()));
    let _ = home.hmz(["delete", "env/box"]).run().ok();
    far.assert_nothing_left();
}

const TASK: &str = "Print this machine's hostname and OS, then fix add() in calc.py.";
const ANSWER: &str = "Fixed: the add() function now returns a + b.";

/// The main job with the real claude, whose CLI runs here and whose commands land there, in a directory both machines have.
fn the_main_job_over(engine: &str, runtime: &str) {
    let provider = Provider::start().script(
        "main",
        [
            Step::call(bash("hostname && uname -a")).saying("Looking around."),
            Step::call(read("calc.py")),
            Step::call(edit("calc.py", "return a - b", "return a + b")),
            Step::call(bash("mkdir -p sub && cd sub && id -u > owner.txt")),
            Step::call(bash("pwd && cat owner.txt && cat ../calc.py")),
            Step::call(bash("printf 'so much for that' >&2; exit 7")),
            Step::say(ANSWER).gated("end"),
        ],
    );
    let far = Far::of(engine, DELAY, |home| home.with_claude(&provider.url()));
    let home = &far.home;
    let project = home.project("p");
    let running = home
        .hmz(["exec", "-f", "boxed", "-a", "coder=claude/scripted-1:low", "-p", "budget.duration=10m"])
        .args(["-e", &format!("box=docker@{runtime}{}", project.path())])
        .arg(format!("{TASK} [[script:main]]"))
        .start();
    provider.wait_for_round("main", 6, LIMIT);
    let containers = far.containers();
    assert_eq!((containers.len(), home.containers().len()), (1, 0), "{containers:?}");
    // the host shares this machine's kernel, and still nothing goes past the channel
    let boxes: serde_json::Value = serde_json::from_str(&home.hmz(["get", "envs", "-o", "json"]).run().ok().out()).unwrap();
    let status = &boxes["items"][0]["status"];
    assert!(status["reach"]["way"].is_object() && status["reach"]["exec"].is_object(), "{status}");
    provider.open("end");
    let finished = running.wait().ok();
    far.assert_nothing_left();

    let results = provider.results("main");
    assert!(results[..5].iter().all(|result| !result.is_error), "{results:#?}");
    let (name, uname) = results[0].text.split_once('\n').expect("two lines");
    assert!(name.len() == 12 && containers[0].starts_with(name), "{name} is not of {containers:?}");
    assert!(uname.starts_with(&format!("Linux {name} ")), "{uname}");
    // the second command is where the first went, in the same directory that is here
    let inner = format!("{}/sub\n{}\ndef add(a, b):\n    return a + b", project.path(), home.uid());
    assert_eq!(results[4].text, inner);
    assert_eq!(results[5].text, "Exit code 7\nso much for that");
    assert_eq!(finished.out(), format!("{ANSWER}\n"), "{finished}");
    project.assert_fixed();
    let left: Vec<_> = std::fs::read_dir(project.dir()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_str().unwrap().starts_with(".hmz")), "{left:?}");
}

/// One test for each engine and way to it.
macro_rules! main_jobs {
    ($($name:ident: $engine:literal over $way:literal;)*) => {$(
        #[test]
        fn $name() {
            the_main_job_over($engine, $way);
        }
    )*};
}

main_jobs! {
    the_real_claude_works_over_tls: "" over "tls";
    the_real_claude_works_over_ssh: "" over "ssh";
    the_real_claude_works_on_docker_26_over_tls: "docker26" over "tls";
    the_real_claude_works_on_docker_26_over_ssh: "docker26" over "ssh";
    the_real_claude_works_on_the_newest_docker_over_tls: "docker28" over "tls";
    the_real_claude_works_on_the_newest_docker_over_ssh: "docker28" over "ssh";
    the_real_claude_works_on_podman_over_tls: "podman" over "tls";
    the_real_claude_works_on_podman_over_ssh: "podman" over "ssh";
}

/// A flow whose only step is a command, which waits for a file.
const FLOW: &str = "\
apiVersion: hmz/v1
kind: Flow
metadata: {name: waits}
spec:
  environments: {box: {image: busybox}}
  steps:
  - exec: {environment: box, command: [sh, -c, 'echo begun >begun; until [ -e go ]; do sleep 0.1; done; hostname >done']}
";

#[test]
fn a_run_goes_on_without_our_daemon_and_its_way() {
    let far = Far::new(DELAY);
    let home = &far.home;
    let flow = home.home().join("flow.yaml");
    std::fs::write(&flow, FLOW).unwrap();
    let _ = home.hmz(["apply", "-f"]).arg(&flow).run().ok();
    let run = home.home().join("run.yaml");
    let place = far.work.0.display();
    let text = format!(
        "apiVersion: hmz/v1\nkind: Run\nmetadata: {{name: one}}\nspec:\n  flow: waits\n  task: wait\n  environments: {{box: \
         'docker@ssh{place}'}}\n"
    );
    std::fs::write(&run, text).unwrap();
    let _ = home.hmz(["apply", "-f"]).arg(&run).run().ok();
    eventually("the command has begun", LIMIT, || far.work.1.join("begun").exists().then_some(()));
    let before = far.lines[1].made();
    // the ssh it had outlives it for as long as something goes over it
    let ssh: Vec<_> = home.processes().into_iter().filter(|pid| processes::line(*pid).starts_with("ssh ")).collect();
    assert!(kill_daemon(home));
    for process in ssh.into_iter().filter_map(processes::Process::of) {
        process.signal(Signal::KILL);
    }
    // the sessions find another way, each its own
    eventually("another connection of ssh", LIMIT, || (far.lines[1].made() > before).then_some(()));
    std::fs::write(far.work.1.join("go"), "").unwrap();
    let _ = home.hmz(["wait", "--for=condition=Complete", "run/one", "--timeout", "2m"]).run().ok();
    let kept = home.hmz(["get", "runs"]).run().ok();
    assert!(kept.out().contains("Succeeded"), "{kept}");
    assert_eq!(std::fs::read_to_string(far.work.1.join("done")).unwrap().trim().len(), 12);
    far.assert_nothing_left();
}

#[test]
fn a_saved_host_says_what_it_has() {
    let far = Far::new(Duration::ZERO);
    let cpus = std::thread::available_parallelism().unwrap();
    let checked = far.home.hmz(["runtime", "check", "ssh/far"]).run().ok().out();
    assert!(checked.starts_with(&format!("ssh/far answers: home /root; {cpus} CPUs, ")) && checked.ends_with("G\n"), "{checked}");
    let json: serde_json::Value =
        serde_json::from_str(&far.home.hmz(["runtime", "check", "far", "-o", "json"]).run().ok().out()).unwrap();
    assert_eq!((&json["state"], &json["has"]["home"]), (&"Answers".into(), &"/root".into()), "{json}");
}

#[test]
fn a_line_that_is_cut_for_long_is_told_as_lost() {
    let far = Far::new(Duration::ZERO);
    let home = &far.home;
    let flow = home.home().join("flow.yaml");
    std::fs::write(&flow, FLOW).unwrap();
    let _ = home.hmz(["apply", "-f"]).arg(&flow).run().ok();
    let place = format!("box=docker@tls{}", far.work.0.display());
    let mut running = home.hmz(["exec", "-f", "waits", "-e", &place, "wait"]).start();
    eventually("the command has begun", LIMIT, || far.work.1.join("begun").exists().then_some(()));
    far.lines[0].cut();
    running.wait_for("failed -- waits: the box of 'box' on docker:tls is gone");
    // what it did there was killed, and is removed once it can be
    far.lines[0].join();
    let _ = running.wait().expect_code(1);
    far.assert_nothing_left();
    assert!(!far.work.1.join("done").exists());
}

/// What the script agent does.
const STEPS: &str =
    "- run: hostname\n- edit: {path: calc.py, old: return a - b, new: return a + b}\n- run: cat calc.py\n- say: Fixed.\n";

#[test]
fn a_directory_both_have_is_worked_in_and_another_is_refused() {
    let far = Far::new(Duration::ZERO);
    let home = &far.home;
    let project = home.project("p");
    project.write("steps.yaml", STEPS);
    let agent = format!("coder=script/{}", project.file("steps.yaml").display());
    let exec =
        |place: &str| home.hmz(["exec", "-f", "boxed", "-a", &agent, "-e", &format!("box=docker@tls{place}"), "fix it"]).run();
    let done = exec(project.path()).ok();
    assert_eq!(done.out(), "Fixed.\n", "{done}");
    project.assert_fixed();
    far.assert_nothing_left();

    // it is there only, or another is here: the same words
    let place = far.work.0.to_str().unwrap();
    for here in [false, true] {
        if here {
            std::fs::create_dir(&far.work.0).unwrap();
        }
        let refused = exec(place);
        if here {
            std::fs::remove_dir(&far.work.0).unwrap();
        }
        let refused = refused.expect_code(2);
        let said = format!(
            "hmz exec: error: coder: its harness runs here, and {place} on docker:tls is not the directory of that path here, \
             which it has to be, since files are not copied yet\n"
        );
        assert!(refused.err().ends_with(&said), "{refused}");
        assert_eq!(std::fs::read_dir(&far.work.1).unwrap().count(), 0);
        far.assert_nothing_left();
    }
    // and one that is only here is not there
    let missing = exec("/srv/no-such-directory").expect_code(2);
    let said = "docker@tls has no /srv/no-such-directory to run a container: no directory to give the container on tcp://";
    assert!(missing.err().contains(said), "{missing}");
    far.assert_nothing_left();
}

/// An agent that lives in its box needs nothing of its work here.
fn an_agent_lives_over(runtime: &str) {
    let far = Far::new(DELAY);
    let home = &far.home;
    let settings = std::fs::read_to_string(home.hmz_home().join("settings.yaml")).unwrap();
    home.settings(&settings.replace("harness: local", "harness: env"));
    let place = far.work.0.to_str().unwrap();
    std::fs::write(far.work.1.join("calc.py"), "def add(a, b):\n    return a - b\n").unwrap();
    let steps = home.root().join("work/steps.yaml");
    std::fs::write(&steps, STEPS).unwrap();
    let agent = format!("coder=script/{}", steps.display());
    let place = format!("box=docker@{runtime}{place}");
    let done = home.hmz(["exec", "-f", "boxed", "-a", &agent, "-e", &place, "fix it"]).run().ok();
    assert_eq!(done.out(), "Fixed.\n", "{done}");
    let _ = done.says("coder's harness runs on its environment's machine");
    assert!(std::fs::read_to_string(far.work.1.join("calc.py")).unwrap().contains("a + b"));
    far.assert_nothing_left();
}

#[test]
fn an_agent_lives_in_a_directory_that_only_the_other_machine_has_over_tls() {
    an_agent_lives_over("tls");
}

#[test]
fn an_agent_lives_in_a_directory_that_only_the_other_machine_has_over_ssh() {
    an_agent_lives_over("ssh");
}
