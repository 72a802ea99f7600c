//! The agent's own process, here: its file tools reach the workdir, its scratch and its transcripts, and nothing else.

use crate::provider::Provider;
use crate::provider::script::{Step, edit, read, write};
use crate::support::home::TestHome;
use crate::support::runs::{CLAUDE, environment, exec, script, sh};
use crate::support::{LIMIT, rogue};
use crate::{attempts, everything, put};
use std::os::unix::fs::symlink;

/// A file of this test's in a directory everybody may write.
fn evil(dir: &str) -> String {
    format!("{dir}/hmz-evil-{}", std::process::id())
}

/// Files of a user's, and links out of the project.
fn furnish(home: &TestHome, project: &crate::support::project::Project) -> Vec<String> {
    let files = [
        ".bashrc",
        ".ssh/id_test",
        ".aws/credentials",
        ".netrc",
        ".docker/config.json",
        ".config/gh/hosts.yml",
        ".claude/settings.json",
        ".claude/.credentials.json",
        ".claude.json",
    ];
    for name in files {
        let json = name.ends_with("json");
        put(&home.home().join(name), if json { "{\"a\": \"SECRET\"}" } else { "SECRET\n" });
    }
    put(&home.root().join("outside/file"), "SECRET\n");
    symlink(home.root().join("outside"), project.file("out")).unwrap();
    symlink(home.home().join(".bashrc"), project.file("rc")).unwrap();
    files.map(|name| home.home().join(name).display().to_string()).into()
}

#[test]
fn claudes_own_tools_change_and_read_nothing_outside() {
    let mut home = TestHome::new();
    let project = home.project("p");
    let files = furnish(&home, &project);
    let at = |name: &str| home.home().join(name).display().to_string();
    let mut calls: Vec<_> = files.iter().map(|file| read(file.clone())).collect();
    calls.extend(files.iter().map(|file| write(file.clone(), "EVIL")));
    calls.extend(files.iter().map(|file| edit(file.clone(), "SECRET", "EVIL")));
    for new in [".bash_profile", ".claude/settings.local.json", ".claude/commands/evil.md", ".ssh/authorized_keys"] {
        calls.push(write(at(new), "EVIL"));
    }
    for link in ["rc", "out/file", "out/new", "../../outside/file", "../../outside/new"] {
        calls.extend([read(link), edit(link, "SECRET", "EVIL"), write(link, "EVIL")]);
    }
    calls.extend([read("/etc/shadow"), read("/proc/self/environ"), write(evil("/var/tmp"), "EVIL"), write(evil("/tmp"), "EVIL")]);
    let provider = Provider::start()
        .script("attack", [Step::calls(calls), Step::calls([write("good", "good\n"), read("calc.py")]), Step::say("done")]);
    home = home.with_claude(&provider.url());
    let before = everything(home.root(), &home.hmz_home());
    let _ = exec(&home, "boxed", CLAUDE, &project, "Go. [[script:attack]]").run().ok();
    let results = provider.results("attack");
    assert!(results.len() > 50, "{results:?}");
    let (good, bad) = results.split_last_chunk::<2>().map(|(bad, good)| (good, bad)).unwrap();
    assert!(bad.iter().all(|r| r.is_error && !r.text.contains("SECRET")), "{bad:#?}");
    assert!(good.iter().all(|r| !r.is_error), "{good:?}");
    let ours = |path: &std::path::Path| {
        path.starts_with(home.root().join("run"))
            || path.starts_with(home.home().join(".claude/projects"))
            || path.ends_with("p/good")
    };
    let after = everything(home.root(), &home.hmz_home());
    for (path, what) in after.iter().filter(|(path, _)| !ours(path)) {
        assert_eq!(before.get(path), Some(what), "{} is not as it was", path.display());
    }
    assert!(before.keys().all(|path| after.contains_key(path)), "something is gone");
    assert!(
        ["/tmp", "/var/tmp"].iter().all(|dir| !std::path::Path::new(&evil(dir)).exists()),
        "something is in a directory for all"
    );
}

