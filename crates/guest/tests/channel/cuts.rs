//! Streams that are cut: gone on with within the window, lost beyond it, and never taken for a good end.

use crate::harness::{LIMIT, docker, event, eventually, prints, sh, words};
use crate::world::{Far, WINDOW_MS, end, key, kill, on_pipes, try_on_pipes};
use hmz_api::link::{Dial, StreamLink};
use hmz_wire::{Client, Command, CommandEvent, Status};
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Short, where it is to be over.
const SHORT_MS: u64 = 3_000;

const RELAY: &str = "guest connect";

/// Cuts the stream of the moment by killing the relay in the box.
fn cut(it: &Far, words: &str) {
    let relays = it.pids(words);
    assert!(!relays.is_empty(), "there is a relay");
    for pid in relays {
        kill(pid, Signal::SIGKILL);
    }
}

/// A session whose window is short, with a command that runs in it and has said so: `script` begins with `echo up`. A machine
/// that stands still loses such a session before that, and another is begun.
fn in_a_short_window(it: &Far, script: &str) -> (Client, Command, BufReader<File>) {
    let mut found = None;
    eventually("a session that lasts long enough", || {
        let Ok(client) = it.try_client(it.link(SHORT_MS).expect("a link"), None) else { return false };
        let Some((command, _input, out, _err)) = try_on_pipes(&client, sh(script)) else { return false };
        let mut out = BufReader::new(out);
        let mut line = String::new();
        let up = out.read_line(&mut line).is_ok_and(|_| line == "up\n") && event(&command) == CommandEvent::Started;
        if up {
            found = Some((client, command, out));
        }
        up
    });
    found.expect("a session")
}

/// Has no further stream be opened, and cuts the one of the moment and one that is just being opened, until it shows.
fn cut_until(it: &Far, mut shows: impl FnMut() -> bool) {
    std::fs::write(it.barrier(), "").expect("a file");
    eventually("the session is lost", || {
        for pid in it.pids(RELAY) {
            kill(pid, Signal::SIGKILL);
        }
        shows()
    });
}

/// Sends and receives while the stream is cut again and again; every byte arrives once.
fn bytes_survive(it: &Far, client: &Client, mut cut: impl FnMut()) {
    let (command, mut input, mut out, _err) = on_pipes(client, words(&["cat"]));
    let data: Vec<u8> = (0..12usize << 20).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect();
    let mut got = vec![0; data.len()];
    std::thread::scope(|scope| {
        scope.spawn(|| input.write_all(&data).expect("it reads"));
        for (n, part) in got.chunks_mut(3 << 20).enumerate() {
            out.read_exact(part).expect("its output");
            if n < 3 {
                cut();
            }
        }
    });
    assert!(got == data);
    drop(input);
    assert_eq!(end(&command), CommandEvent::Exited(Status::Exited(0), false));
    assert_eq!(out.read(&mut [0]).expect("the end"), 0);
    assert_eq!(prints(client, sh("echo on")), "on");
    eventually("nothing else is left", || it.others().is_empty());
}

#[test]
fn a_session_goes_on_over_another_stream() {
    let it = Far::new();
    let client = it.client();
    bytes_survive(&it, &client, || cut(&it, RELAY));
}

#[test]
fn the_end_of_a_command_is_not_lost_with_a_stream() {
    let it = Far::new();
    let client = it.client();
    let (command, mut input, mut out, _err) = on_pipes(&client, sh("echo up; read x; echo $x; exit 5"));
    let mut line = [0; 3];
    out.read_exact(&mut line).expect("up");
    assert_eq!(event(&command), CommandEvent::Started);
    std::fs::write(it.barrier(), "").expect("a file");
    cut(&it, RELAY);
    // it goes on meanwhile; what is written goes when there is a way again
    writeln!(input, "word").expect("a pipe");
    std::fs::remove_file(it.barrier()).expect("a file");
    let mut text = String::new();
    out.read_to_string(&mut text).expect("text");
    assert_eq!(text, "word\n");
    assert_eq!(end(&command), CommandEvent::Exited(Status::Exited(5), false));
}

#[test]
fn a_relay_that_stands_still_is_left() {
    let it = Far::new();
    let client = it.try_client(StreamLink { window_ms: 15_000, ..it.link(1).expect("a link") }, None).expect("the guest");
    assert_eq!(prints(&client, sh("echo on")), "on");
    for pid in it.pids(RELAY) {
        kill(pid, Signal::SIGSTOP);
    }
    // silence for a third of the window is a cut
    assert_eq!(prints(&client, sh("echo on; exit")), "on");
}

#[test]
fn a_cut_for_longer_than_the_window_is_a_loss() {
    let it = Far::new();
    let (client, command, mut out) = in_a_short_window(&it, "echo up; sleep 1000 & exec sleep 1000");
    let mut said = None;
    cut_until(&it, || {
        said = command.next_within(Duration::from_millis(10));
        said.is_some()
    });
    assert_eq!(said, Some(CommandEvent::Lost));
    assert!(client.spawn(sh("true"), &[]).is_err());
    client.wait_lost();
    // its output ends as well
    assert_eq!(out.read(&mut [0]).expect("the end"), 0);
    eventually("the guest has killed what it started", || it.others().is_empty() && it.pids("/.hmz/hmz guest").len() == 1);
    std::fs::remove_file(it.barrier()).expect("a file");
    assert_eq!(prints(&it.client(), sh("echo on")), "on");
}

