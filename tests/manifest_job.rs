//! The same declared: runs and environments as manifests, and every verb that looks at them or ends them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod provider;
mod support;

use provider::Provider;
use provider::script::{Step, bash, edit, read};
use rustix::process::Signal;
use serde_json::Value;
use support::home::TestHome;
use support::project::Project;
use support::terminal::Terminal;
use support::{LIMIT, docker, eventually};

/// What the script agent does; it waits for a file in its middle.
const STEPS: &str = "\
- run: hostname
- wait_for: go
- edit: {path: calc.py, old: return a - b, new: return a + b}
- run: id -u > owner.txt
- say: Fixed by the script.
";

fn run(agent: &str, image: &str) -> String {
    format!(
        "apiVersion: hmz/v1\nkind: Run\nmetadata: {{name: fix}}\nspec:\n  flow: boxed\n  task: fix add()\n  agents: \
         {{coder: {agent}}}\n  environments:\n    box: {{runtime: 'docker:here', workdir: ., image: '{image}', cpus: 1, \
         memory: 256M}}\n  params: {{budget: {{duration: 10m}}}}\n"
    )
}

const ENVIRONMENT: &str = "\
apiVersion: hmz/v1
kind: Environment
metadata: {name: box}
spec: {runtime: 'docker:here', workdir: ., image: 'busybox:latest', cpus: 0.5, memory: 128M}
";

/// A home with the environment `box`, ready.
fn with_box() -> (TestHome, Project) {
    let home = TestHome::new();
    let project = home.project("p");
    project.write("box.yaml", ENVIRONMENT);
    let path = project.file("box.yaml");
    // from elsewhere: the directory is where the manifest is
    let applied = home.hmz(["apply", "-f"]).arg(path).run().ok();
    assert_eq!(applied.out(), "env/box created\n");
    let waited = home.hmz(["wait", "--for=condition=Ready", "env/box", "--timeout", "2m"]).run().ok();
    assert_eq!(waited.out(), "env/box condition met\n");
    (home, project)
}

/// The words of the row that begins with `name`, under the words of the header.
fn row(table: &str, name: &str) -> Vec<(String, String)> {
    let mut lines = table.lines();
    let header = lines.next().unwrap_or_default().split_whitespace();
    let row = lines.find(|line| line.split_whitespace().next() == Some(name));
    let row = row.unwrap_or_else(|| panic!("{name} is not in\n{table}"));
    header.map(str::to_owned).zip(row.split_whitespace().map(str::to_owned)).collect()
}

fn assert_row(table: &str, name: &str, wanted: &[(&str, &str)]) {
    let row = row(table, name);
    let columns: Vec<&str> = row.iter().map(|(column, _)| column.as_str()).collect();
    assert_eq!(columns[..7], ["NAME", "RUNTIME", "IMAGE", "CPUS", "MEMORY", "READY", "AGE"], "{table}");
    for (column, value) in wanted {
        assert!(row.contains(&((*column).to_owned(), (*value).to_owned())), "{column} is not {value}\n{table}");
    }
    assert!(row[6].1.ends_with(['s', 'm']), "{table}");
}

