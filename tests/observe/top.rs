//! `hmz top`: what boxes use, beside what they hold.

use crate::support::command::Running;
use crate::support::home::TestHome;
use crate::support::project::Project;
use crate::support::{LIMIT, eventually};
use serde_json::Value;

/// Keeps its CPU busy, knocks at its gateway again and again, and holds 24 MiB.
const BUSY: &str = "dd if=/dev/zero of=/dev/shm/held bs=1M count=24 2>/dev/null; gateway=$(ip route | sed -n 's/default via \\([^ ]*\\).*/\\1/p'); \
                    while :; do nc -w 1 $gateway 9 2>/dev/null; done";

fn environment(home: &TestHome, project: &Project, name: &str, more: &str) {
    let text = format!(
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: {name}, labels: {{of: {name}}}}}\nspec: {{runtime: 'docker:here', \
         workdir: {}, image: busybox{more}}}\n",
        project.path()
    );
    let file = format!("{name}.yaml");
    project.write(&file, &text);
    let _ = home.hmz(["apply", "-f"]).arg(project.file(&file)).run().ok();
}

fn ready(home: &TestHome, name: &str) {
    let _ = home.hmz(["wait", "--for=condition=Ready", &format!("env/{name}"), "--timeout", "100s"]).run().ok();
}

fn items(home: &TestHome, words: &[&str]) -> Vec<Value> {
    let out = home.hmz(["top"]).args(words).args(["-o", "json"]).run().ok().out();
    serde_json::from_str::<Value>(&out).unwrap()["items"].as_array().unwrap().clone()
}

fn busy(home: &TestHome) -> Running {
    home.hmz(["sh", "env/busy", "--", "/bin/sh", "-c", BUSY]).start()
}

#[test]
fn what_a_box_uses_is_shown_beside_what_it_is_limited_to() {
    let home = TestHome::new();
    let project = home.project("p");
    environment(&home, &project, "busy", ", cpus: 0.5, memory: 100M");
    environment(&home, &project, "idle", "");
    ready(&home, "busy");
    ready(&home, "idle");
    let _work = busy(&home);
    let row = eventually("it is seen at work", LIMIT, || {
        let row = items(&home, &["envs", "busy"]).remove(0);
        let at_least = |name: &str, least: f64| row[name].as_f64().is_some_and(|n| n >= least);
        let all = at_least("cpus", 0.02) && at_least("memory", 24.0 * f64::from(1 << 20)) && at_least("sentPerSecond", 1.0);
        all.then_some(row)
    });
    assert_eq!((row["cpuLimit"].as_f64(), row["memoryLimit"].as_u64()), (Some(0.5), Some(100 << 20)), "{row}");
    assert_eq!((&row["name"], &row["runtime"], &row["why"]), (&"busy".into(), &"docker:here".into(), &"".into()), "{row}");
    // the kernel evens a quota out over its periods, and two clocks are read
    assert!(row["cpus"].as_f64().unwrap() < 1.0 && row["memory"].as_u64().unwrap() < 100 << 20, "{row}");
    assert!(row["processes"].as_u64().unwrap() >= 2, "{row}");

    let name = |rows: &[Value]| rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(name(&items(&home, &["envs", "--sort-by", "memory"])), ["busy", "idle"]);
    assert_eq!(name(&items(&home, &["envs", "-l", "of=idle"])), ["idle"]);
    let idle = items(&home, &["envs", "idle"]).remove(0);
    assert!(idle["cpus"].as_f64().unwrap() < row["cpuLimit"].as_f64().unwrap(), "{idle}");
    assert_eq!(idle["share"], serde_json::json!({}), "{idle}");

    let shown = home.hmz(["top", "envs", "-o", "wide"]).run().ok().out();
    let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..5], ["NAME", "RUNTIME", "CPU", "CPU%", "MEMORY"]);
    assert!(lines[1][2].ends_with("/0.5") && lines[1][3].ends_with('%') && lines[1][4].ends_with("/100M"), "{shown}");
    assert!(shown.contains(" 0.5/100M "), "{shown}");

    // one without a box is there, and no number is made up for it
    let nowhere = format!(
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: none}}\nspec: {{runtime: 'docker:nowhere', workdir: {}}}\n",
        project.path()
    );
    project.write("none.yaml", &nowhere);
    let _ = home.hmz(["apply", "-f"]).arg(project.file("none.yaml")).run().expect_code(2);
    let none = items(&home, &["envs", "none"]).remove(0);
    assert_eq!(
        (&none["cpus"], &none["memory"], &none["why"]),
        (&Value::Null, &Value::Null, &"it has no box now".into()),
        "{none}"
    );
    let shown = home.hmz(["top", "envs", "none"]).run().ok().out();
    assert_eq!(shown.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>()[2..], ["-"; 9], "{shown}");

    let runtime = items(&home, &["runtimes", "docker@here"]).remove(0);
    assert_eq!((&runtime["name"], &runtime["boxes"]), (&"docker:here".into(), &2.into()), "{runtime}");
    // others may hold shares of a runtime of that name beside us
    assert!(runtime["heldCpus"].as_f64().is_some_and(|held| held >= 0.5), "{runtime}");
    assert!(runtime["memory"].as_u64().unwrap() >= 24 << 20, "{runtime}");
    let _ = home.hmz(["top", "envs", "absent"]).run().expect_code(1).says("there is no environment 'absent'");
}

#[test]
fn it_goes_on_where_it_is_asked_to_and_ends_with_its_reader() {
    let home = TestHome::new();
    let project = home.project("p");
    environment(&home, &project, "box", "");
    ready(&home, "box");
    let shown = home.shell("hmz top envs -w -o json --interval 200ms | head -3").run();
    let lines = shown.out();
    let documents: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(documents.len(), 3, "{shown}");
    assert!(documents.iter().all(|all| all["items"][0]["name"] == "box"), "{shown}");
    let _ = home.hmz(["top", "envs", "--interval", "0"]).run().expect_code(2).says("a rate takes some time");
}
