//! The supervisor proper: starts the CLI, answers its execs, waits for its end, and leaves nothing behind.

use crate::child::{self, Word};
use crate::config::{self, Unbuffered};
use crate::descriptors::Borders;
use crate::filter::Ticket;
use crate::handed::{Carried, Relay};
use crate::late::{Late, Reached};
use crate::notify::{self, Notifier};
use crate::policy::{self, Policy};
use crate::session::Sessions;
use crate::shared::{self, Left};
use crate::sys::{self, Forked};
use crate::{AnchorError, SupervisorConfig, log, tree};
use hmz_api::launch::BoxAddress;
use hmz_api::link::Link;
use hmz_wire::{Bytes, Client, ClientError, Fence, Status, split};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reads the configuration from descriptor 0, runs the CLI to its end, and returns how it ended. `leash` carries the
/// signals the guardian was sent, one byte each; its end is the guardian's.
///
/// # Errors
/// When nothing was started, for a reason the error gives.
pub(crate) fn run(leash: OwnedFd) -> Result<Status, AnchorError> {
    // orphans of the CLI's tree stay below us, which is what a tracer has to be
    nix::sys::prctl::set_child_subreaper(true).map_err(AnchorError::nix("become a subreaper"))?;
    let config: SupervisorConfig = config::read(&mut Unbuffered)?;
    let relay = Relay::take(&config.passage)?;
    let _log = log::session("supervisor", &config.place.environment);
    if !config.program.is_file() {
        return Err(AnchorError::Refused(format!("the agent's program {} is not there", config.program.display())));
    }
    let own = policy::own_programs(&config);
    let policy = Arc::new(Policy::new(&config, &own)?);
    make_scratch(&config)?;
    let standin = standin()?;
    let ticket = Ticket::of(sys::random().map_err(AnchorError::io("get random bytes"))?);
    let (ours, theirs) = UnixStream::pair().map_err(AnchorError::io("make a socket"))?;
    let cli = match sys::fork().map_err(AnchorError::io("fork"))? {
        Forked::Child => {
            drop((ours, leash, standin, relay));
            match split(theirs) {
                Ok((ears, mouth)) => child::run(&config, &own, ticket, ears, &mouth),
                Err(_) => std::process::exit(1),
            }
        }
        Forked::Parent(pid) => Pid::from_raw(pid),
    };
    drop(theirs);
    let started = start(&config, &policy, (standin, ticket), ours, cli, relay);
    let status = match started {
        Ok(place) => {
            tracing::info!(program = %config.program.display(), "the agent's CLI was started");
            watch(leash, cli)?;
            let status = wait(cli);
            tracing::info!(?status, "the agent's CLI ended");
            tree::sweep();
            place.finish();
            status
        }
        Err(e) => {
            let _ = kill(cli, Signal::SIGKILL);
            tree::sweep();
            tracing::error!("the agent's CLI was not started: {e}");
            return Err(e);
        }
    };
    Ok(status)
}

