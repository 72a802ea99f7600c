//! What fish itself offers: it completes without a terminal.

use crate::{declare, enable, place};

#[test]
fn fish_offers_kinds_flags_and_the_names_a_daemon_has() {
    let (home, project) = place();
    enable(&home, "fish");
    declare(&home, &project);
    let fish = |typed: &str| {
        let script = format!("complete --do-complete '{typed}'");
        let offered = home.in_shell("fish", ["--command", &script]).cwd(project.dir()).run().ok().out();
        // a help text follows the value
        offered.lines().filter_map(|line| line.split('\t').next()).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(fish("hmz get ru"), ["run", "runs", "runtime", "runtimes"]);
    assert_eq!(fish("hmz backup --ov"), ["--overwrite"]);
    assert_eq!(fish("hmz get envs m"), ["mine"]);
    assert_eq!(fish("hmz delete env/"), ["env/mine"]);
    drop(home.hmz(["apply", "-f", "all.yaml", "--set", "own"]).cwd(project.dir()).run());
    assert_eq!(fish("hmz describe set/"), ["set/own"]);
    assert_eq!(fish("hmz get sets o"), ["own"]);
    assert_eq!(fish("hmz get runtimes docker:g"), ["docker:gpubox"]);
    assert_eq!(fish("hmz exec -f stored -e "), ["room="]);
    assert_eq!(fish("hmz exec -e box=docker@g"), ["box=docker@gpubox/"]);
    assert_eq!(fish("hmz apply -f st"), ["steps.yaml"]);
    assert_eq!(fish("hmz get nothing"), Vec::<String>::new());
}
