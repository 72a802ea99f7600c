//! What zsh itself offers, and what becomes of the line, on a terminal.

use crate::{declare, enable, place};

/// Types to an interactive zsh, and tells what it was offered.
const OFFERED: &str = include_str!("offered.zsh");

#[test]
fn zsh_offers_kinds_flags_and_the_names_a_daemon_has() {
    let (home, project) = place();
    enable(&home, "zsh");
    declare(&home, &project);
    // what is offered, and last what the line is then
    let zsh = |typed: &str| {
        let told = home.in_shell("zsh", ["-f", "-c", OFFERED, "zsh", typed]).cwd(project.dir()).run().ok().out();
        told.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(zsh("hmz get ru"), ["run", "runs", "runtime", "runtimes", "hmz get run"]);
    assert_eq!(zsh("hmz backup --ov"), ["--overwrite", "hmz backup --overwrite "]);
    assert_eq!(zsh("hmz get envs m"), ["mine", "hmz get envs mine "]);
    assert_eq!(zsh("hmz delete env/"), ["env/mine", "hmz delete env/mine "]);
    assert_eq!(zsh("hmz get runtimes docker:g"), ["docker:gpubox", "hmz get runtimes docker:gpubox "]);
    assert_eq!(zsh("hmz apply -f st"), ["steps.yaml", "hmz apply -f steps.yaml "]);
    assert_eq!(zsh("hmz get nothing"), ["hmz get nothing"]);
    // no space where the word goes on
    assert_eq!(zsh("hmz exec -f stored -e r"), ["room=", "hmz exec -f stored -e room="]);
    assert_eq!(zsh("hmz exec -e box=docker@g"), ["box=docker@gpubox/", "hmz exec -e box=docker@gpubox/"]);
    assert_eq!(zsh("hmz runtime add docker x --endpoint con"), ["context:", "hmz runtime add docker x --endpoint context:"]);
    // in quotes as without them
    assert_eq!(zsh("hmz exec -e 'box=docker@g"), ["box=docker@gpubox/", "hmz exec -e 'box=docker@gpubox/"]);
}
