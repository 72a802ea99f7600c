//! The relay: what a CLI in a second box is here. That box has its supervisor too, which reaches no other box. On this kernel
//! it hands each of its stand-ins over a socket to the relay, which serves them as a supervisor here does, over a connection to
//! the box that the commands land in. Out of a box that is reached by a stream no descriptor comes: there the supervisor serves
//! them itself, over a stream to a guest of the session's own in that box, which the relay starts and whose two ends meet here.
//! For the rest it is as the proxy: the CLI's own three streams, signals, its end.
//!
//! What comes over that socket is a box's word. A stand-in's descriptors are judged as those of a CLI here are, and none of a file
//! of this machine is ever sent into the second box. The guest of a session is fenced as the commands are, whatever it is asked.

use crate::config::{self, RelayConfig, Unbuffered};
use crate::descriptors::Borders;
use crate::handed::{RELAY, Said, Told};
use crate::late::{Names, Reached};
use crate::policy::Target;
use crate::shared::guest_of;
use crate::supervisor::Commands;
use crate::{AnchorError, end_as, launch, proxy, supervisor, sys};
use hmz_api::launch::BoxAddress;
use hmz_api::link::Link;
use hmz_wire::{Bytes, Client, ClientError, Reader, Spawn, Status, Writer, split};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::channel;

/// The hidden verb `hmz relay`: must be called before the process has a second thread. Reads its configuration's frame from
/// descriptor 0; the rest of it, which begins with the supervisor's own frame, is the supervisor's. Descriptor 3 is the lifeline.
///
/// Ends as the CLI ended: with its status, or by its signal.
pub fn main() -> ExitCode {
    end_as("relay", run())
}

fn run() -> Result<Status, AnchorError> {
    let lifeline = sys::take_fd(launch::LIFELINE)
        .ok_or_else(|| AnchorError::Refused("a relay is started by hmz itself: it has no lifeline".into()))?;
    sys::cloexec_from(3).map_err(AnchorError::io("close descriptors"))?;
    let signals = proxy::signals()?;
    let config: RelayConfig = config::read(&mut Unbuffered)?;
    proxy::only_pipes()?;
    let (ours, theirs) = UnixStream::pair().map_err(AnchorError::io("make a socket"))?;
    let mut way = match config.second.link {
        Link::Direct { pid, .. } => Way::hand(&config, ours, pid)?,
        Link::Stream(_) => Way::carry(&config.place, ours)?,
        Link::Awaited { .. } => return Err(AnchorError::Refused("a second box is there before its supervisor".into())),
    };
    // its supervisor is not fenced: it fences the CLI
    let client = Client::open(&config.second.link, false, None)?;
    let (tell, heard) = channel();
    let (leash, held) = pipe_with(PipeFlags::CLOEXEC).map_err(AnchorError::errno("make a pipe"))?;
    let program = guest_of(&config.second.link);
    let supervisor = hmz(&program, &["supervisor"], &config.second.workdir, vec![0, 1, 2, launch::LIFELINE, RELAY]);
    let id = proxy::spawn(&client, supervisor, &[leash.as_fd(), theirs.as_fd()], tell.clone())?;
    drop((leash, theirs));
    proxy::leave_streams()?;
    way.begin()?;
    let listen = std::thread::Builder::new().name("signals".into());
    listen.spawn(move || proxy::listen(&lifeline, &signals, &tell)).map_err(AnchorError::io("start a thread"))?;
    let ended = proxy::attend(&client, id, &program, &heard);
    drop(held);
    client.finish();
    way.finish();
    ended
}

/// How the commands of a CLI in a second box come to the box they land in.
enum Way {
    /// Served here, once the supervisor there is started.
    Handed { reached: Reached, socket: Option<UnixStream> },
    /// Served there, over a guest of the session's own, which this connection has started.
    Carried(Client),
}