#[test]
fn a_box_that_stands_still_is_a_loss() {
    let it = Far::new();
    let (_client, command, _out) = in_a_short_window(&it, "echo up; sleep 1000; exit 0");
    docker(&["pause", &it.name]);
    let lost = command.next_within(LIMIT);
    docker(&["unpause", &it.name]);
    assert_eq!(lost, Some(CommandEvent::Lost));
    eventually("the guest has killed what it started", || it.others().is_empty());
}

#[test]
fn a_box_that_is_gone_is_a_loss() {
    let it = Far::new();
    let (_client, command, _out) = in_a_short_window(&it, "echo up; sleep 1000; exit 0");
    docker(&["rm", "-f", &it.name]);
    assert_eq!(event(&command), CommandEvent::Lost);
}

#[test]
fn the_death_of_the_supervisor_ends_all_within_the_window() {
    let it = Far::new();
    // what a supervisor that is killed leaves: a stream that ends without a word
    let _session = in_a_short_window(&it, "echo up; sleep 1000");
    cut_until(&it, || it.others().is_empty() && it.pids("/.hmz/hmz guest").len() == 1);
}

#[test]
fn a_container_that_is_not_ours_will_do() {
    let it = Far::foreign("python:3.12-slim");
    let client = it.client();
    assert!(client.programs().iter().any(|p| p == "python3"));
    assert_eq!(prints(&client, sh("exec python3 -c 'print(6*7)'")), "42");
    // the session is not the process that carries its stream
    bytes_survive(&it, &client, || {
        let first = it.pids("guest serve").into_iter().min().expect("the relay");
        kill(relay_of(&it).unwrap_or(first), Signal::SIGKILL);
    });
    let (command, _input, out, _err) = on_pipes(&client, sh("echo up; setsid sleep 500 & sleep 500"));
    BufReader::new(out).read_line(&mut String::new()).expect("up");
    client.finish();
    assert!(matches!(end(&command), CommandEvent::Lost));
    eventually("nothing is left", || it.others().is_empty() && it.pids("guest serve").is_empty());
}

/// The process of a foreign container that carries the stream: the one that has another standard input than nothing.
fn relay_of(it: &Far) -> Option<i32> {
    it.pids("guest serve")
        .into_iter()
        .find(|pid| std::fs::read_link(format!("/proc/{pid}/fd/0")).is_ok_and(|link| !link.ends_with("null")))
}

#[test]
fn the_engine_api_carries_it_too() {
    let it = Far::new();
    let Some(Dial::Program { argv, .. }) = it.link(1).map(|link| link.dial) else { panic!("a program") };
    let host = std::env::var("HMZ_TEST_DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".into());
    let inner = argv.iter().position(|word| *word == it.name).expect("a name") + 1;
    let dial = Dial::Engine { endpoint: host, container: it.id.clone(), argv: argv[inner..].to_vec() };
    let link = StreamLink { dial, window_ms: WINDOW_MS, ..it.link(1).expect("a link") };
    let client = it.try_client(link.clone(), None).expect("the guest");
    bytes_survive(&it, &client, || cut(&it, RELAY));
    let gone = Dial::Engine { endpoint: "unix:///nonexistent".into(), container: "c".into(), argv: Vec::new() };
    let error = it.try_client(StreamLink { dial: gone, ..link }, None).expect_err("no daemon").to_string();
    assert!(error.contains("/nonexistent"), "{error}");
}

/// A stream that somebody else carries cannot be opened anew.
#[test]
fn the_end_of_a_stream_that_is_held_is_the_end_of_its_session() {
    let it = Far::foreign("busybox:latest");
    let (ours, theirs) = UnixStream::pair().expect("a socket");
    let output = theirs.try_clone().expect("a descriptor");
    let carrier = ["exec", "-i", &it.name, "/.hmz/hmz", "guest", "serve"];
    let mut carrier = std::process::Command::new("docker")
        .args(carrier)
        .stdin(OwnedFd::from(theirs))
        .stdout(OwnedFd::from(output))
        .spawn()
        .expect("the docker command line");
    // far longer than anybody waits for the end here
    let client = Client::over(ours, key(7), Duration::from_secs(600), None).expect("the guest");
    assert_eq!(prints(&client, words(&["echo", "there"])), "there");
    let (command, _input, _out, _err) = on_pipes(&client, words(&["sleep", "1000"]));
    assert_eq!(event(&command), CommandEvent::Started);
    carrier.kill().expect("a signal");
    carrier.wait().expect("its end");
    assert_eq!(event(&command), CommandEvent::Lost);
    client.shutdown();
}
