//! Every command block of the page on GitOps is run as it stands, in its order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

use support::document::shell_blocks;
use support::home::TestHome;

#[test]
fn the_page_on_gitops_does_what_it_says() {
    let home = TestHome::new();
    let project = home.project("p");
    let blocks: String = shell_blocks("docs/gitops.md").into_iter().map(|block| block.text).collect();
    // the controller belongs to the shell of the page, which ends it
    let whole = format!("{blocks}\nkill %1; wait %1\ncat controller.log >&2\n");
    let done = home.shell(&format!("set -m\n{whole}")).cwd(project.dir()).run().ok();
    let told = done.out();
    assert!(told.contains("set/fleet condition met\nenv/box condition met\n"), "{done}");
    let row: Vec<&str> = told.lines().find(|line| line.starts_with("fleet ")).unwrap().split_whitespace().collect();
    assert_eq!((row[3], row[4]), ("True", "1/1"), "{done}");
    assert!(told.contains("Synced=True   Applied") && told.contains("env/box created"), "{done}");
    assert!(told.contains("\"kind\": \"Set\""), "{done}");
    assert!(done.err().contains("keeps the set 'fleet' in step with "), "{done}");
    drop(home.hmz(["delete", "env/box"]).run().ok());
}
