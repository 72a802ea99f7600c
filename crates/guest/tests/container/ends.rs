//! Ends: of commands, of what they leave behind, of connections, and of the box.

use crate::harness::{Boxed, How, LIMIT, docker, event, eventually, piped, prints, sh, words};
use hmz_standin::protocol::{ALIVE, EXITED, SIGNALED, Verdict};
use hmz_wire::{CommandEvent, Status};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;

/// A background process that has left its group, its session and its parent.
const DAEMON: &str = "setsid sh -c 'setsid sleep 1000 & exit' & ";

#[test]
fn an_end_is_told_though_a_child_holds_the_output() {
    let it = Boxed::new();
    let client = it.client();
    let (command, out) = piped(&client, sh("sleep 1000 & echo $!; exit 4"));
    let mut line = String::new();
    BufReader::new(&out).read_line(&mut line).expect("the child's pid");
    assert_eq!(event(&command), CommandEvent::Started);
    assert_eq!(event(&command), CommandEvent::Exited(Status::Exited(4), true));
    // the group is there still, and is signalled
    command.signal(libc::SIGTERM).expect("signal");
    assert_eq!(event(&command), CommandEvent::Empty);
    eventually("no process, dead or alive", || it.processes().is_empty());
}

#[test]
fn a_stand_in_is_told_its_end_by_the_guest() {
    let it = Boxed::new();
    let client = it.client();
    let begin = |script: &str| {
        let (ours, theirs) = UnixStream::pair().expect("a socket");
        ours.set_read_timeout(Some(LIMIT)).expect("a limit");
        let (sender, events) = channel();
        let hear = move |event| sender.send(event).expect("somebody hears");
        let id = client.spawn_for(theirs.as_fd(), sh(script), &[], hear).expect("a command");
        drop(theirs);
        (id, ours, move || events.recv_timeout(LIMIT).expect("an event"))
    };
    let told = |socket: &mut UnixStream| {
        let mut words = [0; 8];
        socket.read_exact(&mut words).map(|()| words)
    };
    let (_, mut socket, next) = begin("exit 3");
    assert_eq!(told(&mut socket).expect("its end"), Verdict { kind: EXITED, value: 3 }.bytes());
    assert_eq!([next(), next()], [CommandEvent::Started, CommandEvent::Told(false)]);
    // nobody holds the socket any more
    assert_eq!(socket.read(&mut [0]).expect("the end"), 0);
    // what it left behind is ended by its stand-in's supervisor
    let (id, mut socket, next) = begin("sleep 1000 & kill -9 $$");
    assert_eq!(told(&mut socket).expect("its end"), Verdict { kind: SIGNALED | ALIVE, value: 9 }.bytes());
    assert_eq!([next(), next()], [CommandEvent::Started, CommandEvent::Told(true)]);
    client.close(id).expect("close");
    assert_eq!(next(), CommandEvent::Empty);
    // the names it made are known before whoever waits goes on: the supervisor tells
    let (_, mut socket, next) = begin("echo : >/bin/new");
    assert_eq!([next(), next()], [CommandEvent::Started, CommandEvent::Exited(Status::Exited(0), false)]);
    assert!(client.programs().iter().any(|name| name == "new"));
    assert_eq!(socket.read(&mut [0]).expect("the end"), 0);
    let (_, mut socket, next) = begin("exec /no/such/program");
    assert_eq!(next(), CommandEvent::Started);
    assert_eq!(next(), CommandEvent::Told(false));
    assert_eq!(told(&mut socket).expect("its end"), Verdict { kind: EXITED, value: 127 }.bytes());
    let mut missing = sh("");
    missing.program = b"no-such-program".to_vec().into();
    let (mut ours, theirs) = UnixStream::pair().expect("a socket");
    let (sender, events) = channel();
    let hear = move |event| sender.send(event).expect("somebody hears");
    client.spawn_for(theirs.as_fd(), missing, &[], hear).expect("a command");
    drop(theirs);
    assert_eq!(events.recv_timeout(LIMIT).expect("an event"), CommandEvent::Failed(libc::ENOENT));
    assert_eq!(ours.read(&mut [0]).expect("the end"), 0);
}

