//! Every command block of the page on runtimes is run as it stands, in its order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

use support::document::shell_blocks;
use support::home::{SETTINGS, TestHome};

#[test]
fn the_page_on_runtimes_does_what_it_says() {
    let home = TestHome::new();
    std::fs::create_dir(home.home().join(".ssh")).unwrap();
    std::fs::write(home.home().join(".ssh/config"), "Host build-box gpu-*\n").unwrap();
    let mut seen = 0;
    for block in shell_blocks("docs/runtimes.md") {
        let done = home.shell(&block.text).run().ok();
        let key: Vec<&str> = block.text.split_whitespace().skip(2).take(3).collect();
        let _ = match key.join(" ").as_str() {
            "add docker gpubox" => done.says("docker/gpubox saved in ").says("\ndocker/gpubox answers: docker "),
            "add docker everything" => {
                done.says("docker/everything detected: cpus: ").says("\ncpus: ").says("docker/everything removed from ")
            }
            "check gpubox hmz" => done.says("docker/gpubox answers: docker ").says("\ndocker answers: docker "),
            "remove gpubox" => done.says("docker/gpubox removed from "),
            "import-ssh --list hmz" => done.says("build-box\nssh/build-box imported\n"),
            other => panic!("{}: nothing here knows how to check this block: {other}", block.at),
        };
        seen += 1;
    }
    assert_eq!(seen, 5);
    let text = std::fs::read_to_string(home.hmz_home().join("settings.yaml")).unwrap();
    assert_eq!(text, format!("{SETTINGS}  ssh:\n    build-box: {{alias: build-box, made: imported}}\n"));
}
