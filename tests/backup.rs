//! Backup and restore, as a user does them, and the page on them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use support::document::shell_blocks;
use support::home::TestHome;
use support::project::Project;
use support::terminal::Terminal;
use support::{LIMIT, eventually, processes};

fn place() -> (TestHome, Project) {
    let home = TestHome::new();
    let project = home.project("p");
    (home, project)
}

fn environment(project: &Project, name: &str) -> String {
    let file = format!("{name}.yaml");
    project.write(
        &file,
        &format!(
            "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: {name}}}\nspec: {{runtime: 'docker:here', workdir: ., image: \
             'busybox:latest'}}\n"
        ),
    );
    file
}

/// An environment that is declared and never started: nothing of that name is saved.
fn declared(project: &Project, name: &str) -> String {
    let file = environment(project, name);
    let text = fs::read_to_string(project.file(&file)).unwrap().replace("docker:here", "docker:nowhere");
    project.write(&file, &text);
    file
}

fn store(home: &TestHome) -> std::path::PathBuf {
    home.hmz_home().join("state/store.db")
}

#[test]
fn what_is_no_text_is_not_written_to_a_terminal() {
    let (home, project) = place();
    for words in [&["backup", "-"][..], &["debug", "bundle", "-o", "-"]] {
        let mut terminal = Terminal::start(home.hmz(words).cwd(project.dir()), 24, 120);
        terminal.wait_for("standard output is a terminal");
        assert_eq!(terminal.wait(), 2);
    }
    assert!(!project.file("-").exists());
}

#[test]
fn what_was_declared_comes_back_with_its_boxes_and_what_was_not_goes() {
    let (home, project) = place();
    let hmz = |line: &str| home.hmz(line.split_whitespace()).cwd(project.dir()).run();
    let (kept, later) = (environment(&project, "kept"), environment(&project, "later"));
    drop(hmz(&format!("apply -f {kept} --wait --timeout 2m")).ok());
    let before = home.containers();
    let done = hmz("backup hmz.db").ok();
    let told = done.out();
    let counts = told.strip_prefix("hmz.db has ").unwrap().trim_end().to_owned();
    assert!(counts.starts_with("1 environment, ") && counts.ends_with(" runtimes"), "{done}");
    let file = project.file("hmz.db");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // to a pipe too, and no file of that name is made
    drop(home.shell(&format!("cd {} && hmz backup - >piped.db", project.path())).run().ok().says("it has 1 environment, "));
    assert!(fs::read(project.file("piped.db")).unwrap().starts_with(b"SQLite format 3"));
    assert!(!project.file("-").exists());
    // neither the home's own secret nor what its daemon is known by
    let bytes = fs::read(&file).unwrap();
    for private in ["secret", "instance"] {
        let text = fs::read(home.hmz_home().join("state").join(private)).unwrap();
        let text = text.trim_ascii();
        assert!(!bytes.windows(text.len()).any(|found| found == text), "{private} is in the backup");
    }
    drop(hmz(&format!("apply -f {later} --wait --timeout 2m")).ok());
    assert_eq!(home.containers().len(), 2);

    let done = hmz("restore hmz.db").ok();
    let replaced = store(&home).with_extension("db.replaced-1");
    let told = format!("restored {counts} from hmz.db\nwhat was there before is in {}\n", replaced.display());
    assert_eq!((done.out(), done.err()), (told, "hmz restore: env/later is not in it: what it started is removed\n".into()));
    for file in [store(&home), replaced.clone()] {
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
    assert_eq!(hmz("get envs -o name").ok().out(), "env/kept\n");
    drop(hmz("sh env/kept -- true").ok());
    eventually("the box of what is not in it goes", LIMIT, || (home.containers() == before).then_some(()));

    // and back again: the box that was removed is known as gone
    let back = home.hmz(["restore"]).arg(&replaced).cwd(project.dir()).run().ok();
    assert!(back.out().starts_with("restored 2 environments, "), "{}", back.out());
    drop(hmz("wait --for=condition=Ready=false env/later --timeout 1m").ok());
    drop(hmz("wait --for=condition=Ready env/kept --timeout 1m").ok());
    assert_eq!(home.containers(), before);
    drop(hmz("delete env/kept env/later").ok());
    home.assert_no_container_left(LIMIT);
}

#[test]
fn a_copy_that_somebody_left_who_was_killed_goes_when_a_daemon_starts() {
    let (home, project) = place();
    let _ = home.hmz(["get", "envs"]).cwd(project.dir()).run().ok();
    let state = home.hmz_home().join("state");
    // its very bytes, as both make them
    let left = ["backup-aB3dE6", "restore-aB3dE6"].map(|name| state.join(name));
    for path in &left {
        fs::copy(store(&home), path).unwrap();
    }
    drop(home.hmz(["backup", "hmz.db"]).cwd(project.dir()).run().ok());
    assert!(left.iter().all(|path| path.exists()), "a daemon that runs may be making one");
    drop(home.hmz(["restore", "hmz.db"]).cwd(project.dir()).run().ok());
    drop(home.hmz(["get", "envs"]).cwd(project.dir()).run().ok());
    assert!(left.iter().all(|path| !path.exists()));
}

#[test]
fn what_cannot_be_restored_is_refused_and_changes_nothing() {
    let (home, project) = place();
    let hmz = |line: &str| home.hmz(line.split_whitespace()).cwd(project.dir()).run();
    let file = declared(&project, "a");
    let _ = hmz(&format!("apply -f {file}"));
    drop(hmz("backup hmz.db").ok());
    let bytes = fs::read(project.file("hmz.db")).unwrap();
    fs::write(project.file("half.db"), &bytes[..bytes.len() / 2]).unwrap();
    fs::write(project.file("empty.db"), "").unwrap();
    let mut newer = bytes.clone();
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes()); // where SQLite keeps user_version
    fs::write(project.file("newer.db"), newer).unwrap();
    let refused = |line: &str, why: &str| {
        let done = hmz(line);
        assert_eq!(done.code(), 2, "{done}");
        assert!(done.err().contains(why) && done.out().is_empty(), "{done}");
    };
    refused("restore half.db", "half.db is no whole backup: ");
    refused("restore empty.db", "empty.db is no whole backup: there is nothing in it");
    refused("restore newer.db", "newer.db was written by a newer hmz: its schema is 99, and this one knows ");
    refused("restore a.yaml", "a.yaml is no whole backup: ");
    refused("restore missing.db", "missing.db");
    refused("backup hmz.db", "hmz.db is there already");
    let inside = format!("backup --overwrite {}", store(&home).display());
    refused(&inside, "is where the store itself is");
    assert!(fs::read(project.file("hmz.db")).unwrap() == bytes, "a backup was written over");
    drop(hmz("backup --overwrite hmz.db").ok());
    assert_eq!(hmz("get envs -o name").ok().out(), "env/a\n");
    let left: Vec<_> = fs::read_dir(project.dir()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".hmz-backup")), "{left:?}");
    let state: Vec<_> = fs::read_dir(home.hmz_home().join("state")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(state.iter().all(|name| !name.to_string_lossy().contains("restore-")), "{state:?}");
    assert!(!state.iter().any(|name| name.to_string_lossy().contains("replaced")), "{state:?}");
}

