//! An ordinary user of this machine who may use docker, for what root would not notice.

use super::command::Invocation;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const NAME: &str = "hmz-test-user";

/// The user.
#[derive(Debug, Clone, Copy)]
pub struct User {
    /// The user's id.
    pub uid: u32,
    /// The group's id.
    pub gid: u32,
    /// The group that may use the docker daemon.
    pub docker_gid: u32,
}

impl User {
    /// The user, made when it is not there.
    ///
    /// # Panics
    /// When this process is not root.
    pub fn get() -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test makes an ordinary user and needs root");
        let lock = File::create("/var/tmp/.hmz-test-user.lock").expect("the lock of the test user");
        lock.lock().expect("lock the test user");
        let path = ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let id = |what| Invocation::new("id").args([what, NAME]).envs([path]).run();
        if id("-u").code() != 0 {
            let make = Invocation::new("useradd").args(["--no-create-home", "--user-group", "--shell", "/bin/bash", NAME]);
            let _ = make.envs([path]).run().ok();
        }
        let number = |what| id(what).ok().out().trim().parse().expect("id prints a number");
        let socket = super::docker::host().unwrap_or_else(|| "unix:///var/run/docker.sock".into());
        let socket = socket.strip_prefix("unix://").expect("the daemon of this test is reached over a socket").to_owned();
        let docker_gid = std::fs::metadata(&socket).unwrap_or_else(|e| panic!("{socket}: {e}")).gid();
        Self { uid: number("-u"), gid: number("-g"), docker_gid }
    }

    /// The name.
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// The same run as that user, in its own group and the one that may use docker.
    pub fn run(&self, invocation: Invocation) -> Invocation {
        invocation.through([
            "setpriv".to_owned(),
            format!("--reuid={}", self.uid),
            format!("--regid={}", self.gid),
            format!("--groups={},{}", self.gid, self.docker_gid),
            "--inh-caps=-all".to_owned(),
            "--".to_owned(),
        ])
    }

    /// Gives a tree to that user.
    pub fn own(&self, tree: &Path) {
        let owner = format!("{}:{}", self.uid, self.gid);
        let chown = Invocation::new("chown").args(["-hR", &owner]).arg(tree).env("PATH", "/usr/bin:/bin");
        let _ = chown.run().ok();
    }
}
