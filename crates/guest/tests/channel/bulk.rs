//! Much data: bounded memory, whoever does not read, and signals that do not wait behind it.

use crate::harness::{event, sh, words};
use crate::world::{Far, end, on_pipes, resident};
use hmz_wire::{CommandEvent, Status};
use std::io::{BufRead, BufReader, Read};

/// What the processes of a session may have, whatever goes through them.
const BOUND: u64 = 48 << 20;

fn largest(it: &Far) -> u64 {
    it.pids("/.hmz/hmz guest").into_iter().map(resident).max().unwrap_or(0)
}

#[test]
fn a_gigabyte_past_a_reader_that_pauses() {
    let it = Far::new();
    let client = it.client();
    let here = || resident(std::process::id() as i32);
    let before = here();
    let script = "head -c 1048576 /dev/urandom >/tmp/block; cat /tmp/block; i=1; while [ $i -lt 1024 ]; do cat /tmp/block; i=$((i+1)); done";
    let (command, _input, mut out, _err) = on_pipes(&client, sh(script));
    let mut block = vec![0; 1 << 20];
    out.read_exact(&mut block).expect("a block");
    // nobody reads: it goes on until all that lies between is full, and then stands still
    let written = || {
        let now = it.pids("cat /tmp/block").into_iter().filter(|pid| !it.pids("sh -c head").contains(pid));
        now.map(|pid| (pid, std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default())).collect::<Vec<_>>()
    };
    let (mut seen, mut same) = (written(), 0);
    crate::harness::eventually("the writer stands still", || {
        let now = written();
        same = if now == seen && !now.is_empty() { same + 1 } else { 0 };
        seen = now;
        same > 10
    });
    assert!(largest(&it) < BOUND, "{} in the box", largest(&it));
    assert!(here() < before + BOUND, "{} here", here());
    let mut got = vec![0; 1 << 20];
    for n in 1..1024 {
        out.read_exact(&mut got).expect("a block");
        assert!(got == block, "block {n} is another");
        if n % 128 == 0 {
            assert!(largest(&it) < BOUND, "{} in the box", largest(&it));
            assert!(here() < before + BOUND, "{} here", here());
        }
    }
    assert_eq!(out.read(&mut got).expect("the end"), 0);
    assert_eq!(end(&command), CommandEvent::Exited(Status::Exited(0), false));
}

#[test]
fn a_signal_does_not_wait_behind_bulk() {
    let it = Far::new();
    let client = it.client();
    // one that is read as fast as it comes, and one that nobody reads
    let (flood, _in_a, mut out, _err_a) = on_pipes(&client, words(&["cat", "/dev/zero"]));
    let (paused, in_b, out_b, _err_b) = on_pipes(&client, words(&["cat", "/dev/zero"]));
    let reading = std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        let mut all = 0;
        while let Ok(n @ 1..) = out.read(&mut buffer) {
            all += n;
        }
        all
    });
    let trap = "trap 'echo caught; exit 7' USR1; echo up; while :; do sleep 0.05; done";
    for _ in 0..5 {
        let (command, _input, out, _err) = on_pipes(&client, sh(trap));
        let mut lines = BufReader::new(out).lines().map(|l| l.expect("a line"));
        assert_eq!(lines.next().as_deref(), Some("up"));
        command.signal(libc::SIGUSR1).expect("signal");
        assert_eq!(lines.next().as_deref(), Some("caught"));
        assert_eq!(end(&command), CommandEvent::Exited(Status::Exited(7), false));
    }
    for command in [flood, paused] {
        assert_eq!(event(&command), CommandEvent::Started);
        command.signal(libc::SIGTERM).expect("signal");
        // the one nobody reads is told when what it wrote before has been taken, as natively
        drop(command);
    }
    drop((out_b, in_b));
    assert!(reading.join().expect("a reader") > 0);
}
