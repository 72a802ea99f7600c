//! Sets: `--set`, `--prune`.

use crate::Place;
use crate::support::proxy::{Proxy, Way};

#[test]
fn a_set_owns_its_members_and_no_other_ones() {
    let place = Place::make();
    for file in ["a", "b"] {
        place.environment(&format!("one/{file}.yaml"), file, "");
    }
    place.environment("two/c.yaml", "c", "");
    place.environment("own.yaml", "own", "");
    drop(place.hmz("apply -f one --set one --prune").ok());
    drop(place.hmz("apply -f two --set two --prune").ok());
    drop(place.hmz("apply -f own.yaml --wait").ok());
    assert_eq!(place.environments(), "env/a env/b env/c env/own");
    // one is renamed, and another set's member is no business of this one
    std::fs::rename(place.project.file("one/b.yaml"), place.project.file("gone.yaml")).unwrap();
    place.environment("one/d.yaml", "d", "");
    let told = place.hmz("diff -f one --set one --prune").expect_code(1).out();
    assert!(
        told.starts_with("env/d would be created\n") && told.contains("env/b would be deleted\n    would remove container "),
        "{told}"
    );
    let applied = place.hmz("apply -f one --set one --prune --wait").ok();
    assert_eq!(applied.out(), "env/a unchanged\nenv/d created\nenv/b pruned\n");
    // how many of each are ready
    let all = place.hmz("get sets").ok().out();
    let cells: Vec<Vec<&str>> = all.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((cells[0][4], cells[1][0], cells[1][4]), ("READY", "one", "2/2"), "{all}");
    let mut watch = place.home.hmz(["get", "set", "one", "-w"]).start();
    watch.wait_for("2/2");
    place.project.write("never.yaml", "apiVersion: hmz/v1\nkind: Environment\nmetadata: {name: never, labels: {}}\nspec: {runtime: 'docker:none', workdir: .}\n");
    let _ = place.hmz("apply -f never.yaml --set one").expect_code(2);
    watch.wait_for("2/3");
    let _ = place.hmz("wait --for=jsonpath={.status.ready}=2 set/one").ok();
    let _ = place.hmz("describe set one").ok().says("Ready:     2/3");
    drop(place.hmz("delete env/never").ok());
    assert_eq!(place.environments(), "env/a env/c env/d env/own");
    assert_eq!(place.hmz("diff -f one --set one --prune").ok().out(), "");
    let _ = place.hmz("apply -f two --set one").expect_code(2).says("env/c: it is a member of the set 'two'");
    // a commit that is broken changes nothing
    place.project.write("one/d.yaml", "apiVersion: hmz/v1\nkind: Enviroment\n");
    let _ = place.hmz("apply -f one --set one --prune").expect_code(2).says("one/d.yaml:2:7: 'Enviroment' is not a kind");
    assert_eq!(place.environments(), "env/a env/c env/d env/own");
    // nor does one of which something is refused
    let text = "apiVersion: hmz/v1\nkind: Runtime\nmetadata: {name: 'docker:here'}\nspec: {}\n";
    place.project.write("one/d.yaml", text);
    let _ = place.hmz("apply -f one --set one --prune").expect_code(2).says("env/d: it stays in the set 'one'");
    // nothing at all is asked about
    for file in ["a", "d"] {
        std::fs::remove_file(place.project.file(&format!("one/{file}.yaml"))).unwrap();
    }
    for verb in ["apply", "diff"] {
        let line = format!("{verb} -f one --set one --prune");
        let _ = place.hmz(&line).expect_code(2).says("every member of the set 'one' would be deleted").says("--allow-empty");
    }
    let _ = place.hmz("apply -f one").expect_code(2).says("one: no *.yaml, *.yml or *.json in this directory");
    drop(place.hmz("delete env/a").ok());
    let done = place.hmz("apply -f one --set one --prune --allow-empty --wait").ok();
    assert_eq!(done.out(), "env/d pruned\n");
    watch.wait_for("set/one deleted");
    watch.signal(rustix::process::Signal::INT);
    drop(watch.wait());
    assert_eq!(place.environments(), "env/c env/own");
    let _ = place.hmz("apply -f own.yaml --prune").expect_code(2).says("--set");
    place.project.write(
        "gen.yaml",
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {generateName: x-}\nspec: {runtime: 'docker:here', workdir: .}\n",
    );
    let _ = place.hmz("apply -f gen.yaml --set two --prune").expect_code(2).says("a set that is pruned needs names");
    drop(place.hmz("delete envs c own").ok());
}

#[test]
fn a_tree_of_folders_is_one_set_where_it_is_read_whole() {
    let place = Place::make();
    place.environment("all/team/a.yaml", "a", "");
    place.environment("all/b.yaml", "b", "");
    drop(place.hmz("apply -f all -R --set all --prune").ok());
    assert_eq!(place.environments(), "env/a env/b");
    // what lies below is no member where it is not read
    let told = place.hmz("diff -f all --set all --prune").expect_code(1).out();
    assert!(told.starts_with("env/a would be deleted\n"), "{told}");
    assert_eq!(place.hmz("diff --recursive -f all --set all --prune").ok().out(), "");
    let _ = place.hmz("wait --for=condition=Ready -R -f all --timeout 2m").ok();
    assert_eq!(place.hmz("delete -f all -R").ok().out().lines().count(), 2);
    assert_eq!(place.environments(), "");
}

#[test]
fn a_member_that_is_going_already_is_no_error() {
    let place = Place::make();
    let proxy = Proxy::of_docker(place.home.root());
    let endpoint = format!("unix://{}", proxy.socket().display());
    place.home.settings(&format!("runtimes:\n  docker:\n    here: {{endpoint: '{endpoint}', harness: local}}\n"));
    place.environment("one/a.yaml", "a", "");
    place.environment("one/b.yaml", "b", "");
    drop(place.hmz("apply -f one --set one --prune --wait --timeout 2m").ok());
    proxy.set(Way::Cut);
    drop(place.hmz("delete env/b --no-wait").ok());
    std::fs::remove_file(place.project.file("one/b.yaml")).unwrap();
    let done = place.hmz("apply -f one --set one --prune").ok();
    assert_eq!((done.out().as_str(), done.err().as_str()), ("env/a unchanged\nenv/b going already\n", ""));
    let told = place.hmz("apply -f one --set one --prune -o json").ok().out();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["resources"][1]["name"], &told["resources"][1]["action"]), (&"env/b".into(), &"going".into()));
    assert_eq!(place.hmz("diff -f one --set one --prune").ok().out(), "", "nothing of it would be another");
    // it is waited for, and no longer than that
    let late = place.hmz("apply -f one --set one --prune --wait --timeout 1s").expect_code(1);
    let late = late.says("env/b is still there after 1s, and what it started is still being ended");
    assert_eq!(late.out(), "env/a unchanged\nenv/b going already\n");
    assert_eq!(place.environments(), "env/a env/b", "it cannot go yet");
    proxy.set(Way::Open);
    let done = place.hmz("apply -f one --set one --prune --wait --timeout 100s --summary json=done.json").ok();
    assert_eq!(done.out(), "env/a unchanged\nenv/b going already\n");
    let told = std::fs::read_to_string(place.project.file("done.json")).unwrap();
    assert!(told.contains("\"passed\": 2") && told.contains("\"action\": \"going\""), "{told}");
    assert_eq!((place.environments().as_str(), place.home.containers().len()), ("env/a", 1));
    assert_eq!(place.hmz("diff -f one --set one --prune").ok().out(), "");
    drop(place.hmz("delete env/a").ok());
}
