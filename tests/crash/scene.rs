//! What most of these tests begin with: a home with a runtime of a name of its own, and a run whose agent says that its
//! command is at work in the box (`up`) and goes on when it is told to (`go`).
#![allow(dead_code, reason = "each test binary uses its own part of it")]

use crate::support::command::{Finished, Invocation, Running};
use crate::support::home::TestHome;
use crate::support::processes::{Process, is_alive, line, with_variable};
use crate::support::project::Project;
use crate::support::{LIMIT, docker, eventually};
use rustix::process::Signal;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// What the agent does: in the box it says that it is there and waits to be told to end.
pub const STEPS: &str = "- say: begun\n\
    - run: echo up > up; while [ ! -e go ]; do sleep 0.05; done; echo went > went\n\
    - say: all done\n";

/// The scene.
#[derive(Debug)]
pub struct Scene {
    pub home: TestHome,
    pub project: Project,
    /// The runtime's name behind `docker:`; nobody else has boxes of it.
    pub runtime: String,
}

impl Scene {
    /// A home whose runtime has these lines more in settings.yaml, indented as they are to be; `$T` is its name.
    pub fn with(more: &str) -> Self {
        Self::of(TestHome::new(), more)
    }

    /// The same in a home of somebody's.
    pub fn of(home: TestHome, more: &str) -> Self {
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let runtime = format!("t{}", &unique[..10]);
        home.settings(&format!(
            "runtimes:\n  docker:\n    {runtime}:\n      endpoint: local\n      harness: local\n{}",
            more.replace("$T", &runtime)
        ));
        let project = home.project("p");
        project.write("steps.yaml", STEPS);
        Self { home, project, runtime }
    }

    pub fn new() -> Self {
        Self::with("")
    }

    /// The same with boxes that end soon after their owner, though not before a loaded machine has started one.
    pub fn with_lease() -> Self {
        Self::with("      lease: 20s\n")
    }

    /// The manifest of the run; `more` goes below its spec.
    pub fn run_manifest(&self, name: &str, more: &str) -> PathBuf {
        let dir = self.project.path();
        let text = format!(
            "apiVersion: hmz/v1\nkind: Run\nmetadata: {{name: {name}}}\nspec:\n  flow: boxed\n  task: t\n  agents: {{coder: \
             'script/{dir}/steps.yaml'}}\n  environments: {{box: {{runtime: 'docker:{}', workdir: '{dir}', image: \
             'busybox:latest'}}}}\n{more}",
            self.runtime
        );
        let file = self.home.root().join(format!("{name}.yaml"));
        std::fs::write(&file, text).unwrap();
        file
    }

    /// The manifest of a standalone environment; `more` goes below its spec.
    pub fn environment_manifest(&self, name: &str, more: &str) -> PathBuf {
        let text = format!(
            "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: {name}}}\nspec:\n  runtime: 'docker:{}'\n  workdir: \
             '{}'\n  image: 'busybox:latest'\n{more}",
            self.runtime,
            self.project.path()
        );
        let file = self.home.root().join(format!("{name}.yaml"));
        std::fs::write(&file, text).unwrap();
        file
    }

    /// `hmz apply -f FILE`.
    pub fn apply(&self, file: &std::path::Path) -> Finished {
        self.home.hmz(["apply", "-f"]).arg(file).run()
    }

    /// Applies the run and waits until its command is in the box.
    pub fn begin(&self, name: &str) {
        let _ = self.apply(&self.run_manifest(name, "")).ok();
        self.wait_up();
    }

    /// The same as `hmz exec`, of one run.
    pub fn exec(&self) -> Invocation {
        let (agent, dir) = (format!("coder=script/{}", self.project.file("steps.yaml").display()), self.project.path());
        self.home.hmz(["exec", "-f", "boxed", "-a", &agent, "-e", &format!("box=docker@{}{dir}", self.runtime), "t"])
    }

    pub fn wait_up(&self) {
        let up = self.project.file("up");
        eventually("the agent's command is at work in its box", LIMIT, || up.exists().then_some(()));
    }

    /// Lets the agent's command end.
    pub fn go(&self) {
        self.project.write("go", "");
    }

    /// A resource, as JSON; null when it is not there.
    pub fn get(&self, what: &str) -> Value {
        let got = self.home.hmz(["get", what, "-o", "json"]).run();
        if got.code() != 0 {
            assert!(got.err().contains("there is no"), "{got}");
            return Value::Null;
        }
        serde_json::from_str(&got.out()).unwrap_or_else(|e| panic!("get {what}: {e}\n{got}"))
    }

    /// Resources of a kind, as JSON.
    pub fn list(&self, kind: &str) -> Vec<Value> {
        let got = self.get(kind);
        got["items"].as_array().unwrap_or_else(|| panic!("no list of {kind}: {got}")).clone()
    }

    /// Waits until a condition of a resource is so, and gives its reason and message.
    pub fn condition(&self, what: &str, kind: &str, status: &str) -> (String, String) {
        self.condition_one_of(what, kind, &[status])
    }

