//! However a file is saved while the daemon runs, what it says is what the daemon has soon after.

use crate::support::command::Invocation;
use crate::support::home::TestHome;
use crate::support::{LIMIT, eventually};
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// How many saves by each way.
const SAVES: usize = 10;

/// A way to save `text` as settings.yaml of the home directory given.
type Way = (&'static str, fn(&Path, &str));

const WAYS: [Way; 7] = [
    ("truncate", |home, text| {
        let mut file = fs::File::create(home.join("settings.yaml")).unwrap();
        text.split_inclusive('\n').for_each(|line| file.write_all(line.as_bytes()).unwrap());
    }),
    ("temp and rename", |home, text| {
        fs::write(home.join("4913"), text).unwrap();
        fs::rename(home.join("4913"), home.join("settings.yaml")).unwrap();
    }),
    ("backup and rename", |home, text| {
        fs::rename(home.join("settings.yaml"), home.join("settings.yaml~")).unwrap();
        fs::write(home.join("settings.yaml"), text).unwrap();
    }),
    ("sed -i", |home, text| {
        let cpus = text.trim_end().rsplit(' ').next().unwrap();
        let script = format!("s/cpus: .*/cpus: {cpus}/");
        let done = std::process::Command::new("sed").args(["-i", &script]).arg(home.join("settings.yaml")).status().unwrap();
        assert!(done.success());
    }),
    ("delete then create", |home, text| {
        fs::remove_file(home.join("settings.yaml")).unwrap();
        fs::write(home.join("settings.yaml"), text).unwrap();
    }),
    ("link swap", |home, text| {
        let repository = home.with_extension("dots");
        let n = fs::read_dir(&repository).map_or(0, Iterator::count);
        fs::create_dir_all(&repository).unwrap();
        let real = repository.join(format!("settings-{n}.yaml"));
        fs::write(&real, text).unwrap();
        let _ = fs::remove_file(home.join("next"));
        symlink(&real, home.join("next")).unwrap();
        fs::rename(home.join("next"), home.join("settings.yaml")).unwrap();
    }),
    ("directory swap", |home, text| {
        let (next, last) = (home.with_extension("next"), home.with_extension("last"));
        fs::create_dir(&next).unwrap();
        fs::write(next.join("settings.yaml"), text).unwrap();
        fs::rename(home, &last).unwrap();
        fs::rename(&next, home).unwrap();
        // what the daemon has in its home goes along
        for entry in fs::read_dir(&last).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != "settings.yaml" && !entry.path().is_symlink() {
                fs::rename(entry.path(), home.join(entry.file_name())).unwrap();
            }
        }
        fs::remove_dir_all(last).unwrap();
    }),
];

fn text(cpus: usize) -> String {
    format!("# mine\nruntimes:\n  docker:\n    here:\n      endpoint: local\n      cpus: {cpus}\n")
}

/// The CPUs the daemon has of the runtime now.
pub(super) fn cpus(home: &TestHome) -> Option<u64> {
    cpus_of(home.hmz(["get", "runtime/docker:here", "-o", "json"]))
}

/// The same by that invocation.
pub(super) fn cpus_of(get: Invocation) -> Option<u64> {
    let shown = get.run();
    let found: serde_json::Value = serde_json::from_str(&shown.out()).ok()?;
    found["spec"]["cpus"].as_u64()
}

#[test]
fn ten_saves_by_each_of_seven_ways_and_none_is_missed() {
    let home = TestHome::new();
    home.settings(&text(1000));
    eventually("the first settings", LIMIT, || (cpus(&home) == Some(1000)).then_some(()));
    for (index, (way, save)) in WAYS.iter().enumerate() {
        for n in 0..SAVES {
            let wanted = 1 + index * SAVES + n;
            save(&home.hmz_home(), &text(wanted));
            eventually(&format!("save {n} by {way}"), LIMIT, || (cpus(&home) == Some(wanted as u64)).then_some(()));
        }
    }
    let log = fs::read_to_string(home.hmz_home().join("state/daemon.log")).unwrap();
    assert_eq!(log.matches("listening").count(), 1, "one daemon saw them all\n{log}");
}

#[test]
fn a_file_below_links_is_seen_where_it_is_written() {
    let home = TestHome::new();
    let dots = home.root().join("dots");
    fs::create_dir(&dots).unwrap();
    let link: PathBuf = home.hmz_home().join("settings.yaml");
    fs::write(dots.join("hmz.yaml"), text(1)).unwrap();
    fs::remove_file(&link).unwrap();
    symlink("../dots/hmz.yaml", &link).unwrap();
    for n in 1..=5 {
        fs::write(dots.join("new"), text(n)).unwrap();
        fs::rename(dots.join("new"), dots.join("hmz.yaml")).unwrap();
        eventually("what the link points to", LIMIT, || (cpus(&home) == Some(n as u64)).then_some(()));
    }
    let _ = home.hmz(["settings", "set", "runtimes.docker.here.cpus", "77"]).run().ok();
    eventually("what was set", LIMIT, || (cpus(&home) == Some(77)).then_some(()));
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(dots.join("hmz.yaml")).unwrap(), text(77));
}
