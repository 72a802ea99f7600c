//! A command in a box is as one started here: its bytes, its end, its signals, its arguments, its files. And where it is
//! not, that is said plainly.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod provider;
mod support;

use provider::Provider;
use provider::script::{Step, bash, read};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use support::home::TestHome;
use support::runs::{CLAUDE, boxed_in, environment, exec, results, script, sh};
use support::user::User;
use support::{LIMIT, agent, docker, eventually, processes, rogue};

/// Bytes that repeat nowhere near, so that a block lost, doubled or moved is seen.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(len).collect()
}

const BIG: usize = 20_000_003;

#[test]
fn twenty_megabytes_arrive_byte_for_byte() {
    let mut home = TestHome::new();
    let project = home.project("p");
    let noise = noise(BIG);
    std::fs::write(project.file("noise"), &noise).unwrap();
    environment(&home, "e", "busybox:latest", &project);
    let there = sh(&home, "e", "cat noise").run().ok();
    assert!(there.stdout == noise, "{} bytes came", there.stdout.len());
    let through = sh(&home, "e", "cat").stdin(noise.clone()).run().ok();
    assert!(through.stdout == noise, "{} bytes came through", through.stdout.len());
    let apart = sh(&home, "e", "cat noise >&2; echo out").run().ok();
    assert!(apart.stderr == noise && apart.stdout == b"out\n", "{} bytes came", apart.stderr.len());
    // an agent's command: into a file, and by a pipe to the agent itself
    let body = r"
        const digest = b => require('crypto').createHash('sha256').update(b).digest('hex');
        const out = fs.openSync('by-descriptor', 'w');
        cp.spawnSync('/bin/sh', ['-c', 'cat noise >by-command; cat noise'], {stdio: ['ignore', out, 'inherit']});
        const input = fs.readFileSync('noise');
        const piped = cp.spawnSync('/bin/sh', ['-c', 'cat'], {input, maxBuffer: 1 << 28});
        return [digest(input), digest(piped.stdout), piped.status].join();
    ";
    rogue::install(&mut home, body);
    let answer = exec(&home, "boxed", CLAUDE, &project, "go").run().ok().out();
    let digests: Vec<&str> = answer.trim().split(',').collect();
    assert!(digests.len() == 3 && digests[0] == digests[1] && digests[2] == "0", "{answer}");
    for name in ["by-command", "by-descriptor"] {
        assert!(std::fs::read(project.file(name)).unwrap() == noise, "{name}");
    }
}

