//! Homes beside each other: what one leaves that is gone is cleared up by another's daemon, and nothing else is.

use crate::scene::Scene;
use crate::support::{LIMIT, docker, eventually};
use rustix::process::Signal;

#[test]
fn what_a_deleted_home_left_is_swept_by_another_and_a_home_that_is_there_keeps_its_own() {
    let gone = Scene::with_lease();
    gone.begin("r");
    let gone_label = gone.home.label().unwrap();
    let left = gone.directories();
    assert!(left.len() == 1 && left.iter().all(|dir| dir.exists()), "{left:?}");

    // one whose daemon is killed too, and which has a box that stays
    let kept = Scene::new();
    let _ = kept.apply(&kept.environment_manifest("box", "")).ok();
    kept.condition("env/box", "Ready", "True");
    let kept_dirs = kept.directories();
    assert!(kept_dirs.len() == 1 && kept_dirs.iter().all(|dir| dir.join("s").exists()), "{kept_dirs:?}");
    kept.kill_daemon();

    // nothing of the first is told that its daemon is gone for good
    let runner = gone.runner();
    gone.kill_daemon();
    runner.signal(Signal::KILL);
    runner.assert_gone();
    // what ends with the runner may still write there
    eventually("the first home is deleted", LIMIT, || match std::fs::remove_dir_all(gone.home.hmz_home()) {
        Ok(()) => Some(()),
        Err(e) => (e.kind() == std::io::ErrorKind::NotFound).then_some(()),
    });

    let sweeper = Scene::new();
    let old = sweeper.home.hmz_home().join("state/guest/0123456789abcdef");
    std::fs::create_dir_all(&old).unwrap();
    std::fs::write(old.join("hmz"), "of an earlier program").unwrap();
    let home = left[0].parent().unwrap();
    eventually("what the first home left is gone", LIMIT, || {
        let _ = sweeper.home.hmz(["get", "runtimes"]).run().ok();
        (!home.exists() && !old.exists()).then_some(())
    });
    assert_eq!(docker::containers(&gone_label), Vec::<String>::new(), "its directory was there while its box was");
    let copies = std::fs::read_dir(old.parent().unwrap()).unwrap().count();
    // a guest of its own is beside the program where one is embedded
    assert!((1..=2).contains(&copies), "{copies}: the program that runs has its copy, and its guest");
    for dir in &kept_dirs {
        assert!(
            dir.join("s").exists() && dir.join("run/g.sock").exists() && dir.with_file_name("owner").exists(),
            "{}",
            dir.display()
        );
    }
    // it goes on where it was
    kept.condition("env/box", "Ready", "True");
    let _ = kept.home.hmz(["delete", "env/box"]).run().ok();
    kept.assert_nothing_left();
    eventually("its directory went with its box", LIMIT, || kept_dirs.iter().all(|dir| !dir.exists()).then_some(()));
}
