//! Another runtime when this one is full, or cannot be had: which, with which words, and that nothing is left.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

#[path = "crash/scene.rs"]
mod scene;

use scene::{Scene, condition};
use serde_json::Value;
use std::collections::BTreeMap;
use support::command::Invocation;
use support::document::shell_blocks;
use support::home::TestHome;
use support::project::Project;
use support::{LIMIT, docker, eventually};

/// How often two homes race for one place.
const ROUNDS: usize = 20;

/// A home whose runtimes are `{name}`, `{name}-spare` and `{name}-last`, with these lines each; nobody else has boxes of them.
fn scene(named: &str, spare: &str, last: &str) -> Scene {
    let scene = Scene::new();
    save(&scene, named, spare, last);
    scene
}

fn save(scene: &Scene, named: &str, spare: &str, last: &str) {
    let name = &scene.runtime;
    let entry = |name: &str, more: &str| {
        let endpoint = if more.contains("endpoint:") { "" } else { "endpoint: local, " };
        format!("    {name}: {{{endpoint}harness: local, lease: 30s{more}}}\n")
    };
    let entries = [entry(name, named), entry(&format!("{name}-spare"), spare), entry(&format!("{name}-last"), last)];
    let text = format!("runtimes:\n  docker:\n{}", entries.concat());
    scene.home.settings(&text.replace("$T", name));
}

/// A flow of those environments, whose agent works in `box`.
fn flow(scene: &Scene, name: &str, environments: &str) {
    let text = format!(
        "apiVersion: hmz/v1\nkind: Flow\nmetadata: {{name: {name}}}\nspec:\n  agents: {{coder: {{}}}}\n  environments: \
         {{{environments}}}\n  steps: [{{turn: {{agent: coder, environment: box, prompt: t}}}}]\n"
    );
    let flows = scene.home.hmz_home().join("flows");
    std::fs::create_dir_all(&flows).unwrap();
    std::fs::write(flows.join(format!("{name}.yaml")), text).unwrap();
}

fn exec(scene: &Scene, flow: &str, places: &[&str]) -> Invocation {
    let agent = format!("coder=script/{}", scene.project.file("steps.yaml").display());
    let mut words = vec!["exec".to_owned(), "-f".to_owned(), flow.to_owned(), "-a".to_owned(), agent];
    for place in places {
        let place = place.replace("$T", &scene.runtime).replace("$P", scene.project.path());
        words.extend(["-e".to_owned(), place]);
    }
    words.push("t".to_owned());
    scene.home.hmz(words)
}

fn small(scene: &Scene) -> Invocation {
    flow(scene, "small", "box: {image: 'busybox:latest'}");
    exec(scene, "small", &["box=docker@$T$P"])
}

/// Says at once that it ran.
fn brief(scene: &Scene) {
    scene.project.write("steps.yaml", "- run: echo ran > ran\n- say: it ran\n");
}

fn up(project: &Project) {
    let up = project.file("up");
    eventually("the agent's command is at work in its box", LIMIT, || up.exists().then_some(()));
}

/// The runs that are not over.
fn at_work(scene: &Scene) -> Vec<Value> {
    scene.list("runs").into_iter().filter(|r| condition(r, "Complete").is_none()).collect()
}

/// How many boxes of that runtime run, by the daemon's own list.
fn boxes(runtime: &str) -> usize {
    let label = format!("label=humanize.provider={runtime}");
    docker::docker(&["ps", "-q", "--filter", &label]).lines().count()
}