#[test]
fn a_command_ends_as_it_would_here() {
    let mut home = TestHome::new();
    let project = home.project("p");
    environment(&home, "e", "busybox:latest", &project);
    for (command, code, out) in [
        ("exit 7", 7, ""),
        ("kill -TERM $$", 143, ""),
        ("kill -KILL $$", 137, ""),
        ("yes | head -1", 0, "y\n"),
        // a child that holds the output is no reason to wait, and does not outlive its session
        ("sleep 4243 & echo begun", 0, "begun\n"),
        ("no-such-program", 127, ""),
        ("read a; read b; echo $b-$a", 0, "two-one\n"),
    ] {
        let finished = sh(&home, "e", command).stdin("one\ntwo\n").run().expect_code(code);
        assert_eq!(finished.out(), out, "{command}: {finished}");
    }
    let missing = home.hmz(["sh", "env/e", "--", "no-such-program"]).run().says("no-such-program").says("No such file");
    assert!(missing.code() != 0, "{missing}");
    let id = home.containers().pop().unwrap();
    eventually("no command of a session that ended is left in the box", LIMIT, || {
        let top = docker::docker(&["top", &id, "-eo", "pid,args"]);
        (!top.contains("sleep 4243")).then_some(())
    });

    let body = r"
        const it = {};
        it.exit = sh('exit 7'); it.signal = sh('kill -TERM $$'); it.segv = sh('kill -SEGV $$');
        it.yes = sh('yes | head -1'); it.stdin = sh('cat', {input: 'typed'}); it.missing = sh('no-such-program 2>/dev/null');
        it.enoent = cp.spawnSync('no-such-program').error.code;
        it.path = cp.spawnSync('sh', ['-c', 'echo found'], {encoding: 'utf8'}).stdout.trim();
        it.held = sh('sleep 4244 >/dev/null 2>&1 & echo begun');
        const long = Array.from({length: 10}, (_, n) => String(n).repeat(100000));
        it.long = cp.spawnSync('/bin/sh', ['-c', 'echo $# ${#1} ${#LC_LONG}; echo $9 | tail -c 4', 'x', ...long],
            {encoding: 'utf8', env: Object.assign({}, process.env, {LC_LONG: 'x'.repeat(100000)})}).stdout.trim();
        const run = n => new Promise(done => {
          const child = cp.spawn('/bin/sh', ['-c', 'read x; echo $x-' + n + '; exit ' + n]);
          let out = ''; child.stdout.on('data', b => out += b); child.on('close', code => done(out.trim() + ':' + code)); child.stdin.end(n + '\n');
        });
        const all = await Promise.all(Array.from({length: 40}, (_, n) => run(n)));
        it.parallel = String(all.every((said, n) => said === n + '-' + n + ':' + n)) + all.length;
        it.trap = await new Promise(done => {
          const child = cp.spawn('/bin/sh', ['-c', 'trap \'echo caught; exit 9\' TERM; echo ready; while :; do sleep 0.05; done']);
          let out = '';
          child.stdout.on('data', b => { out += b; if (String(b).includes('ready')) child.kill('SIGTERM'); });
          child.on('close', (code, signal) => done(out.trim().replace('\n', ' ') + ' ' + code + ' ' + signal));
        });
        it.killed = await new Promise(done => {
          const child = cp.spawn('/bin/sh', ['-c', 'echo ready; exec sleep 4245']);
          child.stdout.on('data', () => child.kill('SIGKILL'));
          child.on('exit', (code, signal) => done(code + ' ' + signal));
        });
        it.gone = await (async () => {
          for (let n = 0; n < 400; n++) {
            if (sh('grep -la 424[5] /proc/[0-9]*/cmdline 2>/dev/null').trim().startsWith('[')) return 'gone';
            await new Promise(later => setTimeout(later, 20));
          }
          return 'there';
        })();
        it.umask = sh('umask'); it.cwd = sh('pwd', {cwd: 'sub'});
        it.env = sh('echo $HOME $USER $LOGNAME');
        return JSON.stringify(it);
    ";
    rogue::install(&mut home, body);
    std::fs::create_dir(project.file("sub")).unwrap();
    let finished = exec(&home, "boxed", CLAUDE, &project, "go").run().ok();
    let said: BTreeMap<String, String> = serde_json::from_str(finished.out().trim()).unwrap_or_else(|e| panic!("{e} {finished}"));
    let sub = format!("{}/sub [0]", project.path());
    for (what, wanted) in [
        ("exit", " [7]"),
        ("signal", " [SIGTERM]"),
        ("segv", " [SIGSEGV]"),
        ("yes", "y [0]"),
        ("stdin", "typed [0]"),
        ("missing", " [127]"),
        ("enoent", "ENOENT"),
        ("path", "found"),
        ("held", "begun [0]"),
        ("long", "10 100000 100000\n888"),
        ("parallel", "true40"),
        ("trap", "ready caught 9 null"),
        ("killed", "null SIGKILL"),
        ("gone", "gone"),
        ("umask", "0022 [0]"),
        ("cwd", sub.as_str()),
        ("env", "/tmp root root [0]"),
    ] {
        assert_eq!(said[what], wanted, "{what}: {said:#?}");
    }
    let _ = home.hmz(["delete", "env/e"]).run().ok();
    home.assert_no_container_left(LIMIT);
    let mark = format!("HOME={}", home.home().display());
    let left = || -> Vec<String> {
        let all = processes::with_variable(&mark).into_iter().filter(|pid| processes::is_alive(*pid)).map(processes::line);
        all.filter(|line| !line.contains(" controller")).collect()
    };
    eventually("nothing of the session is left here", LIMIT, || left().is_empty().then_some(()));
}

