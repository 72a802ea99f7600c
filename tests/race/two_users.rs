//! Two processes with an HMZ_HOME each, one of them another user's, race for a share that fits once.

use crate::scene::Scene;
use crate::support::command::Running;
use crate::support::home::TestHome;
use crate::support::user::User;
use crate::support::{LIMIT, docker, eventually};

/// How often they race.
const ROUNDS: usize = 200;
/// CPUs enough that what else is on this daemon does not decide a race; two thirds of them fit once.
const CPUS: u32 = 3000;
const SHARE: u32 = CPUS / 3 * 2;

/// A flow whose box has that share, and stays until it is told to end.
const FLOW: &str = "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: shared}\nspec:\n  environments: {box: {image: \
                    'busybox:latest', $ASKS}}\n  steps: [{exec: {environment: box, command: 'echo up > up; while [ ! -e go ]; do \
                    sleep 0.02; done'}}]\n";

/// What becomes of the one that is not admitted, as it declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loser {
    Refused,
    Waits,
    FallsBack,
}

/// This user's home and the other user's, with the same runtimes: `more` is what they say of `$T` and of others.
pub fn homes(more: &str, asks: &str) -> [Scene; 2] {
    let mine = Scene::of(TestHome::new(), more);
    let theirs = Scene::of(TestHome::of(User::get()), "");
    theirs.home.settings(&std::fs::read_to_string(mine.home.hmz_home().join("settings.yaml")).unwrap());
    let theirs = Scene { runtime: mine.runtime.clone(), ..theirs };
    assert_ne!(mine.home.uid(), theirs.home.uid());
    for scene in [&mine, &theirs] {
        let flows = scene.home.hmz_home().join("flows");
        std::fs::create_dir_all(&flows).unwrap();
        std::fs::write(flows.join("shared.yaml"), FLOW.replace("$ASKS", asks)).unwrap();
        scene.home.give_to_user(&flows);
        let _ = scene.home.hmz(["get", "runs"]).run().ok();
    }
    [mine, theirs]
}

/// What `docker ps` lists of a runtime's boxes and holds.
pub fn listed(runtime: &str, options: &str) -> usize {
    docker::docker(&["ps", options, "--filter", &format!("label=humanize.provider={runtime}")]).lines().count()
}

fn exec(scene: &Scene, runtime: &str) -> Running {
    let place = format!("box=docker@{runtime}{}", scene.project.path());
    scene.home.hmz(["exec", "-f", "shared", "-e", &place, "t"]).start()
}

/// Applies a run that waits for its share, without waiting for it.
pub fn apply(scene: &Scene) -> Running {
    let (dir, file) = (scene.project.path(), scene.home.root().join("waits.yaml"));
    let text = format!(
        "apiVersion: hmz/v1\nkind: Run\nmetadata: {{name: r}}\nspec: {{flow: shared, task: t, admission: wait, environments: \
         {{box: {{runtime: 'docker:{}', workdir: '{dir}'}}}}}}\n",
        scene.runtime
    );
    std::fs::write(&file, text).unwrap();
    scene.home.hmz(["apply", "-f"]).arg(&file).start()
}

pub fn is_up(scene: &Scene) -> bool {
    scene.project.file("up").exists()
}

/// Both at once, now the one first and now the other; they come back in their own order.
fn both<T>(round: usize, scenes: &[Scene; 2], start: impl Fn(&Scene) -> T) -> [T; 2] {
    if round.is_multiple_of(2) {
        return [start(&scenes[0]), start(&scenes[1])];
    }
    let second = start(&scenes[1]);
    [start(&scenes[0]), second]
}

/// The one that is admitted, when the other has been told what `told` finds.
fn winner(what: &str, scenes: &[Scene; 2], told: impl Fn(usize) -> bool) -> usize {
    let loser = eventually(&format!("{what}: one is told"), LIMIT, || (0..2).find(|n| told(*n)));
    eventually(&format!("{what}: the other is at work"), LIMIT, || is_up(&scenes[1 - loser]).then_some(()));
    1 - loser
}