#[test]
fn the_last_end_is_told_by_itself() {
    let it = Boxed::new();
    let client = it.client();
    let (command, _out) = piped(&client, sh("mkfifo /tmp/f; cat /tmp/f & setsid cat /tmp/f & kill -9 $$"));
    assert_eq!(event(&command), CommandEvent::Started);
    assert_eq!(event(&command), CommandEvent::Exited(Status::Signaled(libc::SIGKILL), true));
    // `killall` finds by name, and each bears another's until it has executed `cat`
    let is_cat = |p: &String| p.split_whitespace().skip(2).eq(["cat", "/tmp/f"]);
    eventually("both by name", || it.processes().into_iter().filter(is_cat).count() == 2);
    assert_eq!(prints(&client, sh("killall cat")), "");
    assert_eq!(event(&command), CommandEvent::Empty);
}

#[test]
fn a_signal_reaches_the_whole_group() {
    let it = Boxed::new();
    let client = it.client();
    let child = "sh -c \"trap 'echo child; exit' TERM; echo up; while :; do sleep 0.1; done\" & ";
    // the parent's trap is there when its child says `up`
    let (command, out) = piped(&client, sh(&format!("trap 'wait; echo parent; exit 7' TERM; {child} wait")));
    let mut lines = BufReader::new(&out).lines().map(|l| l.expect("a line"));
    assert_eq!(lines.next().as_deref(), Some("up"));
    assert_eq!(event(&command), CommandEvent::Started);
    command.signal(libc::SIGTERM).expect("signal");
    // the signal finds the child's `sleep` too when one runs, and then its shell says so
    let mut said: Vec<_> = lines.filter(|l| l != "Terminated").collect();
    said.sort_unstable();
    assert_eq!(said, ["child", "parent"]);
    assert!(matches!(event(&command), CommandEvent::Exited(Status::Exited(7), _)));
}

#[test]
fn closing_a_command_kills_its_session_and_no_other() {
    let it = Boxed::new();
    let client = it.client();
    let (other, _out) = piped(&client, sh("sleep 2000"));
    let (command, out) = piped(&client, sh(&format!("set -m; trap '' TERM HUP; sleep 1500 & {DAEMON} echo up; wait")));
    BufReader::new(&out).lines().next().expect("a line").expect("up");
    assert_eq!(event(&other), CommandEvent::Started);
    assert_eq!(event(&command), CommandEvent::Started);
    command.close().expect("close");
    assert!(matches!(event(&command), CommandEvent::Exited(Status::Signaled(libc::SIGKILL), _)));
    // what left the session belongs to the connection, and may outlive the command
    eventually("the session's end, and no other's", || {
        let there = it.processes();
        let ended = !there.iter().any(|p| p.contains("sh -c") || p.contains("sleep 1500"));
        ended && there.iter().any(|p| p.ends_with("sleep 2000"))
    });
    other.close().expect("close");
    assert_eq!(event(&other), CommandEvent::Exited(Status::Signaled(libc::SIGKILL), false));
}

#[test]
fn nothing_survives_its_connection() {
    for uid in [0, 1234] {
        let it = Boxed::start(&How { image: "busybox:latest", uid, lease: 0, docker: &[] });
        let stays = it.client();
        let (kept, _out) = piped(&stays, sh("sleep 3000"));
        assert_eq!(event(&kept), CommandEvent::Started);
        let client = it.client();
        let script =
            format!("trap '' HUP TERM INT; {DAEMON}{DAEMON} nohup sleep 1000 & sh -c 'sleep 1000 & sleep 1000' & echo up; wait");
        let (command, out) = piped(&client, sh(&script));
        BufReader::new(&out).lines().next().expect("a line").expect("up");
        eventually("the daemons", || it.processes().iter().filter(|p| p.contains("sleep 1000")).count() >= 5);
        drop((command, client));
        eventually("their end", || it.processes().len() == 1);
        assert!(it.processes()[0].ends_with("sleep 3000"));
    }
}

