//! A disk that is full, and a machine with no inotify left: in user namespaces of the tests' own.

use super::saves::cpus_of;
use crate::support::command::Invocation;
use crate::support::home::TestHome;
use crate::support::{LIMIT, eventually};
use rustix::process::Signal;
use std::fs;

/// The same run as root of a user namespace of its own, after `setup`.
fn in_namespace(invocation: Invocation, flags: &str, setup: &str) -> Invocation {
    invocation.through(["unshare", flags, "sh", "-ec", &format!("{setup}\nexec \"$@\""), "sh"])
}

#[test]
fn a_full_disk_loses_nothing() {
    let home = TestHome::new();
    let small = home.root().join("small");
    fs::create_dir(&small).unwrap();
    let link = home.hmz_home().join("settings.yaml");
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(small.join("settings.yaml"), &link).unwrap();
    // a file of two pages on a disk of four, so that a second one of three does not fit
    let script = format!(
        "mount -t tmpfs -o size=16k none {dir}
         {{ echo 'runtimes: {{docker: {{here: {{cpus: 1}}}}}}'; head -c 6000 /dev/zero | tr '\\0' '#'; echo; }} > {dir}/settings.yaml
         cp {dir}/settings.yaml {copy}
         if \"$1\" settings set workspaces.long.flow $(head -c 9000 /dev/zero | tr '\\0' 'x'); then exit 7; else echo code $?; fi
         cmp {dir}/settings.yaml {copy}
         ls -A {dir}
         \"$1\" settings set runtimes.docker.here.cpus 2
         head -n 1 {dir}/settings.yaml",
        dir = small.display(),
        copy = home.root().join("copy").display(),
    );
    let words = ["unshare", "-Urm", "sh", "-ec", &script, "sh"];
    let done = home.run(Invocation::new(home.program())).through(words).run().ok();
    let said = done.out();
    assert_eq!(said, "code 1\nsettings.yaml\nruntimes.docker.here.cpus set\nruntimes: {docker: {here: {cpus: 2}}}\n", "{done}");
    assert!(done.err().contains("hmz settings set: error: ") && done.err().contains("No space left on device"), "{done}");
}

#[test]
fn a_machine_without_inotify_is_polled_and_says_so_once() {
    for limit in ["max_inotify_instances", "max_inotify_watches"] {
        let home = TestHome::new();
        let text = |n: u64| format!("runtimes: {{docker: {{here: {{cpus: {n}}}}}}}\n");
        home.settings(&text(1));
        let setup = format!("echo 0 > /proc/sys/user/{limit}");
        let mut daemon = in_namespace(home.hmz(["controller"]), "-Ur", &setup).start();
        daemon.wait_for("listening");
        for n in 1..6 {
            home.settings(&text(n));
            // whoever is not in the daemon's namespace is not let in
            let pid = daemon.pid().to_string();
            let get = home.hmz(["get", "runtime/docker:here", "-o", "json"]);
            let get = get.through(["nsenter", "--preserve-credentials", "-U", "-t", &pid]);
            eventually("a save that no event told", LIMIT, || (cpus_of(get.clone()) == Some(n)).then_some(()));
        }
        daemon.signal(Signal::TERM);
        let ended = daemon.wait();
        assert_eq!(ended.err().matches("is looked at twice a second, since it cannot be watched").count(), 1, "{limit}\n{ended}");
    }
}
