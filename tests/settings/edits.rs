//! `hmz settings`: what it prints, what it writes, and what it never does.

use crate::support::home::TestHome;
use std::fs;
use std::path::PathBuf;

const TEXT: &str = "# my machines\r\nruntimes:\r\n  docker:\r\n    here:   # this one\r\n      endpoint: local\r\n      cpus: 4   # of 8\r\n\
                    workspaces: {/home/me/a.b: {flow: boxed}}\r\n";

fn file(home: &TestHome) -> PathBuf {
    home.hmz_home().join("settings.yaml")
}

#[test]
fn one_field_at_a_time() {
    let home = TestHome::new();
    home.settings(TEXT);
    let says = |words: &[&str], said: &str| {
        let done = home.hmz(std::iter::once(&"settings").chain(words)).run().ok();
        assert_eq!(done.out(), said, "{done}");
        assert_eq!(done.err(), "", "{done}");
    };
    says(&["get", "runtimes.docker.here.cpus"], "4\n");
    says(&["get", "runtimes.docker.here.endpoint"], "local\n");
    says(&["get", "runtimes.docker.here"], "endpoint: local\ncpus: 4\n");
    says(&["get", "runtimes.docker.here", "-o", "json"], "{\n  \"endpoint\": \"local\",\n  \"cpus\": 4\n}\n");
    says(&["get", "workspaces.\"/home/me/a.b\".flow"], "boxed\n");
    says(&["get"], TEXT);
    says(&["set", "runtimes.docker.here.cpus", "0.5"], "runtimes.docker.here.cpus set\n");
    assert_eq!(fs::read_to_string(file(&home)).unwrap(), TEXT.replace("cpus: 4 ", "cpus: 0.5 "));
    says(&["set", "runtimes.docker.here.cpus", "0.5"], "runtimes.docker.here.cpus unchanged\n");
    says(&["set", "runtimes.docker.here.memory", "8G"], "runtimes.docker.here.memory set\n");
    says(&["unset", "runtimes.docker.here.memory"], "runtimes.docker.here.memory unset\n");
    says(&["set", "runtimes.docker.here.cpus", "4"], "runtimes.docker.here.cpus set\n");
    assert_eq!(fs::read_to_string(file(&home)).unwrap(), TEXT);
    says(&["validate"], &format!("{} is valid: 1 runtime\n", file(&home).display()));
    let names = home.hmz(["settings", "validate", "-"]).stdin("runtimes: {docker: {a: {harness: 'docker:gone'}}}\n").run().ok();
    assert_eq!(names.err(), "hmz settings validate: docker/a has the harness on docker/gone, which is not saved\n");

    let refused = |words: &[&str], code: i32, said: &str| {
        let done = home.hmz(std::iter::once(&"settings").chain(words)).run().expect_code(code);
        assert!(done.err().starts_with(&format!("hmz settings {}: error: {said}", words[0])), "{said}\n{done}");
        assert_eq!(fs::read_to_string(file(&home)).unwrap(), TEXT, "{words:?}");
    };
    refused(&["get", "runtimes.docker.gone"], 1, "there is no runtimes.docker.gone in /");
    refused(&["unset", "runtimes.docker.gone"], 1, "there is no runtimes.docker.gone in /");
    refused(
        &["set", "runtimes.docker.here.memory", "-8"],
        2,
        "runtimes.docker.here.memory: here: memory cannot be negative: -8\n",
    );
    refused(
        &["set", "runtimes.docker.here.cpus", "many"],
        2,
        "runtimes.docker.here.cpus: 'many' is not a number of CPUs, such as 2 or 0.5\n",
    );
    refused(
        &["set", "runtimes.docker.here.imgae", "x"],
        2,
        "runtimes.docker.here.imgae: unknown field 'imgae', did you mean 'image'?\n",
    );
    refused(&["set", "runtimes..here", "x"], 2, "'runtimes..here' is not the path of a field: a key is empty\n");
}

#[test]
fn a_file_that_cannot_be_parsed_is_never_overwritten() {
    let home = TestHome::new();
    let text = "runtimes:\n  docker: {here: {cpus: 4}\n";
    home.settings(text);
    for words in [&["set", "a", "1"][..], &["unset", "a"], &["get", "a"], &["validate"]] {
        let done = home.hmz(std::iter::once(&"settings").chain(words)).run().expect_code(2);
        assert!(done.err().starts_with(&format!("hmz settings {}: error: {}:2:", words[0], file(&home).display())), "{done}");
        assert_eq!(fs::read_to_string(file(&home)).unwrap(), text);
    }
    let checked =
        home.hmz(["settings", "validate", "-"]).stdin("runtimes: {docker: {a: {cpsu: 1, mem: 2}, b: {cpus: x}}}\n").run();
    let err = checked.expect_code(2).err();
    assert_eq!(err.matches("\n-:1:").count() + err.matches(" -:1:").count(), 3, "each fault of each entry\n{err}");
}