#[test]
fn a_run_goes_to_the_first_of_the_list_that_can_hold_it() {
    let scene = scene(", max_containers: 1", "", "");
    let other = scene.home.project("other");
    let own = format!(", max_containers: 1, workdir: '{}', fallback: ['docker:$T-last']", other.path());
    save(&scene, ", max_containers: 1, fallback: ['docker:$T-spare']", &own, "");
    let (name, first) = (scene.runtime.clone(), small(&scene).start());
    up(&scene.project);
    let mut second = small(&scene).start();
    up(&other);
    let full = format!("docker:{name} cannot hold 'box': docker@{name} runs 1 of the 1 containers it may");
    let moved = format!("{full}; using docker:{name}-spare");
    second.wait_for(&format!("hmz exec: {moved}\n"));
    assert_eq!((boxes(&name), boxes(&format!("{name}-spare"))), (1, 1));
    // where it went is in the run, in its environment and in its journal
    let runs = at_work(&scene);
    let run = runs.iter().find(|r| r["status"]["environments"]["box"]["used"] == format!("docker:{name}-spare")).unwrap();
    assert_eq!(run["status"]["environments"]["box"]["fell_back"], moved.as_str());
    let env = scene.get(&format!("env/{}", run["status"]["environments"]["box"]["environment"].as_str().unwrap()));
    assert_eq!(condition(&env, "Scheduled"), Some(("True".into(), "FellBack".into(), moved.clone())));
    assert_eq!(
        (&env["status"]["used"], &env["status"]["workdir"]),
        (&format!("docker:{name}-spare").into(), &other.path().into())
    );
    let passed = &env["status"]["passed_over"][0];
    assert_eq!((&passed["runtime"], &passed["reason"]), (&format!("docker:{name}").into(), &"Full".into()));
    let epic = std::fs::read_to_string(format!("{}/epic.jsonl", run["status"]["epic"].as_str().unwrap())).unwrap();
    let began: Value = serde_json::from_str(epic.lines().next().unwrap()).unwrap();
    assert_eq!(began["envs"]["box"], format!("docker@{name}{}", scene.project.path()));
    assert_eq!(began["used"]["box"], format!("docker:{name}-spare"));
    for what in ["run", "env"] {
        let named = format!(
            "{what}/{}",
            if what == "run" { &run["metadata"]["name"] } else { &env["metadata"]["name"] }.as_str().unwrap()
        );
        let _ = scene.home.hmz(["describe", &named]).run().ok().says(&moved);
    }
    // only the list of the one that was named is walked: there is room on the last
    let third = small(&scene).run().expect_code(2);
    let all = format!("{full}; docker:{name}-spare cannot hold 'box': docker@{name}-spare runs 1 of the 1 containers it may");
    assert!(third.err().ends_with(&format!("hmz exec: error: {all}\n")), "{third}");
    assert_eq!(boxes(&format!("{name}-last")), 0);
    assert_eq!(scene.home.containers().len(), 2, "a refused run left something");
    // one that names the spare has the spare's list
    let mut fourth = exec(&scene, "small", &["box=docker@$T-spare$P"]).start();
    fourth.wait_for(&format!("runs 1 of the 1 containers it may; using docker:{name}-last\n"));
    scene.go();
    other.write("go", "");
    for run in [first, second, fourth] {
        let _ = run.wait().ok();
    }
    assert!(other.file("went").exists() && scene.project.file("went").exists());
    scene.assert_nothing_left();
}

#[test]
fn what_cannot_be_had_is_a_reason_in_its_turn() {
    let list = ", endpoint: 'unix:///nowhere.sock', fallback: ['slurm:none', 'docker:no', 'docker:$T-spare', 'docker:$T-last']";
    let scene = scene(list, ", image: '127.0.0.1:1/hmz-test/none:1'", ", image: 'busybox:latest'");
    brief(&scene);
    flow(&scene, "plain", "box: {}");
    let name = scene.runtime.clone();
    let done = exec(&scene, "plain", &["box=docker@$T$P"]).run().ok();
    let (err, parts) = (
        done.err(),
        [
            format!(
                "hmz exec: docker:{name} cannot hold 'box': could not connect to docker@{name}: could not ask unix:///nowhere.sock what it has: "
            ),
            "; slurm:none cannot hold 'box': environments on slurm are not supported yet; use docker or swarm; ".into(),
            "; docker:no cannot hold 'box': no docker runtime is saved as 'no'; ".into(),
            format!("; docker:{name}-spare cannot hold 'box': could not start a container of 127.0.0.1:1/hmz-test/none:1 on "),
            format!("; using docker:{name}-last\n"),
        ],
    );
    let mut from = 0;
    for part in parts {
        let at = err[from..].find(&part).unwrap_or_else(|| panic!("not there, or not in this order: {part}\n{done}"));
        from += at;
    }
    assert_eq!(done.out(), "it ran\n");
    // a directory that is not there, and a runtime with one of its own
    save(&scene, ", fallback: ['docker:$T-spare']", &format!(", workdir: '{}'", scene.project.path()), "");
    let moved =
        format!("docker:{name} cannot hold 'box': docker@{name} has /no/such/dir to run a container: no directory to give");
    let moved = moved.replace("has /no", "has no /no");
    eventually("the settings are read", LIMIT, || {
        let got = scene.get(&format!("runtime/docker:{name}"));
        (got["spec"]["fallback"].as_array().map(Vec::len) == Some(1)).then_some(())
    });
    flow(&scene, "small", "box: {image: 'busybox:latest'}");
    let done = exec(&scene, "small", &["box=docker@$T/no/such/dir"]).run().ok();
    assert!(
        done.err().contains(&format!("hmz exec: {moved}")) && done.err().contains(&format!("; using docker:{name}-spare\n")),
        "{done}"
    );
    scene.assert_nothing_left();
}

