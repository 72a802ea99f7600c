//! A runtime is saved without another byte changed, and its daemon asked at once.

use super::played::play;
use super::{daemon, file, has_daemon, text};
use crate::support::home::{SETTINGS, TestHome};

#[test]
fn it_is_saved_and_its_daemon_answers() {
    let home = TestHome::new();
    let before = "# mine\nruntimes:\n  docker:   # here\n    here: {endpoint: local, harness: local}   # this one\n";
    home.settings(before);
    let words = "runtime add docker gpubox --endpoint local --cpus 1 --memory 1G --harness local";
    let done = home.hmz(words.split(' ')).run().ok();
    assert_eq!(done.out(), format!("docker/gpubox saved in {}\ndocker/gpubox answers: {}\n", file(&home), daemon()), "{done}");
    assert_eq!(done.err(), "");
    let entry = "    gpubox: {endpoint: local, harness: local, cpus: 1, memory: 1G}\n";
    assert_eq!(text(&home), format!("{before}{entry}"));
    assert!(!has_daemon(&home), "none is needed for it");
    // again is refused, and changes nothing
    let again = home.hmz(words.split(' ')).run().expect_code(2);
    assert_eq!(
        again.err(),
        "hmz runtime add: error: docker host 'gpubox' already exists\n  hint: change one of its settings: hmz settings set \
         runtimes.docker.gpubox.FIELD VALUE\n  hint: or remove it first: hmz runtime remove docker/gpubox\n"
    );
    assert_eq!((again.out(), text(&home)), (String::new(), format!("{before}{entry}")));
    // what is saved is what a run finds
    let _ = home.hmz(["get", "runtimes", "docker:gpubox"]).run().ok().says("docker:gpubox   local");
}

#[test]
fn what_is_refused_is_not_saved() {
    let home = TestHome::new();
    for (words, said) in [
        ("docker here", "docker host 'here' already exists"),
        ("docker -x", "unexpected argument '-x' found"),
        (
            "docker a/b",
            "invalid runtime name 'a/b': must start with a letter or digit and contain only letters, digits, dots, dashes, and underscores",
        ),
        ("podman x", "'podman' is not a runtime backend: ssh, docker, swarm, apple-container, slurm"),
        ("slurm x", "runtimes of slurm are not supported yet"),
        ("docker x --cpus -1", "x: CPUs cannot be negative: -1"),
        ("docker x --memory 8X", "'8X' must be a number and unit, such as 64G or 512M"),
        ("docker x --tls-dir certs", "x: TLS certificates require a tcp:// endpoint"),
        (
            "docker x --endpoint ftp://y",
            "'ftp://y' is not a docker endpoint: local, unix:///PATH, tcp://HOST:PORT, ssh://[USER@]HOST[:PORT], ssh:<ssh host> or context:<docker context>",
        ),
        ("docker x --harness docker:x", "x: its harness names itself; env is its own machine"),
        ("docker x --fallback docker:here,docker:here", "x: fallback docker:here is named twice"),
        ("docker x --gpus 0,1,0", "x: duplicate GPU specified"),
        (
            "docker x --container c --cpus 4 --image i",
            "x: a runtime working in the running container c starts none, so it cannot say an image or what it may hand out",
        ),
        ("docker x --container c --detect", "the argument '--container <NAME>' cannot be used with '--detect'"),
        ("swarm x --constraint a", "x: invalid constraint 'a': expected <attribute>==<value> or <attribute>!=<value>"),
        ("swarm x --node a", "nodes: 'a' is not HOSTNAME=SSH-HOST"),
        ("swarm x --gpus 0", "unexpected argument '--gpus' found"),
        ("ssh x", "x: an ssh host requires a hostname or an alias"),
        ("ssh x --host h --port 99999", "x: invalid port 99999"),
    ] {
        let done = home.hmz("runtime add".split(' ').chain(words.split(' '))).run().expect_code(2);
        assert!(done.err().contains(said), "{words}: it does not say\n{said}\n{done}");
        assert_eq!((done.out().as_str(), text(&home).as_str()), ("", SETTINGS), "{words}");
    }
    home.settings("runtimes: [\n");
    let broken = home.hmz(["runtime", "add", "docker", "x"]).run().expect_code(2);
    assert!(broken.err().contains(&format!("{}:1:", file(&home))), "{broken}");
    assert_eq!(text(&home), "runtimes: [\n");
}

#[test]
fn what_it_is_to_hand_out_and_has_not_got_is_said() {
    let home = TestHome::new();
    let words = "runtime add docker big --cpus 100000 --runtime none --gpus 7";
    let done = home.hmz(words.split(' ')).env("FORCE_COLOR", "1").env("TERM", "xterm").run().expect_code(1);
    let cpus = crate::support::docker::docker(&["info", "--format", "{{.NCPU}}"]);
    let lacks = format!(
        "lacks configured resources: it is to hand out 100000 CPUs and has {cpus}; it has no GPU 7; it has no OCI runtime none"
    );
    let file = file(&home);
    let answer = format!("docker/big saved in {file}\ndocker/big answers: {}\n", daemon());
    assert_eq!(done.out(), format!("{answer}\x1b[33m{lacks}\x1b[0m\n"));
    assert_eq!(text(&home), format!("{SETTINGS}    big: {{runtime: none, cpus: 100000, gpus: [7]}}\n"));
    // the colour adds nothing to the words, and the condition says the same
    assert_eq!(
        home.hmz(["runtime", "check", "big"]).run().expect_code(1).out(),
        format!("docker/big answers: {}\n{lacks}\n", daemon())
    );
}

