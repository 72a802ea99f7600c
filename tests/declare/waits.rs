//! `hmz wait`: it is not fooled by what was before, or by what is another's.

use crate::Place;
use std::time::Duration;

#[test]
fn a_wait_sees_what_is_declared_and_says_what_it_saw() {
    let place = Place::make();
    place.environment("box.yaml", "box", ", cpus: 0.5");
    place.environment("other.yaml", "other", "");
    drop(place.hmz("apply -f box.yaml -f other.yaml --wait").ok());
    let ids = place.home.containers();
    // one that is another now is ready when the new one is
    place.environment("box.yaml", "box", ", cpus: 0.25");
    drop(place.hmz("apply -f box.yaml").ok());
    drop(place.hmz("wait --for=condition=Ready env/box --timeout 2m").ok());
    let now = place.home.containers();
    assert_eq!((now.len(), now.iter().filter(|id| ids.contains(id)).count()), (2, 1));
    assert_eq!(place.hmz("wait --for=jsonpath={.status.used}=docker:here env/box").ok().out(), "env/box condition met\n");
    assert_eq!(
        place.hmz("wait --for=jsonpath=.status.share.cpus=0.25 env/box --timeout 2m").ok().out(),
        "env/box condition met\n"
    );
    drop(place.hmz("wait --for=jsonpath={.status.container_id} env/box").ok());
    drop(place.home.hmz(["wait", "--for=jsonpath={.status.conditions[?(@.type==\"Ready\")].status}=True", "env/box"]).run().ok());
    let said = place.hmz("wait --for=jsonpath={.status.used}=docker:nope env/box --timeout 1s").expect_code(1).err();
    assert_eq!(said, "hmz wait: error: env/box: wanted .status.used to be 'docker:nope' within 1s, and it is 'docker:here'\n");
    let said = place.hmz("wait --for=jsonpath={.status.nothing} env/box --timeout 1s").expect_code(1).err();
    assert_eq!(said, "hmz wait: error: env/box: wanted .status.nothing to be there within 1s, and there is none\n");
    let said = place.hmz("wait --for=condition=Ready=false env/box --timeout 1s").expect_code(1).err();
    assert_eq!(said, "hmz wait: error: env/box: wanted Ready False within 1s, and Ready is True (Ready)\n");
    for wrong in ["jsonpath={.a", "jsonpath={.a}b", "jsonpath=a", "Ready", "condition=Ready=maybe"] {
        let _ = place.hmz(&format!("wait --for={wrong} env/box")).expect_code(2);
    }
    // what becomes of another one is no answer
    let mut wait = place.home.hmz(["wait", "--for=condition=Ready=false", "env/box", "--timeout", "2m"]).start();
    let mut gone = place.home.hmz(["wait", "--for=delete", "env/box", "--timeout", "2m"]).start();
    drop(place.hmz("delete env other").ok());
    for waiting in [&mut wait, &mut gone] {
        assert_eq!(waiting.stdout() + &waiting.stderr(), "");
    }
    crate::support::docker::remove(&place.home.containers());
    let done = wait.wait().ok();
    assert_eq!(done.out(), "env/box condition met\n");
    drop(place.hmz("delete env box").ok());
    assert_eq!(gone.wait().ok().out(), "env/box is gone\n");
}

