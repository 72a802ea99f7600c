//! A docker swarm of three nodes: environments and runs on it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod provider;
mod support;

use provider::Provider;
use provider::script::{Step, Usage, bash, edit, read};
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use support::home::TestHome;
use support::processes;
use support::project::Project;
use support::proxy::{Proxy, Way};
use support::swarm::Nodes;
use support::{LIMIT, eventually};

/// The swarm of the testbed, and a home with a runtime `c` on it.
struct Swarm {
    nodes: Nodes,
    home: TestHome,
}

impl Swarm {
    /// With these settings of the runtime, two spaces before each line.
    fn new(settings: &str) -> Self {
        Self::with(rustix::fs::FlockOperation::LockShared, settings, TestHome::new())
    }

    fn with(turn: rustix::fs::FlockOperation, settings: &str, home: TestHome) -> Self {
        let swarm = Self { nodes: Nodes::get(turn), home };
        swarm.settings(settings);
        swarm
    }

    fn settings(&self, settings: &str) {
        let (manager, config) = (&self.nodes.place["manager"], &self.nodes.place["ssh_config"]);
        let hosts: String = ["w1", "w2"].map(|n| format!("    {n}: {{alias: {n}, config: {config}}}\n")).concat();
        let own: String = settings.lines().map(|line| format!("      {line}\n")).collect();
        self.home.settings(&format!(
            "runtimes:\n  ssh:\n{hosts}  swarm:\n    c:\n      endpoint: unix://{manager}\n      image: busybox:latest\n      nodes: \
             {{w1: w1, w2: w2}}\n{own}"
        ));
    }

    fn docker(&self, args: &[&str]) -> String {
        self.nodes.docker("manager", args)
    }

    /// The ids of this home's services.
    fn services(&self) -> Vec<String> {
        let Some(label) = self.home.label() else { return Vec::new() };
        self.docker(&["service", "ls", "-q", "--filter", &format!("label={label}")]).lines().map(str::to_owned).collect()
    }

    fn nothing_is_left(&self) {
        eventually("no service of this home is left", LIMIT, || self.services().is_empty().then_some(()));
    }

    /// Writes the manifest of an environment.
    fn environment(&self, name: &str, project: &Project, more: &str) -> String {
        let file = self.home.root().join(format!("{name}.yaml"));
        let workdir = project.path();
        let text = format!(
            "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: {name}}}\nspec: {{runtime: 'swarm:c', workdir: {workdir}{more}}}\n"
        );
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    }

    fn sh(&self, env: &str, command: &str) -> String {
        self.home.hmz(["sh", env, "--", "sh", "-c", command]).run().ok().out()
    }
}

impl Drop for Swarm {
    fn drop(&mut self) {
        let host = format!("unix://{}", self.nodes.place["manager"]);
        for id in self.services() {
            let _ = Command::new("docker").args(["-H", &host, "service", "rm", &id]).output();
        }
    }
}

/// Whose a directory of the project becomes.
fn give(project: &Project, uid: u32, gid: u32) {
    std::os::unix::fs::chown(project.dir(), Some(uid), Some(gid)).unwrap();
}

