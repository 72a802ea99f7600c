//! What is wrong with settings.yaml is shown with its place, hides nothing else, and takes nothing away.

use super::saves::cpus;
use crate::support::home::TestHome;
use crate::support::processes::{self, Process};
use crate::support::{LIMIT, docker, eventually};

const GOOD: &str = "runtimes:\n  docker:\n    here: {endpoint: local, harness: local, cpus: 1}\n";

/// The lines of `hmz get settings` below the headers, cells apart by one space.
fn lines(home: &TestHome) -> Vec<String> {
    let shown = home.hmz(["get", "settings"]).run().ok().out();
    shown.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn what_becomes_of_it_is_watched() {
    let home = TestHome::new();
    home.settings(GOOD);
    let mut rows = home.hmz(["get", "settings", "-w"]).start();
    let mut whole = home.hmz(["get", "settings", "-w", "-o", "json"]).start();
    whole.wait_for("ADDED");
    rows.wait_for("docker:here     SettingsValid=True");
    assert!(rows.stdout().starts_with("NAME "), "{}", rows.stdout());
    let file = home.hmz_home().join("settings.yaml");
    std::fs::write(&file, GOOD.replace("cpus: 1", "cpsu: 1")).unwrap();
    rows.wait_for(&format!("docker:here     SettingsValid=False   Unreadable   {}:3:", file.display()));
    // a daemon that is killed ends no watch
    let is_daemon = |pid: &i32| processes::line(*pid).contains(" controller --background");
    let daemon = processes::with_variable(&home.mark()).into_iter().find(is_daemon).and_then(Process::of).expect("a daemon");
    daemon.signal(rustix::process::Signal::KILL);
    daemon.assert_gone();
    std::fs::write(&file, "runtimes:\n  docker:\n    there: {endpoint: local}\n").unwrap();
    for said in ["docker:there    SettingsValid=True", "docker:here is not named any more\n"] {
        rows.wait_for(said);
    }
    assert_eq!(rows.stdout().matches("NAME ").count(), 1, "{}", rows.stdout());
    // each watch comes back to the new daemon by itself
    whole.wait_for("docker:there");
    let said = whole.stdout();
    let kinds: Vec<serde_json::Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(kinds.len() > 2 && kinds[0]["type"] == "ADDED" && kinds[1]["type"] == "MODIFIED", "{said}");
    assert_eq!(kinds[0]["object"]["status"]["conditions"][1]["name"], "docker:here");
}

#[test]
fn a_file_that_cannot_be_read_keeps_what_it_said() {
    let home = TestHome::new();
    home.settings(GOOD);
    eventually("the settings", LIMIT, || (cpus(&home) == Some(1)).then_some(()));
    assert_eq!(lines(&home), ["settings.yaml SettingsValid=True Read", "docker:here SettingsValid=True Read"]);
    let file = home.hmz_home().join("settings.yaml");
    let project = home.project("p");
    project.write("steps.yaml", "- say: it ran\n");
    let flow = "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: big}\nspec:\n  agents: {coder: {}}\n  environments: {box: {image: \
                'busybox:latest', cpus: 2}}\n  steps: [{turn: {agent: coder, environment: box, prompt: x}}]\n";
    project.write(".hmz/flows/big.yaml", flow);
    let exec = |runtime: &str| {
        let line = format!(
            "hmz exec -f big -a coder=script/./steps.yaml -e box=docker@{runtime}{} -p budget.duration=1m x",
            project.path()
        );
        home.shell(&line).cwd(project.dir()).run().expect_code(2)
    };
    for (text, place) in [
        // half written, in the middle of giving it more
        ("runtimes:\n  docker:\n    here: {endpoint: local, harness: local, cpus: 4\n", format!("{}:3:11: ", file.display())),
        ("runtimes:\n\tdocker:\n", format!("{}:2:", file.display())),
        ("", format!("{}: the file is empty", file.display())),
    ] {
        std::fs::write(&file, text).unwrap();
        let shown = lines(&home);
        assert!(shown[0].starts_with(&format!("settings.yaml SettingsValid=False Unreadable {place}")), "{shown:?}");
        assert_eq!(shown[1], "docker:here SettingsValid=Unknown Kept as it was when the file could be read last");
        // the daemon looks when it is told, which may be a moment later than we do
        let hint = format!("\n  hint: settings.yaml is not read as it stands: {place}");
        eventually("every refusal it causes tells its place", LIMIT, || {
            let (small, missing) = (exec("here"), exec("new"));
            assert!(small.err().contains("docker@here has 1 of 1 CPUs free, and 'box' asks for 2\n"), "{small}");
            assert!(missing.err().contains("no docker runtime is saved as 'new'; "), "{missing}");
            (small.err().contains(&hint) && missing.err().contains(&hint)).then_some(())
        });
        assert_eq!(cpus(&home), Some(1));
    }
    // an entry that is wrong, and a backend that is none, hide no other
    let text = "runtimes:\n  dokcer: {}\n  docker:\n    bad: {cpsu: 4}\n    here: {endpoint: local, harness: local, cpus: 3}\n";
    std::fs::write(&file, text).unwrap();
    eventually("the entry beside it", LIMIT, || (cpus(&home) == Some(3)).then_some(()));
    let (shown, at) = (lines(&home), file.display());
    assert!(
        shown[0].starts_with(&format!("settings.yaml SettingsValid=False Faults {at}:2:3: 'dokcer' is not a runtime backend: ")),
        "{shown:?}"
    );
    assert_eq!(
        shown[1..],
        [
            format!("docker:bad SettingsValid=False Unreadable {at}:4:11: unknown field 'cpsu', did you mean 'cpus'?"),
            "docker:here SettingsValid=True Read".to_owned()
        ]
    );
    let json: serde_json::Value = serde_json::from_str(&home.hmz(["get", "settings", "-o", "json"]).run().ok().out()).unwrap();
    assert_eq!((json["kind"].as_str(), json["status"]["conditions"][1]["status"].as_str()), (Some("Settings"), Some("False")));
    assert!(home.hmz(["describe", "settings"]).run().ok().out().contains("docker:bad   SettingsValid=False   Unreadable\n    /"));
}

#[test]
fn an_entry_that_is_taken_out_waits_for_its_environments() {
    let home = TestHome::new();
    home.settings(GOOD);
    let project = home.project("p");
    let manifest = |name: &str| {
        let text = format!(
            "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: {name}}}\nspec: {{runtime: 'docker:here', workdir: '{}', image: 'busybox:latest'}}\n",
            project.path()
        );
        project.write(&format!("{name}.yaml"), &text);
        home.hmz(["apply", "-f", &format!("{name}.yaml")]).cwd(project.dir())
    };
    let _ = manifest("box").run().ok();
    let _ = home.hmz(["wait", "--for=condition=Ready", "env/box", "--timeout", "100s"]).run().ok();
    let _ = home.hmz(["settings", "unset", "runtimes.docker.here"]).run().ok();
    eventually("it is said for whom it stays", LIMIT, || {
        let why = "docker:here Saved=False InUse settings.yaml does not name it any more; it goes when nothing is on it: env/box";
        (lines(&home).last().map(String::as_str) == Some(why)).then_some(())
    });
    assert!(home.hmz(["describe", "runtime/docker:here"]).run().ok().out().contains("Saved"), "a condition of the runtime");
    // nothing new is put on it, and what is there stays
    let refused = manifest("late").run().expect_code(2);
    assert!(refused.err().contains("no docker runtime is saved as 'here'"), "{refused}");
    assert!(home.hmz(["sh", "env/box", "--", "true"]).run().code() == 0);
    // written again, it is as it was
    home.settings(GOOD);
    eventually("it is there again", LIMIT, || (lines(&home).last()? == "docker:here SettingsValid=True Read").then_some(()));
    let _ = home.hmz(["wait", "--for=condition=Ready", "env/late", "--timeout", "100s"]).run().ok();
    home.settings("runtimes: {}\n");
    let _ = home.hmz(["delete", "env", "box", "late"]).run().ok();
    let _ = home.hmz(["wait", "--for=delete", "runtime/docker:here", "--timeout", "100s"]).run().ok();
    assert_eq!(lines(&home), ["settings.yaml SettingsValid=True Read"]);
    assert_eq!(docker::containers(&home.label().expect("a label")), Vec::<String>::new());
}
