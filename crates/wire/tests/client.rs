//! The client against guests that lie.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by them")]

use hmz_wire::{
    Bytes, Client, ClientError, Command, CommandEvent, FromGuest, Reader, Spawn, Status, ToGuest, VERSION, Welcome, WireError,
    Writer, split,
};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

/// A deadline against hanging.
const LIMIT: Duration = Duration::from_secs(60);

struct Liar {
    listener: UnixListener,
    socket: PathBuf,
    _dir: tempfile::TempDir,
}

fn liar() -> Liar {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("s");
    Liar { listener: UnixListener::bind(&socket).expect("bind"), socket, _dir: dir }
}

fn own_pid() -> i32 {
    std::process::id() as i32
}

fn welcome() -> Welcome {
    Welcome {
        version: VERSION,
        hostname: "h".into(),
        uid: 0,
        gid: 0,
        boot_id: "b".into(),
        env: Vec::new(),
        programs: vec!["sh".into(), "../sh".into(), "/bin/sh".into(), String::new(), "..".into(), "a\0b".into()],
        fence: "none".into(),
    }
}

impl Liar {
    /// Takes a client, hears its hello and answers.
    fn meet(&self, answer: FromGuest) -> (Result<Client, ClientError>, Option<(Reader, Writer)>) {
        std::thread::scope(|scope| {
            let guest = scope.spawn(|| {
                let (mut reader, writer) = split(self.listener.accept().expect("accept").0).expect("split");
                assert!(matches!(reader.recv::<ToGuest>().ok()??.0, ToGuest::Hello { .. }));
                writer.send(&answer, &[]).ok()?;
                Some((reader, writer))
            });
            (Client::connect(&self.socket, own_pid(), true, None), guest.join().expect("the guest"))
        })
    }

    fn met(&self) -> (Client, Reader, Writer) {
        let (client, ends) = self.meet(FromGuest::Welcome(Box::new(welcome())));
        let (reader, writer) = ends.expect("a client");
        (client.expect("a guest"), reader, writer)
    }
}

fn spawn(client: &Client) -> Command {
    client.spawn(sample(), &[]).expect("spawn")
}

#[test]
fn not_a_byte_for_an_impostor() {
    let it = liar();
    let wanted = own_pid() + 1;
    match Client::connect(&it.socket, wanted, true, None) {
        Err(ClientError::Impostor { found, wanted: said }) => assert_eq!((found, said), (own_pid(), wanted)),
        other => panic!("{other:?}"),
    }
    let mut reader = split(it.listener.accept().expect("accept").0).expect("split").0;
    assert!(reader.recv::<ToGuest>().expect("the end").is_none());
}

#[test]
fn refusals_and_first_words() {
    assert!(matches!(liar().meet(FromGuest::Refused("no".into())).0, Err(ClientError::Refused(why)) if why == "no"));
    assert!(matches!(liar().meet(FromGuest::Pong(1)).0, Err(ClientError::Wire(_))));
    let old = Welcome { version: VERSION + 1, ..welcome() };
    assert!(matches!(liar().meet(FromGuest::Welcome(Box::new(old))).0, Err(ClientError::Refused(_))));
}

#[test]
fn programs_are_names_and_never_paths() {
    let it = liar();
    let (client, _reader, writer) = it.met();
    assert_eq!(*client.programs(), ["sh"]);
    assert_eq!(client.welcome().programs, ["sh"]);
    let command = spawn(&client);
    writer.send(&FromGuest::Programs(vec!["/etc/x".into(), "new".into()]), &[]).expect("send");
    writer.send(&FromGuest::Started { id: command.id }, &[]).expect("send");
    assert_eq!(command.next_within(LIMIT), Some(CommandEvent::Started));
    assert_eq!(*client.programs(), ["new"]);
}

#[test]
fn events_come_in_their_order_or_the_guest_is_dropped() {
    let status = Status::Exited(0);
    let wrong: [fn(u64) -> Vec<FromGuest>; 6] = [
        |id| vec![FromGuest::Exited { id, status: Status::Exited(0), alive: false }],
        |id| vec![FromGuest::Started { id }, FromGuest::Started { id }],
        |id| vec![FromGuest::Started { id }, FromGuest::Empty { id }],
        // nobody gave it a socket
        |id| vec![FromGuest::Started { id }, FromGuest::Told { id, alive: false }],
        |id| vec![FromGuest::Started { id: id + 1 }],
        |_| vec![FromGuest::Welcome(Box::new(welcome()))],
    ];
    for lies in wrong {
        let it = liar();
        let (client, mut reader, writer) = it.met();
        let command = spawn(&client);
        for lie in lies(command.id) {
            writer.send(&lie, &[]).expect("send");
        }
        let mut last = command.next_within(LIMIT);
        if last == Some(CommandEvent::Started) {
            last = command.next_within(LIMIT);
        }
        assert_eq!(last, Some(CommandEvent::Lost));
        // dropped on its side too
        assert!(matches!(reader.recv::<ToGuest>(), Ok(Some((ToGuest::Spawn(_), _)))));
        assert!(!matches!(reader.recv::<ToGuest>(), Ok(Some(_))));
        assert!(client.spawn(sample(), &[]).is_err());
    }
    let it = liar();
    let (client, _reader, writer) = it.met();
    let command = spawn(&client);
    let id = command.id;
    for word in
        [FromGuest::Started { id }, FromGuest::Exited { id, status, alive: true }, FromGuest::Pong(3), FromGuest::Empty { id }]
    {
        writer.send(&word, &[]).expect("send");
    }
    for wanted in [CommandEvent::Started, CommandEvent::Exited(status, true), CommandEvent::Empty] {
        assert_eq!(command.next_within(LIMIT), Some(wanted));
    }
}