#[test]
fn of_two_users_who_race_for_two_thirds_exactly_one_is_admitted() {
    let more = format!(
        "      cpus: {CPUS}\n    $T-list: {{harness: local, cpus: {CPUS}, fallback: ['docker:$T-spare']}}\n    $T-spare: {{harness: \
         local, cpus: {}}}\n    $T-broken: {{harness: local, cpus: {CPUS}, runtime: no-such-runtime}}\n    $T-lacking: {{harness: \
         local, cpus: {CPUS}, run_args: ['--device=/dev/no-such-device']}}\n",
        2 * CPUS
    );
    let scenes = homes(&more, &format!("cpus: {SHARE}"));
    let name = scenes[0].runtime.clone();
    let of = |more: &str| format!("{name}-{more}");
    let sentence = format!("CPUs free, and 'box' asks for {SHARE}");
    let mut won = [0; 2];
    for round in 0..ROUNDS {
        let declared = [Loser::Refused, Loser::Waits, Loser::FallsBack][round % 3];
        let what = format!("round {round}, {declared:?}");
        for scene in &scenes {
            for file in ["up", "go"] {
                let _ = std::fs::remove_file(scene.project.file(file));
            }
        }
        if round % 40 == 7 {
            // a start that fails, before there is a container and behind it: the share is whole again for what follows
            for runtime in [of("broken"), of("lacking")] {
                let failed = both(round, &scenes, |scene| exec(scene, &runtime)).map(|one| one.wait().expect_code(2));
                assert!(failed.iter().any(|one| one.err().contains("no-such-")), "{what}: {}{}", failed[0], failed[1]);
                assert_eq!(listed(&runtime, "-aq"), 0, "{what}: a start that failed left something");
            }
        }
        match declared {
            Loser::Refused => {
                let racing = both(round, &scenes, |scene| exec(scene, &name));
                let first = winner(&what, &scenes, |n| racing[n].stderr().contains("error: "));
                assert!(!is_up(&scenes[1 - first]) && listed(&name, "-q") == 1, "{what}: both are there");
                won[first] += 1;
                scenes[first].go();
                for (n, one) in racing.into_iter().enumerate() {
                    let ended = one.wait().expect_code(if n == first { 0 } else { 2 });
                    assert!(n == first || ended.err().contains(&sentence), "{what}: {ended}");
                }
            }
            Loser::Waits => {
                for applied in both(round, &scenes, apply) {
                    let _ = applied.wait().ok();
                }
                let waits = |n: usize| {
                    let run = scenes[n].get("run/r");
                    crate::scene::condition(&run, "EnvironmentsReady")
                        .is_some_and(|c| c.1 == "Waiting" && c.2.contains(&sentence))
                };
                let first = winner(&what, &scenes, waits);
                assert!(!is_up(&scenes[1 - first]) && listed(&name, "-q") == 1, "{what}: both are there");
                won[first] += 1;
                scenes[first].go();
                // it is its turn as soon as the share is back
                eventually(&format!("{what}: who waited is at work"), LIMIT, || is_up(&scenes[1 - first]).then_some(()));
                assert_eq!(listed(&name, "-q"), 1, "{what}: both are there");
                scenes[1 - first].go();
                for scene in &scenes {
                    assert_eq!(scene.complete("r").0, "Succeeded", "{what}");
                }
                for deleting in both(round, &scenes, |scene| scene.home.hmz(["delete", "run/r"]).start()) {
                    let _ = deleting.wait().ok();
                }
            }
            Loser::FallsBack => {
                let racing = both(round, &scenes, |scene| exec(scene, &of("list")));
                let moved = format!("; using docker:{}", of("spare"));
                let first = winner(&what, &scenes, |n| racing[n].stderr().contains(&moved));
                eventually(&format!("{what}: who fell back is at work"), LIMIT, || is_up(&scenes[1 - first]).then_some(()));
                assert_eq!([listed(&of("list"), "-q"), listed(&of("spare"), "-q")], [1, 1], "{what}");
                won[first] += 1;
                for scene in &scenes {
                    scene.go();
                }
                for (n, one) in racing.into_iter().enumerate() {
                    let ended = one.wait().ok();
                    assert!(n == first || ended.err().contains(&sentence), "{what}: {ended}");
                }
            }
        }
        let all = docker::docker(&["ps", "-a", "--format", "{{.Label \"humanize.provider\"}}", "--filter", "label=humanize"]);
        let left: Vec<&str> = all.lines().filter(|runtime| runtime.starts_with(&name)).collect();
        assert!(left.is_empty(), "{what}: a share of these is not back: {left:?}");
    }
    // the one that is started first is not always the one that is first
    assert!(won.iter().all(|won| *won > 0), "{won:?}");
    for scene in &scenes {
        scene.assert_nothing_left();
    }
}
