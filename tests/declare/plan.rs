//! `hmz diff` and `hmz apply --dry-run`.

use crate::Place;

#[test]
fn a_diff_says_what_the_apply_then_does_and_changes_nothing() {
    let place = Place::make();
    let dir = place.project.path();
    place.environment("box.yaml", "box", ", cpus: 0.5, memory: 128M");
    let told = place.hmz("diff -f box.yaml").expect_code(1);
    let said = format!(
        "env/box would be created\n    + spec.runtime: docker:here\n    + spec.workdir: {dir}\n    + spec.image: busybox:latest\n    \
         + spec.cpus: 0.5\n    + spec.memory: 128M\n    would start container 'box' of busybox:latest, 0.5 CPUs, 128M of \
         memory, on docker:here\n"
    );
    assert_eq!(told.out(), said);
    assert_eq!(place.hmz("apply -f box.yaml --dry-run").ok().out(), said);
    let told = |line: &str, code: i32| {
        let told: serde_json::Value = serde_json::from_str(&place.hmz(line).expect_code(code).out()).unwrap();
        [told[0]["name"].clone(), told[0]["outcome"].clone(), told[0]["after"]["spec"].clone()]
    };
    let dry = told("apply -f box.yaml --dry-run -o json --summary junit=plan.xml", 0);
    assert_eq!((&dry[0], &dry), (&"box".into(), &told("diff -f box.yaml -o json", 1)));
    assert!(place.project.read("plan.xml").contains("<testcase classname=\"env\" name=\"box\""));
    assert_eq!(place.hmz("apply -f box.yaml --dry-run -o name").ok().out(), "env/box\n");
    assert_eq!((place.environments(), place.home.containers()), (String::new(), vec![]));
    // what is only planned is not logged as done
    let log = || std::fs::read_to_string(place.home.hmz_home().join("state/daemon.log")).unwrap();
    assert!(!log().contains("its box was started"), "{}", log());
    let applied = place.hmz("apply -f box.yaml --wait --timeout 2m").ok();
    assert_eq!(applied.out(), "env/box created\n");
    let name = container(&place);
    assert!(log().contains("its box was started"), "{}", log());
    assert_eq!(place.hmz("diff -f box.yaml").ok().out(), "");
    // a share that is another one is a container that is another one
    place.environment("box.yaml", "box", ", cpus: 0.25, memory: 128M");
    let told = place.hmz("diff -f box.yaml").expect_code(1).out();
    let said = format!(
        "env/box would be configured\n    ~ spec.cpus: 0.5 -> 0.25\n    would remove container {name} from docker:here\n    would \
         start container 'box' of busybox:latest, 0.25 CPUs, 128M of memory, on docker:here\n"
    );
    assert_eq!(told, said);
    assert_eq!(container(&place), name);
    let json: serde_json::Value = serde_json::from_str(&place.hmz("diff -f box.yaml -o json").expect_code(1).out()).unwrap();
    assert_eq!(json[0]["outcome"]["Ok"], "configured");
    assert_eq!(json[0]["effects"][1]["would"], "start");
    drop(place.hmz("apply -f box.yaml --wait").ok());
    assert_ne!(container(&place), name);
    assert_eq!(place.hmz("diff -f box.yaml").ok().out(), "");
    drop(place.hmz("delete env box").ok());
}

#[test]
fn what_would_be_refused_or_would_wait_is_told_as_it_would_be() {
    let place = Place::make();
    place.environment("big.yaml", "big", ", cpus: 4000");
    let told = place.hmz("diff -f big.yaml").expect_code(1).says("    would wait: docker@here has ");
    assert!(told.out().contains("'big' asks for 4000"), "{told}");
    let text = "apiVersion: hmz/v1\nkind: Environment\nmetadata: {name: lost}\nspec: {runtime: 'docker:nope', workdir: .}\n";
    place.project.write("lost.yaml", text);
    let told = place.hmz("diff -f lost.yaml").expect_code(2);
    let dry = place.hmz("apply -f lost.yaml --dry-run").expect_code(2);
    let done = place.hmz("apply -f lost.yaml").expect_code(2);
    assert_eq!(told.err().replace("hmz diff:", "hmz apply:"), done.err());
    assert_eq!(dry.err(), done.err());
    assert_eq!(told.out(), "");
    // a run that its flow refuses, and one whose daemon is away
    let run = "apiVersion: hmz/v1\nkind: Run\nmetadata: {name: r}\nspec: {flow: nosuch}\n";
    place.project.write("run.yaml", run);
    let told = place.hmz("diff -f run.yaml").expect_code(2);
    assert_eq!(told.err().replace("hmz diff:", "hmz apply:"), place.hmz("apply -f run.yaml").expect_code(2).err());
    place.project.write("broken.yaml", "apiVersion: hmz/v1\nkind: Environment\nmetadata: {nmae: x}\nspec: {runtime: docker}\n");
    let _ = place.hmz("diff -f broken.yaml").expect_code(2).says("broken.yaml:3:12: unknown field 'nmae', did you mean 'name'?");
    let _ = place.hmz("diff -f nowhere.yaml").expect_code(2);
}

