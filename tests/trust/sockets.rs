//! Who may speak to whom: the guest's socket, the API's, and what a workdir would give away.

use crate::put;
use crate::support::command::Invocation;
use crate::support::docker;
use crate::support::home::TestHome;
use crate::support::runs::{environment, exec, flow, script, sh};
use crate::support::user::User;
use crate::support::{LIMIT, eventually};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Puts a listener of its own in the guest's place, for as long as its session lives.
const IMPOSTOR: &str = "import os, socket\nos.unlink('/.hmz/run/g.sock')\ns = socket.socket(socket.AF_UNIX)\ns.bind('/.hmz/run/g.sock')\n\
                        os.chmod('/.hmz/run/g.sock', 0o777)\ns.listen()\nprint('listening', flush=True)\nwhile True:\n  c = s.accept()[0]\n  \
                        c.settimeout(1)\n  try: open('heard', 'ab').write(c.recv(1000))\n  except OSError: pass\n";

#[test]
fn an_impostor_on_the_guests_socket_is_refused_and_hears_nothing() {
    let home = TestHome::new();
    let project = home.project("p");
    project.write("impostor.py", IMPOSTOR);
    environment(&home, "e", "python:3.12-slim", &project);
    let mut impostor = sh(&home, "e", "exec python3 impostor.py").start();
    impostor.wait_for("listening");
    let refused = sh(&home, "e", "echo worked").run().says("is not its guest's");
    assert!(refused.code() != 0 && !refused.out().contains("worked"), "{refused}");
    drop(impostor);
    // and an agent whose session begins when it is there already
    let project = home.project("q");
    project.write("impostor.py", IMPOSTOR);
    flow(
        &home,
        "two",
        "agents: {a: {}, b: {}}\nenvironments: {box: {image: \"python:3.12-slim\"}}\nsteps:\n  - turn: {agent: a, environment: box, prompt: \
         one}\n  - turn: {agent: b, environment: box, prompt: two}",
    );
    let (a, b) = (
        script(&home, "a", "- run: touch begun\n- wait_for: go\n"),
        script(&home, "b", "- run: echo worked >worked\n- say: worked\n"),
    );
    let place = format!("box=docker@here{}", project.path());
    let running = home.hmz(["exec", "-f", "two", "-a", &format!("a={a}"), "-a", &format!("b={b}"), "-e", &place, "go"]).start();
    eventually("the first turn", LIMIT, || project.file("begun").exists().then_some(()));
    let names = home.hmz(["get", "envs", "-o", "name"]).run().ok().out();
    let name = names
        .lines()
        .find_map(|line| line.strip_prefix("env/").or(line.strip_prefix("environment/")).filter(|n| *n != "e"))
        .unwrap();
    let mut impostor = sh(&home, name, "exec python3 impostor.py").start();
    impostor.wait_for("listening");
    project.write("go", "");
    let finished = running.wait().expect_code(1).says("is not its guest's");
    assert!(!finished.out().contains("worked") && !project.file("worked").exists(), "{finished}");
    assert_eq!(fs::read_to_string(project.file("heard")).unwrap_or_default(), "", "not a byte is said to an impostor");
}

/// Asks the API at the socket for its version, and prints the first bytes of what is answered.
const ASK: &str = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.settimeout(30)\ntry:\n  s.connect(sys.argv[1])\n  \
                   s.sendall(b'GET /v1/nothing HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n')\n  print('answered', s.recv(8))\nexcept OSError as e: print('refused', e)";

fn open_up(dir: &Path) {
    for dir in dir.ancestors().take_while(|dir| *dir != Path::new("/var/tmp")) {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    }
}

