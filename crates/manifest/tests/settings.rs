//! settings.yaml: what is read, what is said, and that a watch survives what editors do.
#![cfg(test)]

mod held;

use hmz_api::{Backend, RuntimeRef};
use hmz_manifest::Context;
use hmz_manifest::settings::{Loaded, Settings, read, watch};
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

fn context() -> Context {
    Context::new("/nowhere", Some("/home/me".into()))
}

/// An entry by itself is valid by the schema where it is read; that a key is there twice is YAML's own fault.
fn held_to_the_schema(text: &str, runtime: &RuntimeRef, is_read: bool) {
    let (backend, name) = (runtime.backend.word(), runtime.name.as_deref().unwrap());
    let entry = &held::documents(text).unwrap()[0]["runtimes"][backend][name];
    let alone = serde_json::json!({"runtimes": {backend: {name: entry}}});
    let wrong = held::wrong("settings.json", &alone);
    assert_eq!(wrong.is_empty(), is_read || ["twice", "again"].contains(&name), "{alone}: {wrong:?}");
}

fn shown(text: &str) -> String {
    let settings = match read(text, "settings.yaml", &context()) {
        Ok(settings) => settings,
        Err(report) => return format!("FILE {report}\n"),
    };
    let mut all = String::new();
    for problem in &settings.problems {
        let _ = writeln!(all, "PROBLEM {problem}");
    }
    for (runtime, entry) in &settings.runtimes {
        held_to_the_schema(text, runtime, entry.is_ok());
        match entry {
            Ok(spec) => writeln!(all, "{runtime} {}", serde_json::to_string(spec).unwrap()),
            Err(report) => writeln!(all, "{runtime} WRONG {report}"),
        }
        .unwrap();
    }
    all
}

#[test]
fn the_first_settings_of_the_guide() {
    assert_eq!(
        shown("runtimes:\n  docker:\n    here:\n      endpoint: local\n      harness: local\n"),
        "docker:here {\"harness\":\"local\"}\n"
    );
    assert_eq!(shown(""), "");
    assert_eq!(shown("workspaces: {}\nspelling: 2\nruntimes:\n"), "");
    assert_eq!(shown("runtimes: {docker: }\n"), "");
}

#[test]
fn one_bad_entry_hides_no_other() {
    let text = r"spelling: 2
runtimes:
  docker:
    good: {cpus: 4, memory: 8G, max_containers: 2, image: busybox, workdir: ~/w, lease: 2m}
    typo: {enpoint: local}
    twice: {cpus: 1, cpus: 2}
    units: {memory: 8X, cups: 1}
    user: {exec_user: 1000:10}
    args: {run_args: [-v, /a:/b]}
    running: {container: build-box}
    spare: {fallback: [docker:good]}
    text: just a text
    swarmy: {nodes: {}}
    nothing:
    everything:
      endpoint: unix:///run/docker.sock
      tls_dir: ''
      container: ''
      exec_env: []
      run_args: []
      cpus: 0.0
      memory: 0
      gpus: []
      gpu_memory: 0
      max_containers: 0
      image: ''
      workdir: ''
      harness: env
      fallback: []
      made: typed
    far: {endpoint: 'tcp://h:1'}
    nowhere: {endpoint: nowhere}
    relative: {workdir: w}
    again: {}
    again: {cpus: 1}
    -bad: {}
  ssh:
    gpu: {host: gpu}
  slurm: {cluster: {}}
  podman: {x: {}}
  dockr: {x: {}}
";
    insta::assert_snapshot!(shown(text));
}

#[test]
fn a_file_that_is_no_settings_is_one_report() {
    let mut all = String::new();
    for text in
        ["runtimes: [\n", "- a\n", "a: 1\n---\nb: 2\n", "runtimes: text\n", "runtimes: {}\nruntimes: {}\n", "a:\n\tb: 1\n"]
    {
        let _ = writeln!(all, "{}", shown(text));
    }
    insta::assert_snapshot!(all);
}

/// A deadline against hanging, not a measure.
const DEADLINE: Duration = Duration::from_secs(60);

fn is(loaded: &Loaded, cpus: Option<u64>) -> bool {
    let entry = loaded.settings.get(&RuntimeRef::named(Backend::Docker, "here"));
    entry.and_then(|e| e.as_ref().ok()).and_then(|s| s.cpus).map(|c| c.millis() / 1000) == cpus
}

fn settings(cpus: u64) -> String {
    format!("runtimes: {{docker: {{here: {{cpus: {cpus}}}}}}}\n")
}