#[test]
fn a_gang_is_held_whole_wherever_its_parts_are() {
    let scene = scene(", max_containers: 1, fallback: ['docker:$T-spare']", ", max_containers: 1", ", max_containers: 1");
    brief(&scene);
    let name = scene.runtime.clone();
    flow(&scene, "two", "box: {image: 'busybox:latest'}, other: {image: 'busybox:latest'}");
    let done = exec(&scene, "two", &["box=docker@$T$P", "other=docker@$T$P"]).run().ok();
    let full = |role: &str| format!("docker:{name} cannot hold '{role}': docker@{name} runs 1 of the 1 containers it may");
    assert!(done.err().contains(&format!("hmz exec: {}; using docker:{name}-spare\n", full("other"))), "{done}");
    assert!(!done.err().contains("cannot hold 'box'"), "{done}");
    // three find no room, and what two of them held is given back
    flow(&scene, "three", "box: {image: 'busybox:latest'}, other: {image: 'busybox:latest'}, third: {image: 'busybox:latest'}");
    let places = ["box=docker@$T$P", "other=docker@$T$P", "third=docker@$T$P"];
    let refused = exec(&scene, "three", &places).run().expect_code(2);
    let spare = format!(
        "docker:{name}-spare cannot hold 'other': docker@{name}-spare runs 0 of the 1 containers it may, and 'other' and 'third' \
         ask for 2"
    );
    assert!(refused.err().ends_with(&format!("hmz exec: error: {}; {spare}\n", full("other"))), "{refused}");
    assert!(scene.home.containers().is_empty(), "{refused}");
    // also when the one that cannot be held is on another runtime
    flow(&scene, "greedy", "box: {image: 'busybox:latest'}, other: {image: 'busybox:latest', gpus: 1}");
    let refused = exec(&scene, "greedy", &["box=docker@$T$P", "other=docker@$T-last$P"]).run().expect_code(2);
    assert!(refused.err().contains(&format!("docker@{name}-last has 0 of 0 GPUs free, and 'other' asks for 1 (")), "{refused}");
    assert!(scene.home.containers().is_empty(), "{refused}");
    scene.assert_nothing_left();
}

