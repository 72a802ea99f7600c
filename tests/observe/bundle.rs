//! `hmz debug bundle`: what a fault can be found by is in it, and nothing of what was planted.

use crate::support::command::Invocation;
use crate::support::home::TestHome;
use crate::support::{docker, runs};
use std::path::{Path, PathBuf};

/// Every secret has this in it, in one of the forms it could be written in.
const MARK: &str = "c4n4ry";

/// A secret that nobody else knows.
fn planted(what: &str) -> String {
    format!("{MARK}-{what}-{}", uuid::Uuid::new_v4().simple())
}

/// The files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { all.extend(files(&path)) } else { all.push(path) }
    }
    all
}

/// Unpacks the bundle; what is in each of its texts.
fn unpacked(home: &TestHome, bundle: &Path) -> Vec<(String, String)> {
    let dir = home.root().join("unpacked");
    std::fs::create_dir(&dir).unwrap();
    let tar =
        Invocation::new("tar").args(["-xzf"]).arg(bundle).arg("-C").arg(&dir).env("PATH", std::env::var_os("PATH").unwrap());
    let _ = tar.run().ok();
    let top = std::fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
    let name = |path: &Path| path.strip_prefix(&top).unwrap().display().to_string();
    files(&top).iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn a_bundle_tells_of_faults_and_of_no_secret() {
    let mut home = TestHome::new();
    home.set("HMZ_LOG", "debug");
    let (token, argument, label, foreign, wrapped) =
        (planted("env"), planted("run-arg"), planted("label"), planted("foreign"), planted("wrapper"));
    let (comment, proxy) = (planted("comment"), planted("ssh"));
    home.settings(&format!(
        "# {comment}\nsomething: {{password: {foreign}, list: [{foreign}]}}\nruntimes:\n  docker:\n    here:\n      endpoint: local\n      harness: local\n      \
         exec_env: ['API={token}']\n      run_args: ['--env=OTHER={argument}', '--label', 'x={label}']\n  ssh:\n    far: {{host: h.example, \
         options: {{ProxyCommand: 'sshpass -p {proxy} x'}}}}\n  swarm:\n    broken: {{no_such_field: {wrapped}}}\n"
    ));
    // files of credentials
    let (sign_in, registry, key) = (planted("sign-in"), planted("registry"), planted("key"));
    for (file, text) in [
        (".claude/.credentials.json", format!("{{\"claudeAiOauth\": {{\"accessToken\": \"{sign_in}\"}}}}")),
        (
            ".docker/config.json",
            format!("{{\"auths\": {{\"r.example\": {{\"username\": \"u\", \"password\": \"{registry}\"}}}}}}"),
        ),
        (".ssh/id_rsa", key),
    ] {
        let path = home.home().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    home.set("ANTHROPIC_API_KEY", planted("api-key"));
    home.set("MY_SECRET", planted("variable"));
    let project = home.project("p");
    let (said, task, ran, annotated, prompt) =
        (planted("said"), planted("task"), planted("command"), planted("annotation"), planted("prompt"));
    runs::flow(
        &home,
        "two",
        &format!(
            "agents: {{coder: {{}}}}\nenvironments: {{box: {{image: \"busybox:latest\"}}}}\nsteps:\n  - turn: {{agent: coder, environment: box, \
         prompt: \"{prompt} {{{{ task }}}}\"}}\n  - exec: {{environment: box, command: \"echo {ran}; exit 3\"}}"
        ),
    );
    let talks = runs::script(&home, "talks", &format!("- run: 'echo {said}; echo {said} >&2'\n- say: '{said}'\n"));
    let fails = runs::script(&home, "fails", &format!("- fail: 'no {said}'\n"));
    let _ = runs::exec(&home, "two", &talks, &project, &task).run().expect_code(1).says(&ran);
    let _ = runs::exec(&home, "two", &fails, &project, &task).run().expect_code(1).says(&said);
    let text = format!(
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: box, annotations: {{note: '{annotated}'}}}}\nspec: {{runtime: 'docker:here', \
         workdir: {}, image: busybox}}\n---\napiVersion: hmz/v1\nkind: Flow\nmetadata: {{name: stored}}\nspec:\n  environments: {{box: {{}}}}\n  \
         steps: [{{exec: {{environment: box, command: 'echo {ran}'}}}}]\n",
        project.path()
    );
    project.write("all.yaml", &text);
    let _ = home.hmz(["apply", "-f"]).arg(project.file("all.yaml")).run().ok();
    let _ = home.hmz(["wait", "--for=condition=Ready", "env/box", "--timeout", "100s"]).run().ok();

    let bundle = home.root().join("b.tar.gz");
    std::fs::write(&bundle, "somebody's").unwrap();
    let refused = home.hmz(["debug", "bundle", "-o"]).arg(&bundle).run().expect_code(2);
    assert!(refused.err().contains(&format!("{} is there already\n", bundle.display())), "{refused}");
    assert_eq!(std::fs::read_to_string(&bundle).unwrap(), "somebody's");
    let _ = home.hmz(["debug", "bundle", "--force", "-o"]).arg(&bundle).run().ok().says("b.tar.gz: ");
    assert!(std::fs::metadata(&bundle).unwrap().len() < 4 << 20);
    let texts = unpacked(&home, &bundle);
    // to a pipe the same
    let piped = format!("cd {} && hmz debug bundle -o - >piped.tar.gz && tar -tzf piped.tar.gz", project.path());
    drop(home.shell(&piped).run().ok().says("/facts.json"));
    assert!(!project.file("-").exists());
    let hex: String = MARK.bytes().map(|byte| format!("{byte:02x}")).collect();
    for (name, text) in &texts {
        // as it is, in hexadecimal, and as base64 has it at the beginning of a text
        for form in [MARK, hex.as_str(), "YzRuNHJ5"] {
            assert!(!text.contains(form), "{form} is in {name}:\n{text}");
        }
    }

    let of = |name: &str| {
        &texts.iter().find(|(found, _)| found == name).unwrap_or_else(|| panic!("no {name} in {:?}", names(&texts))).1
    };
    let facts: serde_json::Value = serde_json::from_str(of("facts.json")).unwrap();
    assert_eq!(facts["hmz"], env!("CARGO_PKG_VERSION"));
    assert!(facts["kernel"]["release"].is_string() && facts["landlock"].is_number(), "{facts}");
    assert!(facts["variables"].as_array().unwrap().contains(&"ANTHROPIC_API_KEY".into()), "{facts}");
    let engine = docker::docker(&["version", "--format", "{{.Server.Version}}"]);
    assert!(of("resources/runtimes.yaml").contains(&engine), "{}", of("resources/runtimes.yaml"));
    assert!(of("resources/environments.yaml").contains("name: box\n") && of("resources/flows.yaml").contains("name: stored\n"));
    assert!(
        of("conditions.txt").contains("Environment/box Ready=True Ready ")
            && of("conditions.txt").contains(" Complete=True Failed ")
    );
    assert!(of("events.jsonl").lines().count() > 5 && of("metrics.txt").contains("hmz_runs_ended_total{outcome=\"Failed\"} 2\n"));
    assert!(of("logs/daemon.log").contains("listening"));
    // what the built-in flow says of itself takes no word out of what others say
    assert!(of("resources/flows.yaml").contains("container"), "{}", of("resources/flows.yaml"));
    assert!(of("logs/daemon.log").contains("container"), "{}", of("logs/daemon.log"));
    let settings = of("settings.yaml");
    for kept in
        ["endpoint: local", "API=<redacted>", "--env=OTHER=<redacted>", "no_such_field: ", "something:", "host: h.example"]
    {
        assert!(settings.contains(kept), "{kept} is not in {settings}");
    }
    let journals: Vec<&String> = texts.iter().filter(|(name, _)| name.ends_with("/journal.txt")).map(|(_, text)| text).collect();
    assert_eq!(journals.len(), 2);
    assert!(
        journals.iter().any(|text| text.contains(" coder (script) begins\n") && text.contains("exec in box of ")),
        "{journals:?}"
    );
    assert!(texts.iter().any(|(name, text)| name.ends_with("/runner.log") && text.contains("the run ends")));
    assert!(texts.iter().any(|(name, text)| name.ends_with("/sessions.log") && text.contains("the agent's CLI ended")));
    assert!(!texts.iter().any(|(name, _)| name == "errors.txt"), "{}", of("errors.txt"));
}

