//! Descriptors arrive at their numbers and no others do; terminals are real.

use crate::harness::{Boxed, LIMIT, errno, event, prints, sh, words};
use hmz_wire::{CommandEvent, Status};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

#[test]
fn numbers_are_exact_whatever_they_overlap() {
    let it = Boxed::new();
    let client = it.client();
    // a spread of numbers around those the spawner has them at itself, in an order that is not theirs
    let numbers = [9, 0, 5, 1, 7, 4, 6, 3, 8, 2, 100, 12, 11, 10];
    let files: Vec<File> = numbers
        .iter()
        .map(|n| {
            let mut file = tempfile::tempfile().expect("a file");
            write!(file, "{n}").expect("write");
            file.rewind().expect("rewind");
            file
        })
        .collect();
    let (read, write) = std::io::pipe().expect("a pipe");
    let mut spawn = words(&[
        "sh",
        "-c",
        "exec >&200; for n in 0 2 3 4 5 6 7 8 9; do eval \"read v <&$n\"; echo $n=$v; done; ls /proc/self/fd | sort -n | tr '\\n' ' '",
    ]);
    spawn.fds = numbers.into_iter().chain([200]).collect();
    let mut fds: Vec<_> = files.iter().map(|f| f.as_fd()).collect();
    fds.push(write.as_fd());
    let command = client.spawn(spawn, &fds).expect("spawn");
    drop(write);
    let mut text = String::new();
    File::from(OwnedFd::from(read)).read_to_string(&mut text).expect("output");
    assert_eq!(command.wait().expect("guest"), Ok(Status::Exited(0)), "{text}");
    let lines: Vec<_> = text.lines().collect();
    let wanted: Vec<_> = [0, 2, 3, 4, 5, 6, 7, 8, 9].iter().map(|n| format!("{n}={n}")).collect();
    assert_eq!(lines[..9], wanted);
    // `ls` has one of its own, 13, for the directory
    assert_eq!(lines[9].trim(), "0 1 2 3 4 5 6 7 8 9 10 11 12 13 100 200");
}

#[test]
fn nothing_else_is_inherited() {
    let it = Boxed::new();
    let client = it.client();
    assert_eq!(prints(&client, sh("ls /proc/self/fd | tr '\\n' ' '")), "0 1 2 3");
    // not even the first three, when they were not given
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut spawn = sh("ls /proc/$$/fd >&5");
    spawn.fds = vec![5];
    let command = client.spawn(spawn, &[file.as_file().as_fd()]).expect("spawn");
    assert_eq!(command.wait().expect("guest"), Ok(Status::Exited(0)));
    let text = std::fs::read_to_string(file.path()).expect("text");
    // 1 is the redirection, and 0 the directory that `ls` reads
    assert_eq!(text, "0\n1\n5\n");
}

#[test]
fn wrong_numbers_are_refused() {
    let it = Boxed::new();
    let client = it.client();
    let file = tempfile::tempfile().expect("a file");
    for (numbers, ctty) in [(vec![3, 3], None), (vec![-1, 3], None), (vec![3, 4], Some(5))] {
        let mut spawn = sh("true");
        (spawn.fds, spawn.ctty) = (numbers, ctty);
        let command = client.spawn(spawn, &[file.as_fd(), file.as_fd()]).expect("spawn");
        assert_eq!(event(&command), CommandEvent::Failed(libc::EBADF));
    }
    let mut spawn = sh("true");
    spawn.fds = vec![0];
    assert_eq!(errno(&client, spawn), libc::EMFILE);
    let mut spawn = sh("true");
    (spawn.fds, spawn.ctty) = (vec![0], Some(0));
    assert_eq!(event(&client.spawn(spawn, &[file.as_fd()]).expect("spawn")), CommandEvent::Failed(libc::ENOTTY));
    let mut spawn = sh("true");
    spawn.fds = vec![i32::MAX];
    assert!(matches!(event(&client.spawn(spawn, &[file.as_fd()]).expect("spawn")), CommandEvent::Failed(_)));
    assert_eq!(prints(&client, sh("echo on")), "on");
}