#[test]
fn several_are_waited_for_at_once_and_each_is_told_of() {
    let place = Place::make();
    for name in ["a", "b"] {
        place.environment(&format!("envs/{name}.yaml"), name, "");
    }
    drop(place.hmz("apply -f envs").ok());
    drop(place.hmz("label env/a team=red").ok());
    let lines = |line: &str| -> Vec<String> {
        let mut lines: Vec<String> = place.hmz(line).ok().out().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let both = ["env/a condition met", "env/b condition met"];
    for line in ["env/a env/b env/a", "envs a b", "envs --all", "-f envs", "envs -l team!=blue"] {
        assert_eq!(lines(&format!("wait --for=condition=Ready --timeout 2m {line}")), both, "{line}");
    }
    assert_eq!(lines("wait --for=condition=Ready envs -l team=red"), ["env/a condition met"]);
    // each that is not so says what was wanted and what was seen
    let done = place.hmz("wait --for=jsonpath={.metadata.labels.team}=red env/a env/b env/c --timeout 1s").expect_code(1);
    assert_eq!(done.out(), "env/a condition met\n");
    let mut said: Vec<String> = done.err().lines().map(str::to_owned).collect();
    said.sort();
    let wanted = [
        "hmz wait: error: env/b: wanted .metadata.labels.team to be 'red' within 1s, and there is none",
        "hmz wait: error: there is no env/c",
    ];
    assert_eq!(said, wanted);
    let _ = place.hmz("wait --for=condition=Ready envs -l team=green").expect_code(1).says("nothing of that kind is there");
    let _ = place.hmz("wait --for=condition=Ready").expect_code(2);
    let _ = place.hmz("wait --for=condition=Ready env/a --all").expect_code(2).says("for one kind, without names");
    let _ = place.hmz("wait --for=condition=Ready env/a -f envs").expect_code(2);
    assert_eq!(place.hmz("delete envs -l team=red").ok().out(), "env/a deleted\n");
    let _ = place.hmz("delete env/b --all").expect_code(2).says("for one kind, without names");
    assert_eq!(place.hmz("delete envs --all").ok().out(), "env/b deleted\n");
    let _ = place.hmz("delete envs --all").ok().says("no environments found");
    assert_eq!(lines("wait --for=delete env/a env/b"), ["env/a is gone", "env/b is gone"]);
    assert_eq!(lines("wait --for=delete envs --all"), Vec::<String>::new());
}

#[test]
fn events_are_watched_whatever_becomes_of_the_daemon() {
    let place = Place::make();
    place.environment("box.yaml", "box", "");
    drop(place.hmz("apply -f box.yaml --wait").ok());
    let mut watch = place.home.hmz(["events", "-w", "--for", "env/box"]).start();
    watch.wait_for("Declared");
    let is_daemon = |pid: &i32| crate::support::processes::line(*pid).contains(" controller --background");
    let daemon = place.home.processes().into_iter().find(is_daemon).and_then(rustix::process::Pid::from_raw).unwrap();
    rustix::process::kill_process(daemon, rustix::process::Signal::KILL).unwrap();
    drop(place.hmz("delete env/box").ok());
    watch.wait_for("Deleted");
    assert_eq!(watch.stdout().matches(" Declared ").count(), 1, "{}", watch.stdout());
    drop(watch);
}

#[test]
fn one_that_waits_for_room_hides_none_that_has_failed_and_a_pipeline_that_is_ended_has_its_report() {
    let place = Place::make();
    let runtime = |name: &str| format!("    {name}: {{endpoint: local, harness: local, max_containers: 1}}\n");
    place.home.settings(&format!("runtimes:\n  docker:\n{}{}", runtime("small"), runtime("here")));
    let small = |file: &str, name: &str| {
        let text = format!(
            "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: {name}}}\nspec: {{runtime: 'docker:small', workdir: ., image: \
             'busybox:latest'}}\n"
        );
        place.project.write(file, &text);
    };
    small("first.yaml", "first");
    drop(place.hmz("apply -f first.yaml --wait --timeout 2m").ok());
    small("all/a.yaml", "second");
    place.project.write("fails", "- fail: no luck\n");
    place.project.write(
        "all/b.yaml",
        "apiVersion: hmz/v1\nkind: Run\nmetadata: {name: r}\nspec:\n  flow: boxed\n  task: t\n  agents: {coder: script/../fails}\n  \
         environments: {box: {runtime: 'docker:here', workdir: ., image: 'busybox:latest'}}\n",
    );
    let words = ["apply", "-f", "all", "--wait", "--summary", "junit=r.xml", "--summary", "json=r.json"];
    let mut apply = place.home.hmz(words).cwd(place.project.dir()).start();
    apply.wait_for("run/r has ended (Failed");
    apply.signal(rustix::process::Signal::TERM);
    let done = apply.wait().expect_code(143);
    assert_eq!(done.out(), "env/second created\nrun/r created\n");
    let told: serde_json::Value = serde_json::from_str(&place.project.read("r.json")).unwrap();
    let resources = told["resources"].as_array().unwrap();
    let of = |nth: usize| ["name", "action", "result"].map(|field| resources[nth][field].as_str().unwrap());
    assert_eq!((resources.len(), of(0)), (2, ["env/second", "created", "failed"]), "{told}");
    assert_eq!((&resources[0]["message"], of(1)), (&"interrupted".into(), ["run/r", "created", "failed"]), "{told}");
    // each is timed by itself
    assert!(resources[0]["seconds"].as_f64() > resources[1]["seconds"].as_f64(), "{told}");
    let told = place.project.read("r.xml");
    assert!(told.contains("failures=\"2\"") && told.contains("<failure message=\"interrupted\">"), "{told}");
}

#[test]
fn more_than_a_process_may_have_files_are_applied_and_waited_for() {
    let place = Place::make();
    let one = |n: usize| {
        format!(
            "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: e{n}, labels: {{of: many}}}}\nspec: {{runtime: \
             'docker:nope', workdir: .}}\n"
        )
    };
    place.project.write("many.yaml", &(0..300).map(one).collect::<Vec<_>>().join("---\n"));
    drop(place.hmz("get envs").ok());
    let few = |line: &str| {
        let script = format!("ulimit -n 200; {line}");
        place.home.shell(&script).cwd(place.project.dir()).limit(Duration::from_secs(600)).run()
    };
    let applied = few("hmz apply -f many.yaml").expect_code(2);
    assert_eq!(applied.err().matches("no docker runtime is saved as 'nope'").count(), 300, "{applied}");
    let waited = few("hmz wait env -l of=many --for=condition=Ready=false --timeout 5m").ok();
    assert_eq!(waited.out().matches(" condition met\n").count(), 300, "{waited}");
    assert_eq!(few("hmz delete env -l of=many").ok().out().lines().count(), 300);
}