#[test]
fn a_hostile_cli_is_held_by_the_fence_alone() {
    let mut home = TestHome::new();
    let project = home.project("p");
    let files = furnish(&home, &project);
    put(&home.root().join("attack.json"), "");
    let body = r#"
        const [files, home, root] = JSON.parse(task);
        const it = {};
        for (const f of files) {
          it['read ' + f] = attempt(() => fs.readFileSync(f, 'utf8'));
          it['write ' + f] = attempt(() => fs.writeFileSync(f, 'EVIL'));
          it['append ' + f] = attempt(() => fs.appendFileSync(f, 'EVIL'));
          it['unlink ' + f] = attempt(() => fs.unlinkSync(f));
          it['rename over ' + f] = attempt(() => { fs.writeFileSync('evil', 'EVIL'); fs.renameSync('evil', f); });
          it['truncate ' + f] = attempt(() => fs.truncateSync(f, 0));
          it['link in ' + f] = attempt(() => fs.linkSync(f, 'linked'));
        }
        for (const f of ['rc', 'out/file', 'out/new', '../../outside/new', '/var/tmp/hmz-evil', '/tmp/hmz-evil', '/etc/hmz-evil',
            home + '/.ssh/authorized_keys', home + '/.claude/settings.local.json', home + '/.claude/projects/evil'])
          it['write ' + f] = attempt(() => fs.writeFileSync(f, 'EVIL'));
        it['read shadow'] = attempt(() => fs.readFileSync('/etc/shadow', 'utf8'));
        it['list home'] = attempt(() => fs.readdirSync(home));
        it['mkdir'] = attempt(() => fs.mkdirSync(home + '/evil'));
        it['read the store'] = attempt(() => fs.readFileSync(root + '/hmz/state/store.db'));
        it['list epics'] = attempt(() => fs.readdirSync(root + '/hmz/epics'));
        it['read link'] = attempt(() => fs.readFileSync('rc', 'utf8'));
        it['environ'] = attempt(() => {
          for (const p of fs.readdirSync('/proc')) if (/^\d+$/.test(p) && p != process.pid) {
            try { if (fs.readFileSync('/proc/' + p + '/environ').length) return p + fs.readFileSync('/proc/' + p + '/cmdline'); } catch {}
          }
          throw 'nothing';
        });
        it['signal'] = attempt(() => process.kill(process.ppid, 0));
        it['GOOD'] = attempt(() => { fs.writeFileSync('good', 'good'); fs.writeFileSync(process.env.TMPDIR + '/good', 'good'); });
        return JSON.stringify(it);
    "#;
    rogue::install(&mut home, body);
    let before = everything(home.root(), &home.hmz_home());
    let task = serde_json::json!([files, home.home(), home.root()]).to_string();
    let finished = exec(&home, "boxed", CLAUDE, &project, &task).run().ok();
    let mut ended = attempts(&finished.out());
    assert_eq!(ended.remove("GOOD").as_deref(), Some("DONE undefined"), "{ended:#?}");
    assert!(ended.len() > 70, "{ended:#?}");
    // claude's own state, which it cannot do without, is read and not written
    let state = ended.remove(&format!("read {}", home.home().join(".claude.json").display())).unwrap();
    assert!(state == "EACCES" || state.starts_with("DONE {"), "{state}");
    for (what, how) in &ended {
        assert!(["EACCES", "EPERM", "EXDEV", "nothing"].contains(&how.as_str()), "{what}: {how}\n{ended:#?}");
    }
    let after = everything(home.root(), &home.hmz_home());
    for (path, what) in &before {
        assert_eq!(after.get(path), Some(what), "{} is not as it was", path.display());
    }
}

#[test]
fn no_descriptor_leads_out_of_a_box() {
    let mut home = TestHome::new();
    let project = home.project("p");
    let body = r#"
        const file = fs.openSync(__dirname + '/notes', 'r'), dir = fs.openSync(__dirname, 'r'), root = fs.openSync('/usr', 'r');
        const own = fs.openSync('calc.py', 'r');
        const it = {};
        const write = list => 'for n in ' + list + '; do (echo EVIL >>/proc/self/fd/$n) 2>/dev/null && echo wrote-$n; done; true';
        it.file = sh('cat; ' + write('0') + ' >/dev/null', {stdio: [file, 'pipe', 'pipe']});
        it.extra = sh(write('5 6 7'), {stdio: ['ignore', 'pipe', 'pipe', 'ignore', 'ignore', file, dir, root]});
        const look = 'for n in 0 5 6 7; do ls /proc/self/fd/$n/ 2>/dev/null; cat /proc/self/fd/$n/../notes 2>/dev/null; done; ';
        it.directory = sh(look + 'echo looked', {stdio: [dir, 'pipe', 'pipe', 'ignore', 'ignore', root, dir]});
        it.own = sh('cat', {stdio: [own, 'pipe', 'pipe']});
        return JSON.stringify(it);
    "#;
    rogue::install(&mut home, body);
    put(&home.root().join("rogue/notes"), "NOTES\n");
    let finished = exec(&home, "boxed", CLAUDE, &project, "go").run().ok();
    let ended = attempts(&finished.out());
    // it is read, through a pipe, and nothing of it is written
    assert!(ended["file"].starts_with("NOTES"), "{ended:#?}");
    assert_eq!(ended["extra"].trim(), "[0]", "{ended:#?}");
    assert_eq!(ended["directory"], "looked [0]", "{ended:#?}");
    assert!(ended["own"].contains("def add"), "{ended:#?}");
    assert_eq!(std::fs::read_to_string(home.root().join("rogue/notes")).unwrap(), "NOTES\n");
}

