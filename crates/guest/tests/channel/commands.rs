//! Commands over a stream are what they are with real descriptors.

use crate::harness::{LIMIT, errno, event, eventually, piped, prints, run, sh, words};
use crate::world::{Far, end, on_pipes};
use hmz_wire::channel::Size;
use hmz_wire::{Bytes, CommandEvent, Status};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;

#[test]
fn ends_and_failures_are_exact() {
    let it = Far::start("busybox:latest", 1234);
    let client = it.client();
    assert_eq!(client.welcome().uid, 1234);
    assert_eq!(prints(&client, sh("id -u; echo $HMZ_OWN")), "1234\nbox");
    for code in [0, 1, 126, 255] {
        assert_eq!(run(&client, sh(&format!("exit {code}"))).0, Status::Exited(code));
    }
    for signal in [9, 11, 15, 40] {
        assert_eq!(run(&client, sh(&format!("kill -{signal} $$"))).0, Status::Signaled(signal));
    }
    assert_eq!(errno(&client, words(&["/no/such"])), libc::ENOENT);
    assert_eq!(errno(&client, words(&["/etc/passwd"])), libc::EACCES);
    assert_eq!(errno(&client, words(&["true", &"a".repeat(200_000)])), libc::E2BIG);
    let long = "b".repeat(100_000);
    let many: Vec<&str> = ["sh", "-c", "echo $# ${#9}", "sh"].into_iter().chain(std::iter::repeat_n(long.as_str(), 9)).collect();
    assert_eq!(prints(&client, words(&many)), "9 100000");
}

#[test]
fn twenty_megabytes_both_ways() {
    let it = Far::new();
    let client = it.client();
    let data: Vec<u8> = (0..20usize << 20).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect();
    let (command, mut input, mut out, _err) = on_pipes(&client, words(&["cat"]));
    let mut got = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            input.write_all(&data).expect("it reads");
            drop(input);
        });
        out.read_to_end(&mut got).expect("its output");
    });
    assert!(got == data, "{} bytes came back", got.len());
    assert_eq!(end(&command), CommandEvent::Exited(Status::Exited(0), false));
}

#[test]
fn outputs_keep_apart_and_their_order() {
    let it = Far::new();
    let client = it.client();
    let (command, input, mut out, mut err) = on_pipes(&client, sh("echo out; echo err >&2; cat; exit 3"));
    drop(input);
    let (mut a, mut b) = (String::new(), String::new());
    out.read_to_string(&mut a).expect("text");
    err.read_to_string(&mut b).expect("text");
    assert_eq!((a.as_str(), b.as_str()), ("out\n", "err\n"));
    assert_eq!(end(&command), CommandEvent::Exited(Status::Exited(3), false));
    // one pipe for both
    let text = run(&client, sh("for i in 1 2 3 4; do echo $i; echo -$i >&2; done")).1;
    assert_eq!(text, "1\n-1\n2\n-2\n3\n-3\n4\n-4\n");
}

#[test]
fn a_writer_nobody_reads_ends_and_so_does_a_reader_nobody_writes() {
    let it = Far::new();
    let client = it.client();
    let (yes, _input, out, _err) = on_pipes(&client, words(&["yes"]));
    let mut lines = BufReader::new(out);
    lines.read_line(&mut String::new()).expect("a line");
    drop(lines);
    assert_eq!(end(&yes), CommandEvent::Exited(Status::Signaled(libc::SIGPIPE), false));
    assert_eq!(prints(&client, sh("yes | head -1")), "y");
    // one that closes its input ends whoever writes to it
    let (head, mut input, _out, _err) = on_pipes(&client, sh("exec <&-; sleep 1000"));
    eventually("a broken pipe", || input.write_all(&[0; 4096]).is_err());
    head.close().expect("the guest");
    assert_eq!(end(&head), CommandEvent::Exited(Status::Signaled(libc::SIGKILL), false));
}

