//! Every command block of the page on observing is run as it stands, in its order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

use support::document::shell_blocks;
use support::home::TestHome;

#[test]
fn the_page_on_observing_does_what_it_says() {
    let home = TestHome::new();
    let project = home.project("p");
    let text = format!(
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: box}}\nspec: {{runtime: 'docker:here', workdir: {}, image: busybox}}\n",
        project.path()
    );
    project.write("box.yaml", &text);
    let mut seen = 0;
    for block in shell_blocks("docs/observing.md") {
        let first = block.text.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let done = home.shell(&block.text).cwd(project.dir()).run().ok();
        let _ = match first.as_str() {
            "hmz top" => done.says("   BOXES   CPU USED   CPU HELD   "),
            "hmz metrics" => done.says("# TYPE hmz_tokens_total counter\n").says("process_resident_memory_bytes "),
            "export HMZ_LOG=info" => done.says("env/box condition met"),
            "hmz debug" => done.says("report.tar.gz: ").says("/facts.json\n").says("/resources/environments.yaml\n"),
            other => panic!("{}: nothing here knows how to check this block: {other}", block.at),
        };
        seen += 1;
    }
    assert_eq!(seen, 4);
}
