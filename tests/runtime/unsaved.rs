//! The defaults, which nobody saved: listed where they are, and while something asks for them.

use crate::support::home::TestHome;
use crate::support::{LIMIT, eventually};

#[test]
fn a_swarm_that_is_not_there_is_listed_while_something_asks_for_it() {
    let mut home = TestHome::new();
    home.set("HMZ_IDLE", "600");
    let listed = || home.hmz(["get", "runtimes", "-o", "name"]).run().ok().out();
    let without = "runtime/docker\nruntime/docker:here\n";
    assert_eq!(listed(), without);
    let project = home.project("p");
    let manifest = format!(
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: box}}\nspec: {{runtime: swarm, workdir: {}}}\n",
        project.path()
    );
    let _ = home.hmz(["apply", "-f", "-"]).stdin(manifest).run().expect_code(2).says("env/box: swarm is in no active swarm");
    eventually("it is listed", LIMIT, || (listed() == format!("{without}runtime/swarm\n")).then_some(()));
    let said = || home.hmz(["describe", "env/box"]).run().ok().out().contains("swarm is in no active swarm").then_some(());
    eventually("the environment says why it has no box", LIMIT, said);
    let _ = home.hmz(["describe", "runtime/swarm"]).run().ok().says("swarm is in no active swarm: its swarm is inactive");
    let _ = home.hmz(["delete", "env/box"]).run().ok();
    eventually("it is not listed any more", LIMIT, || (listed() == without).then_some(()));
}
