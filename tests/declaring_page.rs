//! Every command block of the page on manifests is run as it stands, in its order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

use support::document::{file, shell_blocks};
use support::home::TestHome;

#[test]
fn the_page_on_manifests_does_what_it_says() {
    let home = TestHome::new();
    let project = home.project("p");
    let mut blocks = shell_blocks("docs/declaring.md").into_iter();
    let mut run = || {
        let block = blocks.next().expect("a block");
        home.shell(&block.text).cwd(project.dir()).run().ok()
    };
    let told = run().out();
    let page = std::fs::read_to_string(file("docs/declaring.md")).unwrap();
    let shown = page.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(told.replace(project.path(), "/home/me/p"), format!("{shown}env/box created\n"));
    assert_eq!(run().out(), "env/box labelled\nNAME   CPUS\nbox    0.5\nbox\n");
    let told = run().out();
    assert!(told.starts_with("KIND:     Run\nFIELD:    spec.environments "), "{told}");
    assert!(told.contains("Held") && told.ends_with("env/box condition met\n"), "{told}");
    assert_eq!(run().out(), "");
    for name in ["manifest.json", "steps.json"] {
        let path = format!("schemas/{name}");
        assert!(std::fs::read(project.file(&path)).unwrap() == std::fs::read(file(&path)).unwrap(), "{name}");
    }
    let told = run().out();
    assert!(told.starts_with("env/box configured\nenv/other would be created\n"), "{told}");
    assert!(told.contains("env/box would be deleted\n    would remove container "), "{told}");
    assert!(told.contains("env/other created\nenv/box pruned\n"), "{told}");
    assert!(told.lines().last().unwrap().starts_with("other "), "{told}");
    assert!(blocks.next().is_none(), "a block that nothing here checks");
    drop(home.hmz(["delete", "env/other"]).run().ok());
}