#[test]
fn of_settings_that_cannot_be_read_no_line_is_told_anywhere() {
    let home = TestHome::new();
    let (secret, project) = (planted("env"), home.project("p"));
    let good = "runtimes:\n  docker:\n    here:\n      endpoint: local\n      harness: local\n";
    home.settings(&format!("{good}      exec_env: [API={secret}\n"));
    let agent = runs::script(&home, "says", "- say: x\n");
    let refused = runs::exec(&home, "boxed", &agent, &project, "x").run().expect_code(2);
    let _ = refused.says("settings.yaml is not read as it stands: ").says(":6:17: ");
    let bundle = home.root().join("b.tar.gz");
    let _ = home.hmz(["debug", "bundle", "-o"]).arg(&bundle).run().ok();
    let mut texts = unpacked(&home, &bundle);
    assert!(texts.iter().any(|(name, _)| name == "settings.yaml"));
    // nor is one in what is kept here
    for file in ["daemon.log", "events.jsonl"] {
        texts.push((file.into(), std::fs::read_to_string(home.hmz_home().join("state").join(file)).unwrap()));
    }
    texts.push(("runs".into(), home.hmz(["get", "runs", "-o", "yaml"]).run().ok().out()));
    for (name, text) in &texts {
        assert!(!text.contains(MARK), "it is in {name}:\n{text}");
    }
    assert!(texts.iter().any(|(name, text)| name == "daemon.log" && text.contains("settings.yaml cannot be read")));
}