#[test]
fn files_and_pipes_are_the_same_ones() {
    let it = Boxed::new();
    let client = it.client();
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(b"first\n").expect("write");
    let (input, mut end) = std::io::pipe().expect("a pipe");
    let mut spawn = sh("cat");
    spawn.fds = vec![0, 1];
    let command = client.spawn(spawn, &[input.as_fd(), file.as_fd()]).expect("spawn");
    drop(input);
    let large = vec![b'x'; 3 << 20];
    end.write_all(&large).expect("write");
    drop(end);
    assert_eq!(command.wait().expect("guest"), Ok(Status::Exited(0)));
    // one offset on both sides
    assert_eq!(file.stream_position().expect("position"), 6 + large.len() as u64);
}

struct Terminal {
    main: File,
    other: Option<File>,
    /// What it said and nobody heard yet.
    said: String,
}

impl Terminal {
    fn new() -> Self {
        let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&main).expect("grant");
        unlockpt(&main).expect("unlock");
        let name = ptsname(&main, Vec::new()).expect("name").into_string().expect("text");
        let other = File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open(name).expect("its other end");
        Self { main: File::from(main), other: Some(other), said: String::new() }
    }

    fn resize(&self, rows: u16, columns: u16) {
        let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.main, size).expect("resize");
    }

    fn start(&mut self, client: &hmz_wire::Client, argv: &[&str]) -> hmz_wire::Command {
        let other = self.other.take().expect("started once");
        let mut spawn = words(argv);
        (spawn.fds, spawn.ctty) = (vec![0, 1, 2], Some(0));
        let command = client.spawn(spawn, &[other.as_fd(), other.as_fd(), other.as_fd()]).expect("spawn");
        assert_eq!(event(&command), CommandEvent::Started);
        command
    }

    fn say(&mut self, text: &str) {
        self.main.write_all(text.as_bytes()).expect("write");
    }

    /// Reads until it has said that.
    fn hear(&mut self, wanted: &str) {
        let mut buffer = [0; 1024];
        let end = std::time::Instant::now() + LIMIT;
        while !self.said.contains(wanted) {
            let mut polled = [rustix::event::PollFd::new(&self.main, rustix::event::PollFlags::IN)];
            let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
            if rustix::event::poll(&mut polled, Some(&second)).expect("poll") > 0 {
                let len = self.main.read(&mut buffer).unwrap_or(0);
                assert!(len > 0, "the terminal ended without {wanted:?}: {:?}", self.said);
                self.said.push_str(&String::from_utf8_lossy(&buffer[..len]));
            }
            assert!(std::time::Instant::now() < end, "no {wanted:?}: {:?}", self.said);
        }
        let at = self.said.find(wanted).map_or(0, |at| at + wanted.len());
        self.said.drain(..at);
    }
}

#[test]
fn a_terminal_has_its_size_and_follows() {
    let it = Boxed::new();
    let client = it.client();
    let mut terminal = Terminal::new();
    terminal.resize(33, 77);
    let script = "test -t 0 && stty size </dev/tty; trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.1; done";
    let command = terminal.start(&client, &["sh", "-c", script]);
    terminal.hear("33 77");
    terminal.hear("ready");
    terminal.resize(40, 90);
    terminal.hear("40 90");
    assert_eq!(event(&command), CommandEvent::Exited(Status::Exited(5), false));
}

#[test]
fn keys_of_a_terminal_and_job_control() {
    let it = Boxed::new();
    let client = it.client();
    let mut terminal = Terminal::new();
    let command = terminal.start(&client, &["sh", "-c", "echo ready; sleep 1000"]);
    terminal.hear("ready");
    terminal.say("\x03");
    assert_eq!(event(&command), CommandEvent::Exited(Status::Signaled(libc::SIGINT), false));

    let mut terminal = Terminal::new();
    let command = terminal.start(&client, &["sh", "-i"]);
    terminal.say("stty -echo; echo rea''dy\n");
    terminal.hear("ready");
    terminal.say("sleep 1000\n");
    crate::harness::eventually("the job", || it.processes().iter().any(|p| p.ends_with("sleep 1000")));
    terminal.say("\x1a");
    terminal.hear("Stopped");
    terminal.say("jobs\n");
    terminal.hear("sleep 1000");
    terminal.say("kill %1; fg\n");
    terminal.say("exit 3\n");
    let end = event(&command);
    assert!(matches!(end, CommandEvent::Exited(Status::Exited(3), _)), "{end:?}");
}