async fn until(receiver: &mut tokio::sync::watch::Receiver<Loaded>, what: impl FnMut(&Loaded) -> bool) -> Loaded {
    tokio::time::timeout(DEADLINE, receiver.wait_for(what)).await.expect("told in time").expect("still watching").clone()
}

fn replace(path: &Path, text: &str) {
    let next = path.with_extension("new");
    std::fs::write(&next, text).unwrap();
    std::fs::rename(&next, path).unwrap();
}

#[tokio::test]
async fn a_watch_survives_what_editors_do() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("later/hmz");
    let path = folder.join("settings.yaml");
    let (mut told, _guard) = watch(&path, context()).unwrap();
    assert_eq!(*told.borrow(), Loaded::default());
    until(&mut told, |l| l.settled).await;

    // the directory and the file come later
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(&path, settings(1)).unwrap();
    until(&mut told, |l| is(l, Some(1))).await;

    // written in place, then by another file put in its place
    std::fs::write(&path, settings(2)).unwrap();
    until(&mut told, |l| is(l, Some(2))).await;
    replace(&path, &settings(3));
    until(&mut told, |l| is(l, Some(3))).await;

    // broken: the last good settings hold, and the place of the fault is told
    std::fs::write(&path, "runtimes:\n  docker: {here: {cpus: 4}\n").unwrap();
    // it may be seen while it is emptied and not yet written
    let place = format!("{}:2:", path.display());
    let broken = until(&mut told, |l| l.problem.as_ref().is_some_and(|p| p.to_string().starts_with(&place))).await;
    assert!(is(&broken, Some(3)), "{broken:?}");

    // emptied: likewise
    std::fs::write(&path, "").unwrap();
    let empty = until(&mut told, |l| l.problem.as_ref().is_some_and(|p| p.message.contains("empty"))).await;
    assert!(is(&empty, Some(3)), "{empty:?}");

    // deleted and written again; then the whole directory
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, settings(5)).unwrap();
    until(&mut told, |l| is(l, Some(5)) && l.problem.is_none()).await;
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(&path, settings(6)).unwrap();
    until(&mut told, |l| is(l, Some(6))).await;
    replace(&path, &settings(7));
    until(&mut told, |l| is(l, Some(7))).await;

    // one entry is wrong: it alone is
    std::fs::write(&path, "runtimes: {docker: {here: {cpus: 8}, there: {cpu: 1}}}\n").unwrap();
    let one = until(&mut told, |l| is(l, Some(8))).await;
    assert_eq!(one.settings.reports().count(), 1);
    assert!(one.problem.is_none());

    // gone for good: nothing is saved
    std::fs::remove_file(&path).unwrap();
    let gone = until(&mut told, |l| l.settings == Settings::default() && l.settled).await;
    assert_eq!(gone, Loaded { settled: true, ..Loaded::default() });
}

