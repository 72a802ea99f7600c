//! The relay: what a CLI in a second box is here. That box has its supervisor too, which reaches no other box: it hands each of
//! its stand-ins over a socket to the relay, which serves them as a supervisor here does, over a connection to the box that
//! the commands land in. For the rest it is as the proxy: the CLI's own three streams, signals, its end.
//!
//! What comes over that socket is a box's word. A stand-in's descriptors are judged as those of a CLI here are, and none of a file
//! of this machine is ever sent into the second box.

use crate::config::{self, RelayConfig, Unbuffered};
use crate::descriptors::Borders;
use crate::handed::{RELAY, Said, Told};
use crate::late::{Names, Reached};
use crate::policy::Target;
use crate::supervisor::Commands;
use crate::{AnchorError, end_as, launch, proxy, sys};
use hmz_api::link::Link;
use hmz_wire::{Bytes, Client, ClientError, GUEST_PROGRAM, Reader, Spawn, Status, Writer, split};
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
    let Link::Direct { pid, .. } = config.second.link else {
        return Err(AnchorError::Refused("a fence cannot hold a harness that runs on another machine".into()));
    };
    let shared = shared(&config)?;
    // the CLI's own streams are known by what this process has, until it lets go of them
    let borders = Borders::new(&shared, pid)?;
    let commands =
        Commands { place: config.place, env_allow: config.env_allow, shared, tmpdir: Some(config.tmpdir), marks: config.leaves };
    let reached = commands.reach(borders)?;
    // its supervisor is not fenced: it fences the CLI
    let client = Client::open(&config.second.link, false, None)?;
    let (tell, heard) = channel();
    let (ours, theirs) = UnixStream::pair().map_err(AnchorError::io("make a socket"))?;
    let (leash, held) = pipe_with(PipeFlags::CLOEXEC).map_err(AnchorError::errno("make a pipe"))?;
    let id = proxy::spawn(&client, supervisor(&config.second.workdir), &[leash.as_fd(), theirs.as_fd()], tell.clone())?;
    drop((leash, theirs));
    proxy::leave_streams()?;
    let (ears, mouth) = split(ours).map_err(ClientError::from)?;
    mouth.send(&Told::Reached(reached.is_copied()), &[]).map_err(ClientError::from)?;
    let serving = reached.clone();
    let serve = std::thread::Builder::new().name("relay".into());
    serve.spawn(move || attend(&serving, ears, &mouth)).map_err(AnchorError::io("start a thread"))?;
    let listen = std::thread::Builder::new().name("signals".into());
    listen.spawn(move || proxy::listen(&lifeline, &signals, &tell)).map_err(AnchorError::io("start a thread"))?;
    let ended = proxy::attend(&client, id, GUEST_PROGRAM, &heard);
    drop(held);
    client.finish();
    reached.finish();
    ended
}

/// The directories that all three sides have, by their real paths.
fn shared(config: &RelayConfig) -> Result<Vec<PathBuf>, AnchorError> {
    let real =
        |p: &String| std::fs::canonicalize(p).map_err(|e| AnchorError::Refused(format!("the directory {p} is not there: {e}")));
    [&config.place.workdir, &config.place.scratch].into_iter().map(real).collect()
}

/// The supervisor in the second box, with the CLI's streams, a lifeline and its relay.
fn supervisor(cwd: &str) -> Spawn {
    let bytes = |text: &str| Bytes::from(text.as_bytes());
    Spawn {
        id: 0,
        program: bytes(GUEST_PROGRAM),
        by_name: false,
        argv: ["hmz", "supervisor"].map(bytes).into(),
        env: Vec::new(),
        cwd: bytes(cwd),
        umask: 0o022,
        blocked: 0,
        ignored: 0,
        fds: vec![0, 1, 2, launch::LIFELINE, RELAY],
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