#[test]
fn the_api_answers_this_user_in_this_pid_namespace_alone() {
    let home = TestHome::new();
    let _ = home.hmz(["get", "runs"]).run().ok();
    let find = Invocation::new("find").arg(home.root().join("run")).args(["-name", "api.sock"]).env("PATH", "/usr/bin:/bin");
    let socket = PathBuf::from(find.run().ok().out().trim());
    let about = socket.metadata().unwrap();
    assert_eq!((about.mode() & 0o777, socket.parent().unwrap().metadata().unwrap().mode() & 0o777), (0o600, 0o700));
    let ask = || Invocation::new("python3").args(["-c", ASK]).arg(&socket).env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let answer = ask().run().ok().out();
    assert!(answer.starts_with("answered b'HTTP"), "{answer}");
    let user = User::get();
    assert!(user.run(ask()).run().ok().out().starts_with("refused"), "its directory is closed");
    // somebody opens all of it: the peer is looked at even so
    open_up(socket.parent().unwrap());
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    let answer = user.run(ask()).run().ok().out();
    assert!(!answer.contains("HTTP"), "{answer}");
    // root, as the daemon is, but of a container that has the socket mounted
    let mount = format!("{}:/api", socket.parent().unwrap().display());
    let words =
        ["run", "--rm", "--label", "hmz-test=api", "-v", &mount, "python:3.12-slim", "python3", "-c", ASK, "/api/api.sock"];
    let answer = docker::docker(&words);
    assert!(!answer.contains("HTTP"), "{answer}");
    assert!(ask().run().ok().out().starts_with("answered b'HTTP"), "and it answers on");
}

#[test]
fn what_hmz_keeps_is_closed_to_other_users() {
    let home = TestHome::new();
    let project = home.project("p");
    let agent = script(&home, "s", "- say: secret words\n");
    let _ = exec(&home, "boxed", &agent, &project, "secret task").run().ok();
    let user = User::get();
    // even when all directories above are open
    fs::set_permissions(home.root(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(home.hmz_home(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = ("PATH", "/usr/bin:/bin");
    let everything = Invocation::new("find").arg(home.hmz_home()).args(["-type", "f", "-readable"]).envs([path]);
    let all = everything.clone().run().ok().out();
    assert!(all.contains("epic.jsonl") && all.contains("store.db"), "{all}");
    let found = user.run(everything).run().out();
    let readable: Vec<&str> = found.lines().filter(|f| !f.ends_with("settings.yaml") && !f.contains("/flows/")).collect();
    assert!(readable.is_empty(), "{readable:?}");
    let boxes = PathBuf::from(format!("/tmp/hmz-{}", home.uid()));
    assert_eq!(boxes.metadata().unwrap().mode() & 0o077, 0);
}

#[test]
fn a_workdir_that_gives_everything_away_is_refused_before_anything_starts() {
    let home = TestHome::new();
    put(&home.home().join(".ssh/id_test"), "x");
    put(&home.home().join("project/file"), "x");
    std::os::unix::fs::symlink(home.home().join(".ssh"), home.home().join("project/keys")).unwrap();
    let agent = script(&home, "s", "- say: started\n");
    let at = |path: &Path| path.display().to_string();
    for (dir, why) in [
        (at(&home.home()), "credentials are kept there"),
        (at(home.root()), "hmz keeps its own files there"),
        ("/".into(), "hmz keeps its own files there"),
        (at(&home.hmz_home()), "hmz keeps its own files there"),
        (at(&home.hmz_home().join("epics")), "hmz keeps its own files there"),
        (at(&home.root().join("run")), "hmz keeps its own files there"),
        (at(&home.home().join(".ssh")), "credentials are kept there"),
        (at(&home.home().join("project/keys")), "credentials are kept there"),
        ("/etc".into(), "it rules this machine"),
        ("/var/run".into(), "it rules this machine"),
    ] {
        let (coder, place) = (format!("coder={agent}"), format!("box=docker@here{dir}"));
        let finished =
            home.hmz(["exec", "-f", "boxed", "-a", &coder, "-e", &place, "go"]).run().expect_code(2).says(why).says(&dir);
        assert!(!finished.out().contains("started"), "{finished}");
    }
    let file = home.root().join("work/e.yaml");
    let text = format!(
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: e}}\nspec: {{runtime: \"docker:here\", workdir: {}}}\n",
        at(&home.home())
    );
    fs::write(&file, text).unwrap();
    let _ = home.hmz(["apply", "-f", file.to_str().unwrap()]).run();
    let said = home.hmz(["wait", "--for=condition=Scheduled=False", "env/e"]).run();
    let said = format!("{said}{}", home.hmz(["describe", "env/e"]).run());
    assert!(said.contains("credentials are kept there"), "{said}");
    let _ = home.hmz(["delete", "env/e"]).run().ok();
    assert!(home.containers().is_empty(), "nothing was started");
    let (coder, place) = (format!("coder={agent}"), format!("box=docker@here{}", at(&home.home().join("project"))));
    let _ = home.hmz(["exec", "-f", "boxed", "-a", &coder, "-e", &place, "go"]).run().ok().says("started");
}