#[test]
fn an_environment_converges_when_the_daemon_dies_at_any_step_of_its_life() {
    let swarm = Swarm::new("");
    let (home, project) = (&swarm.home, swarm.home.project("p"));
    let file = swarm.environment("box", &project, "");
    let points = ["lock", "hold", "admitted", "released", "created", "placed", "guest", "removed"];
    for point in points.map(|point| format!("swarm.{point}")) {
        // verbs start one whenever there is none
        let daemon = eventually("the home's one daemon is this one", LIMIT, || {
            for pid in home.processes().into_iter().filter(|pid| processes::line(*pid).contains(" controller")) {
                let before = processes::Process::of(pid)?;
                before.signal(rustix::process::Signal::KILL);
                before.assert_gone();
            }
            let daemon = home.hmz(["controller"]).env("HMZ_FAILPOINT", &point).start();
            let listens = eventually("it listens, or another does", LIMIT, || {
                let said = format!("{}{}", daemon.stdout(), daemon.stderr());
                if said.contains("listening") { Some(true) } else { said.contains("error: ").then_some(false) }
            });
            listens.then_some(daemon)
        });
        let _ = home.hmz(["apply", "-f", &file]).run().ok();
        let _ = home.hmz(["wait", "--for=condition=Ready", "env/box", "--timeout", "110s"]).run().ok();
        assert_eq!(swarm.services().len(), 1, "{point}");
        // a daemon that dies there takes the verb's answer with it
        let deleted = home.hmz(["delete", "env/box"]).run();
        if deleted.code() != 0 {
            let again = home.hmz(["delete", "env/box"]).run();
            assert!(again.code() == 0 || again.err().contains("there is no"), "{point}: {deleted}{again}");
        }
        let dead = daemon.wait().expect_code(134);
        assert!(dead.err().contains(&format!("failpoint: {point}\n")), "{dead}");
        swarm.nothing_is_left();
    }
}

#[test]
fn an_environment_lives_on_a_worker_until_it_is_deleted() {
    let swarm = Swarm::new("constraints: [node.hostname==w1]");
    let (home, project) = (&swarm.home, swarm.home.project("p"));
    give(&project, 2345, 3456);
    let file = swarm.environment("box", &project, ", cpus: 0.25, memory: 64M");
    let _ = home.hmz(["apply", "-f", &file]).run().ok();
    let _ = home.hmz(["wait", "--for=condition=Ready", "env/box"]).run().ok();
    let got = home.hmz(["get", "envs"]).run().ok();
    assert!(
        got.out().lines().nth(1).is_some_and(|l| l.starts_with("box ") && l.contains("swarm:c") && l.contains("True")),
        "{got}"
    );
    let described = home.hmz(["describe", "env/box"]).run().ok();
    assert!(described.out().contains("Node") && described.out().contains("w1"), "{described}");
    // its commands run there, as whose the directory is, and what they write is here
    assert_eq!(
        swarm.sh("env/box", "id -u; id -g; pwd; echo $$ >pid; echo done"),
        format!("2345\n3456\n{}\ndone\n", project.path())
    );
    let found = std::fs::metadata(project.file("pid")).unwrap();
    assert_eq!((found.uid(), found.gid()), (2345, 3456));
    assert_eq!(swarm.services().len(), 1);
    // the daemon of its node is asked
    let top: serde_json::Value = serde_json::from_str(&home.hmz(["top", "envs", "-o", "json"]).run().ok().out()).unwrap();
    let row = &top["items"][0];
    assert_eq!((&row["cpuLimit"], &row["memoryLimit"], &row["node"]), (&0.25.into(), &(64 << 20).into(), &"w1".into()), "{row}");
    assert!(row["cpus"].is_number() && row["memory"].is_number(), "{row}");
    // a runtime is looked at a moment after what is on it has changed
    eventually("its runtime tells of it", LIMIT, || {
        home.hmz(["describe", "runtime/swarm:c"]).run().ok().out().contains("humanize-c-box-").then_some(())
    });
    let _ = home.hmz(["delete", "env/box"]).run().ok();
    assert_eq!(swarm.services(), Vec::<String>::new());
}

const ANSWER: &str = "Fixed: the add() function now returns a + b.";