/// A run from its manifest to its deletion; `go` lets it go on once its environment has been looked at.
fn from_apply_to_delete(home: &TestHome, project: &Project, image: &str, go: impl FnOnce()) -> String {
    let hmz = |words: &[&str]| home.hmz(words).cwd(project.dir());
    assert_eq!(hmz(&["apply", "-f", "run.yaml"]).run().ok().out(), "run/fix created\n");
    let _ = hmz(&["wait", "--for=condition=Ready", "env/fix-box", "--timeout", "2m"]).run().ok();
    let envs = hmz(&["get", "envs"]).run().ok().out();
    let wanted = [("RUNTIME", "docker:here"), ("IMAGE", image), ("CPUS", "1"), ("MEMORY", "256M"), ("READY", "True")];
    assert_row(&envs, "fix-box", &wanted);
    let containers = home.containers();
    let directories = home.box_directories();
    assert_eq!((containers.len(), directories.len()), (1, 1));
    let _ = hmz(&["wait", "--for=condition=Running", "run/fix", "--timeout", "2m"]).run().ok();
    let _ = hmz(&["get", "runs"]).run().ok().says("Running");
    let mut logs = hmz(&["logs", "-f", "run/fix"]).start();
    logs.wait_for("● coder is working");
    go();
    let logs = logs.wait().ok();
    let waited = hmz(&["wait", "--for=condition=Complete", "run/fix", "--timeout", "2m"]).run().ok();
    assert_eq!(waited.out(), "run/fix condition met\n");
    project.assert_fixed();
    assert_eq!(project.read("owner.txt").trim(), home.uid().to_string());

    assert_eq!(hmz(&["apply", "-f", "run.yaml"]).run().ok().out(), "run/fix unchanged\n");
    project.write("run.yaml", &project.read("run.yaml").replace("fix add()", "fix sub()"));
    let changed = hmz(&["apply", "-f", "run.yaml"]).run().expect_code(2);
    let said = "hmz apply: error: run/fix: it has started, so what it does cannot be changed\n  hint: delete it first: hmz delete run/fix\n";
    assert!(changed.err().starts_with(said), "{changed}");

    assert_eq!(hmz(&["delete", "run/fix"]).run().ok().out(), "run/fix deleted\n");
    home.assert_nothing_left(&directories);
    for kind in ["runs", "envs"] {
        let none = hmz(&["get", kind]).run().ok();
        assert_eq!(none.out(), "", "{none}");
    }
    logs.out()
}

#[test]
fn a_run_is_applied_looked_at_followed_and_deleted() {
    let home = TestHome::new();
    let project = home.project("p");
    project.write("steps.yaml", STEPS);
    project.write("run.yaml", &run("script/./steps.yaml", "busybox:latest"));
    let logs = from_apply_to_delete(&home, &project, "busybox:latest", || project.write("go", ""));
    let wanted = "● coder's harness runs here\n● coder is working\n● Bash(hostname)\n";
    assert!(logs.starts_with(wanted), "{logs}");
    assert!(logs.contains("● Fixed by the script.\n✻ Worked for "), "{logs}");
}

#[test]
fn a_run_with_the_real_claude_is_the_same() {
    let provider = Provider::start().usual_script("fix").script(
        "fix",
        [
            Step::call(bash("hostname")),
            Step::call(read("calc.py")),
            Step::call(edit("calc.py", "return a - b", "return a + b")).gated("go"),
            Step::call(bash("id -u > owner.txt")),
            Step::say("Fixed by claude."),
        ],
    );
    let home = TestHome::new().with_claude(&provider.url());
    let project = home.project("p");
    project.write("run.yaml", &run("'claude/scripted-1:low'", "python:3.12-slim"));
    let logs = from_apply_to_delete(&home, &project, "python:3.12-slim", || provider.open("go"));
    assert!(logs.contains("● Bash(hostname)\n") && logs.contains(" · scripted-1 · coder\n"), "{logs}");
    assert_eq!(provider.results("fix")[0].text.len(), 12, "{:?}", provider.results("fix"));
}

#[test]
fn a_run_that_is_deleted_in_its_middle_leaves_nothing() {
    let home = TestHome::new();
    let project = home.project("p");
    project.write("steps.yaml", "- run: sleep 1000\n");
    project.write("run.yaml", &run("script/./steps.yaml", "busybox:latest"));
    let _ = home.hmz(["apply", "-f", "run.yaml"]).cwd(project.dir()).run().ok();
    let mut logs = home.hmz(["logs", "-f", "fix"]).start();
    logs.wait_for("● Bash(sleep 1000)");
    let directories = home.box_directories();
    let _ = home.hmz(["delete", "run", "fix"]).run().ok();
    assert_eq!(home.containers(), Vec::<String>::new());
    // who follows it is let go
    let _ = logs.wait();
    home.assert_nothing_left(&directories);
}