#[test]
fn a_spawner_that_a_command_kills_or_stops_takes_all_with_it() {
    let it = Boxed::new();
    let stays = it.client();
    let (kept, _kept_out) = piped(&stays, sh("sleep 3000"));
    assert_eq!(event(&kept), CommandEvent::Started);
    let client = it.client();
    let (command, _out) = piped(&client, sh(&format!("{DAEMON} sleep 1000 & kill -9 $PPID; sleep 1000")));
    while event(&command) != CommandEvent::Lost {}
    // the peer hears the end of its connection only when nothing is left that lives
    let left: Vec<String> = it.processes().into_iter().filter(|p| !p.ends_with("<defunct>")).collect();
    assert!(left.len() == 1 && left[0].ends_with("sleep 3000"), "{left:?}");

    let client = it.client();
    let (command, out) = piped(&client, sh(&format!("{DAEMON} echo up; kill -STOP $PPID; sleep 1000")));
    BufReader::new(&out).lines().next().expect("a line").expect("up");
    drop((command, client));
    eventually("the end of a stopped spawner", || it.processes().len() == 1);
    assert_eq!(prints(&stays, sh("echo on")), "on");
}

#[test]
fn orphans_are_reaped() {
    let it = Boxed::new();
    let client = it.client();
    assert_eq!(prints(&client, sh("for i in 1 2 3 4 5 6 7 8 9; do (sh -c 'sleep 0.05 & exit' &); done; echo done")), "done");
    eventually("no process, dead or alive", || it.processes().is_empty());
    // those of the daemon's own exec, whose orphans are the first process's
    docker(&["exec", &it.name, "sh", "-c", "for i in 1 2 3; do (setsid sh -c 'sleep 0.05 & exit' &); done"]);
    eventually("no process, dead or alive", || it.processes().is_empty());
}

#[test]
fn a_lease_ends_the_box_and_all_in_it() {
    // none ever came
    let never = Boxed::run(&How { image: "busybox:latest", uid: 0, lease: 1, docker: &[] });
    // a machine may be too slow for a short lease: then that box has ended before its owner came, and another is tried
    let owned = [3, 6, 12, 24].into_iter().find_map(|lease| {
        let mine = Boxed::run(&How { image: "busybox:latest", uid: 0, lease, docker: &[] });
        let (owner, mine) = mine.up().and_then(|mine| Some((mine.try_client(true, None).ok()?, mine)))?;
        Some((lease, mine, owner))
    });
    let (lease, mine, owner) = owned.expect("a box whose owner came in time");
    eventually("the end of a box without an owner", || never.gone());
    // one that is no owner keeps nothing alive, and the owner does longer than the lease
    let other = mine.client();
    let (command, _out) = piped(&other, sh("sleep 1000"));
    assert_eq!(event(&command), CommandEvent::Started);
    assert_eq!(prints(&owner, sh(&format!("sleep {}; echo still", lease + 1))), "still");
    drop(owner);
    eventually("the end of a box whose owner has gone", || mine.gone());
    assert_eq!(event(&command), CommandEvent::Lost);
}

#[test]
fn told_to_stop_it_ends_at_once_and_well() {
    // one that stays where it ended, so that its status can be asked for
    let it = Boxed::start(&How { image: "busybox:latest", uid: 0, lease: 0, docker: &["--rm=false"] });
    let client = it.client();
    let (command, _out) = piped(&client, sh(&format!("trap '' TERM; {DAEMON} sleep 1000")));
    assert_eq!(event(&command), CommandEvent::Started);
    // the box's own processes cannot end it
    assert_eq!(prints(&client, sh("kill -TERM 1; kill -INT 1; kill -KILL 1; echo on")), "on");
    assert_eq!(prints(&it.client(), sh("echo on")), "on");
    docker(&["kill", "-s", "TERM", &it.name]);
    assert_eq!(docker(&["wait", &it.name]), "0");
    assert_eq!(command.next_within(LIMIT), Some(CommandEvent::Lost));
}

#[test]
fn a_peer_that_does_not_read_holds_up_nobody() {
    let it = Boxed::new();
    let deaf = crate::trust::raw(&it);
    // its answers fill the socket, and nobody takes them
    for n in 0..100_000u64 {
        if deaf.try_send(&hmz_wire::ToGuest::Ping(n)).is_err() {
            break;
        }
    }
    let client = it.client();
    for _ in 0..20 {
        assert_eq!(prints(&client, words(&["echo", "on"])), "on");
    }
    deaf.ended();
}