    /// The same, for one of several.
    pub fn condition_one_of(&self, what: &str, kind: &str, statuses: &[&str]) -> (String, String) {
        let mut last = Value::Null;
        let end = std::time::Instant::now() + LIMIT;
        loop {
            last = match self.get(what) {
                Value::Null => last,
                now => now,
            };
            if let Some((status, reason, message)) = condition(&last, kind)
                && statuses.contains(&status.as_str())
            {
                return (reason, message);
            }
            assert!(
                std::time::Instant::now() < end,
                "not within {LIMIT:?}: {what} is {kind}={statuses:?}\n{}\n{}",
                self.home.hmz(["get", "all", "-o", "yaml"]).run(),
                std::fs::read_to_string(self.home.hmz_home().join("state/daemon.log")).unwrap_or_default()
            );
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
    }

    /// Waits until an environment has its second box.
    pub fn heals(&self, what: &str) {
        eventually("another box is there in its place", LIMIT, || {
            let env = self.get(what);
            let ready = condition(&env, "Ready")?.0 == "True";
            (ready && env["status"]["incarnation"] == 2).then_some(())
        });
    }

    /// Waits for the run's end; its reason and message.
    pub fn complete(&self, name: &str) -> (String, String) {
        self.condition(&format!("run/{name}"), "Complete", "True")
    }

    /// The pids of this home's processes of that verb.
    pub fn pids(&self, verb: &str) -> Vec<i32> {
        let is = |pid: &i32| is_alive(*pid) && line(*pid).split(' ').nth(1) == Some(verb);
        with_variable(&self.home.mark()).into_iter().filter(is).collect()
    }

    fn the(&self, verb: &str) -> Process {
        eventually(&format!("one process of the verb {verb}"), LIMIT, || match self.pids(verb).as_slice() {
            [one] => Process::of(*one),
            _ => None,
        })
    }

    pub fn daemon(&self) -> Process {
        self.the("controller")
    }

    pub fn runner(&self) -> Process {
        self.the("runner")
    }

    /// `kill -9` of the daemon; returns when it is dead.
    pub fn kill_daemon(&self) {
        let daemon = self.daemon();
        daemon.signal(Signal::KILL);
        daemon.assert_gone();
    }

    /// A daemon that dies at that point.
    pub fn daemon_that_dies_at(&self, point: &str) -> Running {
        let mut daemon = self.home.hmz(["controller"]).env("HMZ_FAILPOINT", point).start();
        daemon.wait_for("listening");
        daemon
    }

    /// The directories here of the boxes there are.
    pub fn directories(&self) -> Vec<PathBuf> {
        let Some(label) = self.home.label() else { return Vec::new() };
        let instance = label.trim_start_matches("hmz.instance=").to_owned();
        let format = "{{.Label \"hmz.uid\"}}/{{.Label \"hmz.incarnation\"}}";
        let listed = docker::docker(&["ps", "-a", "--filter", &format!("label={label}"), "--format", format]);
        let key = |line: &str| {
            let digest = Sha256::digest(format!("{instance}/{line}").as_bytes());
            let name: String = digest.iter().take(4).map(|b| format!("{b:02x}")).collect();
            PathBuf::from(format!("/tmp/hmz-{}/{}/{name}", self.home.uid(), &instance[..8]))
        };
        listed.lines().filter(|line| !line.starts_with('/')).map(key).collect()
    }

    /// Sees that nothing is left on docker, and that nothing is handed out on the runtime.
    pub fn assert_nothing_left(&self) {
        self.home.assert_no_container_left(LIMIT);
        let name = format!("runtime/docker:{}", self.runtime);
        eventually("nothing is handed out any more", LIMIT, || {
            let status = &self.get(&name)["status"];
            let holders = status["holders"].to_string();
            (status["containers"] == 0 && !holders.contains(&self.runtime)).then_some(())
        });
    }

    /// The name of the one container of this home.
    pub fn container_name(&self) -> String {
        let name = docker::docker(&["inspect", "--format", "{{.Name}}", &self.container()]);
        name.trim().trim_start_matches('/').to_owned()
    }

    /// The name of the one run.
    pub fn the_run(&self) -> String {
        match self.list("runs").as_slice() {
            [run] => run["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            runs => panic!("not one run: {runs:?}"),
        }
    }

    /// The one container of this home.
    pub fn container(&self) -> String {
        eventually("one container of the test's", LIMIT, || match self.home.containers().as_slice() {
            [one] => Some(one.clone()),
            _ => None,
        })
    }
}

/// Sees that a daemon died at that point and not somewhere else.
pub fn died(daemon: Running, point: &str) {
    let dead = daemon.wait();
    assert_eq!(dead.code(), 134, "{point}: {dead}");
    assert!(dead.err().contains(&format!("failpoint: {point}\n")), "{point}: {dead}");
}

/// Status, reason and message of a condition.
pub fn condition(resource: &Value, kind: &str) -> Option<(String, String, String)> {
    let found = resource["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)?;
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}