/// A run of an agent whose CLI is here and whose commands land on the worker `w1`, in a directory both have.
fn the_main_job(swarm: &Swarm, place: &str) {
    let provider = Provider::start().script(
        "main",
        [
            Step::call(bash("hostname && uname -s")).saying("Looking around."),
            Step::call(read("calc.py")),
            Step::call(edit("calc.py", "return a - b", "return a + b")),
            Step::call(bash("mkdir -p sub && cd sub && id -u > owner.txt")),
            Step::call(bash("pwd && cat owner.txt && cat ../calc.py")),
            Step::say(ANSWER).using(Usage { input: 22, output: 2350, cache_read: 0, cache_write: 0 }),
        ],
    );
    let project = swarm.home.project("p");
    let task = "Print this machine's hostname and OS, then fix add() in calc.py. [[script:main]]";
    let mut words = vec!["exec".to_owned(), "-f".into(), "boxed".into(), "-a".into(), "coder=claude/scripted-1:low".into()];
    words.extend(["-e".into(), format!("box={place}{}", project.path()), "-p".into(), "budget.duration=10m".into(), task.into()]);
    let mut running = swarm.home.hmz(&words);
    for (name, value) in support::agent::variables(&provider.url()) {
        running = running.env(name, value);
    }
    let finished = running.env("PATH", support::agent::path()).run().ok();
    assert_eq!(finished.out(), format!("{ANSWER}\n"), "{finished}");
    let results = provider.results("main");
    let tools: Vec<&str> = results.iter().map(|result| result.tool.as_str()).collect();
    assert_eq!(tools, ["Bash", "Read", "Edit", "Bash", "Bash"], "{results:#?}");
    assert!(results.iter().all(|result| !result.is_error), "{results:#?}");
    let (name, system) = results[0].text.split_once('\n').unwrap();
    assert!(name.len() == 12 && name.bytes().all(|b| b.is_ascii_hexdigit()) && system == "Linux", "{name} {system}");
    let inner = format!("{}/sub\n0\ndef add(a, b):\n    return a + b", project.path());
    assert_eq!(results[4].text, inner);
    assert!(finished.err().contains("coder's harness runs here"), "{finished}");
    project.assert_fixed();
    swarm.nothing_is_left();
}

#[test]
fn the_real_claude_works_here_and_its_commands_land_on_a_worker() {
    let swarm = Swarm::new("constraints: [node.hostname==w1]");
    the_main_job(&swarm, "swarm@c");
}