/// The name of the one container.
fn container(place: &Place) -> String {
    let ids = place.home.containers();
    assert_eq!(ids.len(), 1, "{ids:?}");
    crate::support::docker::docker(&["inspect", "--format", "{{.Name}}", &ids[0]]).trim_start_matches('/').to_owned()
}

#[test]
fn a_runtime_with_more_room_is_told_to_start_who_waits_for_it() {
    let place = Place::make();
    let runtime = |containers: u32| {
        let text = format!(
            "apiVersion: hmz/v1\nkind: Runtime\nmetadata: {{name: 'docker:small'}}\nspec: {{endpoint: local, harness: local, \
             max_containers: {containers}}}\n"
        );
        place.project.write("set/small.yaml", &text);
    };
    let environment = |name: &str| {
        let text = format!(
            "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: {name}}}\nspec: {{runtime: 'docker:small', workdir: ., \
             image: 'busybox:latest', cpus: 0.1}}\n"
        );
        place.project.write(&format!("set/{name}.yaml"), &text);
    };
    runtime(1);
    environment("first");
    drop(place.hmz("apply -f set --set s --prune --wait --timeout 2m").ok());
    environment("second");
    let waits = "docker@small runs 1 of the 1 containers it may";
    let told = place.hmz("diff -f set --set s --prune").expect_code(1).out();
    assert!(told.ends_with(&format!("    would wait: {waits}\n")), "{told}");
    drop(place.hmz("apply -f set --set s --prune").ok());
    drop(place.hmz("wait --for=condition=Scheduled=false env/second --timeout 2m").ok());
    assert_eq!(place.home.containers().len(), 1);
    // the limit is raised, and nothing of who waits is written anew
    runtime(2);
    let said = "runtime/docker:small would be configured\n    ~ spec.max_containers: 1 -> 2\n    env/second would start container \
                'second' of busybox:latest, 0.1 CPUs, on docker:small\n";
    assert_eq!(place.hmz("diff -f set --set s --prune").expect_code(1).out(), said);
    assert_eq!(place.hmz("apply -f set --set s --prune --dry-run").ok().out(), said);
    assert_eq!(place.home.containers().len(), 1, "a plan started something");
    drop(place.hmz("apply -f set --set s --prune").ok());
    drop(place.hmz("wait --for=condition=Ready env/second --timeout 2m").ok());
    assert_eq!(roles(&place), ["first", "second"]);
    // what goes makes room, and a runtime that is in use stays for whoever is on it
    environment("third");
    drop(place.hmz("apply -f set --set s --prune").ok());
    drop(place.hmz("wait --for=condition=Scheduled=false env/third --timeout 2m").ok());
    std::fs::remove_file(place.project.file("set/first.yaml")).unwrap();
    let told = place.hmz("diff -f set --set s --prune").expect_code(1).out();
    let starts = "    env/third would start container 'third' of busybox:latest, 0.1 CPUs, on docker:small\n";
    assert!(told.starts_with("env/first would be deleted\n    would remove container ") && told.ends_with(starts), "{told}");
    std::fs::remove_file(place.project.file("set/small.yaml")).unwrap();
    let told = place.hmz("diff -f set --set s --prune").expect_code(1).out();
    assert!(
        told.contains("runtime/docker:small would be deleted\n    would wait: it goes when nothing is on it: env/second\n"),
        "{told}"
    );
    runtime(2);
    drop(place.hmz("apply -f set --set s --prune").ok());
    drop(place.hmz("wait --for=condition=Ready env/third --timeout 2m").ok());
    assert_eq!(roles(&place), ["second", "third"]);
    drop(place.hmz("delete envs second third").ok());
}

/// The roles of the containers, by docker's own list.
fn roles(place: &Place) -> Vec<String> {
    let label = format!("label={}", place.home.label().unwrap());
    let listed = crate::support::docker::docker(&["ps", "--filter", &label, "--format", "{{.Label \"humanize.role\"}}"]);
    let mut roles: Vec<String> = listed.lines().map(str::to_owned).collect();
    roles.sort_unstable();
    roles
}
