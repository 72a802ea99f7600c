//! What a saved docker runtime says of its boxes is so in them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

use rustix::process::Signal;
use support::LIMIT;
use support::docker::docker;
use support::home::TestHome;

#[test]
fn commands_run_as_whom_with_what_and_under_what_the_runtime_says() {
    let home = TestHome::new();
    let project = home.project("p");
    // the wrapper writes what it was given, then runs it
    project.write("wrap", "#!/bin/sh\n[ \"$1\" = --note ] || exit 9\nshift\necho \"$1\" >>wrapped\nexec \"$@\"\n");
    let wrapper = project.file("wrap");
    std::fs::set_permissions(&wrapper, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    project.write("steps.yaml", "- say: it ran\n");
    home.settings(&format!(
        "runtimes:
  docker:
    here:
      harness: local
      image: busybox:latest
      name_prefix: team-a
      exec_user: 2345:3456
      exec_env: [GREETING=hello there]
      exec_wrapper: [{}, --note]
      run_args: [--hostname, boxhost, -e, FROM_ARGS=yes, --ulimit, nofile=999:999, --read-only]
      default_request: {{cpus: 0.5, memory: 64M}}
",
        wrapper.display()
    ));
    // whoever the commands run as has to be able to write there
    std::os::unix::fs::chown(project.dir(), Some(2345), Some(3456)).unwrap();
    let says = "id -u; id -g; hostname; echo $GREETING; echo $FROM_ARGS; ulimit -n; echo ${HMZ_WRAPPER-unset}; touch /x 2>/dev/null || echo read-only";
    project.write("says.sh", &says.replace("; ", "\n"));
    let flow = "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: f}\nspec:\n  environments: {box: {}}\n  steps:\n    - exec: {environment: box, command: 'sh says.sh >said.part && mv said.part said'}\n    - exec: {environment: box, command: 'sleep 1000'}\n";
    project.write(".hmz/flows/f.yaml", flow);
    let place = format!("box=docker@here{}", project.path());
    let run = home.hmz(["exec", "-f", "f", "-e", &place, "-p", "budget.duration=10m", "do"]).cwd(project.dir()).start();
    let wrapped = project.file("wrapped");
    support::eventually("the second command runs", LIMIT, || {
        std::fs::read_to_string(&wrapped).ok().filter(|t| t.lines().count() >= 2).map(drop)
    });
    let id = home.containers().pop().expect("its box");
    let of = |format: &str| docker(&["inspect", "--format", format, &id]);
    assert!(of("{{.Name}}").starts_with("/team-a-box-"), "{}", of("{{.Name}}"));
    assert_eq!(of("{{.HostConfig.CpuQuota}} {{.HostConfig.Memory}}"), format!("50000 {}", 64 << 20));
    assert_eq!(of("{{index .Config.Labels \"humanize.cpus\"}}"), "0.5");
    run.signal(Signal::INT);
    run.wait();
    let expected = ["2345", "3456", "boxhost", "hello there", "yes", "999", "unset", "read-only"];
    assert_eq!(project.read("said").lines().collect::<Vec<_>>(), expected);
    home.assert_no_container_left(LIMIT);
}

#[test]
fn work_lands_in_the_runtimes_own_directory_where_none_is_asked_for() {
    let home = TestHome::new();
    let project = home.project("p");
    home.settings(&format!(
        "runtimes:\n  docker:\n    here: {{harness: local, image: 'busybox:latest', workdir: '{}'}}\n    bare: {{harness: local}}\n",
        project.path()
    ));
    let declared = |name: &str, runtime: &str| {
        let file = home.root().join(format!("{name}.yaml"));
        let text =
            format!("apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: {name}}}\nspec: {{runtime: 'docker:{runtime}'}}\n");
        std::fs::write(&file, text).unwrap();
        home.hmz(["apply", "--wait", "--timeout", "2m", "-f"]).arg(&file).run()
    };
    let _ = declared("box", "here").ok();
    let said = home.hmz(["sh", "env/box", "--", "sh", "-c", "pwd; echo made >made"]).run().ok();
    assert_eq!((said.out(), project.read("made")), (format!("{}\n", project.path()), "made\n".to_owned()));
    let _ = home.hmz(["delete", "env/box"]).run().ok();
    // the same of a run's role
    project.write("steps.yaml", "- run: pwd >where\n");
    let words = ["exec", "-f", "boxed", "-a", "script/./steps.yaml", "-e", "box=docker@here", "-p", "budget.duration=10m", "do"];
    let _ = home.hmz(words).cwd(project.dir()).run().ok();
    assert_eq!(project.read("where"), format!("{}\n", project.path()));
    let refused = declared("nowhere", "bare").expect_code(2);
    let said = "expected <backend>[@<provider>][/<workdir>]; /<workdir> may be left off only for a runtime saved with one";
    assert!(refused.err().contains(said), "{refused}");
    let _ = home.hmz(["delete", "env/nowhere"]).run();
    home.assert_no_container_left(LIMIT);
}

#[test]
fn daemons_elsewhere_are_watched_and_a_directory_of_theirs_alone_is_no_agents() {
    let out = std::process::Command::new(support::document::file("tests/testbed/far")).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    let place = |name: &str| {
        let found = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("{name} in {text}")).to_owned()
    };
    let home = TestHome::new();
    home.settings(&format!(
        "runtimes:
  ssh:
    gpubox:
      host: 127.0.0.1
      user: root
      port: {}
      identity_file: {}
      config: /dev/null
      options: {{UserKnownHostsFile: {}, IdentitiesOnly: 'yes'}}
  docker:
    tls: {{endpoint: 'tcp://{}', tls_dir: {}, harness: local}}
    far: {{endpoint: 'ssh:gpubox', harness: local}}
",
        place("ssh_port"),
        place("ssh_key"),
        place("ssh_known_hosts"),
        place("tcp"),
        place("tls"),
    ));
    for name in ["docker:tls", "docker:far"] {
        support::eventually(&format!("{name} answers"), LIMIT, || {
            let said = home.hmz(["get", "runtime", name, "-o", "json"]).run();
            let found: serde_json::Value = serde_json::from_str(&said.out()).ok()?;
            found.pointer("/status/version").and_then(|v| v.as_str()).filter(|v| !v.is_empty()).map(drop)
        });
    }
    let project = home.project("p");
    project.write("steps.yaml", "- say: it ran\n");
    let line = "hmz exec -f boxed -a coder=script/./steps.yaml -e box=docker@far/srv/project -p budget.duration=10m do";
    let refused = home.shell(line).cwd(project.dir()).run().expect_code(2);
    let said =
        "hmz exec: error: coder: its harness runs here, and /srv/project on docker:far is not the directory of that path here";
    assert!(refused.err().contains(said), "{refused}");
    assert_eq!(refused.err().matches("its harness runs here").count(), 1, "told once: {refused}");
    home.assert_no_container_left(LIMIT);
}