#[test]
fn manifests_come_from_folders_and_from_standard_input() {
    let home = TestHome::new();
    let project = home.project("p");
    let flow = "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: look}\nspec:\n  environments: {box: {image: 'busybox:latest'}}\n  \
                steps:\n    - exec: {environment: box, command: 'pwd > where.txt'}\n";
    let run = "apiVersion: hmz/v1\nkind: Run\nmetadata: {name: look}\nspec:\n  flow: look\n  task: look\n  environments: \
               {box: {runtime: 'docker:here', workdir: ..}}\n  params: {budget: {duration: 10m}}\n";
    project.write("m/flow.yaml", flow);
    project.write("m/run.yml", run);
    project.write("m/notes.txt", "not a manifest: {");
    let applied = home.hmz(["apply", "-f"]).arg(project.file("m")).run().ok();
    assert_eq!(applied.out(), "flow/look created\nrun/look created\n");
    let _ = home.hmz(["wait", "--for=condition=Complete", "run/look", "--timeout", "2m"]).run().ok();
    let _ = home.hmz(["get", "run/look"]).run().ok().says("Succeeded");
    // `..` of the manifest's folder, whatever directory the verb was in
    assert_eq!(project.read("where.txt").trim(), project.path());

    let second = run.replace("{name: look}", "{generateName: look-}").replace("..", "sub");
    std::fs::create_dir(project.file("sub")).unwrap();
    let applied = home.hmz(["apply", "-f", "-", "-o", "name"]).cwd(project.dir()).stdin(second).run().ok();
    let name = applied.out().trim().to_owned();
    assert!(name.starts_with("run/look-") && name.len() > "run/look-".len(), "{name}");
    let _ = home.hmz(["wait", "--for=condition=Complete", &name, "--timeout", "2m"]).run().ok();
    assert_eq!(project.read("sub/where.txt").trim(), format!("{}/sub", project.path()));
    let _ = home.hmz(["delete", "-f"]).arg(project.file("m")).run().ok().says("run/look deleted").says("flow/look deleted");
    let _ = home.hmz(["get", "run/look"]).run().expect_code(1);
    home.assert_no_container_left(LIMIT);
}

#[test]
fn a_command_in_an_environment_has_its_streams_and_its_status() {
    let (home, project) = with_box();
    let sh = |words: &[&str]| home.hmz(["sh", "env/box", "--"]).args(words);
    let hostname = sh(&["hostname"]).run().ok().out();
    assert!(home.containers()[0].starts_with(hostname.trim()) && hostname.len() == 13, "{hostname}");
    let both = sh(&["sh", "-c", "echo out; echo err >&2; pwd; exit 7"]).run().expect_code(7);
    assert_eq!(both.out(), format!("out\n{}\n", project.path()));
    assert_eq!(both.err(), "err\n");
    let _ = sh(&["sh", "-c", "kill -TERM $$"]).run().expect_code(143);
    let missing = sh(&["no-such-program"]).run();
    assert!(missing.code() != 0 && missing.err().contains("no-such-program"), "{missing}");
    // every byte there is, more than any buffer between holds
    let bytes: Vec<u8> = (0..3_000_017_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 23) as u8).collect();
    let echoed = sh(&["cat"]).stdin(bytes.clone()).run().ok();
    assert!(echoed.stdout == bytes, "{} bytes of {} came back, or others", echoed.stdout.len(), bytes.len());
    // a file of the caller's is the command's own
    let to_file = format!("hmz sh box -- sh -c 'echo to-a-file' > {}/out.txt", project.path());
    let _ = home.shell(&to_file).run().ok();
    assert_eq!(project.read("out.txt"), "to-a-file\n");
    // a signal to the verb is one to the command
    let mut waiting = sh(&["sh", "-c", "trap 'echo told; exit 5' TERM; echo ready; while :; do sleep 0.05; done"]).start();
    waiting.wait_for("ready");
    waiting.signal(Signal::TERM);
    let told = waiting.wait().expect_code(5);
    assert_eq!(told.out(), "ready\ntold\n");

    let directories = home.box_directories();
    assert_eq!(home.hmz(["delete", "env/box"]).run().ok().out(), "env/box deleted\n");
    home.assert_nothing_left(&directories);
    let gone = home.hmz(["sh", "env/box", "--", "true"]).run().expect_code(1);
    let _ = gone.says("hmz sh: error: ");
}