/// An image that only this machine's daemon has is on a node too.
fn load(swarm: &Swarm, node: &str, image: &str) {
    let host = format!("unix://{}", swarm.nodes.place[node]);
    let there = |words: &[&str]| Command::new("docker").args(["-H", &host]).args(words).output().unwrap();
    if there(&["image", "inspect", image]).status.success() {
        return;
    }
    let mut save = Command::new("docker").args(["save", image]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let saved = save.stdout.take().unwrap();
    let loaded = Command::new("docker").args(["-H", &host, "load"]).stdin(saved).output().unwrap();
    assert!(save.wait().unwrap().success() && loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
}

/// The address at which the nodes reach this machine.
const CABLE: std::net::Ipv4Addr = std::net::Ipv4Addr::new(10, 213, 78, 1);

const IN_THE_BOX: &str = "coder's harness runs on its environment's machine";

#[test]
fn the_built_in_agent_lives_in_its_box_on_a_worker() {
    let swarm = Swarm::new("constraints: [node.hostname==w1]\nharness: env");
    let (home, project) = (&swarm.home, swarm.home.project("p"));
    support::runs::boxed_in(home, "small", "busybox:latest");
    let steps = "- run: hostname; cat /proc/$PPID/comm\n- write: {path: made.txt, content: there}\n- edit: {path: calc.py, old: a - b, \
                 new: a + b}\n- run: cat made.txt\n- say: it ran\n";
    let agent = format!("coder={}", support::runs::script(home, "s", steps));
    let place = format!("box=swarm@c{}", project.path());
    let done =
        home.hmz(["exec", "-f", "small", "-a", &agent, "-e", &place, "--json", "-p", "budget.duration=10m", "t"]).run().ok();
    let said = support::runs::results(&done);
    let (host, comm) = said[0].trim().split_once('\n').unwrap();
    assert!(host.len() == 12 && host.bytes().all(|b| b.is_ascii_hexdigit()) && comm == "hmz", "{said:?}");
    assert!(done.out().contains(IN_THE_BOX) && done.out().contains("it ran"), "{done}");
    assert_eq!(project.read("made.txt"), "there");
    project.assert_fixed();
    swarm.nothing_is_left();
    // an image without the CLI is refused in the words of docker's
    let refused = home.hmz(["exec", "-f", "small", "-a", "coder=claude/scripted-1:low", "-e", &place, "t"]).run().expect_code(2);
    let said = "hmz exec: error: swarm@c: claude's harness cannot run where its harness setting (env) says: claude is not installed on \
                swarm@c: npm i -g @anthropic-ai/claude-code there, or set the harness of the runtime it is on to local\n";
    assert!(refused.err().contains(said), "{refused}");
    swarm.nothing_is_left();
}

#[test]
fn the_real_claude_lives_in_its_box_on_a_worker() {
    let image = support::agent::image();
    // it makes the address
    let swarm = Swarm::new("");
    load(&swarm, "w1", &image);
    let provider = Provider::start_at(CABLE).script(
        "main",
        [
            Step::call(bash("hostname && cat /proc/$PPID/comm")).saying("Looking around."),
            Step::call(read("calc.py")),
            Step::call(edit("calc.py", "return a - b", "return a + b")),
            Step::call(bash("mkdir -p sub && cd sub && id -u > owner.txt")),
            Step::call(bash("pwd && cat owner.txt")),
            Step::say(ANSWER),
        ],
    );
    let variables: Vec<String> =
        support::agent::variables(&provider.url()).iter().map(|(name, value)| format!("'-e', '{name}={value}'")).collect();
    swarm.settings(&format!("constraints: [node.hostname==w1]\nharness: env\nrun_args: [{}]", variables.join(", ")));
    let (home, project) = (&swarm.home, swarm.home.project("p"));
    support::runs::boxed_in(home, "withclaude", &image);
    let place = format!("box=swarm@c{}", project.path());
    let running =
        home.hmz(["exec", "-f", "withclaude", "-a", "coder=claude/scripted-1:low", "-e", &place, "-p", "budget.duration=10m"]);
    let finished = running.arg("Do it. [[script:main]]").run().ok().says(IN_THE_BOX);
    assert_eq!(finished.out(), format!("{ANSWER}\n"), "{finished}");
    let results = provider.results("main");
    assert!(results.iter().all(|result| !result.is_error), "{results:#?}");
    let (host, comm) = results[0].text.split_once('\n').unwrap();
    assert!(host.len() == 12 && host.bytes().all(|b| b.is_ascii_hexdigit()) && comm == "claude", "{results:#?}");
    assert_eq!(results[4].text, format!("{}/sub\n0", project.path()));
    project.assert_fixed();
    swarm.nothing_is_left();
}

#[test]
fn a_swarm_that_nobody_saved_is_the_one_managed_here() {
    let mut home = TestHome::new();
    home.set("DOCKER_HOST", "unix:///nowhere.sock");
    let mut swarm = Swarm::with(rustix::fs::FlockOperation::LockExclusive, "", home);
    // the manager alone takes tasks: how its workers are reached nobody said
    let drained = Drained::of(&swarm.nodes, &["w1", "w2"]);
    let at = format!("unix://{}", swarm.nodes.place["manager"]);
    swarm.home.set("DOCKER_HOST", at);
    let project = swarm.home.project("p");
    let flow = "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: f}\nspec:\n  environments: {box: {image: 'busybox:latest'}}\n  steps:\n    - exec: {environment: box, command: 'hostname >said'}\n";
    project.write(".hmz/flows/f.yaml", flow);
    let place = format!("box=swarm{}", project.path());
    let exec = || swarm.home.hmz(["exec", "-f", "f", "-e", &place, "-p", "budget.duration=10m", "do"]).cwd(project.dir()).run();
    let done = exec().ok();
    assert_eq!(project.read("said").trim().len(), 12, "{done}");
    swarm.nothing_is_left();
    // on a worker, which this user's ssh does not know
    drop(drained);
    let drained = Drained::of(&swarm.nodes, &["mgr"]);
    let _ = exec().expect_code(2).says("swarm: could not reach the node w");
    drop(drained);
    swarm.nothing_is_left();
}

/// Nodes that take no tasks until it is dropped.
struct Drained<'a> {
    nodes: &'a Nodes,
    names: &'a [&'a str],
}