#[test]
fn an_end_is_told_though_a_child_holds_the_output_and_after_what_was_written() {
    let it = Far::new();
    let client = it.client();
    let (command, _input, mut out, _err) = on_pipes(&client, sh("sleep 1000 & head -c 60000 /dev/zero; exit 4"));
    assert_eq!(event(&command), CommandEvent::Started);
    assert_eq!(event(&command), CommandEvent::Exited(Status::Exited(4), true));
    // all it had written is in the pipe by now, though nobody has read yet
    assert_eq!(rustix::io::ioctl_fionread(&out).expect("a pipe"), 60_000);
    command.signal(libc::SIGTERM).expect("signal");
    assert_eq!(event(&command), CommandEvent::Empty);
    assert_eq!(out.read_to_end(&mut Vec::new()).expect("its end"), 60_000);
}

#[test]
fn a_file_has_all_that_was_written_when_the_end_is_told() {
    let it = Far::new();
    let client = it.client();
    let path = it.dir.path().join("log");
    let mut spawn = sh("head -c 3000000 /dev/zero; (sleep 1000; echo late) & echo end");
    spawn.fds = vec![1];
    let file = File::create(&path).expect("a file");
    let command = client.spawn(spawn, &[file.as_fd()]).expect("spawn");
    assert_eq!(end(&command), CommandEvent::Exited(Status::Exited(0), true));
    assert_eq!(std::fs::metadata(&path).expect("a file").len(), 3_000_004);
}

#[test]
fn who_hears_of_an_end_may_start_another() {
    let it = Far::new();
    let client = it.client();
    let (sender, events) = std::sync::mpsc::channel();
    let again = client.clone();
    let hear = move |event| {
        if let CommandEvent::Exited(..) = event {
            let sender = sender.clone();
            // where events are passed on: nothing of the session is locked
            again.spawn_heard(sh("exit 1"), &[], move |event| sender.send(event).expect("somebody hears")).expect("another");
        }
        sender.send(event).expect("somebody hears");
    };
    client.spawn_heard(sh("exit 0"), &[], hear).expect("spawn");
    for code in [0, 1] {
        let heard = || events.recv_timeout(LIMIT).expect("an event");
        assert_eq!([heard(), heard()], [CommandEvent::Started, CommandEvent::Exited(Status::Exited(code), false)]);
    }
}

#[test]
fn two_hundred_at_once() {
    let it = Far::new();
    let client = it.client();
    let started: Vec<_> =
        (0..200).map(|n| (n, on_pipes(&client, sh(&format!("read x; echo $x; echo e{n} >&2; exit {}", n % 256))))).collect();
    for (n, (command, mut input, mut out, mut err)) in started {
        writeln!(input, "line {n}").expect("it reads");
        let (mut a, mut b) = (String::new(), String::new());
        out.read_to_string(&mut a).expect("text");
        err.read_to_string(&mut b).expect("text");
        assert_eq!((a, b), (format!("line {n}\n"), format!("e{n}\n")));
        assert_eq!(end(&command), CommandEvent::Exited(Status::Exited(n % 256), false));
    }
}

/// Reads from a terminal until it has said so.
fn until(terminal: &mut File, what: &str) -> String {
    let mut got = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&got).contains(what) {
        let n = terminal.read(&mut buffer).expect("it says more");
        assert!(n > 0, "{}", String::from_utf8_lossy(&got));
        got.extend_from_slice(&buffer[..n]);
    }
    String::from_utf8_lossy(&got).into_owned()
}