fn names(texts: &[(String, String)]) -> Vec<&str> {
    texts.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn of_an_entry_that_cannot_be_read_its_place_is_told_and_no_value() {
    for (entry, place, what) in [
        ("exec_env: ['API={}'], no_such: 1", ":3:36: ", "unknown field 'no_such'"),
        ("exec_env: ['{}']", ":3:23: ", "an exec variable is not NAME=VALUE"),
        ("exec_env: ['1A={}']", ":3:23: ", "exec variable '1A=…' is not NAME=VALUE"),
        ("exec_env: 'API={}'", ":3:22: ", "expected a list"),
        ("run_args: ['--env', '{}']", ":3:23: ", "run_args: --env is refused: it is not NAME=VALUE"),
        ("run_args: ['{}']", ":3:23: ", "run_args: a word is no argument"),
    ] {
        let home = TestHome::new();
        let entry = entry.replace("{}", &planted("value"));
        home.settings(&format!("runtimes:\n  docker:\n    here: {{{entry}}}\n"));
        let mut told = vec![home.hmz(["get", "settings"]).run().ok().out()];
        let refused = runs::exec(&home, "boxed", &runs::script(&home, "says", "- say: x\n"), &home.project("p"), "x").run();
        told.push(refused.expect_code(2).err());
        for words in [&["get", "runtimes", "-o", "yaml"][..], &["describe", "runtime/docker:here"], &["events"]] {
            told.push(home.hmz(words).run().ok().out());
        }
        for file in ["daemon.log", "events.jsonl"] {
            told.push(std::fs::read_to_string(home.hmz_home().join("state").join(file)).unwrap());
        }
        assert!(told.iter().all(|text| !text.contains(MARK)), "{entry}: {told:#?}");
        let describes = |text: &String| text.contains(what);
        assert!(told[1..4].iter().all(describes), "{entry}: {told:#?}");
        if !entry.contains("no_such") {
            assert!(told[0].contains(place), "{place} {entry}: {}", told[0]);
        }
    }
}
