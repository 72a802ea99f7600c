//! A home of its own for `hmz`: HMZ_HOME, HOME and XDG_RUNTIME_DIR that nobody else has. What is started in it ends
//! with it.

use super::command::Invocation;
use super::project::Project;
use super::user::User;
use super::{agent, docker, eventually, processes};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// The settings of the main job: the docker daemon here, with the agent's CLI here.
pub const SETTINGS: &str = "runtimes:\n  docker:\n    here:\n      endpoint: local\n      harness: local\n";

/// The home.
#[derive(Debug)]
pub struct TestHome {
    root: TempDir,
    user: Option<User>,
    program: PathBuf,
    variables: Vec<(&'static str, String)>,
}

impl TestHome {
    /// A home of this user's, with [`SETTINGS`].
    pub fn new() -> Self {
        Self::with(None)
    }

    /// A home of an ordinary user's, with [`SETTINGS`].
    pub fn of(user: User) -> Self {
        Self::with(Some(user))
    }

    fn with(user: Option<User>) -> Self {
        // short, since sockets are in it, and outside /tmp, which is the box's home
        let root = tempfile::Builder::new().prefix("hmz-t").tempdir_in("/var/tmp").expect("a directory in /var/tmp");
        // another build of the program may be looked at with the same tests
        let named = std::env::var_os("HMZ_TEST_PROGRAM").filter(|v| !v.is_empty());
        let mut program = named.map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_hmz")), PathBuf::from);
        for dir in ["home", "hmz", "run", "work"] {
            let dir = root.path().join(dir);
            fs::create_dir(&dir).expect("a directory of the home");
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).expect("a private directory");
        }
        fs::write(root.path().join("hmz/settings.yaml"), SETTINGS).expect("settings.yaml");
        if let Some(user) = &user {
            // where the program was built may be closed to others
            let copy = root.path().join("hmz-program");
            fs::copy(&program, &copy).expect("a copy of hmz");
            program = copy;
            user.own(root.path());
        }
        let mut home = Self { root, user, program, variables: Vec::new() };
        let here = |name: &str| home.root.path().join(name).to_str().expect("paths of tests are text").to_owned();
        let name = match &home.user {
            Some(user) => user.name().to_owned(),
            None => std::env::var("USER").unwrap_or_else(|_| "root".into()),
        };
        home.variables = vec![
            ("HOME", here("home")),
            ("HMZ_HOME", here("hmz")),
            ("XDG_RUNTIME_DIR", here("run")),
            ("USER", name.clone()),
            ("LOGNAME", name),
            ("SHELL", "/bin/bash".into()),
            ("LANG", "C.UTF-8".into()),
            ("TERM", "dumb".into()),
            ("TZ", "UTC".into()),
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()),
        ];
        home.variables.extend(docker::host().map(|at| ("DOCKER_HOST", at)));
        home
    }

    /// The same with claude on PATH, and a provider for it.
    #[must_use]
    pub fn with_claude(mut self, provider: &str) -> Self {
        self.set("PATH", agent::path());
        for (name, value) in agent::variables(provider) {
            self.set(name, value);
        }
        self
    }

    /// Sets a variable of everything run in it from now on.
    pub fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.variables.retain(|(said, _)| *said != name);
        self.variables.push((name, value.into()));
    }

    /// The directory of all of it.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The program that `hmz` is.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// HMZ_HOME.
    pub fn hmz_home(&self) -> PathBuf {
        self.root.path().join("hmz")
    }

    /// HOME.
    pub fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// Writes settings.yaml anew, as a whole file that replaces the one before.
    pub fn settings(&self, text: &str) {
        let file = self.hmz_home().join("settings.yaml");
        let fresh = file.with_extension("new");
        fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &file)).expect("settings.yaml");
        self.give_to_user(&file);
    }

    /// Makes its user the owner of a tree.
    pub fn give_to_user(&self, path: &Path) {
        if let Some(user) = &self.user {
            user.own(path);
        }
    }

    /// A project with a bug, in a directory of that name, outside HMZ_HOME.
    pub fn project(&self, name: &str) -> Project {
        let project = Project::create(self.root.path().join("work").join(name));
        self.give_to_user(project.dir());
        project
    }

    /// `hmz WORD…`, in the home directory.
    pub fn hmz<W: AsRef<std::ffi::OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Invocation {
        self.run(Invocation::new(&self.program).args(words))
    }

    /// A shell command as the user would type it, with `hmz` on PATH.
    pub fn shell(&self, command: &str) -> Invocation {
        self.in_shell("/bin/bash", ["-euo", "pipefail", "-c", command])
    }

    /// Another shell, with these words and with `hmz` on PATH.
    pub fn in_shell<W: AsRef<std::ffi::OsStr>>(&self, shell: &str, words: impl IntoIterator<Item = W>) -> Invocation {
        let bin = self.root.path().join("bin");
        if !bin.exists() {
            fs::create_dir(&bin).expect("a directory for hmz");
            std::os::unix::fs::symlink(&self.program, bin.join("hmz")).expect("hmz on PATH");
        }
        let path = self.variable("PATH").unwrap_or_default();
        self.run(Invocation::new(shell).args(words)).env("PATH", format!("{}:{path}", bin.display()))
    }

    /// The value of a variable in it.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.iter().find(|(said, _)| *said == name).map(|(_, value)| value.as_str())
    }

    /// Any program, with the variables of this home and as its user.
    pub fn run(&self, invocation: Invocation) -> Invocation {
        let invocation = invocation.envs(self.variables.iter().cloned()).cwd(self.home());
        match &self.user {
            Some(user) => user.run(invocation),
            None => invocation,
        }
    }

    /// The uid everything in it runs as.
    pub fn uid(&self) -> u32 {
        self.user.map_or_else(|| rustix::process::getuid().as_raw(), |user| user.uid)
    }

    /// The label of the containers that are this home's; `None` while nothing has been started in it.
    pub fn label(&self) -> Option<String> {
        let id = fs::read_to_string(self.hmz_home().join("state/instance")).ok()?;
        Some(format!("hmz.instance={}", id.trim()))
    }

    /// The ids of this home's containers, running or not.
    pub fn containers(&self) -> Vec<String> {
        self.label().map(|label| docker::containers(&label)).unwrap_or_default()
    }

    /// What every process of this home has in its environment.
    pub fn mark(&self) -> String {
        format!("HMZ_HOME={}", self.hmz_home().display())
    }

    /// Kills the one runner of this home.
    #[track_caller]
    pub fn kill_runner(&self) {
        let is_runner = |pid: &i32| processes::line(*pid).split(' ').nth(1) == Some("runner");
        let runner = self.processes().into_iter().find(is_runner).expect("a runner");
        processes::Process::of(runner).expect("the runner is there").signal(Signal::KILL);
    }

    /// The pids of everything that runs in this home: an agent's CLI has its HOME, but not HMZ_HOME.
    pub fn processes(&self) -> Vec<i32> {
        let mut pids = processes::with_variable(&self.mark());
        pids.extend(processes::with_variable(&format!("HOME={}", self.home().display())));
        pids.sort_unstable();
        pids.dedup();
        pids.retain(|pid| processes::is_alive(*pid));
        pids
    }

    /// The directories on this machine that belong to this home's boxes, as their containers have them mounted.
    pub fn box_directories(&self) -> Vec<PathBuf> {
        let Some(label) = self.label() else { return Vec::new() };
        let below = format!("/tmp/hmz-{}/{}/", self.uid(), &label["hmz.instance=".len()..][..8]);
        let format = "{{range .Mounts}}{{println .Source}}{{end}}";
        let ids = self.containers();
        let sources = ids.iter().map(|id| docker::docker(&["inspect", "--format", format, id])).collect::<Vec<_>>().join("\n");
        let mut dirs: Vec<PathBuf> = sources
            .lines()
            .filter_map(|source| source.strip_prefix(&below))
            .map(|rest| PathBuf::from(format!("{below}{}", rest.split('/').next().unwrap_or_default())))
            .collect();
        dirs.sort();
        dirs.dedup();
        dirs
    }

    /// Sees that nothing that was started in this home is left: no container, no process but the daemon's, and none of
    /// these directories of boxes. It is looked at now, without waiting.
    #[track_caller]
    pub fn assert_nothing_left(&self, directories: &[PathBuf]) {
        assert_eq!(self.containers(), Vec::<String>::new(), "containers are left");
        let left: Vec<String> = self.processes().into_iter().map(processes::line).collect();
        let left: Vec<&String> = left.iter().filter(|line| !line.contains(" controller --background")).collect();
        assert!(left.is_empty(), "processes are left: {left:?}");
        for dir in directories {
            assert!(!dir.exists(), "{} is left", dir.display());
        }
    }

    /// Sees that no container of this home is left, now or a moment later.
    pub fn assert_no_container_left(&self, limit: Duration) {
        eventually("no container of the test's is left", limit, || self.containers().is_empty().then_some(()));
    }
}

impl Drop for TestHome {
    fn drop(&mut self) {
        let mark = self.mark();
        // a daemon or a runner in it is asked first; one that does not go is killed, and nothing of it is left either way
        processes::signal_all(&mark, Signal::TERM);
        for _ in 0..250 {
            if self.processes().is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        processes::signal_all(&mark, Signal::KILL);
        processes::signal_all(&format!("HOME={}", self.home().display()), Signal::KILL);
        if let Some(label) = self.label() {
            docker::clear(&label);
        }
    }
}