#[test]
fn a_terminal_is_a_terminal() {
    let it = Far::new();
    let client = it.client();
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).expect("a terminal");
    grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("unlocked");
    let theirs = ioctl_tiocgptpeer(&ours, flags).expect("its other side");
    let size = |rows| Size { rows, cols: 90, width: 0, height: 0 }.apply(&ours).expect("a size");
    size(30);
    let before = rustix::termios::tcgetattr(&theirs).expect("settings").local_modes;
    let mut spawn = sh("exec sh -i");
    spawn.env = vec![(Bytes::from("PS1"), Bytes::from("rea''dy> "))];
    spawn.fds = vec![0, 1, 2];
    let fd = theirs.as_fd();
    let command = client.spawn(spawn, &[fd, fd, fd]).expect("spawn");
    let mut terminal = File::from(ours.try_clone().expect("a duplicate"));
    // what is typed before the prompt may be lost when the shell sets the terminal
    let answers = |terminal: &mut File, line: &str, wanted: &str| {
        terminal.write_all(line.as_bytes()).expect("it reads");
        let got = until(terminal, wanted);
        if !got.rsplit(wanted).next().unwrap_or_default().contains("> ") {
            until(terminal, "> ");
        }
        got
    };
    let starts = |terminal: &mut File| {
        // the job itself says so: it is the terminal's foreground then
        terminal.write_all(b"sh -c 'echo go\"\"ing; exec sleep 1000'\n").expect("it reads");
        until(terminal, "going");
    };
    let types = |terminal: &mut File, key: &[u8]| {
        terminal.write_all(key).expect("it reads");
        until(terminal, "> ");
    };
    until(&mut terminal, "> ");
    let got = answers(&mut terminal, "test -t 0 && tty && stty size && echo do''ne\n", "done");
    assert!(got.contains("/dev/pts/") && got.contains("30 90"), "{got}");
    assert_eq!(event(&command), CommandEvent::Started);
    size(31);
    client.resized(command.id).expect("the guest");
    answers(&mut terminal, "while [ \"$(stty size)\" != '31 90' ]; do :; done; echo resi''zed\n", "resized");
    starts(&mut terminal);
    types(&mut terminal, b"\x03");
    answers(&mut terminal, "echo rc=$?\n", "rc=130");
    starts(&mut terminal);
    types(&mut terminal, b"\x1a");
    answers(&mut terminal, "jobs\n", "Stopped");
    // a shell that ends by a signal asks nobody about its stopped jobs
    terminal.write_all(b"kill -9 $$\n").expect("it reads");
    assert!(matches!(end(&command), CommandEvent::Exited(Status::Signaled(libc::SIGKILL), _)));
    eventually("the settings are back", || {
        rustix::termios::tcgetattr(&theirs).is_ok_and(|settings| settings.local_modes == before)
    });
}

#[test]
fn a_terminal_that_goes_hangs_up() {
    let it = Far::new();
    let client = it.client();
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).expect("a terminal");
    grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("unlocked");
    let theirs = ioctl_tiocgptpeer(&ours, flags).expect("its other side");
    let mut spawn = words(&["sleep", "1000"]);
    spawn.fds = vec![0, 1];
    let command = client.spawn(spawn, &[theirs.as_fd(), theirs.as_fd()]).expect("spawn");
    drop(theirs);
    assert_eq!(event(&command), CommandEvent::Started);
    drop(ours);
    assert_eq!(end(&command), CommandEvent::Exited(Status::Signaled(libc::SIGHUP), false));
}

#[test]
fn sockets_and_nothing_at_all() {
    let it = Far::new();
    let client = it.client();
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let null = File::open("/dev/null").expect("/dev/null");
    let mut spawn = sh("read x <&3; echo got $x >&3; readlink /proc/self/fd/0 >&3");
    spawn.fds = vec![0, 3];
    let command = client.spawn(spawn, &[null.as_fd(), theirs.as_fd()]).expect("spawn");
    drop(theirs);
    ours.write_all(b"word\n").expect("it reads");
    let mut text = String::new();
    ours.read_to_string(&mut text).expect("text");
    assert_eq!(text, "got word\n/dev/null\n");
    assert_eq!(end(&command), CommandEvent::Exited(Status::Exited(0), false));
}

#[test]
fn nothing_is_left_when_the_session_ends() {
    let it = Far::new();
    let client = it.client();
    let (command, out) = piped(&client, sh("setsid sh -c 'setsid sleep 1000 & exit' & sleep 1000 & echo up; wait"));
    BufReader::new(&out).read_line(&mut String::new()).expect("up");
    assert_eq!(event(&command), CommandEvent::Started);
    assert!(!it.others().is_empty());
    client.finish();
    assert_eq!(event(&command), CommandEvent::Lost);
    // the end was waited for: the guest had killed all before it ended the stream
    assert_eq!(it.others(), Vec::<String>::new());
    let only_first = |it: &Far| it.pids("/.hmz/hmz guest").len() == 1;
    eventually("the session's processes are gone", || only_first(&it));
    assert!(client.spawn(sh("true"), &[]).is_err());
    // and one that is dropped
    let client = it.client();
    let (_command, out) = piped(&client, sh("sleep 1000 & echo up; wait"));
    BufReader::new(&out).read_line(&mut String::new()).expect("up");
    drop((_command, client));
    eventually("nothing is left", || it.others().is_empty() && only_first(&it));
}