#[test]
fn one_that_waits_tries_the_whole_list_again() {
    let scene = scene(", max_containers: 1, fallback: ['docker:$T-spare']", ", max_containers: 1", "");
    let name = scene.runtime.clone();
    let holder = |n: &str, runtime: &str| {
        let text = std::fs::read_to_string(scene.environment_manifest(n, "")).unwrap();
        text.replace(&format!("docker:{name}'"), &format!("docker:{runtime}'"))
    };
    let manifests = [holder("first", &name), holder("second", &format!("{name}-spare"))].join("---\n");
    let _ = scene.home.hmz(["apply", "-f", "-"]).stdin(manifests).run().ok();
    for env in ["env/first", "env/second"] {
        scene.condition(env, "Ready", "True");
    }
    let _ = scene.apply(&scene.run_manifest("waits", "")).ok();
    let all = format!(
        "docker:{name} cannot hold 'box': docker@{name} runs 1 of the 1 containers it may; docker:{name}-spare cannot hold 'box': \
         docker@{name}-spare runs 1 of the 1 containers it may"
    );
    assert_eq!(scene.condition("run/waits", "EnvironmentsReady", "False"), ("Waiting".into(), all.clone()));
    // one that waits for a time only is refused with the same words when it is over
    let _ = scene.apply(&scene.run_manifest("briefly", "  wait_for: 1s\n"));
    assert_eq!(scene.complete("briefly"), ("Refused".into(), format!("{all} (it waited 1s)")));
    let _ = scene.home.hmz(["delete", "env/second"]).run().ok();
    scene.wait_up();
    assert_eq!(scene.get("run/waits")["status"]["environments"]["box"]["used"], format!("docker:{name}-spare"));
    scene.go();
    assert_eq!(scene.complete("waits").0, "Succeeded");
    let _ = scene.home.hmz(["delete", "env/first", "run/waits", "run/briefly"]).run().ok();
    scene.assert_nothing_left();
}

#[test]
fn two_gangs_that_wait_under_two_names_of_one_daemon_take_nothing_meanwhile() {
    let scene = scene(", max_containers: 5", ", max_containers: 1", "");
    let name = scene.runtime.clone();
    let text = std::fs::read_to_string(scene.environment_manifest("first", "")).unwrap();
    let text = text.replace(&format!("docker:{name}'"), &format!("docker:{name}-spare'"));
    let _ = scene.home.hmz(["apply", "-f", "-"]).stdin(text).run().ok();
    scene.condition("env/first", "Ready", "True");
    flow(&scene, "two", "box: {image: 'busybox:latest'}, other: {image: 'busybox:latest'}");
    let gang = |name: &str| {
        let text = std::fs::read_to_string(scene.run_manifest(name, "")).unwrap();
        let other = format!("{{other: {{runtime: 'docker:{}-spare', workdir: '{}'}}, ", scene.runtime, scene.project.path());
        text.replace("flow: boxed", "flow: two").replace("environments: {", &format!("environments: {other}"))
    };
    let gangs = ["one", "two"].map(gang).join("---\n");
    let _ = scene.home.hmz(["apply", "-f", "-"]).stdin(gangs).run().ok();
    let full = format!("docker@{name}-spare runs 1 of the 1 containers it may");
    for run in ["run/one", "run/two"] {
        assert_eq!(scene.condition(run, "EnvironmentsReady", "False"), ("Waiting".into(), full.clone()));
    }
    // of what each could have, nothing was ever taken
    let (provider, until) = (format!("label=humanize.provider={name}"), docker::docker(&["info", "--format", "{{.SystemTime}}"]));
    let made =
        docker::docker(&["events", "--since", "10m", "--until", &until, "--filter", "event=create", "--filter", &provider]);
    assert_eq!(made, "");
    let _ = scene.home.hmz(["delete", "env/first"]).run().ok();
    // one after the other, each whole
    scene.go();
    for run in ["one", "two"] {
        assert_eq!(scene.complete(run).0, "Succeeded");
    }
    let _ = scene.home.hmz(["delete", "run/one", "run/two"]).run().ok();
    scene.assert_nothing_left();
}