#[test]
fn claude_works_in_a_box_as_an_ordinary_user_does_here() {
    let user = User::get();
    let provider = Provider::start().script(
        "work",
        [
            Step::call(bash("hostname; id -u; id -g; echo $USER $LOGNAME $HOME; umask")),
            Step::call(bash("mkdir -p sub/deep && cd sub")),
            Step::call(bash("pwd; cd deep; echo made >file; pwd")),
            Step::call(bash("pwd")),
            Step::call(bash(
                "cd ../..; grep -rn 'return a' --include=*.py . ; find . -name 'calc*' -not -path './.git/*'; ls *.py",
            )),
            Step::call(bash("echo said; echo wrong >&2; exit 7")),
            Step::call(bash("kill -TERM $$")),
            Step::call(bash("no-such-program")),
            Step::call(bash("python3 -c 'print(\"x\" * 20000)'; git status 2>&1 | head -1")),
            Step::call(bash("sleep 4246 >/dev/null 2>&1 & echo begun")),
            Step::call(bash("echo in-the-box >/tmp/note; cat /tmp/note; echo scratch >$TMPDIR/note; echo $TMPDIR")),
            Step::call(read("/tmp/note")),
            Step::calls([bash("sleep 0.2; echo one"), bash("echo two"), bash("echo three")]),
            Step::say("done"),
        ],
    );
    let home = TestHome::of(user).with_claude(&provider.url());
    let project = home.project("p");
    let _ = exec(&home, "boxed", CLAUDE, &project, "Go. [[script:work]]").run().ok().says("done");
    let told: Vec<String> = provider.results("work").into_iter().map(|r| r.text).collect();
    let (p, uid, gid, name) = (project.path(), user.uid, user.gid, user.name());
    let host = told[0].lines().next().unwrap();
    assert_ne!(host, rustix::system::uname().nodename().to_string_lossy(), "{told:#?}");
    assert_eq!(told[0], format!("{host}\n{uid}\n{gid}\n{name} {name} /tmp\n0022"), "{told:#?}");
    assert_eq!(told[2], format!("{p}/sub\n{p}/sub/deep"), "{told:#?}");
    assert_eq!(told[3], format!("{p}/sub/deep"), "{told:#?}");
    assert!(told[4].contains("calc.py:2:") && told[4].contains("./calc.py") && told[4].ends_with("calc.py"), "{told:#?}");
    assert!(told[5].contains("Exit code 7") && told[5].contains("said") && told[5].contains("wrong"), "{told:#?}");
    // claude's own number for SIGTERM
    assert!(told[6].contains("144"), "{told:#?}");
    assert!(told[7].contains("127") && told[7].contains("not found"), "{told:#?}");
    assert!(told[8].contains(&"x".repeat(20000)), "{}", told[8].len());
    assert!(told[9].contains("begun"), "{told:#?}");
    assert!(told[10].starts_with("in-the-box\n/tmp/hmz-"), "{told:#?}");
    // the two /tmp are not one yet: claude is told to read it with a command, which works
    assert!(told[11].contains("read it with a Bash command"), "{told:#?}");
    let mut together = told[12..15].to_vec();
    together.sort();
    assert_eq!(together, ["one", "three", "two"], "{told:#?}");
    let made = project.file("sub/deep/file").metadata().unwrap();
    assert_eq!((made.uid(), made.gid(), made.mode() & 0o777), (uid, gid, 0o644));
    home.assert_no_container_left(LIMIT);
}

#[test]
fn an_image_without_the_shell_claude_needs_is_refused_by_its_name() {
    let provider = Provider::start().script("x", [Step::say("started")]);
    let home = TestHome::new().with_claude(&provider.url());
    let project = home.project("p");
    boxed_in(&home, "small", "busybox:latest");
    let finished = exec(&home, "small", CLAUDE, &project, "Go. [[script:x]]").run().expect_code(2).says("bash");
    assert!(finished.err().contains("'") && !finished.out().contains("started"), "{finished}");
    assert!(provider.requests().is_empty(), "it was started");
    home.assert_no_container_left(LIMIT);
}

#[test]
fn a_spent_budget_ends_the_command_it_finds() {
    // seconds that no other test's sleeps have
    let sleep = format!("sleep {}", 1_000_000 + std::process::id());
    let command = format!("echo begun >begun; trap '' TERM INT HUP; {sleep}; {sleep}");
    let provider = Provider::start().script("slow", [Step::call(bash(command)), Step::say("x")]);
    let home = TestHome::new().with_claude(&provider.url());
    let project = home.project("p");
    let place = format!("box=docker@here{}", project.path());
    let coder = format!("coder={CLAUDE}");
    // a loaded machine comes to the command within one of these
    let spent = ["6s", "30s", "90s"].into_iter().find_map(|duration| {
        let budget = format!("budget.duration={duration}");
        let words = ["exec", "-f", "boxed", "-a", &coder, "-e", &place, "-p", &budget, "Go. [[script:slow]]"];
        let finished = home.hmz(words).limit(2 * LIMIT).run().ok().says("its budget's duration is spent");
        project.file("begun").exists().then_some(finished)
    });
    let finished = spent.expect("the command has begun");
    home.assert_no_container_left(LIMIT);
    let left: Vec<String> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .map(processes::line)
        .filter(|line| *line == sleep)
        .collect();
    assert!(left.is_empty(), "{left:?} {finished}");
}