#[test]
fn who_hears_at_once_hears_all_and_may_start_another() {
    let it = liar();
    let (client, mut reader, writer) = it.met();
    let (sender, events) = std::sync::mpsc::channel();
    let again = client.clone();
    let hear = move |event| {
        if let CommandEvent::Exited(..) = event {
            let sender = sender.clone();
            // in the thread that hears the guest: nothing of the connection is locked
            again.spawn_heard(sample(), &[], move |event| sender.send(event).expect("somebody hears")).expect("another");
        }
        sender.send(event).expect("somebody hears");
    };
    let id = client.spawn_heard(sample(), &[], hear).expect("spawn");
    let status = Status::Exited(0);
    writer.send_all(&[FromGuest::Started { id }, FromGuest::Exited { id, status, alive: false }]).expect("send");
    let heard = || events.recv_timeout(LIMIT).expect("an event");
    assert_eq!([heard(), heard()], [CommandEvent::Started, CommandEvent::Exited(status, false)]);
    let mut asked = || match reader.recv::<ToGuest>() {
        Ok(Some((ToGuest::Spawn(spawn), _))) => spawn.id,
        other => panic!("{other:?}"),
    };
    assert_eq!(asked(), id);
    writer.send(&FromGuest::Started { id: asked() }, &[]).expect("send");
    assert_eq!(heard(), CommandEvent::Started);
    writer.shutdown();
    assert_eq!(heard(), CommandEvent::Lost);
    assert!(events.recv_timeout(LIMIT).is_err(), "nothing follows");
}

fn sample() -> Spawn {
    Spawn {
        id: 0,
        program: Bytes::from("sh"),
        by_name: false,
        argv: Vec::new(),
        env: Vec::new(),
        cwd: Bytes::from("/"),
        umask: 0,
        blocked: 0,
        ignored: 0,
        fds: Vec::new(),
        ctty: None,
    }
}

#[test]
fn the_end_of_a_guest_is_heard_by_all() {
    let it = liar();
    let (client, reader, writer) = it.met();
    let commands = [spawn(&client), spawn(&client)];
    drop(reader);
    writer.shutdown();
    for command in commands {
        assert_eq!(command.next_within(LIMIT), Some(CommandEvent::Lost));
        assert!(matches!(command.wait(), Err(ClientError::Gone)));
    }
}

#[test]
fn a_terminal_is_what_was_asked_for_or_the_guest_is_dropped() {
    let it = liar();
    let (client, mut reader, writer) = it.met();
    let null = std::fs::File::open("/dev/null").expect("a descriptor");
    let answers = [(FromGuest::Terminal, 2), (FromGuest::NoTerminal(6), 0), (FromGuest::Terminal, 1)];
    let guest = std::thread::spawn(move || {
        for (answer, count) in answers {
            assert!(matches!(reader.recv::<ToGuest>(), Ok(Some((ToGuest::OpenTerminal, fds))) if fds.is_empty()));
            writer.send(&answer, &vec![null.as_fd(); count]).expect("send");
        }
        // held until the client has left
        assert!(!matches!(reader.recv::<ToGuest>(), Ok(Some(_))));
    });
    assert!(matches!(client.terminal(), Ok(Ok(_))));
    assert!(matches!(client.terminal(), Ok(Err(6))));
    assert!(matches!(client.terminal(), Err(ClientError::Gone)), "half a terminal");
    guest.join().expect("the guest");
    assert!(matches!(client.terminal(), Err(ClientError::Gone)));
    // one that nobody asked for
    let it = liar();
    let (client, _reader, writer) = it.met();
    writer.send(&FromGuest::NoTerminal(6), &[]).expect("send");
    client.wait_lost();
    assert!(matches!(client.terminal(), Err(ClientError::Gone)));
}

#[test]
fn one_that_was_left_is_gone_before_that_was_heard() {
    for kind in [std::io::ErrorKind::BrokenPipe, std::io::ErrorKind::ConnectionReset] {
        let error = ClientError::from(WireError::Io(kind.into()));
        assert!(matches!(error, ClientError::Gone), "{error:?}");
    }
    let error = ClientError::from(WireError::Io(std::io::ErrorKind::OutOfMemory.into()));
    assert!(matches!(error, ClientError::Wire(_)), "{error:?}");
}