#[test]
fn of_two_homes_that_race_for_one_place_the_other_falls_back() {
    let settings = [", max_containers: 1, fallback: ['docker:$T-spare']", ", max_containers: 1"];
    let one = scene(settings[0], settings[1], "");
    let other = Scene { runtime: one.runtime.clone(), ..scene(settings[0], settings[1], "") };
    save(&other, settings[0], settings[1], "");
    let (name, spare) = (one.runtime.clone(), format!("{}-spare", one.runtime));
    for scene in [&one, &other] {
        let _ = scene.home.hmz(["get", "runs"]).run().ok();
    }
    for round in 0..ROUNDS {
        for scene in [&one, &other] {
            let _ = std::fs::remove_file(scene.project.file("go"));
        }
        let mut racing = [small(&one).start(), small(&other).start()];
        for run in &mut racing {
            run.wait_for("coder is working");
        }
        assert_eq!((boxes(&name), boxes(&spare)), (1, 1), "round {round}");
        let moved = racing.iter().filter(|r| r.stderr().contains(&format!("; using docker:{spare}\n"))).count();
        assert_eq!(moved, 1, "round {round}");
        one.go();
        other.go();
        for run in racing {
            let _ = run.wait().ok();
        }
        assert!(one.home.containers().is_empty() && other.home.containers().is_empty(), "round {round}");
    }
    one.assert_nothing_left();
    other.assert_nothing_left();
}

#[test]
fn fifty_environments_in_room_for_ten_and_ten_more() {
    let scene = scene(", max_containers: 10, fallback: ['docker:$T-spare']", ", max_containers: 10", "");
    let (name, spare) = (scene.runtime.clone(), format!("{}-spare", scene.runtime));
    let names: Vec<String> = (0..50).map(|n| format!("e{n}")).collect();
    let manifests: Vec<String> =
        names.iter().map(|n| std::fs::read_to_string(scene.environment_manifest(n, "")).unwrap()).collect();
    let applying = scene.home.hmz(["apply", "-f", "-"]).stdin(manifests.join("---\n")).start();
    let never_more = || {
        let run = (boxes(&name), boxes(&spare));
        assert!(run.0 <= 10 && run.1 <= 10, "more run than may: {run:?}");
        run
    };
    let all = format!("docker:{name} cannot hold 'eN': docker@{name} runs 10 of the 10 containers it may; ");
    let envs = eventually("twenty run and thirty wait", LIMIT * 3, || {
        let run = never_more();
        let envs = scene.list("envs");
        let ready = envs.iter().filter(|e| condition(e, "Ready").is_some_and(|c| c.0 == "True")).count();
        // one that has not been asked for says nothing yet
        let waits = envs.iter().filter(|e| condition(e, "Scheduled").is_some_and(|c| c.0 == "False" && c.1 != "Pending")).count();
        (run == (10, 10) && ready == 20 && waits == 30).then_some(envs)
    });
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    for env in &envs {
        let (status, reason, message) = condition(env, "Scheduled").unwrap();
        let own = all.replace("'eN'", &format!("'{}'", env["metadata"]["name"].as_str().unwrap()));
        match status.as_str() {
            "True" => *used.entry(env["status"]["used"].as_str().unwrap().to_owned()).or_default() += 1,
            // so many ask at once that one may find the lock taken for long
            _ if reason == "Failed" => assert!(message.contains("the admission lock of "), "{message}"),
            _ => assert!(message.starts_with(&own) && message.contains(&format!("docker:{spare} cannot hold ")), "{message}"),
        }
    }
    assert_eq!(used, BTreeMap::from([(format!("docker:{name}"), 10), (format!("docker:{spare}"), 10)]));
    let _ = applying.wait();
    let deleting = scene.home.hmz(["delete"]).args(names.iter().map(|n| format!("env/{n}"))).limit(LIMIT * 3).start();
    eventually("all are gone", LIMIT * 3, || {
        never_more();
        scene.list("envs").is_empty().then_some(())
    });
    let _ = deleting.wait().ok();
    scene.assert_nothing_left();
}