#[test]
fn a_shell_in_an_environment_is_on_a_terminal() {
    let (home, project) = with_box();
    let mut terminal = Terminal::start(home.hmz(["sh", "env/box"]), 31, 97);
    terminal.type_in("[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo a-terminal-$((40+1)) > /dev/tty; stty size; echo in-$(pwd)\n");
    terminal.wait_for("a-terminal-41");
    terminal.wait_for("31 97");
    terminal.wait_for(&format!("in-{}", project.path()));
    terminal.type_in("sleep 1000; echo after-$?\n");
    // the shell has read the line once it has echoed it, and the program is there once it is listed
    eventually("sleep runs", LIMIT, || docker::docker(&["top", &home.containers()[0]]).contains("sleep 1000").then_some(()));
    terminal.type_in("\x03");
    terminal.type_in("echo again-$((6*7)); exit 9\n");
    terminal.wait_for("again-42");
    assert_eq!(terminal.wait(), 9);
    assert!(!docker::docker(&["top", &home.containers()[0]]).contains("sleep 1000"), "^C did not end it");
}

#[test]
fn a_command_on_a_terminal_sees_its_size_change_and_is_interrupted() {
    let (home, _) = with_box();
    let loops = "stty size; trap 'stty size' WINCH; trap 'echo told; exit 3' INT; echo ready; while :; do sleep 0.05; done";
    let mut terminal = Terminal::start(home.hmz(["sh", "env/box", "--", "sh", "-c", loops]), 31, 97);
    terminal.wait_for("31 97");
    terminal.wait_for("ready");
    terminal.resize(40, 120);
    terminal.wait_for("40 120");
    terminal.type_in("\x03");
    terminal.wait_for("told");
    assert_eq!(terminal.wait(), 3);
}

#[test]
fn what_is_there_is_read_back_as_it_is() {
    let (home, _) = with_box();
    let hmz = |words: &[&str]| home.hmz(words);
    let yaml = hmz(&["get", "env/box", "-o", "yaml"]).run().ok().out();
    let again = hmz(&["apply", "-f", "-"]).stdin(yaml).run().ok();
    assert_eq!(again.out(), "env/box unchanged\n");
    let json: Value = serde_json::from_str(&hmz(&["get", "env/box", "-o", "json"]).run().ok().out()).unwrap();
    assert_eq!((&json["kind"], &json["metadata"]["name"]), (&"Environment".into(), &"box".into()));
    assert_eq!(json["status"]["container_id"], home.containers()[0].as_str());
    let again = hmz(&["apply", "-f", "-"]).stdin(json.to_string()).run().ok();
    assert_eq!(again.out(), "env/box unchanged\n");
    let list: Value = serde_json::from_str(&hmz(&["get", "envs", "-o", "json"]).run().ok().out()).unwrap();
    assert_eq!((&list["kind"], list["items"].as_array().map(Vec::len)), (&"List".into(), Some(1)));
    let names = hmz(&["get", "all", "-o", "name"]).run().ok().out();
    assert_eq!(names, "runtime/docker\nruntime/docker:here\nflow/boxed\nenv/box\n");
    let all = hmz(&["get", "all"]).run().ok().out();
    for name in ["env/box", "runtime/docker:here", "flow/boxed"] {
        assert!(all.lines().any(|line| line.split_whitespace().next() == Some(name)), "{all}");
    }
    let wide = hmz(&["get", "envs", "-o", "wide"]).run().ok().out();
    assert!(wide.lines().next().is_some_and(|l| l.contains("CONTAINER")), "{wide}");
    let described = hmz(&["describe", "env", "box"]).run().ok().out();
    for text in ["Name: ", "Runtime: ", "docker:here", "Scheduled", "ImageReady", "GuestReady", "Ready", &home.containers()[0]] {
        assert!(described.contains(text), "`{text}`\n{described}");
    }
    let _ = hmz(&["describe", "env", "bax"]).run().expect_code(1).says("bax");
    let _ = hmz(&["get", "thing"]).run().expect_code(2).says("hmz get: error: 'thing' is not a kind");
}