#[test]
fn two_processes_lose_nothing() {
    let home = TestHome::new();
    home.settings("# both\nruntimes: {docker: {here: {}}}\n");
    std::thread::scope(|scope| {
        for writer in ["a", "b"] {
            let home = &home;
            scope.spawn(move || {
                for n in 0..20 {
                    let _ = home.hmz(["settings", "set", &format!("workspaces.{writer}{n}.flow"), "boxed"]).run().ok();
                }
            });
        }
    });
    let text = fs::read_to_string(file(&home)).unwrap();
    assert_eq!(text.matches("flow: boxed").count(), 40, "{text}");
    assert!(text.starts_with("# both\nruntimes: {docker: {here: {}}}\n"), "{text}");
}

/// An editor that does what a script says, once each time it is started: the first line the first time, and so on.
fn editor(home: &TestHome, steps: &[&str]) -> String {
    let (script, count) = (home.root().join("editor.sh"), home.root().join("count"));
    let _ = fs::remove_file(&count);
    let cases: String = steps.iter().enumerate().map(|(n, step)| format!("{}) {step} ;;\n", n + 1)).collect();
    let seen = home.root().join("seen");
    fs::write(
        &script,
        format!(
            "f=$1; c={}; n=$(( $(cat $c 2>/dev/null || echo 0) + 1 )); echo $n > $c; cp \"$f\" {}.$n\ncase $n in\n{cases}*) exit 9 ;;\nesac\n",
            count.display(),
            seen.display()
        ),
    )
    .unwrap();
    format!("sh {}", script.display())
}

#[test]
fn an_editor_is_opened_again_until_it_can_be_read() {
    let mut home = TestHome::new();
    home.settings(TEXT);
    let seen = |home: &TestHome, n: usize| fs::read_to_string(home.root().join(format!("seen.{n}"))).unwrap();
    let edit = |home: &mut TestHome, steps: &[&str]| {
        let editor = editor(home, steps);
        home.set("VISUAL", editor);
        home.hmz(["settings", "edit"]).run()
    };
    // broken, then a value that is none, then right; saved by an editor that renames
    let done = edit(
        &mut home,
        &[
            "sed -i 's/cpus: 4/cpus: [4/' \"$f\"",
            "sed -i 's/cpus: .4/cpus: four/' \"$f\"",
            "sed 's/cpus: four/cpus: 6/' \"$f\" > \"$f.new\"; mv \"$f.new\" \"$f\"",
        ],
    )
    .ok();
    assert_eq!(done.out(), format!("{} saved\n", file(&home).display()));
    assert_eq!(fs::read_to_string(file(&home)).unwrap(), TEXT.replace("cpus: 4", "cpus: 6"));
    assert_eq!(seen(&home, 1), TEXT);
    let third = seen(&home, 3);
    let told = third.lines().next().unwrap();
    assert!(
        told.starts_with("#! settings.yaml:") && told.ends_with("'four' is not a number of CPUs, such as 2 or 0.5"),
        "{told}"
    );
    let line: usize = told.split(':').nth(1).unwrap().parse().unwrap();
    assert!(third.lines().nth(line - 1).unwrap().contains("cpus: four"), "the line as the editor counts\n{third}");

    // nothing changed; an editor that fails; one that gives up
    let text = fs::read_to_string(file(&home)).unwrap();
    assert!(edit(&mut home, &["true"]).ok().out().ends_with(" unchanged\n"));
    let failed = edit(&mut home, &["echo lost >> \"$f\"; exit 3"]).expect_code(1);
    let kept =
        failed.err().lines().find_map(|l| l.strip_prefix("  hint: your text is in ")).map(PathBuf::from).expect("it is kept");
    assert!(fs::read_to_string(&kept).unwrap().ends_with("lost\n"));
    fs::remove_file(kept).unwrap();
    let gave_up = edit(&mut home, &["sed -i 's/cpus: 6/cpus: [6/' \"$f\"", "true"]).expect_code(1);
    assert!(gave_up.err().contains("what is wrong was not mended; "), "{gave_up}");
    let kept =
        gave_up.err().lines().find_map(|l| l.strip_prefix("  hint: your text is in ")).map(PathBuf::from).expect("it is kept");
    fs::remove_file(kept).unwrap();
    // somebody else saves meanwhile: theirs stays, ours is kept
    let theirs = format!("echo '# theirs' >> {}; sed -i 's/cpus: 6/cpus: 7/' \"$f\"", file(&home).display());
    let conflict = edit(&mut home, &[&theirs]).expect_code(1);
    assert!(conflict.err().contains("was changed by somebody else meanwhile"), "{conflict}");
    let kept =
        conflict.err().lines().find_map(|l| l.strip_prefix("  hint: your text is in ")).map(PathBuf::from).expect("it is kept");
    assert!(fs::read_to_string(&kept).unwrap().contains("cpus: 7"));
    fs::remove_file(kept).unwrap();
    assert_eq!(fs::read_to_string(file(&home)).unwrap(), format!("{text}# theirs\n"));
}
