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
    let name = home.containers().pop().expect("its box");
    assert!(name.starts_with("team-a-box-"), "{name}");
    let of = |format: &str| docker(&["inspect", "--format", format, &name]);
    assert_eq!(of("{{.HostConfig.CpuQuota}} {{.HostConfig.Memory}}"), format!("50000 {}", 64 << 20));
    assert_eq!(of("{{index .Config.Labels \"humanize.cpus\"}}"), "0.5");
    run.signal(Signal::INT);
    run.wait();
    let expected = ["2345", "3456", "boxhost", "hello there", "yes", "999", "unset", "read-only"];
    assert_eq!(project.read("said").lines().collect::<Vec<_>>(), expected);
    home.assert_no_container_left(LIMIT);
}
