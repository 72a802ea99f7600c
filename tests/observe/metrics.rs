//! `hmz metrics`, and the port: what is told is what was done.

use crate::exposition::Exposition;
use crate::provider::Provider;
use crate::provider::script::{Step, Usage, bash};
use crate::support::home::TestHome;
use crate::support::{LIMIT, eventually, runs};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

fn metrics(home: &TestHome) -> Exposition {
    Exposition::read(&home.hmz(["metrics"]).run().ok().out())
}

#[test]
fn the_metrics_tell_what_was_done() {
    let last = Usage { input: 7, output: 11, cache_read: 13, cache_write: 17 };
    let provider = Provider::start().script("count", [Step::call(bash("hostname")), Step::say("done").using(last)]);
    let home = TestHome::new().with_claude(&provider.url());
    // of a name that nobody else has, since others' boxes on it would count
    let name = format!("t{}", &uuid::Uuid::new_v4().simple().to_string()[..10]);
    let entry = format!("{name}: {{endpoint: local, harness: local, cpus: 2, memory: 2G, max_containers: 5}}");
    home.settings(&format!("runtimes:\n  docker:\n    {entry}\n"));
    let here = format!("docker:{name}");
    let project = home.project("p");
    let text = format!(
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: box}}\nspec: {{runtime: '{here}', workdir: {}, image: \
         busybox, cpus: 0.5, memory: 128M}}\n",
        project.path()
    );
    project.write("box.yaml", &text);
    let _ = home.hmz(["apply", "-f"]).arg(project.file("box.yaml")).run().ok();
    let _ = home.hmz(["wait", "--for=condition=Ready", "env/box", "--timeout", "100s"]).run().ok();
    runs::boxed_in(&home, "quick", "busybox:latest");
    let (good, bad) =
        (runs::script(&home, "good", "- run: 'true'\n- say: done\n"), runs::script(&home, "bad", "- fail: broken\n"));
    let place = format!("box=docker@{name}{}", project.path());
    let exec = |flow: &str, agent: &str, task: &str| {
        let coder = format!("coder={agent}");
        home.hmz(["exec", "-f", flow, "-a", &coder, "-e", &place, "-p", "budget.duration=10m", task]).run()
    };
    for _ in 0..2 {
        let _ = exec("quick", &good, "t").ok();
    }
    let _ = exec("quick", &bad, "t").expect_code(1);
    let _ = exec("boxed", runs::CLAUDE, "t [[script:count]]").ok();

    let held = ("hmz_runtime_cpus", [("runtime", here.as_str()), ("share", "held")]);
    let told = eventually("the runs' shares are free again", LIMIT, || {
        let told = metrics(&home);
        let one = told.get("hmz_runtime_containers", &[("runtime", here.as_str()), ("share", "held")]) == Some(1.0);
        (told.get(held.0, &held.1) == Some(0.5) && one).then_some(told)
    });
    let runtime = |name: &str, share: &str| told.get(name, &[("runtime", here.as_str()), ("share", share)]);
    assert_eq!(runtime("hmz_runtime_cpus", "free"), Some(1.5));
    assert_eq!(runtime("hmz_runtime_memory_bytes", "held"), Some(f64::from(128 << 20)));
    assert_eq!(runtime("hmz_runtime_memory_bytes", "free"), Some((2u64 << 30) as f64 - f64::from(128 << 20)));
    assert_eq!(runtime("hmz_runtime_containers", "free"), Some(4.0));
    assert_eq!(runtime("hmz_runtime_gpus", "held"), Some(0.0));
    assert_eq!(told.get("hmz_runtime_up", &[("runtime", here.as_str())]), Some(1.0));
    assert_eq!(told.get("hmz_boxes", &[("runtime", here.as_str()), ("state", "ready")]), Some(1.0));
    assert_eq!(told.get("hmz_conditions", &[("kind", "Environment"), ("type", "Ready"), ("status", "True")]), Some(1.0));
    assert_eq!(told.get("hmz_conditions", &[("kind", "Run"), ("type", "Complete"), ("status", "True")]), Some(4.0));
    assert_eq!(told.get("hmz_resources", &[("kind", "Run")]), Some(4.0));
    assert_eq!(told.get("hmz_runs_ended_total", &[("outcome", "Succeeded")]), Some(3.0));
    assert_eq!(told.get("hmz_runs_ended_total", &[("outcome", "Failed")]), Some(1.0));

    assert_eq!(told.sum("hmz_turns_total", &[("cli", "script"), ("agent", "coder")]), 3.0);
    let claude = [("agent", "coder"), ("cli", "claude"), ("model", "scripted-1")];
    assert_eq!(told.get("hmz_turns_total", &claude), Some(1.0));
    assert!(told.get("hmz_turn_seconds_total", &claude).is_some_and(|seconds| seconds > 0.0));
    let first = Usage::default();
    for (kind, n) in [
        ("input", first.input + last.input),
        ("output", first.output + last.output),
        ("cache_read", first.cache_read + last.cache_read),
        ("cache_write", first.cache_write + last.cache_write),
    ] {
        let labels: Vec<_> = claude.iter().copied().chain([("kind", kind)]).collect();
        assert_eq!(told.get("hmz_tokens_total", &labels), Some(n as f64), "{kind}");
    }
    assert_eq!(told.get("hmz_cost_dollars_total", &claude), cost(&home), "the cost");

    for controller in ["environment", "run", "runtime", "settings"] {
        let of = |result| told.get("hmz_controller_reconciles_total", &[("controller", controller), ("result", result)]).unwrap();
        let histogram = &told.0["hmz_controller_reconcile_duration_seconds"].samples;
        let count = histogram.iter().find(|(s, l, _)| s == "_count" && l["controller"] == controller).unwrap().2;
        assert!(of("done") >= 1.0 && count == of("done") + of("conflict") + of("error"), "{controller}");
    }
    assert!(told.get("process_resident_memory_bytes", &[]).is_some_and(|n| n > 1e6));
    assert!(told.get("process_open_fds", &[]).is_some_and(|n| n >= 5.0));
    assert!(told.get("process_start_time_seconds", &[]).is_some_and(|n| n > 1.7e9));

    // whoever reads changes nothing, and what was counted is counted once
    let revision = |told: &Exposition| told.get("hmz_store_revision", &[]).unwrap();
    let before = eventually("nothing is to be done any more", LIMIT, || {
        let (one, two) = (metrics(&home), metrics(&home));
        (revision(&one) == revision(&two)).then_some(two)
    });
    assert!(revision(&before) >= 10.0);
    let after = metrics(&home);
    assert_eq!(revision(&after), revision(&before));
    assert_eq!(after.get("hmz_turns_total", &claude), Some(1.0));
    // a run that is deleted was there all the same
    let _ = home.shell("hmz get runs -o name | xargs -n1 hmz delete").run();
    assert_eq!(metrics(&home).get("hmz_runs_ended_total", &[("outcome", "Succeeded")]), Some(3.0));
}

