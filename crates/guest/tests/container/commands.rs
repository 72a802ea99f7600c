//! A command starts as it was asked for, and its end is told exactly.

use crate::harness::{Boxed, How, docker, errno, event, piped, prints, run, sh, words};
use hmz_wire::{Bytes, CommandEvent, Status};
use std::io::Read;

#[test]
fn a_box_says_what_it_is() {
    for (image, uid) in [("busybox:latest", 0), ("python:3.12-slim", 1234)] {
        let it = Boxed::start(&How { image, uid, lease: 0, docker: &["-e", "USER=me", "-h", "the-box"] });
        let client = it.client();
        let welcome = client.welcome();
        assert_eq!((welcome.uid, welcome.gid), (uid, uid));
        assert_eq!(welcome.hostname, "the-box");
        let here = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot id");
        assert_eq!(welcome.boot_id, here.trim());
        assert!(welcome.env.contains(&(Bytes::from("HMZ_OWN"), Bytes::from("box"))));
        assert_eq!(welcome.fence, "none");
        assert!(client.programs().iter().any(|p| p == "sh"));
        assert_eq!(client.programs().iter().any(|p| p == "python3"), image.starts_with("python"));
        assert_eq!(prints(&client, sh("id -u; echo $HMZ_OWN $USER")), format!("{uid}\nbox me"));
    }
}

/// An image without a single file.
struct Empty(String);

impl Empty {
    fn import() -> Self {
        let name = format!("hmz-test-guest-empty:{}", std::process::id());
        let dir = tempfile::tempdir().expect("a directory");
        let archive = dir.path().join("empty.tar");
        // two blocks of zeros end an archive
        std::fs::write(&archive, [0; 1024]).expect("write");
        docker(&["import", archive.to_str().expect("text"), &name]);
        Self(name)
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        // gone already is as good
        let _ = std::process::Command::new("docker").args(["rmi", &self.0]).output();
    }
}

#[test]
fn an_image_of_nothing_will_do() {
    let image = Empty::import();
    let it = Boxed::start(&How { image: &image.0, uid: 1234, lease: 0, docker: &[] });
    let client = it.client();
    assert_eq!(*client.programs(), Vec::<String>::new());
    assert_eq!(errno(&client, sh("true")), libc::ENOENT);
    // the one program that is there: it says why it does not run as a second guest
    let (status, text) = run(&client, words(&["/.hmz/hmz", "guest", "--socket", "/tmp/s"]));
    assert_eq!((status, text.as_str()), (Status::Exited(1), "hmz guest: error: it must be the first process of a container\n"));
}

#[test]
fn that_a_command_has_started_is_told_while_it_runs() {
    let it = Boxed::new();
    let client = it.client();
    let (reads, writes) = std::io::pipe().expect("a pipe");
    let mut spawn = sh("read word");
    spawn.fds = vec![0];
    let command = client.spawn(spawn, &[std::os::fd::AsFd::as_fd(&reads)]).expect("spawn");
    assert_eq!(event(&command), CommandEvent::Started);
    drop(writes);
    assert_eq!(event(&command), CommandEvent::Exited(Status::Exited(1), false));
}

#[test]
fn environment_directory_and_umask() {
    let it = Boxed::new();
    let client = it.client();
    let mut spawn = sh("echo $HMZ_OWN $NEW; pwd; umask");
    spawn.env = vec![(Bytes::from("NEW"), Bytes::from("1")), (Bytes::from("HMZ_OWN"), Bytes::from("over"))];
    spawn.cwd = Bytes::from("/etc");
    spawn.umask = 0o027;
    assert_eq!(prints(&client, spawn), "over 1\n/etc\n0027");
    // nothing of what one was told is told another
    assert_eq!(prints(&client, sh("echo $HMZ_OWN $NEW; pwd; umask")), "box\n/\n0022");
}

#[test]
fn the_reason_for_a_failed_start_is_the_kernels() {
    let it = Boxed::start(&How { image: "busybox:latest", uid: 1234, lease: 0, docker: &[] });
    let client = it.client();
    assert_eq!(errno(&client, words(&["/no/such"])), libc::ENOENT);
    assert_eq!(errno(&client, words(&["no-such-name"])), libc::ENOENT);
    assert_eq!(errno(&client, words(&["/etc/passwd"])), libc::EACCES);
    assert_eq!(errno(&client, words(&["/etc/passwd/x"])), libc::ENOTDIR);
    assert_eq!(errno(&client, words(&["/etc"])), libc::EACCES);
    let mut elsewhere = sh("true");
    elsewhere.cwd = Bytes::from("/no/such");
    assert_eq!(errno(&client, elsewhere), libc::ENOENT);
    let large = "x".repeat(200 << 10);
    assert_eq!(errno(&client, words(&["true", &large])), libc::E2BIG);
    assert_eq!(
        prints(&client, sh("printf 'echo plain' >/tmp/s; chmod +x /tmp/s; printf '#!/no/such\n' >/tmp/t; chmod +x /tmp/t")),
        ""
    );
    assert_eq!(errno(&client, words(&["/tmp/s"])), libc::ENOEXEC);
    assert_eq!(errno(&client, words(&["/tmp/t"])), libc::ENOENT);
    let mut zero = sh("true");
    zero.argv.push(Bytes::from("a\0b"));
    assert_eq!(errno(&client, zero), libc::EINVAL);
    let mut none = sh("true");
    none.argv.clear();
    assert_eq!(errno(&client, none), libc::EINVAL);
    // and the connection goes on
    assert_eq!(prints(&client, sh("echo on")), "on");
    assert_eq!(it.processes(), Vec::<String>::new());
}