#[test]
fn a_run_at_work_and_a_daemon_in_the_foreground_are_in_the_way() {
    let (home, project) = place();
    let hmz = |line: &str| home.hmz(line.split_whitespace()).cwd(project.dir()).run();
    project.write("steps.yaml", "- wait_for: go\n");
    project.write(
        "run.yaml",
        "apiVersion: hmz/v1\nkind: Run\nmetadata: {name: r}\nspec:\n  flow: boxed\n  task: t\n  agents: {coder: \
         script/steps.yaml}\n  environments: {box: {runtime: 'docker:here', workdir: ., image: 'busybox:latest'}}\n",
    );
    drop(hmz("backup hmz.db").ok());
    drop(hmz("apply -f run.yaml").ok());
    drop(hmz("wait --for=condition=Running run/r --timeout 2m").ok());
    let done = hmz("restore hmz.db");
    assert_eq!(done.code(), 2, "{done}");
    assert!(done.err().contains("run/r is at work"), "{done}");
    project.write("go", "");
    drop(hmz("wait --for=condition=Complete run/r --timeout 2m").ok());
    drop(hmz("get run/r").ok().says("Succeeded"));
    // its box goes after that, and the restore would tell of it too
    drop(hmz("wait --for=delete env/r-box --timeout 2m").ok());

    let daemon = || {
        let found = home.processes().into_iter().find(|pid| processes::line(*pid).contains(" controller"));
        found.filter(|pid| processes::is_alive(*pid))
    };
    let ours = rustix::process::Pid::from_raw(daemon().unwrap()).unwrap();
    rustix::process::kill_process(ours, rustix::process::Signal::TERM).unwrap();
    eventually("the end of the daemon", LIMIT, || daemon().is_none().then_some(()));
    let foreground = home.hmz(["controller"]).start();
    eventually("a daemon in the foreground", LIMIT, || hmz("version").ok().out().contains("daemon 0").then_some(()));
    let done = hmz("restore hmz.db");
    assert_eq!(done.code(), 2, "{done}");
    assert!(done.err().contains("a daemon runs in the foreground, as process "), "{done}");
    assert!(hmz("version").ok().out().contains("daemon 0"), "it was ended");
    drop(foreground);
    eventually("the end of the daemon", LIMIT, || daemon().is_none().then_some(()));
    let done = hmz("restore hmz.db").ok();
    assert_eq!(done.err(), "hmz restore: run/r is not in it: what it started is removed\n");
    assert_eq!(hmz("get runs -o name").ok().out(), "");
    home.assert_no_container_left(LIMIT);
}