#[test]
fn a_cli_that_heeds_nothing_does_not_keep_a_spent_budget_open() {
    let mut home = TestHome::new();
    let project = home.project("p");
    // in claude's place: it reads, answers nothing, and is deaf to all it is told
    let deaf = "#!/usr/bin/env node\nfor (const s of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(s, () => {});\n\
                process.stdin.resume();\nrequire('fs').writeFileSync('begun', '');\nsetInterval(() => {}, 1000);\n";
    let bin = home.root().join("deaf");
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("claude"), deaf).unwrap();
    std::fs::set_permissions(bin.join("claude"), std::fs::Permissions::from_mode(0o755)).unwrap();
    home.set("PATH", format!("{}:{}:/usr/local/bin:/usr/bin:/bin", bin.display(), agent::node().display()));
    home.set("ANTHROPIC_API_KEY", agent::API_KEY);
    let place = format!("box=docker@here{}", project.path());
    let coder = format!("coder={CLAUDE}");
    let words = ["exec", "-f", "boxed", "-a", &coder, "-e", &place, "-p", "budget.duration=6s", "Go."];
    let running = home.hmz(words).start();
    eventually("the agent", LIMIT, || project.file("begun").exists().then_some(()));
    let _ = running.wait().ok().says("its budget's duration is spent");
    home.assert_no_container_left(LIMIT);
    home.assert_nothing_left(&[]);
}

#[test]
fn the_script_agents_commands_are_told_as_they_ended() {
    let home = TestHome::new();
    let project = home.project("p");
    boxed_in(&home, "small", "busybox:latest");
    let steps = "- run: exit 3\n  expect_status: 3\n- run: kill -9 $$\n  expect_status: 137\n- run: no-such-program\n  expect_status: 127\n\
                 - run: yes | head -1\n  expect_status: 0\n- run: cd /; pwd\n- run: pwd\n- run: sleep 4248 & echo begun\n- run: head -c 20000000 /dev/zero >zeros\n\
                 - run: echo $USER $LOGNAME $HOME; hostname >host\n- say: done\n";
    let agent = script(&home, "s", steps);
    let finished = exec(&home, "small", &agent, &project, "go").arg("--json").run().ok();
    let said = results(&finished);
    assert_eq!(said[3].trim(), "y", "{said:?}");
    assert_eq!((said[4].trim(), said[5].trim()), ("/", project.path()), "{said:?}");
    assert_eq!(said[6].trim(), "begun", "{said:?}");
    assert_eq!(said[8].trim(), "root root /tmp", "{said:?}");
    assert_eq!(project.file("zeros").metadata().unwrap().len(), 20_000_000);
    assert_ne!(project.read("host").trim(), rustix::system::uname().nodename().to_string_lossy());
    home.assert_no_container_left(LIMIT);
}

#[test]
fn a_workdir_behind_a_link_is_a_workdir() {
    let home = TestHome::new();
    let project = home.project("p");
    let link = home.root().join("link");
    std::os::unix::fs::symlink(project.dir(), &link).unwrap();
    boxed_in(&home, "linked", "busybox:latest");
    let steps = script(
        &home,
        "steps",
        "- run: 'hostname >there'\n- run: 'cd LINK && pwd -P >at'\n".replace("LINK", link.to_str().unwrap()).as_str(),
    );
    let place = format!("box=docker@here{}", link.display());
    let words = ["exec", "-f", "linked", "-a", &steps, "-e", &place, "-p", "budget.duration=10m", "go"];
    let _ = home.hmz(words).run().ok();
    assert_eq!(project.read("there").trim().len(), 12);
    assert_eq!(project.read("at").trim(), link.to_str().unwrap());
    home.assert_nothing_left(&[]);
}