#[test]
fn who_holds_what_is_shown_and_what_is_beyond_is_said() {
    let scene = scene("", "", "");
    let id = format!("GPU-{}", uuid::Uuid::new_v4().simple());
    save(&scene, &format!(", cpus: 0.1, max_containers: 4, gpus: ['{id}', '{id}b']"), "", "");
    let name = scene.runtime.clone();
    let theirs = format!("theirs-{name}");
    let labels = [
        "humanize=1".to_owned(),
        format!("humanize.provider={name}"),
        "humanize.host=elsewhere".to_owned(),
        "humanize.role=trainer".to_owned(),
        // more than that runtime hands out, and not so much that others on this daemon miss it
        "humanize.cpus=0.2".to_owned(),
        format!("humanize.gpus={id}"),
    ];
    let mut run = vec!["run", "-d", "--rm", "--name", &theirs];
    labels.iter().for_each(|l| run.extend(["--label", l]));
    run.extend(["busybox:latest", "sleep", "600"]);
    let container = docker::docker(&run);
    let resource = format!("runtime/docker:{name}");
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        eventually("it is seen", LIMIT, || {
            let got = scene.get(&resource);
            got["status"]["holders"].to_string().contains(&theirs).then_some(())
        });
        let described = scene.home.hmz(["describe", &resource]).run().ok();
        let listed = scene.home.hmz(["get", &resource]).run().ok();
        (described.out(), listed.out(), scene.get(&resource))
    }));
    docker::docker(&["rm", "-f", container.trim()]);
    let (described, listed, got) = seen.unwrap();
    assert!(described.contains(&format!("0.2 CPUs, GPU {id} by {theirs} ('trainer' of elsewhere)")), "{described}");
    assert!(described.contains(&format!("1/2 ({id}b)")), "{described}");
    let (status, reason, message) = condition(&got, "Sufficient").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "OverCommitted"), "{message}");
    assert!(message.contains(&format!("docker@{name} has handed out ")), "{message}");
    assert!(message.contains(&format!("0.2 CPUs to {theirs} on elsewhere")), "{message}");
    let row = listed.lines().nth(1).unwrap();
    assert!(listed.starts_with("NAME ") && listed.contains("GPUS") && row.contains("0/0.1 (") && row.contains("1/2"), "{listed}");
    // what is short is said with who has it
    flow(&scene, "gpus", "box: {image: 'busybox:latest', gpus: 3}");
    let refused = exec(&scene, "gpus", &["box=docker@$T$P"]).run().expect_code(2);
    assert!(refused.err().contains(&format!("docker@{name} has 2 of 2 GPUs free, and 'box' asks for 3\n")), "{refused}");
    scene.assert_nothing_left();
}

#[test]
fn the_page_does_what_it_says() {
    let home = TestHome::new();
    let project = home.project("myproject");
    let mut seen = Vec::new();
    for block in shell_blocks("docs/capacity.md") {
        let first = block.text.lines().next().unwrap_or_default();
        eprintln!("{}: {first}", block.at);
        let key: String = first.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let done = home.shell(&block.text).cwd(project.dir()).run().ok();
        match key.as_str() {
            "cat >" if seen.is_empty() => assert!(home.hmz_home().join("settings.yaml").exists(), "{done}"),
            "cat >" => {
                let full =
                    |name: &str| format!("docker:{name} cannot hold 'third': docker@{name} runs 1 of the 1 containers it may");
                let told = format!("hmz apply: error: env/third: {}; {}", full("smallbox"), full("sparebox"));
                assert!(done.out().contains("env/third created") && done.err().contains(&told), "{done}");
            }
            "for name" => {
                assert_eq!((boxes("smallbox"), boxes("sparebox")), (1, 1), "{done}");
            }
            "hmz describe" => {
                let told = "docker:smallbox cannot hold 'second': docker@smallbox runs 1 of the 1 containers it may; using \
                            docker:sparebox";
                let _ = done.says(told).says("Passed over:").says("docker:sparebox");
            }
            "hmz get" => {
                let _ = done.says("HANDED-OUT").says("Falls back to:");
                eventually("who holds it is shown", LIMIT, || {
                    let described = home.hmz(["describe", "runtime/docker:smallbox"]).run().ok().out();
                    described.contains("('first' of ").then_some(())
                });
            }
            // what a daemon is removing it may list for a moment more
            "hmz delete" => {
                eventually("both are gone", LIMIT, || (boxes("smallbox") + boxes("sparebox") == 0).then_some(()));
            }
            _ => panic!("{}: nothing here knows how to check this block", block.at),
        }
        seen.push(key);
    }
    assert_eq!(seen, ["cat >", "for name", "hmz describe", "cat >", "hmz get", "hmz delete"]);
    home.assert_no_container_left(LIMIT);
}