#[test]
fn a_daemon_that_does_not_answer_is_saved_all_the_same() {
    let home = TestHome::new();
    let done =
        home.hmz(["runtime", "add", "docker", "gone", "--endpoint", "unix:///nowhere.sock", "--detect"]).run().expect_code(1);
    assert_eq!(
        done.out(),
        format!(
            "docker/gone saved in {}\ndocker/gone could not be reached: could not ask unix:///nowhere.sock what it has: {}\n",
            file(&home),
            "/nowhere.sock: No such file or directory (os error 2)"
        )
    );
    assert_eq!(
        done.err(),
        "hmz runtime add: nothing was detected; it is saved all the same; to ask again: hmz runtime check docker/gone\n"
    );
    assert_eq!(text(&home), format!("{SETTINGS}    gone: {{endpoint: unix:///nowhere.sock}}\n"));
    // a host that is not saved is a reason too
    let far = home.hmz(["runtime", "add", "docker", "far", "--endpoint", "ssh:far"]).run().expect_code(1);
    let _ = far.says("docker/far could not be reached: ssh:far: ssh host 'far' not found\n");
}

#[test]
fn a_host_of_ssh_and_a_swarm_are_saved_and_asked() {
    let home = TestHome::new();
    let ssh = home.hmz(["runtime", "add", "ssh", "gpu.1", "--host", "127.0.0.1", "--port", "1", "--user", "me"]).run();
    let refused = "ssh/gpu.1 could not be reached: ssh: connect to host 127.0.0.1 port 1: Connection refused\n";
    assert_eq!(ssh.expect_code(1).out(), format!("ssh/gpu.1 saved in {}\n{refused}", file(&home)));
    let nowhere = ["--endpoint", "unix:///nowhere.sock"];
    let swarm =
        home.hmz(["runtime", "add", "swarm", "c", "--cpus", "8", "--node", "w1=gpu.1"]).args(nowhere).run().expect_code(1);
    let swarm = swarm.says("swarm/c could not be reached: could not ask unix:///nowhere.sock what it has: ");
    assert!(swarm.err().is_empty() || !swarm.err().contains("not supported"), "{swarm}");
    assert_eq!(
        text(&home),
        format!(
            "{SETTINGS}  ssh:\n    gpu.1: {{host: \"127.0.0.1\", user: me, port: 1}}\n  swarm:\n    c: {{endpoint: unix:///nowhere.sock, cpus: 8, nodes: \
             {{w1: gpu.1}}}}\n"
        )
    );
    assert_eq!(home.hmz(["runtime", "check", "gpu.1"]).run().expect_code(1).out(), refused);
}

#[test]
fn what_a_daemon_has_is_detected_where_nothing_was_said() {
    let home = TestHome::new();
    let socket = home.root().join("d.sock");
    play(&socket);
    let at = format!("unix://{}", socket.display());
    let seed = home.hmz([
        "runtime",
        "add",
        "docker",
        "gpubox",
        "--endpoint",
        &at,
        "--cpus",
        "4",
        "--memory",
        "8G",
        "--harness",
        "local",
    ]);
    let answers = "answers: docker 29.4.3; 64 CPUs, 2015G, GPUs 0, 1; OCI runtimes nvidia, io.containerd.runc.v2, runc\n";
    assert_eq!(seed.run().ok().out(), format!("docker/gpubox saved in {}\ndocker/gpubox {answers}", file(&home)));
    let done = home.hmz(["runtime", "add", "docker", "all", "--endpoint", &at, "--cpus", "4", "--detect"]).run().ok();
    assert_eq!(
        done.out(),
        format!("docker/all saved in {}\ndocker/all detected: memory: 2015G, gpus: 0, 1\ndocker/all {answers}", file(&home))
    );
    let entries = format!(
        "    gpubox: {{endpoint: {at}, harness: local, cpus: 4, memory: 8G}}\n    all: {{endpoint: {at}, cpus: 4, memory: 2015G, gpus: \
         [0, 1]}}\n"
    );
    assert_eq!(text(&home), format!("{SETTINGS}{entries}"));
    let _ = home.hmz(["settings", "validate"]).run().ok();
}

#[test]
fn every_action_has_help_with_examples() {
    let home = TestHome::new();
    for (words, example) in [
        ("runtime", "\n  hmz runtime add docker gpubox --endpoint local --cpus 4 --memory 8G --harness local\n"),
        ("runtime add", "\n  hmz runtime add docker gpubox --detect\n"),
        ("runtime check", "\n  hmz runtime check docker/gpubox -o json\n"),
        ("runtime remove", "\n  hmz runtime remove gpubox\n"),
        ("runtime import-ssh", "\n  hmz runtime import-ssh --list\n"),
    ] {
        let done = home.hmz(words.split(' ').chain(["--help"])).run().ok();
        assert!(done.out().contains("\nExamples:\n") && done.out().contains(example), "{done}");
    }
    // each flag says what it is
    let done = home.hmz(["runtime", "add", "docker", "-h"]).run().ok();
    for line in done.out().lines().map(str::trim).filter(|line| line.starts_with("--")) {
        assert!(line.split_once("  ").is_some_and(|(_, about)| !about.trim().is_empty()), "{line}\n{done}");
    }
}
