//! A box over one stream of bytes: a command against `docker exec`, and a signal's way beside a stream that is full.

use crate::rounds::{compared, median, take_turns};
use crate::support::docker::docker;
use crate::support::home::TestHome;
use crate::table::{Aim, Figure, Unit};
use crate::world::{IMAGE, docker_socket};
use hmz_api::link::{Dial, Link, LinkKey, StreamLink};
use hmz_wire::{Bytes, Client, Command, CommandEvent, GUEST_PROGRAM, GUEST_SOCKET_DIR, SOCKET_NAME, Spawn, Status, relay_argv};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// Commands a round.
const COMMANDS: u32 = 50;

/// Signals and round trips a round.
const SIGNALS: usize = 20;

/// A signal may take this much longer than a round trip.
const SLACK: f64 = 0.020;

/// A container that has nothing of this machine but the guest's program.
struct Far(String, #[allow(dead_code, reason = "its program is mounted")] TestHome);

impl Far {
    fn new() -> Self {
        let home = TestHome::new();
        let name = format!("hmz-bench-far-{}", std::process::id());
        // what a released hmz gives its boxes, which is not hmz itself
        let own = std::env::var_os("HMZ_GUEST").map_or_else(|| home.program().to_owned(), Into::into);
        let program = format!("{}:{GUEST_PROGRAM}:ro", own.display());
        let socket = format!("{GUEST_SOCKET_DIR}/{SOCKET_NAME}");
        docker(&[
            "run",
            "-d",
            "--rm",
            "--name",
            &name,
            "--label",
            "hmz-bench=far",
            "-v",
            &program,
            "--tmpfs",
            GUEST_SOCKET_DIR,
            "--entrypoint",
            GUEST_PROGRAM,
            IMAGE,
            "guest",
            "--socket",
            &socket,
            "--channel",
        ]);
        Self(name, home)
    }

    fn client(&self) -> Client {
        let endpoint = format!("unix://{}", docker_socket().display());
        let dial = Dial::Engine { endpoint, container: self.0.clone(), argv: relay_argv() };
        let link = Link::Stream(Box::new(StreamLink::new(dial, LinkKey::new([1; 32]))));
        // its first process makes its socket in a moment
        let begin = Instant::now();
        loop {
            match Client::open(&link, true, None) {
                Ok(client) => return client,
                Err(e) => assert!(begin.elapsed().as_secs() < 60, "{e}"),
            }
        }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        docker(&["rm", "-f", &self.0]);
    }
}

fn spawn(client: &Client, argv: &[&str]) -> (Command, File, File) {
    let ((theirs, input), (out, out_theirs)) = (std::io::pipe().expect("a pipe"), std::io::pipe().expect("a pipe"));
    let bytes = |text: &str| Bytes::from(text.as_bytes());
    let spawn = Spawn {
        id: 0,
        program: bytes(argv[0]),
        by_name: false,
        argv: argv.iter().map(|a| bytes(a)).collect(),
        env: Vec::new(),
        cwd: bytes("/"),
        umask: 0o022,
        blocked: 0,
        ignored: 0,
        fds: vec![0, 1],
        ctty: None,
    };
    let command = client.spawn(spawn, &[theirs.as_fd(), out_theirs.as_fd()]).expect("a command");
    (command, File::from(OwnedFd::from(input)), File::from(OwnedFd::from(out)))
}

fn ended(command: &Command) -> Status {
    command.wait().expect("the guest").expect("it starts")
}

/// From a signal to the news of the command's death.
fn signal(client: &Client) -> f64 {
    let took = (0..SIGNALS).map(|_| {
        let (command, _input, _out) = spawn(client, &["sleep", "1000"]);
        assert_eq!(command.next(), CommandEvent::Started);
        let began = Instant::now();
        command.signal(9).expect("the guest");
        assert_eq!(ended(&command), Status::Signaled(9));
        began.elapsed().as_secs_f64()
    });
    median(&took.collect::<Vec<_>>())
}

/// A byte to a command and back, with nothing else on the way.
fn round_trip(client: &Client) -> f64 {
    let (command, mut input, mut out) = spawn(client, &["cat"]);
    let mut byte = [7];
    let took = (0..SIGNALS).map(|_| {
        let began = Instant::now();
        input.write_all(&byte).expect("it reads");
        out.read_exact(&mut byte).expect("it writes");
        began.elapsed().as_secs_f64()
    });
    let took = median(&took.collect::<Vec<_>>());
    drop(input);
    assert_eq!(ended(&command), Status::Exited(0));
    took
}

/// Reads what a command writes without end, until the command is killed; bytes a second.
fn beside_bulk(client: &Client, measure: impl FnOnce() -> f64) -> (f64, f64) {
    let (flood, _input, mut out) = spawn(client, &["cat", "/dev/zero"]);
    let reader = std::thread::spawn(move || {
        let (mut buffer, mut all, began) = (vec![0; 1 << 16], 0usize, Instant::now());
        while let Ok(n @ 1..) = out.read(&mut buffer) {
            all += n;
        }
        all as f64 / began.elapsed().as_secs_f64()
    });
    assert_eq!(flood.next(), CommandEvent::Started);
    let measured = measure();
    flood.signal(9).expect("the guest");
    (measured, reader.join().expect("a reader"))
}

/// Measures it.
pub fn measure(rounds: usize) -> Vec<Figure> {
    let far = Far::new();
    let client = far.client();
    let command = |_| {
        let began = Instant::now();
        for _ in 0..COMMANDS {
            let (command, _input, _out) = spawn(&client, &["true"]);
            assert_eq!(ended(&command), Status::Exited(0));
        }
        began.elapsed().as_secs_f64() / f64::from(COMMANDS)
    };
    let exec = |_| {
        let began = Instant::now();
        docker(&["exec", &far.0, "true"]);
        began.elapsed().as_secs_f64()
    };
    let (ours, through) = take_turns(rounds, command, exec);
    let (mut signals, mut extra, mut rates, mut trips) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let trip = round_trip(&client);
        let (took, rate) = beside_bulk(&client, || signal(&client));
        signals.push(took);
        extra.push(took - trip);
        rates.push(rate);
        trips.push(trip);
    }
    client.finish();
    vec![
        compared("one command over a stream", Unit::Seconds, &ours, "docker exec", &through, Aim::Ratio(0.1)),
        compared("a signal beside a full stream", Unit::Seconds, &signals, "a round trip", &trips, Aim::Told),
        Figure::alone("… beyond the round trip", Unit::Seconds, median(&extra), Aim::Value(SLACK)),
        Figure::alone("output over a stream", Unit::Rate, median(&rates), Aim::Told),
    ]
}