#[test]
fn no_descriptor_of_a_shell_leads_out_either() {
    let home = TestHome::new();
    let project = home.project("p");
    environment(&home, "e", "busybox:latest", &project);
    put(&home.root().join("outside/notes"), "NOTES\n");
    let notes = home.root().join("outside/notes");
    let write = "cat; (echo EVIL >>/proc/self/fd/0) 2>/dev/null; for n in 3 4 5; do ls /proc/self/fd/$n/ 2>/dev/null; done; true";
    let line = format!("hmz sh env/e -- /bin/sh -c '{write}' <{0} 3<{0} 4</etc 5</", notes.display());
    assert_eq!(home.shell(&line).run().ok().out(), "NOTES\n");
    let line =
        format!("hmz sh env/e -- /bin/sh -c 'ls /proc/self/fd/0/; ls -L /proc/self/fd/0/..; true' <{}", home.root().display());
    let listed = home.shell(&line).run().ok().out();
    assert!(!listed.contains("outside"), "{listed}");
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "NOTES\n");
    // a terminal that is the user's does not go in, where somebody could type on it
    let _ = sh(&home, "e", "true").run().ok();
}

#[test]
fn the_script_agent_is_fenced_as_any_other() {
    let home = TestHome::new();
    let project = home.project("p");
    put(&home.home().join(".bashrc"), "mine\n");
    let rc = home.home().join(".bashrc").display().to_string();
    for (n, step) in [
        format!("- write: {{path: {rc}, content: evil}}"),
        format!("- edit: {{path: {rc}, old: mine, new: evil}}"),
        format!("- read: {rc}"),
    ]
    .iter()
    .enumerate()
    {
        let agent = script(&home, &format!("s{n}"), &format!("{step}\n- say: escaped\n"));
        let finished = exec(&home, "boxed", &agent, &project, "go").run().expect_code(1).says("Permission denied");
        assert!(!finished.out().contains("escaped"), "{finished}");
    }
    assert_eq!(std::fs::read_to_string(&rc).unwrap(), "mine\n");
}

#[test]
fn what_an_agent_says_does_not_move_the_terminal() {
    let home = TestHome::new();
    let project = home.project("p");
    let escape = r"\x1b]0;owned\x07\x1b[2J\x1b[31;5mred\x9b2J\u202e";
    let steps = format!(
        "- say: \"one {escape}\"\n- run: \"printf 'two \\\\033]0;owned\\\\007\\\\033[2J'; : {escape}\"\n- say: \"three {escape}\"\n"
    );
    let agent = script(&home, "esc", &steps);
    let invocation = exec(&home, "boxed", &agent, &project, "\x1b]0;owned\x07task").env("TERM", "xterm-256color");
    let mut terminal = crate::support::terminal::Terminal::start(invocation.limit(LIMIT), 24, 100);
    terminal.wait_for("three");
    assert_eq!(terminal.wait(), 0);
    let logs = home.hmz(["get", "runs", "-o", "name"]).run().ok().out();
    let run = logs.trim().to_owned();
    let mut shown = vec![terminal.shown()];
    for words in [vec!["logs", &run], vec!["get", "runs", "-o", "wide"], vec!["describe", &run]] {
        let mut terminal = crate::support::terminal::Terminal::start(home.hmz(words).env("TERM", "xterm-256color"), 24, 100);
        terminal.wait();
        shown.push(terminal.shown());
    }
    assert!(shown[0].contains("red"), "{shown:?}");
    for shown in shown {
        for bad in ["\x1b]", "\x1b[2J", "\x1b[31;5m", "\x07", "\u{9b}", "\u{202e}"] {
            assert!(!shown.contains(bad), "{bad:?} in {shown:?}");
        }
    }
}
