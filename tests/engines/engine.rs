//! An engine of another version than the daemon that the other tests use, and a home whose runtime it is.

use crate::support::command::Invocation;
use crate::support::home::TestHome;
use crate::support::project::Project;
use crate::support::{LIMIT, eventually};
use std::path::PathBuf;
use std::time::Duration;

/// What the testbed needs at most where it has to fetch an engine first; ten times what it takes.
const FETCHED: Duration = Duration::from_secs(600);

/// One of the testbed's engines.
#[derive(Debug, Clone)]
pub struct Engine {
    socket: String,
}

impl Engine {
    /// The engine of that name, running.
    ///
    /// # Panics
    /// When it cannot be had, in the testbed's own words.
    pub fn get(name: &str) -> Self {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/testbed/engines");
        let said = ["PATH", "HOME", "HMZ_TESTBED_STATE", "HMZ_TESTBED_MIRROR", "HMZ_TESTBED_PULL", "DOCKER_HOST"];
        let said = said.into_iter().filter_map(|variable| Some((variable, std::env::var_os(variable)?)));
        let out = Invocation::new(script).arg(name).envs(said).limit(FETCHED).run().ok().out();
        let socket = out.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        Self { socket: socket.unwrap_or_else(|| panic!("no {name} in {out:?}")).to_owned() }
    }

    /// Where it listens, as settings.yaml has it.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket)
    }

    fn command(&self, words: &[&str]) -> Invocation {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Invocation::new("docker").args(["-H", &self.endpoint()]).args(words).env("PATH", path).env("HOME", "/nonexistent")
    }

    /// `docker WORD…` there; its stdout without the last newline.
    #[track_caller]
    pub fn docker(&self, words: &[&str]) -> String {
        self.command(words).run().ok().out().trim_end().to_owned()
    }
}

/// A home with one runtime, of a name that nobody else has.
#[derive(Debug)]
pub struct Scene {
    pub engine: Engine,
    pub home: TestHome,
    pub project: Project,
    /// The runtime's name behind `docker:`.
    pub runtime: String,
}

impl Scene {
    /// The engine of that name as a runtime with these fields more, each `, FIELD: VALUE`.
    pub fn on(engine: &str, more: &str) -> Self {
        Self::of(engine, more, TestHome::new())
    }

    /// The same in that home.
    pub fn of(engine: &str, more: &str, home: TestHome) -> Self {
        let engine = Engine::get(engine);
        let runtime = format!("t{}", &uuid::Uuid::new_v4().simple().to_string()[..10]);
        let entry = format!("{runtime}: {{endpoint: '{}', harness: local{more}}}", engine.endpoint());
        home.settings(&format!("runtimes:\n  docker:\n    {entry}\n"));
        let project = home.project("p");
        Self { engine, home, project, runtime }
    }

    /// `hmz WORD…` in the project, which has to end well; what it printed.
    #[track_caller]
    pub fn hmz(&self, words: &[&str]) -> String {
        self.home.hmz(words).cwd(self.project.dir()).run().ok().out()
    }

    /// Applies a manifest of that kind called `name`, from the lines of its `spec`.
    #[track_caller]
    pub fn apply(&self, kind: &str, name: &str, spec: &str) {
        let spec: String = spec.lines().map(|line| format!("  {}\n", line.replace("$R", &self.runtime))).collect();
        let file = format!("{name}.yaml");
        self.project.write(&file, &format!("apiVersion: hmz/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n{spec}"));
        self.hmz(&["apply", "-f", &file]);
    }

    /// Waits until a condition of a resource holds.
    #[track_caller]
    pub fn wait(&self, what: &str, condition: &str) {
        self.hmz(&["wait", &format!("--for=condition={condition}"), what, "--timeout", "100s"]);
    }

    /// The ids of this home's containers on the engine, running or not.
    pub fn containers(&self) -> Vec<String> {
        let Some(label) = self.home.label() else { return Vec::new() };
        let filter = format!("label={label}");
        self.engine.docker(&["ps", "-aq", "--no-trunc", "--filter", &filter]).lines().map(str::to_owned).collect()
    }

    /// The id of the one there is.
    #[track_caller]
    pub fn container(&self) -> String {
        match self.containers().as_slice() {
            [one] => one.clone(),
            others => panic!("not one container: {others:?}"),
        }
    }

    /// Sees that nothing of this home is left, on the engine or here. It is looked at now, without waiting.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        assert_eq!(self.containers(), Vec::<String>::new(), "containers are left");
        self.home.assert_nothing_left(&[]);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // those of a test that failed; the home's own end looks at another daemon
        let left = self.containers();
        for id in &left {
            let _ = self.engine.command(&["rm", "-f", "-v", id]).run();
        }
        if !left.is_empty() && !std::thread::panicking() {
            eventually("what the test left is gone", LIMIT, || self.containers().is_empty().then_some(()));
        }
    }
}
