//! A container that is nobody's of hmz's, for a runtime that names one (`container:`).

use super::docker::{clear, docker};
use super::home::TestHome;
use super::{LIMIT, eventually};

/// It runs until it is dropped.
pub struct Held {
    /// Its name, which no other container of a test has.
    pub name: String,
}

impl Held {
    /// One of that image, with these words of `docker run` besides.
    pub fn start(home: &TestHome, image: &str, words: &[&str]) -> Self {
        let name = format!("hmz-test-{}", home.root().file_name().unwrap().to_str().unwrap());
        let label = label(&name);
        let first = ["run", "-d", "--name", &name, "--label", &label, "--entrypoint", "sh"];
        docker(&[&first, words, &[image, "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"]].concat());
        Self { name }
    }

    /// What a line prints in it, as root.
    pub fn inside(&self, line: &str) -> String {
        docker(&["exec", "-u", "0:0", &self.name, "sh", "-c", line])
    }

    /// Since when it runs, and within what limits.
    pub fn started(&self) -> String {
        docker(&["inspect", "-f", "{{.State.StartedAt}} {{.RestartCount}} {{.HostConfig.Memory}}", &self.name])
    }

    /// Nothing of ours is in it or on its daemon.
    #[track_caller]
    pub fn assert_left(&self, home: &TestHome) {
        home.assert_no_container_left(LIMIT);
        assert_eq!(self.inside("ls -d /.hmz-* /tmp/hmz-*/*/* 2>/dev/null; true"), "", "it is left in the container");
        // those that end do so in their own time
        let processes = || self.inside("cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^hmz' || true");
        eventually("no process of ours is left in it", LIMIT, || (processes() == "0").then_some(()));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        clear(&label(&self.name));
    }
}

/// What no other container of a test has.
fn label(name: &str) -> String {
    format!("hmz-test={name}")
}