/// A way to save `text` as the file at `path`, which is below two links.
type Way = (&'static str, fn(&Path, &str));

const WAYS: [Way; 9] = [
    ("truncated and written", |path, text| {
        let mut file = std::fs::File::create(path).unwrap();
        text.split_inclusive(' ').for_each(|part| file.write_all(part.as_bytes()).unwrap());
    }),
    ("put in place of it", replace),
    ("moved away as a backup, then put in its place", |path, text| {
        std::fs::rename(path, path.with_extension("yaml~")).unwrap();
        replace(path, text);
    }),
    ("changed by sed", |path, text| {
        let to = text.trim_end();
        let done = std::process::Command::new("sed").args(["-i", &format!("1s|.*|{to}|")]).arg(path).status().unwrap();
        assert!(done.success());
    }),
    ("deleted and created", |path, text| {
        std::fs::remove_file(path).unwrap();
        std::fs::write(path, text).unwrap();
    }),
    ("another target of its link", |path, text| {
        let other = path.parent().unwrap().join(format!("other-{}", text.replace(|c: char| !c.is_ascii_digit(), "")));
        std::fs::write(&other, text).unwrap();
        let link = path.with_extension("link");
        symlink(&other, &link).unwrap();
        std::fs::rename(&link, path).unwrap();
    }),
    ("another directory in place of its own", |path, text| {
        let dir = path.parent().unwrap();
        let (next, last) = (dir.with_extension("next"), dir.with_extension("last"));
        std::fs::create_dir(&next).unwrap();
        std::fs::write(next.join("settings.yaml"), text).unwrap();
        std::fs::rename(dir, &last).unwrap();
        std::fs::rename(&next, dir).unwrap();
        std::fs::remove_dir_all(last).unwrap();
    }),
    ("another target of the link to its directory", |path, text| {
        let link = path.parent().unwrap().parent().unwrap().join("home");
        let real = tempfile::Builder::new().tempdir_in(link.parent().unwrap()).unwrap().keep();
        std::fs::write(real.join("settings.yaml"), text).unwrap();
        let next = link.with_extension("next");
        symlink(&real, &next).unwrap();
        std::fs::rename(&next, &link).unwrap();
    }),
    ("written where its link points", |path, text| {
        let real = path.parent().unwrap().parent().unwrap().join("repository.yaml");
        std::fs::write(&real, text).unwrap();
        if std::fs::read_link(path).ok().as_ref() != Some(&real) {
            let _ = std::fs::remove_file(path);
            symlink(&real, path).unwrap();
        }
    }),
];

#[tokio::test]
async fn no_save_is_missed_however_it_is_made() {
    for (way, save) in WAYS {
        let root = tempfile::tempdir().unwrap();
        let real = root.path().join("real");
        std::fs::create_dir(&real).unwrap();
        symlink(&real, root.path().join("home")).unwrap();
        let path = root.path().join("home/settings.yaml");
        std::fs::write(&path, settings(100)).unwrap();
        let (mut told, _guard) = watch(&path, context()).unwrap();
        for n in 1..=10 {
            // by the path of the directory itself, where it is not the link that changes
            let by = if way.contains("link to its") { path.clone() } else { real.join("settings.yaml") };
            save(&by, &settings(n));
            until(&mut told, |l| is(l, Some(n)) && l.problem.is_none()).await;
        }
    }
}

#[tokio::test]
async fn a_watch_ends_with_its_guard() {
    let home = tempfile::tempdir().unwrap();
    let (mut told, guard) = watch(&home.path().join("settings.yaml"), context()).unwrap();
    drop(guard);
    assert!(tokio::time::timeout(DEADLINE, told.changed()).await.expect("ended in time").is_err());
}

/// What only the reader says: that others may reach an address, and that a key is there twice.
const NOT_IN_THE_SCHEMA: [&str; 2] = ["metrics: {listen: 0.0.0.0:1}", "metrics: {listen: 1, listen: 2}"];

#[test]
fn metrics_are_told_here_unless_anywhere_is_said() {
    let says = |text: &str| {
        let settings = read(&format!("runtimes: {{docker: {{good: {{}}}}}}\n{text}"), "settings.yaml", &context()).unwrap();
        assert_eq!(settings.runtimes.len(), 1, "it hides another entry");
        let metrics = settings.metrics.map(|read| read.map(|m| m.address.to_string()).map_err(|report| report.to_string()));
        let is_seen = !NOT_IN_THE_SCHEMA.contains(&text);
        let is_read = !matches!(metrics, Some(Err(_)));
        assert_eq!(held::is_valid("settings.json", text), is_read || !is_seen, "{text}");
        metrics
    };
    let at = |address: &str| Some(Ok(address.to_owned()));
    assert_eq!((says(""), says("metrics:"), says("metric: {listen: 1}")), (None, None, None));
    assert_eq!(says("metrics: {listen: 9464}"), at("127.0.0.1:9464"));
    assert_eq!(says("metrics: {listen: '[::1]:9464', anywhere: false}"), at("[::1]:9464"));
    assert_eq!(says("metrics: {listen: 0.0.0.0:9464, anywhere: true}"), at("0.0.0.0:9464"));
    for (text, why) in [
        ("metrics: 9464", "2:10: metrics are a mapping, such as {listen: 9464}"),
        ("metrics: {}", "2:10: metrics say no port: {listen: 9464}"),
        ("metrics: {listen: }", "2:"),
        ("metrics: {listen: [9464]}", "2:19: expected a port, or an address and a port"),
        ("metrics: {listen: 99999}", "2:19: '99999' is no address for metrics: write 9464, or 127.0.0.1:9464"),
        ("metrics: {listen: 0.0.0.0:1}", "2:19: metrics at 0.0.0.0:1 would be told to other machines, and nobody signs in there"),
        ("metrics: {listen: 1, anywhere: often}", "2:32: "),
        ("metrics: {listn: 1}", "2:11: unknown field 'listn', did you mean 'listen'?"),
        ("metrics: {listen: 1, listen: 2}", "2:22: the key 'listen' is there twice"),
    ] {
        let said = says(text).unwrap().unwrap_err();
        assert!(said.starts_with(&format!("settings.yaml:{why}")), "{text}: {said}");
    }
    let twice = read("metrics: {listen: 1}\nmetrics: {listen: 2}\n", "settings.yaml", &context()).unwrap_err();
    assert!(twice.to_string().contains("the key 'metrics' is there twice"), "{twice}");
}
