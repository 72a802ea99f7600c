//! Frames: what is sent arrives with its descriptors; what no peer of ours sends ends the connection.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by them")]

use hmz_wire::{Bytes, Fence, FromGuest, MAX_FDS, MAX_FRAME, Reader, Spawn, Status, ToGuest, Welcome, WireError, Writer, split};
use proptest::collection::vec;
use proptest::prelude::*;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

fn pair() -> (Writer, Reader, UnixStream) {
    let (here, there) = UnixStream::pair().expect("a pair");
    let raw = here.try_clone().expect("clone");
    (split(here).expect("split").1, split(there).expect("split").0, raw)
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn pairs() -> impl Strategy<Value = Vec<(Bytes, Bytes)>> {
    vec((bytes(), bytes()), 0..5)
}

fn spawn() -> impl Strategy<Value = Spawn> {
    let texts = (bytes(), vec(bytes(), 0..5), pairs(), bytes());
    let numbers = (any::<u64>(), any::<bool>(), any::<u32>(), any::<u64>(), any::<u64>());
    (texts, numbers, vec(any::<i32>(), 0..5), any::<Option<i32>>()).prop_map(
        |((program, argv, env, cwd), (id, by_name, umask, blocked, ignored), fds, ctty)| Spawn {
            id,
            program,
            by_name,
            argv,
            env,
            cwd,
            umask,
            blocked,
            ignored,
            fds,
            ctty,
        },
    )
}

fn to_guest() -> impl Strategy<Value = ToGuest> {
    let fence = proptest::option::of((vec(bytes(), 0..3), any::<bool>()).prop_map(|(write, required)| Fence { write, required }));
    prop_oneof![
        (any::<u32>(), any::<bool>(), fence).prop_map(|(version, owner, fence)| ToGuest::Hello { version, owner, fence }),
        spawn().prop_map(ToGuest::Spawn),
        spawn().prop_map(ToGuest::SpawnFor),
        (any::<u64>(), any::<i32>()).prop_map(|(id, signal)| ToGuest::Signal { id, signal }),
        any::<u64>().prop_map(|id| ToGuest::Close { id }),
        any::<u64>().prop_map(ToGuest::Ping),
    ]
}

fn from_guest() -> impl Strategy<Value = FromGuest> {
    let status = prop_oneof![any::<i32>().prop_map(Status::Exited), any::<i32>().prop_map(Status::Signaled)];
    let welcome = (any::<[u32; 3]>(), any::<[String; 3]>(), pairs(), vec(any::<String>(), 0..5)).prop_map(
        |([version, uid, gid], [hostname, boot_id, fence], env, programs)| {
            FromGuest::Welcome(Box::new(Welcome { version, hostname, uid, gid, boot_id, env, programs, fence }))
        },
    );
    prop_oneof![
        welcome,
        any::<String>().prop_map(FromGuest::Refused),
        any::<u64>().prop_map(|id| FromGuest::Started { id }),
        (any::<u64>(), any::<i32>()).prop_map(|(id, errno)| FromGuest::SpawnFailed { id, errno }),
        (any::<u64>(), status, any::<bool>()).prop_map(|(id, status, alive)| FromGuest::Exited { id, status, alive }),
        any::<(u64, bool)>().prop_map(|(id, alive)| FromGuest::Told { id, alive }),
        any::<u64>().prop_map(|id| FromGuest::Empty { id }),
        vec(any::<String>(), 0..5).prop_map(FromGuest::Programs),
        any::<u64>().prop_map(FromGuest::Pong),
    ]
}

proptest! {
    #[test]
    fn messages_arrive_in_order(to in vec(to_guest(), 1..8), from in vec(from_guest(), 1..8)) {
        let (writer, mut reader, _raw) = pair();
        for message in &to {
            writer.send(message, &[]).expect("send");
        }
        for message in &from {
            writer.send(message, &[]).expect("send");
        }
        writer.shutdown();
        for message in to {
            prop_assert_eq!(reader.recv::<ToGuest>().expect("a message").expect("no end").0, message);
        }
        for message in from {
            prop_assert_eq!(reader.recv::<FromGuest>().expect("a message").expect("no end").0, message);
        }
        prop_assert!(reader.recv::<ToGuest>().expect("the end").is_none());
    }

    /// Whatever comes, it is a message, the end or an error, and no more memory is taken than was sent.
    #[test]
    fn noise_is_survived(noise in vec(any::<u8>(), 0..200), honest in any::<bool>()) {
        let (_writer, mut reader, mut raw) = pair();
        if honest {
            raw.write_all(&(noise.len() as u32).to_le_bytes()).expect("write");
        }
        raw.write_all(&noise).expect("write");
        raw.shutdown(std::net::Shutdown::Write).expect("shutdown");
        while let Ok(Some(_)) = reader.recv::<ToGuest>() {}
    }
}

fn broken(bytes: &[u8]) -> &'static str {
    let (_writer, mut reader, mut raw) = pair();
    raw.write_all(bytes).expect("write");
    raw.shutdown(std::net::Shutdown::Write).expect("shutdown");
    match reader.recv::<ToGuest>() {
        Err(WireError::Protocol(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_no_frame_is_told_apart() {
    assert_eq!(broken(&[1, 0]), "the stream ended inside a frame");
    assert_eq!(broken(&[9, 0, 0, 0, 1]), "the stream ended inside a frame");
    assert_eq!(broken(&(MAX_FRAME as u32 + 1).to_le_bytes()), "a frame that is too large");
    assert_eq!(broken(&[0, 0, 0, 0]), "a frame that does not decode");
    assert_eq!(broken(&[2, 0, 0, 0, 200, 1]), "a frame that does not decode");
    // a ping, and a byte more than a ping has
    assert_eq!(broken(&[3, 0, 0, 0, 4, 7, 0]), "a frame that does not decode");
    // a list that claims far more than the frame has
    assert_eq!(broken(&[8, 0, 0, 0, 1, 1, 0, 0, 0xff, 0xff, 0xff, 0x7f]), "a frame that does not decode");
}

#[test]
fn descriptors_go_with_their_own_frame() {
    let (writer, mut reader, _raw) = pair();
    let file = |text: &str| {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(text.as_bytes()).expect("write");
        file
    };
    let files: Vec<File> = (0..MAX_FDS).map(|i| file(&i.to_string())).collect();
    let fds: Vec<_> = files.iter().map(|f| f.as_fd()).collect();
    writer.send(&ToGuest::Ping(1), &[]).expect("send");
    writer.send(&ToGuest::Ping(2), &fds).expect("send");
    writer.send(&ToGuest::Ping(3), &fds[..1]).expect("send");
    assert_eq!(reader.recv::<ToGuest>().expect("a message").expect("no end").1.len(), 0);
    let (_, got) = reader.recv::<ToGuest>().expect("a message").expect("no end");
    assert_eq!(got.len(), MAX_FDS);
    for (i, fd) in got.into_iter().enumerate() {
        assert!(rustix::io::fcntl_getfd(&fd).expect("flags").contains(rustix::io::FdFlags::CLOEXEC));
        let (mut file, mut text) = (File::from(fd), String::new());
        file.rewind().expect("rewind");
        file.read_to_string(&mut text).expect("read");
        assert_eq!(text, i.to_string());
    }
    assert_eq!(reader.recv::<ToGuest>().expect("a message").expect("no end").1.len(), 1);
    let twice = [&fds[..], &fds[..1]].concat();
    assert!(matches!(writer.send(&ToGuest::Ping(4), &twice), Err(WireError::Protocol(_))));
    // what was refused before a byte was sent left the channel as it was
    writer.send(&ToGuest::Ping(5), &[]).expect("send");
    assert_eq!(reader.recv::<ToGuest>().expect("a message").expect("no end").0, ToGuest::Ping(5));
}

#[test]
fn a_message_that_is_too_large_is_not_sent() {
    let (writer, mut reader, _raw) = pair();
    let large = FromGuest::Refused("x".repeat(MAX_FRAME));
    assert!(matches!(writer.send(&large, &[]), Err(WireError::Protocol(_))));
    writer.send(&FromGuest::Pong(1), &[]).expect("send");
    assert_eq!(reader.recv::<FromGuest>().expect("a message").expect("no end").0, FromGuest::Pong(1));
}

#[test]
fn a_peer_that_does_not_read_can_be_given_up() {
    let (writer, reader, _raw) = pair();
    let blocked = writer.clone();
    let large = FromGuest::Refused("x".repeat(4 << 20));
    let sender = std::thread::spawn(move || blocked.send(&large, &[]));
    // the frame's beginning has arrived, and the rest has no room: its sender waits inside
    let mut polled = [rustix::event::PollFd::new(reader.stream(), rustix::event::PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut polled, None).expect("poll"), 1);
    writer.shutdown();
    assert!(sender.join().expect("the sender").is_err());

    // and one with a limit gives up by itself, and for good: half a frame was sent
    let (here, there) = UnixStream::pair().expect("a pair");
    here.set_write_timeout(Some(Duration::from_millis(50))).expect("a limit");
    let writer = split(here).expect("split").1;
    assert!(writer.send(&FromGuest::Refused("x".repeat(4 << 20)), &[]).is_err());
    assert!(writer.send(&FromGuest::Pong(1), &[]).is_err());
    drop(there);
}