#[test]
fn waiting_and_watching_see_what_changes() {
    let (home, _) = with_box();
    let timeout = home.hmz(["wait", "--for=condition=Nope", "env/box", "--timeout", "1s"]).run().expect_code(1);
    let said = "hmz wait: error: env/box: wanted Nope True within 1s, and it has no such condition, but ";
    assert!(timeout.err().starts_with(said) && timeout.err().ends_with(" Ready\n"), "{timeout}");
    drop(home.hmz(["wait", "--for=condition=ready", "env/box", "--timeout", "1m"]).run().ok());
    let timeout = home.hmz(["wait", "--for=condition=Ready=false", "env/box", "--timeout", "1s"]).run().expect_code(1);
    let _ = timeout.says("wanted Ready False within 1s, and Ready is True (Ready)");
    let timeout = home.hmz(["wait", "--for=delete", "env/box", "--timeout", "1s"]).run().expect_code(1);
    assert_eq!(timeout.err(), "hmz wait: error: env/box is still there after 1s, and nobody has asked for its deletion\n");

    let mut watch = home.hmz(["get", "envs", "-w"]).start();
    watch.wait_for("True");
    let gone = home.hmz(["wait", "--for=delete", "env/box", "--timeout", "2m"]).start();
    docker::remove(&home.containers());
    // somebody else took the container away: that is seen, and said
    watch.wait_for("False");
    let lost = home.hmz(["wait", "--for=condition=Ready=false", "env/box", "--timeout", "1m"]).run().ok();
    assert_eq!(lost.out(), "env/box condition met\n");
    assert_eq!(watch.stdout().matches("NAME").count(), 1, "{}", watch.stdout());
    let _ = home.hmz(["delete", "env/box"]).run().ok();
    watch.wait_for("env/box deleted");
    // no row says what the one before it said, but for its age
    let rows: Vec<String> = watch.stdout().lines().map(without_age).collect();
    assert!(rows.windows(2).all(|two| two[0] != two[1]), "{rows:#?}");
    assert_eq!(gone.wait().ok().out(), "env/box is gone\n");
    let absent = home.hmz(["wait", "--for=condition=Ready", "env/box"]).run().expect_code(1);
    let _ = absent.says("there is no env/box");
}

/// A row without its last cell.
fn without_age(row: &str) -> String {
    row.trim_end().rsplit_once(' ').map_or(row, |(cells, _)| cells).trim_end().to_owned()
}

#[test]
fn several_resources_are_got_as_they_are_deleted() {
    let (home, _project) = with_box();
    let got = home.hmz(["get", "env/box", "runtime/docker:here", "-o", "name"]).run().ok();
    assert_eq!(got.out(), "env/box\nruntime/docker:here\n");
    let both = home.hmz(["get", "env/box", "env/none"]).run().expect_code(1);
    assert!(both.err().contains("there is no environment 'none'"), "{both}");
    let deleted = home.hmz(["delete", "env/box", "env/none"]).run().expect_code(1);
    assert_eq!(deleted.out(), "env/box deleted\n");
}