impl<'a> Drained<'a> {
    fn of(nodes: &'a Nodes, names: &'a [&'a str]) -> Self {
        let drained = Self { nodes, names };
        drained.each("drain");
        drained
    }

    fn each(&self, availability: &str) {
        for name in self.names {
            let _ = self.nodes.docker("manager", &["node", "update", "--availability", availability, name]);
        }
    }
}

impl Drop for Drained<'_> {
    fn drop(&mut self) {
        self.each("active");
    }
}

#[test]
fn roles_fall_back_to_a_swarm_and_from_one() {
    // its tasks are counted by the runtime's name, which others have too
    let swarm = Swarm::with(rustix::fs::FlockOperation::LockExclusive, "", TestHome::new());
    let own = "max_tasks: 1\nconstraints: [node.hostname==mgr]\nfallback: ['docker:spare', 'swarm:other']";
    swarm.settings(own);
    let file = swarm.home.hmz_home().join("settings.yaml");
    let saved = std::fs::read_to_string(&file).unwrap();
    swarm.home.settings(&format!(
        "{saved}  docker:\n    full: {{endpoint: local, cpus: 0.01, fallback: ['swarm:c']}}\n    spare: {{endpoint: local}}\n"
    ));
    let spec = "environments: {box: {image: 'busybox:latest', cpus: 0.02}}\nsteps:\n  - exec: {environment: box, command: 'hostname >said; \
                until [ -e go ]; do sleep 0.1; done'}";
    support::runs::flow(&swarm.home, "waits", spec);
    let (first, second) = (swarm.home.project("first"), swarm.home.project("second"));
    let exec = |runtime: &str, project: &Project| {
        let place = format!("box={runtime}{}", project.path());
        swarm.home.hmz(["exec", "-f", "waits", "-e", &place, "-p", "budget.duration=10m", "do"])
    };
    let to = exec("docker@full", &first).start();
    eventually("its command runs", LIMIT, || (first.file("said").exists() && !first.read("said").is_empty()).then_some(()));
    let task = swarm.docker(&["ps", "--no-trunc", "-q", "--filter", &format!("id={}", first.read("said").trim())]);
    assert!(!task.is_empty(), "it is on the manager");
    let from = exec("swarm@c", &second).start();
    eventually("its command runs", LIMIT, || (second.file("said").exists() && !second.read("said").is_empty()).then_some(()));
    assert!(swarm.home.containers().iter().any(|id| id.starts_with(second.read("said").trim())), "it is here");
    first.write("go", "");
    second.write("go", "");
    let _ = to
        .wait()
        .ok()
        .says("docker:full cannot hold 'box': docker@full has 0.01 of 0.01 CPUs free, and 'box' asks for 0.02; using swarm:c");
    let _ = from.wait().ok().says("swarm:c cannot hold 'box': swarm@c runs 1 of the 1 tasks it may; using docker:spare");
    swarm.nothing_is_left();
    swarm.home.assert_no_container_left(LIMIT);
}

/// A daemon of ours dies at a point; the next one brings what was begun to its end, and nothing is left of it.
fn converges(point: &str) {
    let swarm = Swarm::new("constraints: [node.hostname==mgr]");
    let (home, project) = (&swarm.home, swarm.home.project("p"));
    let file = swarm.environment("box", &project, ", cpus: 0.1");
    let mut daemon = home.hmz(["controller"]).env("HMZ_FAILPOINT", point).start();
    daemon.wait_for("listening");
    let _ = home.hmz(["apply", "-f", &file]).run().ok();
    let again = |words: &[&str]| {
        // the answer may go with the daemon
        eventually(&format!("{point}: hmz {words:?}"), LIMIT, || (home.hmz(words).run().code() == 0).then_some(()));
    };
    again(&["wait", "--for=condition=Ready", "env/box"]);
    assert_eq!(swarm.sh("env/box", "echo up"), "up\n", "{point}");
    assert_eq!(swarm.services().len(), 1, "{point}");
    let deleted = home.hmz(["delete", "env/box"]).run();
    if deleted.code() != 0 {
        let again = home.hmz(["delete", "env/box"]).run();
        assert!(again.code() == 0 || again.err().contains("there is no"), "{point}: {deleted}{again}");
    }
    let dead = daemon.wait();
    assert!(dead.code() == 134 && dead.err().contains(&format!("failpoint: {point}\n")), "{point}: {dead}");
    swarm.nothing_is_left();
}

