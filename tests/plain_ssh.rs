//! Hosts of which nothing is saved: ssh's own configuration says how they are reached.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

use rustix::fs::FlockOperation;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;
use support::LIMIT;
use support::far::Far;
use support::home::TestHome;
use support::swarm::Nodes;
use support::user::User;

/// The user's `~/.ssh`, which ssh reads in the home that the system says, whatever HOME is. It goes with the value.
struct Ssh(PathBuf);

impl Ssh {
    /// `keys`: a pattern of hosts, and the key and the known hosts for them.
    fn of(user: User, keys: &[(&str, &str, &str)]) -> Self {
        let users = std::fs::read_to_string("/etc/passwd").unwrap();
        let entry = users.lines().find(|line| line.split(':').next() == Some(user.name())).unwrap();
        let home = PathBuf::from(entry.split(':').nth(5).unwrap());
        // the user is the tests' own, and has none but what a run that was killed has left
        let _ = std::fs::remove_dir_all(&home);
        let dir = home.join(".ssh");
        std::fs::create_dir_all(&dir).unwrap();
        let ssh = Self(home);
        let mut config = String::new();
        for (nth, (hosts, key, known)) in keys.iter().enumerate() {
            let own = dir.join(format!("key{nth}"));
            std::fs::copy(key, &own).unwrap();
            std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o600)).unwrap();
            let known_here = dir.join(format!("known{nth}"));
            std::fs::copy(known, &known_here).unwrap();
            config.push_str(&format!(
                "Host {hosts}\n  User root\n  IdentityFile {}\n  IdentitiesOnly yes\n  IdentityAgent none\n  UserKnownHostsFile {}\n",
                own.display(),
                known_here.display()
            ));
        }
        std::fs::write(dir.join("config"), config).unwrap();
        user.own(&ssh.0);
        ssh
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn hosts_that_ssh_alone_knows_are_reached_and_the_nodes_of_a_swarm_by_their_addresses() {
    let user = User::get();
    let (nodes, far) = (Nodes::get(FlockOperation::LockShared), Far::new(Duration::ZERO));
    let config = std::fs::read_to_string(&nodes.place["ssh_config"]).unwrap();
    let of = |word: &str| config.lines().find_map(|line| line.trim().strip_prefix(word)).unwrap().trim().to_owned();
    // the first that is written is the manager
    let (manager, key, known) = (of("HostName "), of("IdentityFile "), of("UserKnownHostsFile "));
    let network = format!("{}.*", manager.rsplit_once('.').unwrap().0);
    let at = |name: &str| far.place[name].as_str();
    let _ssh = Ssh::of(user, &[(&network, &key, &known), ("127.0.0.1", at("ssh_key"), at("ssh_known_hosts"))]);

    let home = TestHome::of(user);
    home.settings(&format!(
        "runtimes:\n  swarm:\n    c: {{endpoint: 'ssh://{manager}', harness: local, image: 'busybox:latest', constraints: \
         [node.hostname==w1]}}\n  docker:\n    far: {{endpoint: 'ssh://root@127.0.0.1:{}', harness: local, image: 'busybox:latest'}}\n",
        at("ssh_port")
    ));
    let project = home.project("p");
    let there = far.work.0.display().to_string();
    for (name, runtime, workdir) in [("onw1", "swarm:c", project.path()), ("onfar", "docker:far", &*there)] {
        let _ = home.hmz(["runtime", "check", &runtime.replace(':', "/")]).run().ok();
        let text = format!(
            "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: {name}}}\nspec: {{runtime: '{runtime}', workdir: '{workdir}'}}\n"
        );
        let _ = home.hmz(["apply", "--wait", "--timeout", "2m", "-f", "-"]).stdin(text).run().ok();
        let said = home.hmz(["sh", &format!("env/{name}"), "--", "sh", "-c", "pwd; hostname"]).run().ok().out();
        let (dir, hostname) = said.trim().split_once('\n').unwrap();
        assert_eq!((dir, hostname.len()), (workdir, 12), "{said}");
        let _ = home.hmz(["delete", "env", name]).run().ok();
    }
    home.assert_no_container_left(LIMIT);
}