/// What the journals say that claude cost.
fn cost(home: &TestHome) -> Option<f64> {
    let epics = std::fs::read_dir(home.hmz_home().join("epics")).unwrap();
    let journals = epics.map(|epic| std::fs::read_to_string(epic.unwrap().path().join("epic.jsonl")).unwrap());
    let records: Vec<Value> =
        journals.flat_map(|text| text.lines().map(|l| serde_json::from_str(l).unwrap()).collect::<Vec<_>>()).collect();
    records.iter().filter(|r| r["kind"] == "result" && r["cli"] == "claude").map(|r| r["cost"].as_f64()).sum()
}

fn asked(port: u16, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

#[test]
fn a_port_of_this_machine_tells_metrics_and_nothing_else() {
    let home = TestHome::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut daemon = home.hmz(["controller", "--metrics", &port.to_string()]).start();
    daemon.wait_for("listening");
    let (head, body) = asked(port, "/metrics");
    assert!(head.starts_with("http/1.1 200") && head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    let told = Exposition::read(&body.split("\r\n").find(|part| part.starts_with('#')).map(str::to_owned).unwrap_or(body));
    assert!(told.get("hmz_store_revision", &[]).is_some());
    for path in ["/v1/version", "/v1/Run", "/"] {
        assert!(asked(port, path).0.starts_with("http/1.1 404"), "{path}");
    }
    daemon.signal(rustix::process::Signal::TERM);
    let _ = daemon.wait().ok();

    let open = home.hmz(["controller", "--metrics", "0.0.0.0:0"]).run().expect_code(2);
    let _ = open.says("would be told to other machines").says("--metrics-anywhere");
    // a port that is taken keeps nobody from working
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let _ = home.hmz(["controller", "--metrics", &port]).run().expect_code(1).says("metrics cannot be told at");
    let _ = home.hmz(["get", "runtimes"]).env("HMZ_METRICS", &port).run().ok();
    let log = std::fs::read_to_string(home.hmz_home().join("state/daemon.log")).unwrap();
    assert!(log.contains("metrics cannot be told at"), "{log}");
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn settings_say_where_metrics_are_told_and_may_change_their_mind() {
    let home = TestHome::new();
    let says = |metrics: &str| home.settings(&format!("runtimes: {{}}\n{metrics}"));
    let told =
        |port: u16| TcpStream::connect(("127.0.0.1", port)).is_ok() && asked(port, "/metrics").0.starts_with("http/1.1 200");
    let settings = |wanted: &str| {
        eventually(wanted, LIMIT, || {
            let shown = home.hmz(["get", "settings"]).run().ok().out();
            let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            shown.lines().map(line).any(|line| line.starts_with(wanted)).then_some(shown)
        })
    };
    let (first, second) = (free_port(), free_port());
    says(&format!("metrics: {{listen: {first}}}\n"));
    let mut daemon = home.hmz(["controller"]).start();
    daemon.wait_for("listening");
    let _ = settings(&format!("metrics Listening=True Bound http://127.0.0.1:{first}/metrics"));
    assert!(told(first));
    // one that reads again and again on one connection
    let mut kept = TcpStream::connect(("127.0.0.1", first)).unwrap();
    write!(kept, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert_eq!(kept.read(&mut [0; 12]).unwrap(), 12);

    let set = home.hmz(["settings", "set", "metrics.listen", &format!("127.0.0.1:{second}")]).run();
    let _ = set.ok();
    let _ = settings(&format!("metrics Listening=True Bound http://127.0.0.1:{second}/metrics"));
    assert!(told(second));
    assert!(TcpStream::connect(("127.0.0.1", first)).is_err(), "the one before is still there");
    kept.set_read_timeout(Some(LIMIT)).unwrap();
    let mut rest = Vec::new();
    kept.read_to_end(&mut rest).unwrap();

    // what cannot be read changes nothing, and is said
    says("metrics: {listen: 0.0.0.0:9464}\n");
    let said = settings("metrics SettingsValid=False Unreadable");
    assert!(said.contains("would be told to other machines, and nobody signs in there"), "{said}");
    assert!(told(second));
    let _ = home.hmz(["settings", "validate"]).run().expect_code(2).says(":2:19: metrics at 0.0.0.0:9464").says("anywhere: true");
    let refused = home.hmz(["settings", "set", "metrics.listen", "here"]).run().expect_code(2);
    let _ = refused.says("'here' is no address for metrics: write 9464, or 127.0.0.1:9464");
    says("metrics: {port: 1}\n");
    let _ = home.hmz(["settings", "validate"]).run().expect_code(2).says(":2:11: unknown field 'port'");

    // a port that is taken is asked for again
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let third = taken.local_addr().unwrap().port();
    says(&format!("metrics: {{listen: {third}}}\n"));
    let _ = settings(&format!("metrics Listening=False NotBound metrics cannot be told at 127.0.0.1:{third}"));
    drop(taken);
    let _ = settings("metrics Listening=True Bound");
    assert!(told(third) && !told(second));

    // and none is said any more
    says("");
    eventually("nothing is told", LIMIT, || TcpStream::connect(("127.0.0.1", third)).is_err().then_some(()));
    assert!(!home.hmz(["get", "settings"]).run().ok().out().contains("metrics"));
    daemon.signal(rustix::process::Signal::TERM);
    let _ = daemon.wait().ok();

    // whoever starts the daemon has the last word
    says(&format!("metrics: {{listen: {first}}}\n"));
    let mut daemon = home.hmz(["controller", "--metrics", &second.to_string()]).start();
    daemon.wait_for("listening");
    let _ = settings("metrics Listening=False Overruled");
    assert!(told(second) && !told(first));
    daemon.signal(rustix::process::Signal::TERM);
    let _ = daemon.wait().ok();
}