#[test]
fn a_path_that_is_not_there_is_found_by_its_name_when_that_is_asked_for() {
    let it = Boxed::new();
    let client = it.client();
    let mut bash = words(&["/opt/elsewhere/sh", "-c", "echo $0"]);
    assert_eq!(errno(&client, bash.clone()), libc::ENOENT);
    bash.by_name = true;
    assert_eq!(prints(&client, bash), "/opt/elsewhere/sh");
    // one that is there and cannot be run is not replaced by another
    assert_eq!(prints(&client, sh("mkdir /x; : >/x/sh; printf '#!/no/such\n' >/x/ls; chmod +x /x/ls")), "");
    for (path, wanted) in [("/x/sh", libc::EACCES), ("/x/ls", libc::ENOENT), ("/x/no-such-name", libc::ENOENT)] {
        let mut spawn = words(&[path]);
        spawn.by_name = true;
        assert_eq!(errno(&client, spawn), wanted, "{path}");
    }
}

#[test]
fn a_program_installed_by_a_command_is_told_before_its_end() {
    let it = Boxed::new();
    let client = it.client();
    assert!(!client.programs().iter().any(|p| p == "fresh"));
    assert_eq!(prints(&client, sh("printf '#!/bin/sh\necho new' >/bin/fresh; chmod +x /bin/fresh")), "");
    assert!(client.programs().iter().any(|p| p == "fresh"));
    assert_eq!(prints(&client, words(&["fresh"])), "new");
}

#[test]
fn statuses_are_exact() {
    let it = Boxed::new();
    let client = it.client();
    for code in [0, 1, 126, 255] {
        assert_eq!(run(&client, sh(&format!("exit {code}"))).0, Status::Exited(code));
    }
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGPIPE, 40] {
        assert_eq!(run(&client, sh(&format!("kill -{signal} $$"))).0, Status::Signaled(signal));
    }
}

#[test]
fn signal_masks_and_dispositions() {
    let it = Boxed::new();
    let client = it.client();
    let status = "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status";
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|l| l.starts_with(name)).expect("a field");
        u64::from_str_radix(line.split_whitespace().last().expect("a number"), 16).expect("hex")
    };
    let argv = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"];
    let text = prints(&client, words(&argv));
    assert_eq!((field(&text, "SigBlk"), field(&text, "SigIgn")), (0, 0), "{status}");
    let bit = |n: i32| 1u64 << (n - 1);
    let mut spawn = words(&argv);
    spawn.blocked = bit(libc::SIGUSR1) | bit(40);
    spawn.ignored = bit(libc::SIGINT) | bit(libc::SIGPIPE) | bit(64);
    let (blocked, ignored) = (spawn.blocked, spawn.ignored);
    let text = prints(&client, spawn);
    assert_eq!((field(&text, "SigBlk"), field(&text, "SigIgn")), (blocked, ignored));
}

#[test]
fn large_arguments_and_environments() {
    let it = Boxed::new();
    let client = it.client();
    let mut argv = vec!["sh", "-c", "echo $#; printf %s \"$*\" | wc -c", "sh"];
    let argument = "a".repeat(100_000);
    argv.extend(std::iter::repeat_n(argument.as_str(), 10));
    let mut spawn = words(&argv);
    spawn.env = (0..100).map(|i| (Bytes::from(format!("V{i}")), Bytes::from("v".repeat(1000)))).collect();
    assert_eq!(prints(&client, spawn.clone()), "10\n1000009");
    spawn.argv = words(&["sh", "-c", "env | grep -c ^V; echo ${#V99}"]).argv;
    assert_eq!(prints(&client, spawn), "100\n1000");
}

#[test]
fn many_at_once() {
    let it = Boxed::new();
    let client = it.client();
    let all: Vec<_> = (0..200).map(|i| (i, piped(&client, sh(&format!("echo {i}; exit {}", i % 7))))).collect();
    for (i, (command, mut out)) in all {
        let mut text = String::new();
        out.read_to_string(&mut text).expect("output");
        assert_eq!(text.trim(), i.to_string());
        assert_eq!(event(&command), CommandEvent::Started);
        assert_eq!(event(&command), CommandEvent::Exited(Status::Exited(i % 7), false));
    }
    assert_eq!(it.processes(), Vec::<String>::new());
}

/// Prints what a command costs here and there; asserts nothing of it.
#[test]
fn what_a_command_costs() {
    let it = Boxed::new();
    let client = it.client();
    let null = std::fs::File::open("/dev/null").expect("/dev/null");
    let mut times = [Vec::new(), Vec::new()];
    // the same static program on both sides, one after the other, so that a noisy moment meets both
    for _ in 0..300 {
        let begin = std::time::Instant::now();
        let mut spawn = words(&["/bin/true"]);
        spawn.fds = vec![0];
        let command = client.spawn(spawn, &[std::os::fd::AsFd::as_fd(&null)]).expect("spawn");
        assert_eq!(command.wait().expect("the guest"), Ok(Status::Exited(0)));
        times[0].push(begin.elapsed());
        let root = format!("/proc/{}/root/bin/true", it.pid);
        let begin = std::time::Instant::now();
        assert!(std::process::Command::new(&root).stdin(std::process::Stdio::null()).status().expect("native").success());
        times[1].push(begin.elapsed());
    }
    let [guest, native] = times.map(|mut t| {
        t.sort_unstable();
        t[t.len() / 2]
    });
    println!(
        "spawn + wait of busybox true, median of 300: guest {guest:?}, native {native:?}, ratio {:.2}",
        guest.as_secs_f64() / native.as_secs_f64()
    );
}
