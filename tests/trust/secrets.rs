//! Variables and files of the user's that open something: they are in no box, and nowhere that hmz keeps anything.

use crate::provider::Provider;
use crate::provider::script::{Step, bash};
use crate::support::command::Invocation;
use crate::support::home::TestHome;
use crate::support::runs::{CLAUDE, exec};
use crate::support::{LIMIT, docker, processes};
use crate::{put, support};
use std::path::Path;

/// Searches a tree, and says which files have one of the secrets.
fn holders(tree: &Path, secrets: &[String]) -> String {
    let words = secrets.iter().flat_map(|secret| ["-e".to_owned(), secret.clone()]);
    let grep = Invocation::new("grep").args(["-raoF", "-m3"]).args(words).arg("--").arg(tree).env("PATH", "/usr/bin:/bin");
    let found = grep.run();
    assert!(found.code() <= 2, "{found}");
    found.out()
}

#[test]
fn they_reach_no_box_no_command_and_no_file_of_hmzs() {
    let provider = Provider::start().script(
        "look",
        [
            Step::call(bash(
                "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/1/mountinfo 2>/dev/null | tr '\\0' '\\n'; ls -aR ~ /root \
                 /home 2>&1 | head -100; true",
            )),
            Step::call(bash("echo second")).gated("looked"),
            Step::say("done"),
        ],
    );
    let mut home = TestHome::new().with_claude(&provider.url());
    let project = home.project("p");
    let secret = |n: u32| format!("CANARY-{}-{n}-VALUE", std::process::id());
    for (n, name) in (0..).zip([
        "ANTHROPIC_API_KEY",
        "CANARY_VARIABLE",
        "OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "ANTHROPIC_CUSTOM_CANARY",
        "CLAUDE_CODE_CANARY",
    ]) {
        home.set(name, secret(n));
    }
    let files =
        [".aws/credentials", ".claude/.credentials.json", ".docker/config.json", ".ssh/id_test", ".netrc", ".claude.json"];
    for (n, name) in (100..).zip(files) {
        let text = match name {
            ".docker/config.json" => format!("{{\"auths\": {{\"registry.invalid\": {{\"auth\": \"{}\"}}}}}}", secret(n)),
            ".claude/.credentials.json" => format!("{{\"claudeAiOauth\": {{\"accessToken\": \"{}\"}}}}", secret(n)),
            ".claude.json" => format!("{{\"primaryApiKey\": \"{}\"}}", secret(n)),
            _ => format!("key = {}\n", secret(n)),
        };
        put(&home.home().join(name), &text);
    }
    let secrets = [format!("CANARY-{}-", std::process::id())];

    let running = exec(&home, "boxed", CLAUDE, &project, "Look. [[script:look]]").start();
    provider.wait_for_round("look", 1, LIMIT);
    let ids = home.containers();
    assert_eq!(ids.len(), 1);
    let inspected = docker::docker(&["inspect", &ids[0]]);
    let logs = docker::docker(&["logs", &ids[0]]);
    let top = docker::docker(&["top", &ids[0], "-eo", "pid,args"]);
    // what mounts hold is searched where it is; an export leaves them out
    let export = home.root().join("export.tar");
    docker::docker(&["export", "-o", export.to_str().unwrap(), &ids[0]]);
    for (what, text) in [("docker inspect", &inspected), ("docker logs", &logs), ("docker top", &top)] {
        assert!(!text.contains(&secrets[0]), "{what}: {text}");
    }
    assert_eq!(holders(&export, &secrets), "", "in the container's files");
    assert!(std::fs::metadata(&export).unwrap().len() > 10_000_000, "the export is the image's files");
    std::fs::remove_file(&export).unwrap();
    let pids: Vec<i32> = top.lines().skip(1).map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect();
    assert!(!pids.is_empty(), "{top}");
    for pid in pids {
        assert_eq!(holders(Path::new(&format!("/proc/{pid}/environ")), &secrets), "", "in the environment of {pid}: {top}");
    }
    // the daemon and the runner hold the caller's variables in memory at most
    for pid in processes::with_variable(&home.mark()) {
        let line = processes::line(pid);
        if line.contains(" runner") || line.contains(" controller") {
            assert_eq!(holders(Path::new(&format!("/proc/{pid}/environ")), &secrets), "", "in the environment of `{line}`");
        }
    }
    provider.open("looked");
    let finished = running.wait().ok();
    // the canaries sing: claude itself was given its key
    assert!(provider.requests().iter().any(|r| r.headers.get("x-api-key").is_some_and(|k| k.contains(&secrets[0]))));
    let told = &provider.results("look")[0].text;
    assert!(told.contains("HOME=/tmp"), "{told}");
    assert!(!told.contains(&secrets[0]), "{told}");
    assert!(provider.requests().iter().all(|r| !r.body.to_string().contains(&secrets[0])));
    assert!(!finished.out().contains(&secrets[0]) && !finished.err().contains(&secrets[0]), "{finished}");
    let epics =
        Invocation::new("find").arg(home.hmz_home().join("epics")).args(["-name", "epic.jsonl"]).env("PATH", "/usr/bin:/bin");
    assert_eq!(epics.run().ok().out().lines().count(), 1, "there is a journal to search");
    for dir in [home.hmz_home(), home.root().join("run"), project.dir().to_path_buf()] {
        assert_eq!(holders(&dir, &secrets), "", "below {}", dir.display());
    }
    let boxes = format!("/tmp/hmz-{}", home.uid());
    assert_eq!(holders(Path::new(&boxes), &secrets), "", "below {boxes}");
    home.assert_no_container_left(support::LIMIT);
}