/// Hears the child, connects to the box, and lets the child go. One that is only being started is connected to beside the
/// CLI, whose first exec waits for it. From here on there are threads.
fn start(
    config: &SupervisorConfig,
    policy: &Arc<Policy>,
    (standin, ticket): (OwnedFd, Ticket),
    child: UnixStream,
    cli: Pid,
    relay: Relay,
) -> Result<Arc<Late>, AnchorError> {
    let (mut ears, mouth) = split(child).map_err(hmz_wire::ClientError::from)?;
    let heard = match ears.recv::<Word>().map_err(hmz_wire::ClientError::from)? {
        Some((Word::Ready(waits), fds)) => fds.into_iter().next().map(|listener| (listener, waits)),
        Some((Word::Refused(why), _)) => return Err(AnchorError::Refused(why)),
        _ => None,
    };
    let (listener, waits) =
        heard.ok_or_else(|| AnchorError::Refused("the agent's process ended before it was started".into()))?;
    sys::can_add_fd(listener.as_fd()).map_err(|e| {
        let why = if e.raw_os_error() == Some(libc::EINVAL) { "it is older than 5.9".into() } else { e.to_string() };
        AnchorError::Refused(format!(
            "the agent's commands cannot be redirected: this kernel puts no descriptors into them ({why})"
        ))
    })?;
    notify::can_trace(cli).map_err(|e| {
        AnchorError::Refused(format!("the agent's commands cannot be redirected: this kernel lets nobody trace it ({e})"))
    })?;
    sys::wake_here(listener.as_fd());
    let late = Arc::new(Late::default());
    let borders = Borders::new(policy.shared(), cli.as_raw())?;
    let commands = Commands::of(config, policy.shared());
    let (handed, carried) = relay.split();
    let reach = move || commands.reach(carried, borders);
    if let Some(handed) = handed {
        late.say(Some(Reached::Handed(Arc::new(handed))));
    } else if let Link::Awaited { .. } = config.place.link {
        let late = Arc::clone(&late);
        let work = move || match reach() {
            Ok(reached) => late.say(Some(reached)),
            Err(e) => {
                eprintln!("hmz: {e}");
                late.say(None);
                // of a box that did not come the run's end tells; one that is there and is not to be worked in ends the CLI
                if !matches!(e, AnchorError::Box(ClientError::NotStarted { .. })) {
                    let _ = kill(cli, Signal::SIGKILL);
                }
            }
        };
        std::thread::Builder::new().name("reach".into()).spawn(work).map_err(AnchorError::io("start a thread"))?;
    } else {
        late.say(Some(reach()?));
    }
    let notifier = Notifier { listener, waits, standin, ticket, policy: Arc::clone(policy), place: Arc::clone(&late) };
    let tracer = std::thread::Builder::new().name("tracer".into());
    tracer.spawn(move || notifier.run()).map_err(AnchorError::io("start a thread"))?;
    mouth.send(&Word::Go, &[]).map_err(hmz_wire::ClientError::from)?;
    // the child's end closes when the CLI's exec succeeds
    match ears.recv::<Word>() {
        Ok(Some((Word::Refused(why), _))) => Err(AnchorError::Refused(why)),
        _ => leave_streams().map(|()| late),
    }
}

/// What serving a CLI's commands needs to know, besides its connection to the box.
#[derive(Debug)]
pub(crate) struct Commands {
    pub(crate) place: BoxAddress,
    /// Names of variables that may cross.
    pub(crate) env_allow: Vec<String>,
    /// The directories both sides have, as real paths.
    pub(crate) shared: Vec<PathBuf>,
    pub(crate) tmpdir: Option<String>,
    /// What stands before the path of a file that a command leaves for the CLI.
    pub(crate) marks: Vec<String>,
}

impl Commands {
    fn of(config: &SupervisorConfig, shared: &[PathBuf]) -> Self {
        Self {
            place: config.place.clone(),
            env_allow: config.env_allow.clone(),
            shared: shared.to_vec(),
            tmpdir: config.env.get("TMPDIR").cloned(),
            marks: config.policy.leaves.clone(),
        }
    }

    /// Connects to the box, and serves stand-ins from now on.
    ///
    /// # Errors
    /// When the box cannot be worked in.
    pub(crate) fn reach(self, carried: Option<Carried>, borders: Borders) -> Result<Reached, AnchorError> {
        let (client, guest) = match carried {
            Some(carried) => carried.connect(fence(&self.place, &[]))?,
            None => (connect(&self.place)?, shared::guest_of(&self.place.link)),
        };
        let left = far_scratch(&self.place, self.tmpdir.as_deref(), self.marks, (&client, guest))?;
        let sessions = Sessions::start(client.clone(), borders, self.env_allow, self.shared, left)?;
        Ok(Reached::Here { client, sessions })
    }
}

/// Where the box does not have the scratch directory that is here: makes the session's own there, and says what is brought over.
fn far_scratch(
    place: &BoxAddress,
    tmpdir: Option<&str>,
    marks: Vec<String>,
    (client, guest): (&Client, String),
) -> Result<Option<Left>, AnchorError> {
    if !client.is_copied() {
        return Ok(None);
    }
    if let Some(dir) = tmpdir.filter(|dir| Path::new(dir).starts_with(&place.scratch)) {
        shared::make(client, &guest, dir)?;
    }
    Ok(Some(Left { marks, scratch: place.scratch.clone().into(), guest }))
}

/// Lets go of the CLI's input and output, so that their other ends see when the CLI closes them. A terminal is kept, to
/// be given back to whoever had it.
pub(crate) fn leave_streams() -> Result<(), AnchorError> {
    const WHAT: &str = "open /dev/null";
    if rustix::termios::isatty(rustix::stdio::stdin()) {
        return Ok(());
    }
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(AnchorError::errno(WHAT))?;
    rustix::stdio::dup2_stdin(&null).map_err(AnchorError::errno(WHAT))?;
    rustix::stdio::dup2_stdout(&null).map_err(AnchorError::errno(WHAT))
}