#[test]
fn a_daemon_that_dies_on_the_way_up_or_down_leaks_nothing() {
    for point in ["lock", "hold", "admitted", "released", "created", "placed", "guest", "removed"] {
        converges(&format!("swarm.{point}"));
    }
}

#[test]
fn a_box_whose_task_is_started_anew_is_healed_where_that_is_declared() {
    let swarm = Swarm::new("constraints: [node.hostname==mgr]");
    let (home, project) = (&swarm.home, swarm.home.project("p"));
    let file = swarm.environment("box", &project, ", restart: always");
    let _ = home.hmz(["apply", "-f", &file]).run().ok();
    let _ = home.hmz(["wait", "--for=condition=Ready", "env/box"]).run().ok();
    let first = swarm.services();
    let id = swarm.sh("env/box", "hostname");
    swarm.docker(&["service", "update", "-d", "-q", "--force", &first[0]]);
    eventually("another box is ready", LIMIT, || {
        let next = home.hmz(["sh", "env/box", "--", "hostname"]).run();
        (next.code() == 0 && next.out() != id).then_some(())
    });
    assert_ne!(swarm.services(), first);
    let _ = home.hmz(["delete", "env/box"]).run().ok();
    swarm.nothing_is_left();
}

#[test]
fn a_plan_counts_what_is_handed_out_and_the_nodes_and_makes_nothing() {
    // alone: tasks are counted by the name of the runtime, whoever has one of it
    let turn = rustix::fs::FlockOperation::LockExclusive;
    let swarm = Swarm::with(turn, "constraints: [node.hostname==mgr]\nmax_tasks: 1", TestHome::new());
    let (home, project) = (&swarm.home, swarm.home.project("p"));
    let [first, second] = ["first", "second"].map(|name| swarm.environment(name, &project, ", memory: 16M"));
    let told = home.hmz(["diff", "-f", &first]).run().expect_code(1);
    let _ = told.says("    would start container 'first' of busybox:latest, 16M of memory, on swarm:c\n");
    assert_eq!(swarm.services(), Vec::<String>::new());
    let _ = home.hmz(["apply", "-f", &first, "--wait", "--timeout", "2m"]).run().ok();
    let full = "swarm@c runs 1 of the 1 tasks it may";
    let _ = home.hmz(["diff", "-f", &second]).run().expect_code(1).says(&format!("    would wait: {full}"));
    let _ = home.hmz(["apply", "-f", &second]).run().ok();
    eventually("it waits as it was told", LIMIT, || {
        home.hmz(["get", "env/second", "-o", "json"]).run().out().contains(full).then_some(())
    });
    assert_eq!(swarm.services().len(), 1);
    let _ = home.hmz(["delete", "env", "first", "second"]).run().ok();
    swarm.nothing_is_left();
    // what no node could ever hold is refused before it is asked for, in the same words but for the scheduler's
    let never = "swarm@c: no node of the swarm has 64 CPUs: its 1 node that may take the task has ";
    let huge = swarm.environment("huge", &project, ", cpus: 64");
    let _ = home.hmz(["diff", "-f", &huge]).run().expect_code(2).says(never);
    let _ = home.hmz(["apply", "-f", &huge, "--wait", "--timeout", "2m"]).run().expect_code(2).says(never);
    let _ = home.hmz(["delete", "env", "huge"]).run().ok();
    swarm.nothing_is_left();
}

