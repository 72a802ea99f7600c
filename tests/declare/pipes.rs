//! A reader that has enough and goes is no failure, and nobody is told.

use crate::Place;

#[test]
fn a_reader_that_goes_leaves_no_noise() {
    let place = Place::make();
    for name in ["a", "b", "c"] {
        place.environment(&format!("{name}.yaml"), name, "");
        drop(place.hmz(&format!("apply -f {name}.yaml")).ok());
    }
    place.project.write("steps.yaml", "- say: |\n    one\n    two\n    three\n- wait_for: never\n");
    place.project.write(
        "run.yaml",
        "apiVersion: hmz/v1\nkind: Run\nmetadata: {name: r}\nspec:\n  flow: boxed\n  task: t\n  agents: {coder: \
         script/steps.yaml}\n  environments: {box: {runtime: 'docker:here', workdir: ., image: 'busybox:latest'}}\n",
    );
    drop(place.hmz("apply -f run.yaml").ok());
    // more than a pipe holds
    for n in 0..1000 {
        let text = format!(
            "apiVersion: hmz/v1\nkind: Flow\nmetadata: {{name: {}-{n}}}\nspec: {{environments: {{box: {{}}}}, steps: [{{exec: {{environment: box, command: 'true'}}}}]}}\n",
            "f".repeat(48)
        );
        place.project.write(&format!(".hmz/flows/{}-{n}.yaml", "f".repeat(48)), &text);
    }
    let all = place.hmz("get flows").ok().out();
    assert!(all.len() > 64 << 10, "{} bytes", all.len());
    let mut logs = place.home.hmz(["logs", "-f", "run/r"]).start();
    logs.wait_for("three");
    drop(logs);
    for (times, line) in [
        (100, "hmz get envs | head -1"),
        (20, "hmz get flows | head -1"),
        (5, "hmz get flows -o json | head -1"),
        (100, "hmz get envs -o json | true"),
        (100, "hmz logs -f run/r | head -2"),
        (10, "hmz get envs -w | head -2"),
        (10, "hmz events -w | head -1"),
        (10, "hmz diff -f run.yaml | true"),
        (10, "hmz describe env a | head -1"),
        (10, "hmz get envs -o jsonpath='{.items}' | true"),
        (10, "hmz explain run --recursive | head -1"),
        (10, "hmz schema | head -1"),
        (10, "hmz --help | head -1"),
    ] {
        // the reader's end is no end of the pipe's other side: both statuses are looked at
        let script = format!(
            "set +e; for i in $(seq {times}); do {line} > /dev/null; s=\"${{PIPESTATUS[*]}}\"; case \"$s\" in \
             '0 0'|'141 0') ;; *) echo \"status $s\";; esac; done"
        );
        let done = place.home.shell(&script).cwd(place.project.dir()).limit(std::time::Duration::from_secs(600)).run().ok();
        assert_eq!((done.out(), done.err()), (String::new(), String::new()), "{line}");
    }
    drop(place.hmz("delete run/r env/a env/b env/c").ok());
}