impl Way {
    /// Serves stand-ins that come over `socket` from below `root`.
    fn hand(config: &RelayConfig, socket: UnixStream, root: i32) -> Result<Self, AnchorError> {
        let shared = shared(config)?;
        // the CLI's own streams are known by what this process has, until it lets go of them
        let borders = Borders::new(&shared, root)?;
        let commands = Commands {
            place: config.place.clone(),
            env_allow: config.env_allow.clone(),
            shared,
            tmpdir: Some(config.tmpdir.clone()),
            marks: config.leaves.clone(),
        };
        Ok(Self::Handed { reached: commands.reach(None, borders)?, socket: Some(socket) })
    }

    /// Starts a guest for the session in the box, with `socket` for its stream.
    fn carry(place: &BoxAddress, socket: UnixStream) -> Result<Self, AnchorError> {
        let client = supervisor::connect(place)?;
        let program = guest_of(&place.link);
        let mut guest = hmz(&program, &["guest", "serve"], "/", vec![0, 1, 2]);
        guest.env = client.welcome().env.clone();
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let null = null.map_err(AnchorError::errno("open /dev/null"))?;
        // whether it began is seen by its first word, and its end by that of the stream
        client.spawn_heard(guest, &[socket.as_fd(), socket.as_fd(), null.as_fd()], |_| {})?;
        Ok(Self::Carried(client))
    }

    /// The supervisor is started.
    fn begin(&mut self) -> Result<(), AnchorError> {
        let Self::Handed { reached, socket } = self else { return Ok(()) };
        let Some(socket) = socket.take() else { return Ok(()) };
        let (ears, mouth) = split(socket).map_err(ClientError::from)?;
        mouth.send(&Told::Reached(reached.is_copied()), &[]).map_err(ClientError::from)?;
        let serving = reached.clone();
        let serve = std::thread::Builder::new().name("relay".into());
        serve.spawn(move || attend(&serving, ears, &mouth)).map(drop).map_err(AnchorError::io("start a thread"))
    }

    /// Ends the connection to the box, and what is left of the session in it.
    fn finish(&self) {
        match self {
            Self::Handed { reached, .. } => reached.finish(),
            Self::Carried(client) => client.finish(),
        }
    }
}

/// The directories that all three sides have, by their real paths.
fn shared(config: &RelayConfig) -> Result<Vec<PathBuf>, AnchorError> {
    let real =
        |p: &String| std::fs::canonicalize(p).map_err(|e| AnchorError::Refused(format!("the directory {p} is not there: {e}")));
    [&config.place.workdir, &config.place.scratch].into_iter().map(real).collect()
}

/// A verb of hmz itself in a box, with these descriptors.
fn hmz(program: &str, verb: &[&str], cwd: &str, fds: Vec<i32>) -> Spawn {
    let bytes = |text: &str| Bytes::from(text.as_bytes());
    Spawn {
        id: 0,
        program: bytes(program),
        by_name: false,
        argv: std::iter::once(&"hmz").chain(verb).map(|word| bytes(word)).collect(),
        env: Vec::new(),
        cwd: bytes(cwd),
        umask: 0o022,
        blocked: 0,
        ignored: 0,
        fds,
        ctty: None,
    }
}

/// Serves a supervisor until it ends, or says what none says.
fn attend(reached: &Reached, mut ears: Reader, mouth: &Writer) {
    let mut names = Names::default();
    while let Ok(Some((said, fds))) = ears.recv::<Said>() {
        match said {
            Said::Has(name) => {
                let has = reached.has(&name, &mut names);
                if mouth.send(&Told::Has(has), &[]).is_err() {
                    return;
                }
            }
            Said::Begin(program, by_name) => {
                let mut fds: std::vec::IntoIter<OwnedFd> = fds.into_iter();
                // the kernel drops what does not fit this process's table: that stand-in ends, and no other
                let (Some(socket), None) = (fds.next(), fds.next()) else { continue };
                reached.begin(UnixStream::from(socket), Target { program, by_name });
            }
        }
    }
}