#[test]
fn a_swarm_is_asked_what_it_has() {
    let swarm = Swarm::new("gpu_resource: NVIDIA-GPU\ncpus: 100");
    let checked = swarm.home.hmz(["runtime", "check", "swarm/c"]).run().expect_code(1);
    let checked = checked.says("swarm/c answers: swarm ").says("; 3 nodes: mgr, w1, w2; ").says(" all told\n");
    let _ = checked.says("lacks configured resources: it is to hand out 100 CPUs and has ");
    swarm.settings("gpu_resource: FPGA");
    let _ = swarm.home.hmz(["runtime", "check", "swarm/c"]).run().says("lacks configured resources: no node advertises FPGA");
    swarm.settings("gpu_resource: NVIDIA-GPU");
    let checked = swarm.home.hmz(["runtime", "check", "c"]).run().ok();
    assert!(!checked.out().contains("lacks"), "{checked}");
}

#[test]
fn where_there_is_a_swarm_its_default_is_listed() {
    let swarm = Swarm::new("");
    let manager = format!("unix://{}", swarm.nodes.place["manager"]);
    eventually("it is listed", LIMIT, || {
        let listed = swarm.home.hmz(["get", "runtimes", "-o", "name"]).env("DOCKER_HOST", &manager).run().ok().out();
        listed.contains("runtime/swarm\n").then_some(())
    });
}

/// Status and reason of a condition.
fn condition(home: &TestHome, what: &str, kind: &str) -> (String, String) {
    let resource: serde_json::Value = serde_json::from_str(&home.hmz(["get", what, "-o", "json"]).run().ok().out()).unwrap();
    let all = resource["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|one| one["type"] == kind).unwrap_or_default();
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

#[test]
fn a_manager_that_is_away_for_a_while_changes_nothing() {
    let swarm = Swarm::new("constraints: [node.hostname==w1]\nfallback: ['docker:spare']");
    let (home, project) = (&swarm.home, swarm.home.project("p"));
    let manager = &swarm.nodes.place["manager"];
    let proxy = Proxy::new(home.root(), manager);
    let saved = std::fs::read_to_string(home.hmz_home().join("settings.yaml")).unwrap();
    let behind = saved.replace(manager, &proxy.socket().display().to_string());
    home.settings(&format!("{behind}  docker:\n    spare: {{endpoint: local}}\n"));
    let file = swarm.environment("box", &project, ", restart: always");
    let _ = home.hmz(["apply", "-f", &file, "--wait", "--timeout", "2m"]).run().ok();
    let is = |what: &str, kind: &str, status: &str| {
        eventually(&format!("{what} is {kind}={status}"), LIMIT, || {
            let (now, reason) = condition(home, what, kind);
            (now == status).then_some(reason)
        })
    };
    is("runtime/swarm:c", "Reachable", "True");
    let (there, name) = (swarm.services(), swarm.sh("env/box", "hostname"));
    assert_eq!(there.len(), 1);
    proxy.set(Way::Cut);
    is("runtime/swarm:c", "Reachable", "False");
    is("env/box", "Ready", "Unknown");
    // a daemon that comes up meanwhile finds the same
    for pid in home.processes().into_iter().filter(|pid| processes::line(*pid).contains(" controller")) {
        let daemon = processes::Process::of(pid).expect("it runs");
        daemon.signal(rustix::process::Signal::KILL);
        daemon.assert_gone();
    }
    is("runtime/swarm:c", "Reachable", "False");
    is("env/box", "Ready", "Unknown");
    // nothing is known to be gone: nothing is removed, and nothing started in its place, there or elsewhere
    assert_eq!((swarm.services(), home.containers()), (there.clone(), Vec::new()));
    proxy.set(Way::Open);
    is("runtime/swarm:c", "Reachable", "True");
    is("env/box", "Ready", "True");
    assert_eq!((swarm.services(), swarm.sh("env/box", "hostname")), (there, name));
    let env: serde_json::Value = serde_json::from_str(&home.hmz(["get", "env/box", "-o", "json"]).run().ok().out()).unwrap();
    assert_eq!((&env["status"]["incarnation"], &env["status"]["used"]), (&1.into(), &"swarm:c".into()), "{env}");
    let _ = home.hmz(["delete", "env/box"]).run().ok();
    swarm.nothing_is_left();
}