/// A connection whose commands write the workdir, the scratch directory and the box's own temporary ones, nothing else.
pub(crate) fn connect(place: &BoxAddress) -> Result<Client, AnchorError> {
    fenced(place, &[])
}

/// The same with directories of the box's besides.
///
/// # Errors
/// When the box cannot be worked in, or its kernel cannot hold the fence ([`hmz_wire::ClientError::Refused`]).
pub fn fenced(place: &BoxAddress, besides: &[PathBuf]) -> Result<Client, AnchorError> {
    Ok(Client::open(&place.link, false, Some(fence(place, besides)))?)
}

/// What commands in a box may write.
fn fence(place: &BoxAddress, besides: &[PathBuf]) -> Fence {
    let write = [place.workdir.as_str(), place.scratch.as_str(), "/tmp", "/var/tmp"].map(Path::new);
    let write = write.into_iter().chain(besides.iter().map(PathBuf::as_path));
    Fence { write: write.map(|dir| Bytes::from(dir.as_os_str().as_bytes())).collect(), required: true }
}

/// Forwards signals, and ends everything when the guardian is gone.
fn watch(leash: OwnedFd, cli: Pid) -> Result<(), AnchorError> {
    let watcher = std::thread::Builder::new().name("leash".into());
    let work = move || {
        let mut leash = std::fs::File::from(leash);
        let mut byte = [0u8];
        while leash.read_exact(&mut byte).is_ok() {
            if let Ok(signal) = Signal::try_from(i32::from(byte[0])) {
                // a CLI that has ended hears nothing
                let _ = killpg(cli, signal);
            }
        }
        // the guardian is gone: the CLI's end makes the main thread sweep
        let _ = kill(cli, Signal::SIGKILL);
    };
    watcher.spawn(work).map(drop).map_err(AnchorError::io("start a thread"))
}

/// Reaps until the CLI has ended. Only this thread's own children: what the tracer stops is the tracer's.
fn wait(cli: Pid) -> Status {
    loop {
        match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
            Ok(WaitStatus::Exited(pid, status)) if pid == cli => return Status::Exited(status),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == cli => return Status::Signaled(signal as i32),
            Err(nix::errno::Errno::ECHILD) => return Status::Exited(1),
            _ => {}
        }
    }
}

/// The stand-in as an executable without a path, which no fence forbids and nobody can write.
fn standin() -> Result<OwnedFd, AnchorError> {
    const WHAT: &str = "make the stand-in";
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("hmz-stand-in", flags | MemfdFlags::EXEC)
        // kernels before 6.3 know no other
        .or_else(|_| rustix::fs::memfd_create("hmz-stand-in", flags))
        .map_err(AnchorError::errno(WHAT))?;
    let mut rest = hmz_standin::BINARY;
    while !rest.is_empty() {
        rest = &rest[rustix::io::write(&file, rest).map_err(AnchorError::errno(WHAT))?..];
    }
    let seals = rustix::fs::SealFlags::WRITE | rustix::fs::SealFlags::GROW | rustix::fs::SealFlags::SHRINK;
    rustix::fs::fcntl_add_seals(&file, seals | rustix::fs::SealFlags::SEAL).map_err(AnchorError::errno(WHAT))?;
    // a file that is open for writing is not executed
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(AnchorError::errno(WHAT))
}

/// Makes the session's own directory below the scratch directory, following no link.
fn make_scratch(config: &SupervisorConfig) -> Result<(), AnchorError> {
    const WHAT: &str = "make the session's scratch directory";
    let Some(wanted) = config.env.get("TMPDIR").map(Path::new) else { return Ok(()) };
    let Ok(below) = wanted.strip_prefix(&config.place.scratch) else { return Ok(()) };
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(&config.place.scratch, flags, Mode::empty()).map_err(AnchorError::errno(WHAT))?;
    for part in below.components() {
        let std::path::Component::Normal(name) = part else {
            return Err(AnchorError::Refused(format!("the scratch directory {} is no plain path", wanted.display())));
        };
        match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(AnchorError::errno(WHAT)(e)),
        }
        at = rustix::fs::openat(&at, name, flags | OFlags::NOFOLLOW, Mode::empty()).map_err(AnchorError::errno(WHAT))?;
    }
    Ok(())
}
