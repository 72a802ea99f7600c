//! What bash does with what it is told.

use crate::support::home::TestHome;
use crate::support::project::Project;
use crate::support::terminal::Terminal;
use crate::{declare, enable, place};

/// What bash itself is left with when this line is typed and completed.
fn bash(home: &TestHome, project: &Project, pieces: &[&str], last: &str) -> Vec<String> {
    let words = pieces.iter().map(|piece| format!("'{piece}'")).collect::<Vec<_>>().join(" ");
    let script = format!(
        "source <(COMPLETE=bash hmz); COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); \
         _hmz_complete hmz '{last}' x; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    home.shell(&script).cwd(project.dir()).run().ok().out().lines().map(str::to_owned).collect()
}

#[test]
fn bash_is_given_what_follows_the_piece_it_has() {
    let (home, project) = place();
    let bash = |pieces: &[&str], last: &str| bash(&home, &project, pieces, last);
    assert_eq!(bash(&["hmz", "get", "ru"], "ru"), ["run", "runs", "runtime", "runtimes"]);
    assert_eq!(bash(&["hmz", "exec", "-e", "box", "=", "docker", "@", "gp"], "@gp"), ["@gpubox/"]);
    assert_eq!(bash(&["hmz", "exec", "-f", "deep", "-a", "coder", "="], ""), ["claude/", "script/"]);
    assert_eq!(bash(&["hmz", "get", "runtime", "docker", ":", "h"], "h"), ["here"]);
}

#[test]
fn bash_completes_what_is_typed() {
    let (home, project) = place();
    enable(&home, "bash");
    declare(&home, &project);
    // ^G tells the line and begins another
    let telling = "tell() { echo \"[$READLINE_LINE]\"; READLINE_LINE=; }; bind -x '\"\\C-g\": tell'\n";
    let rc = home.home().join(".bashrc");
    std::fs::write(&rc, std::fs::read_to_string(&rc).unwrap() + telling).unwrap();
    let mut terminal = Terminal::start(home.in_shell("/bin/bash", ["-i"]).cwd(project.dir()), 24, 100);
    // a kind, a flag, the name of what a daemon has, and what is joined to a word before
    for (typed, becomes) in [
        ("hmz get setti", "hmz get settings "),
        ("hmz backup --ov", "hmz backup --overwrite "),
        ("hmz describe env/m", "hmz describe env/mine "),
        ("hmz get runtimes docker:g", "hmz get runtimes docker:gpubox "),
        ("hmz exec -e box=docker@", "hmz exec -e box=docker@"),
        ("hmz exec -e box=docker@g", "hmz exec -e box=docker@gpubox/"),
        ("hmz exec -e 'box=docker@g", "hmz exec -e 'box=docker@gpubox/'"),
        ("hmz exec -f \"stored\" -e r", "hmz exec -f \"stored\" -e room="),
    ] {
        terminal.type_in(&format!("{typed}\t\x07"));
        terminal.wait_for(&format!("[{becomes}]"));
    }
}
