//! Hosts of ssh's configuration become runtimes; no key is read.

use super::{file, text};
use crate::support::home::{SETTINGS, TestHome};

/// A home with a configuration of ssh whose keys nobody can read to an end: a reader would wait for a writer.
fn configured() -> TestHome {
    let home = TestHome::new();
    let ssh = home.home().join(".ssh");
    std::fs::create_dir_all(ssh.join("config.d")).unwrap();
    let config = "Include config.d/*.conf\nHost web gpu-*\n  HostName web.example\n  IdentityFile ~/.ssh/id\nHost a+b  # odd\nHost \
                  typed\nHost -bad\n";
    std::fs::write(ssh.join("config"), config).unwrap();
    std::fs::write(ssh.join("config.d/work.conf"), "Host build-box\n  User me\n  IdentityFile ~/.ssh/id\n").unwrap();
    let _ = home.shell("mkfifo ~/.ssh/id ~/.ssh/config.d/pipe.conf && chmod 600 ~/.ssh/id").run().ok();
    home
}

#[test]
fn every_host_is_imported_once() {
    let home = configured();
    let typed = "  ssh:\n    typed: {host: typed.example}   # by hand\n";
    home.settings(&format!("{SETTINGS}{typed}"));
    let listed = home.hmz(["runtime", "import-ssh", "--list"]).run().ok();
    assert_eq!(listed.out(), "build-box\nweb\na+b\ntyped is saved as ssh/typed\n-bad\n");
    let done = home.hmz(["runtime", "import-ssh"]).run().ok();
    assert_eq!(done.out(), "ssh/build-box imported\nssh/web imported\nssh/a-b imported\n");
    assert_eq!(
        done.err(),
        "hmz runtime import-ssh: typed cannot be imported: typed was typed in, and an import does not write over it\n\
         hmz runtime import-ssh: bad: invalid ssh alias '-bad'\n"
    );
    let hosts = "    build-box: {alias: build-box, made: imported}\n    web: {alias: web, made: imported}\n    a-b: {alias: a+b, made: \
                 imported}\n";
    assert_eq!(text(&home), format!("{SETTINGS}{typed}{hosts}"));
    // again changes nothing
    let again = home.hmz(["runtime", "import-ssh", "web"]).run().ok();
    assert_eq!(again.out(), "ssh/web unchanged\n");
    let _ = home.hmz(["settings", "validate"]).run().ok();
}

#[test]
fn hosts_that_are_named_are_all_imported_or_none() {
    let home = configured();
    for (hosts, said) in [
        (&["web", "nowhere", "none"][..], "ssh config has no host nowhere, none"),
        (&["web", "-bad"], "bad: invalid ssh alias '-bad'"),
    ] {
        let done = home.hmz(["runtime", "import-ssh", "--"].iter().chain(hosts)).run().expect_code(2);
        assert_eq!(done.err(), format!("hmz runtime import-ssh: error: {said}\n"));
        assert_eq!(text(&home), SETTINGS);
    }
    // another configuration is named in the entry
    let other = home.home().join("other");
    std::fs::write(&other, "Host far\n").unwrap();
    assert_eq!(home.hmz(["runtime", "import-ssh", "--config", "other"]).run().ok().out(), "ssh/far imported\n");
    let entry = format!("  ssh:\n    far: {{alias: far, made: imported, config: {}}}\n", other.display());
    assert_eq!(text(&home).replace(", made: imported}", "}"), format!("{SETTINGS}{entry}").replace(", made: imported", ""));
    let none = home.hmz(["runtime", "import-ssh", "--config", "missing"]).run().expect_code(1);
    let missing = home.home().join("missing");
    assert!(
        none.err().starts_with(&format!(
            "hmz runtime import-ssh: error: The ssh config could not be read: {}: No such file",
            missing.display()
        )),
        "{none}"
    );
    assert!(file(&home).ends_with("/hmz/settings.yaml"));
}
