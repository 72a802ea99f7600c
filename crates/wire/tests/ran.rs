//! How long commands ran is asked of a guest once, told once a command, and is never longer than it was waited for. Its own
//! program, since who hears it hears it of the whole process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by them")]

use hmz_wire::{Bytes, Client, CommandEvent, FromGuest, Spawn, Status, ToGuest, VERSION, Welcome, observe, split};
use std::os::unix::net::UnixListener;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

fn spawn(program: &str) -> Spawn {
    let bytes = |text: &str| Bytes::from(text.as_bytes());
    Spawn {
        id: 0,
        program: bytes(program),
        by_name: true,
        argv: vec![bytes(program)],
        env: Vec::new(),
        cwd: bytes("/"),
        umask: 0o022,
        blocked: 0,
        ignored: 0,
        fds: Vec::new(),
        ctty: None,
    }
}

#[test]
fn who_hears_is_told_what_was_asked_for_once_and_no_longer_than_it_took() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let welcome = Welcome {
        version: VERSION,
        hostname: "h".into(),
        uid: 0,
        gid: 0,
        boot_id: "b".into(),
        env: Vec::new(),
        programs: Vec::new(),
        fence: "none".into(),
    };
    let guest = std::thread::spawn(move || {
        let (mut ears, mouth) = split(listener.accept().unwrap().0).unwrap();
        let mut heard = Vec::new();
        while let Ok(Some((word, _))) = ears.recv::<ToGuest>() {
            match &word {
                ToGuest::Hello { .. } => mouth.send(&FromGuest::Welcome(Box::new(welcome.clone())), &[]).unwrap(),
                ToGuest::Spawn(spawn) => {
                    let (id, status) = (spawn.id, Status::Exited(3));
                    let ran = |id, nanos| FromGuest::Ran { id, status, nanos };
                    // of a command that nobody asked for, and twice of this one
                    let words = [ran(id + 7, 1), FromGuest::Started { id }, ran(id, u64::MAX), ran(id, 1)];
                    mouth.send_all(&words).unwrap();
                    mouth.send(&FromGuest::Exited { id, status, alive: false }, &[]).unwrap();
                }
                _ => {}
            }
            heard.push(match word {
                ToGuest::Hello { .. } => "hello",
                ToGuest::Measure => "measure",
                ToGuest::Spawn(_) => "spawn",
                _ => "other",
            });
        }
        heard
    });
    let client = Client::connect(&socket, std::process::id() as i32, false, None).unwrap();
    let ends = |program: &str| {
        let command = client.spawn(spawn(program), &[]).unwrap();
        assert_eq!(command.next_within(LIMIT), Some(CommandEvent::Started));
        assert_eq!(command.next_within(LIMIT), Some(CommandEvent::Exited(Status::Exited(3), false)));
    };
    ends("unheard");
    let (tell, told) = channel();
    observe(move |ran| tell.send(ran).unwrap());
    let began = Instant::now();
    ends("one");
    ends("two");
    for program in ["one", "two"] {
        let ran = told.try_recv().unwrap();
        assert_eq!((ran.program, ran.status), (Bytes::from(program.as_bytes()), Status::Exited(3)));
        assert!(ran.took <= began.elapsed());
    }
    assert!(told.try_recv().is_err(), "nothing is told twice, and nothing of what nobody asked for");
    client.shutdown();
    assert_eq!(guest.join().unwrap(), ["hello", "spawn", "measure", "spawn", "spawn"]);
}
