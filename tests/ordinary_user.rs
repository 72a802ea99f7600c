//! The main job as an ordinary user who may use docker and nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod provider;
mod support;

use provider::Provider;
use provider::script::{Step, bash, edit, read};
use std::os::unix::fs::MetadataExt;
use support::LIMIT;
use support::home::TestHome;
use support::user::User;

#[test]
fn claude_works_in_a_container_for_an_ordinary_user() {
    let user = User::get();
    let provider = Provider::start().script(
        "fix",
        [
            Step::call(bash("hostname; id -u; whoami; cd / && cd - >/dev/null; touch made")),
            Step::call(read("calc.py")),
            Step::call(edit("calc.py", "return a - b", "return a + b")),
            Step::say("It adds now."),
        ],
    );
    let home = TestHome::of(user).with_claude(&provider.url());
    let project = home.project("p");
    let place = format!("box=docker@here{}", project.path());
    let words = ["exec", "-f", "boxed", "-a", "coder=claude/scripted-1:low", "-e", &place, "-p", "budget.duration=10m"];
    let done = home.hmz(words).arg("Fix it. [[script:fix]]").run().ok().says("coder's harness runs here");
    assert_eq!(done.out().trim(), "It adds now.", "{done}");

    project.assert_fixed();
    for name in ["calc.py", "made"] {
        let found = std::fs::metadata(project.file(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (user.uid, user.gid), "the owner of {name}");
    }
    let results = provider.results("fix");
    let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let said: Vec<&str> = results[0].text.trim().lines().collect();
    assert_ne!(said[0], here, "the command ran here");
    assert_eq!(said[1..], [&user.uid.to_string(), user.name()]);
    home.assert_no_container_left(LIMIT);
}