#[test]
fn a_store_of_a_newer_version_is_refused_by_every_verb_and_a_backup_is_the_way_back() {
    let (home, project) = place();
    let hmz = |line: &str| home.hmz(line.split_whitespace()).cwd(project.dir()).run();
    let file = declared(&project, "a");
    let _ = hmz(&format!("apply -f {file}"));
    drop(hmz("backup hmz.db").ok());
    // a restore ends the daemon
    drop(hmz("restore hmz.db").ok());
    let mut bytes = fs::read(store(&home)).unwrap();
    bytes[60..64].copy_from_slice(&99_u32.to_be_bytes());
    fs::write(store(&home), &bytes).unwrap();
    let done = hmz("get envs");
    assert_eq!(done.code(), 2, "{done}");
    let said = format!(
        "hmz get: error: the store {} was written by a newer hmz: its schema is 99, and this one knows ",
        store(&home).display()
    );
    assert!(done.err().starts_with(&said) && done.err().contains("\n  hint: "), "{done}");
    assert!(fs::read(store(&home)).unwrap() == bytes, "it was changed");
    drop(hmz("restore hmz.db").ok());
    assert_eq!(hmz("get envs -o name").ok().out(), "env/a\n");
}

#[test]
fn the_page_on_backups_does_what_it_says() {
    let (home, project) = place();
    let file = environment(&project, "box");
    drop(home.hmz(["apply", "-f", &file, "--wait", "--timeout", "2m"]).cwd(project.dir()).run().ok());
    let mut seen = 0;
    for block in shell_blocks("docs/backup.md") {
        let done = home.shell(&block.text).cwd(project.dir()).run().ok();
        match block.text.lines().next().unwrap_or_default() {
            "hmz backup hmz.db" => {
                assert!(done.out().starts_with("hmz.db has 1 environment, ") && done.out().contains("\n-rw------- "), "{done}");
            }
            "hmz backup --overwrite hmz.db" => assert!(done.out().starts_with("hmz.db has 1 environment, "), "{done}"),
            "hmz restore hmz.db" => {
                let _ = done.says("restored 1 environment, ").says(" from hmz.db\nwhat was there before is in ").says("\nbox ");
            }
            _ => panic!("{}: nothing here knows how to check this block", block.at),
        }
        seen += 1;
    }
    assert_eq!(seen, 3);
    drop(home.hmz(["delete", "env/box"]).run().ok());
}

#[test]
fn a_store_that_another_process_has_is_not_replaced() {
    let (home, project) = place();
    let hmz = |line: &str| home.hmz(line.split_whitespace()).cwd(project.dir()).run();
    drop(hmz(&format!("apply -f {}", declared(&project, "kept"))).expect_code(2));
    drop(hmz("backup hmz.db").ok());
    for daemon in processes::with_variable(&home.mark()).into_iter().filter_map(processes::Process::of) {
        daemon.signal(rustix::process::Signal::KILL);
        daemon.assert_gone();
    }
    let holds = "import sqlite3, sys\nstore = sqlite3.connect(sys.argv[1])\nstore.execute('PRAGMA locking_mode=EXCLUSIVE')\n\
                 store.execute('BEGIN EXCLUSIVE')\nprint('held', flush=True)\nsys.stdin.read()\n";
    let mut other = std::process::Command::new("python3")
        .args(["-c", holds])
        .arg(store(&home))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 4];
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut said).unwrap();
    let done = hmz("restore hmz.db").expect_code(1);
    assert_eq!(done.err(), format!("hmz restore: error: the store {} is in use by another process\n", store(&home).display()));
    assert!(!store(&home).with_extension("db.replaced-1").exists());
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
    drop(hmz("restore hmz.db").ok());
}
