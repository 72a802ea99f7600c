//! A fresh stream to a guest, opened as a [`Dial`] says.

use super::carry::{CARRIED, Carried};
use super::engine;
use hmz_api::link::Dial;
use hmz_api::way::{Exec, Way};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How much of what a program complained is kept.
const COMPLAINT: usize = 1 << 10;

/// An open stream. When it is dropped it is cut, and a program that carried it has ended.
#[derive(Debug)]
pub(crate) struct Dialed {
    socket: UnixStream,
    framed: Option<engine::Deframer>,
    program: Option<Program>,
}

/// A program that carries a stream.
#[derive(Debug)]
struct Program {
    child: Child,
    complaint: Arc<Mutex<Vec<u8>>>,
    listener: Option<std::thread::JoinHandle<()>>,
}

impl Dialed {
    /// Opens a stream; each step of it takes at most `patience`.
    ///
    /// # Errors
    /// When the program or the daemon is not there or says no.
    pub(crate) fn open(dial: &Dial, patience: Duration) -> io::Result<Self> {
        match dial {
            Dial::Program { argv, env } => {
                let (program, arguments) =
                    argv.split_first().ok_or_else(|| io::Error::other("the way to the box names no program"))?;
                let mut command = Command::new(program);
                command.args(arguments).env_clear().envs(env);
                Self::by(command, program, patience)
            }
            Dial::Engine { endpoint, container, argv } => {
                Ok(Self::of(engine::exec(engine::socket(endpoint)?, container, &Exec::of(argv.clone()), patience)?))
            }
            Dial::Daemon { reach, container, env } => {
                if let Way::Unix(socket) = &reach.way {
                    return Ok(Self::of(engine::exec(socket, container, &reach.exec, patience)?));
                }
                if let Some(near) = &reach.near {
                    match engine::exec(near, container, &reach.exec, patience) {
                        Ok(socket) => return Ok(Self::of(socket)),
                        // whoever made it is gone, and its way with it
                        Err(e) if is_nobody(&e) => {}
                        Err(e) => return Err(e),
                    }
                }
                // whoever opens a link is a program that can carry one too
                let mut command = Command::new("/proc/self/exe");
                let carried = Carried { way: reach.way.clone(), container: container.clone(), exec: reach.exec.clone() };
                let carried = serde_json::to_string(&carried).map_err(io::Error::other)?;
                command.arg0("hmz").arg("carry").env_clear().envs(env).env(CARRIED, carried);
                Self::by(command, "hmz carry", patience)
            }
        }
    }

    /// A stream that is there already; each write takes at most `patience`.
    ///
    /// # Errors
    /// When it cannot be told so.
    pub(crate) fn held(socket: UnixStream, patience: Duration) -> io::Result<Self> {
        socket.set_write_timeout(Some(patience))?;
        Ok(Self { socket, framed: None, program: None })
    }

    fn of(socket: UnixStream) -> Self {
        Self { socket, framed: Some(engine::Deframer::default()), program: None }
    }

    /// The stream that a program carries.
    fn by(mut command: Command, name: &str, patience: Duration) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_write_timeout(Some(patience))?;
        let output = OwnedFd::from(theirs.try_clone()?);
        command.current_dir("/").stdin(OwnedFd::from(theirs)).stdout(output).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| io::Error::new(e.kind(), format!("{name}: {e}")))?;
        let complaint = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&complaint);
        let listener = child.stderr.take().map(|mut errors| {
            std::thread::Builder::new().name("complaints".into()).stack_size(64 << 10).spawn(move || {
                let mut buffer = [0; 1024];
                while let Ok(len @ 1..) = errors.read(&mut buffer) {
                    let mut kept = heard.lock().unwrap_or_else(PoisonError::into_inner);
                    let room = COMPLAINT.saturating_sub(kept.len()).min(len);
                    kept.extend_from_slice(&buffer[..room]);
                }
            })
        });
        let listener = listener.transpose().ok().flatten();
        Ok(Self { socket: ours, framed: None, program: Some(Program { child, complaint, listener }) })
    }

    /// A handle that cuts it from another thread, and the half that writes.
    ///
    /// # Errors
    /// When the descriptor cannot be duplicated.
    pub(crate) fn other(&self) -> io::Result<UnixStream> {
        self.socket.try_clone()
    }

    /// How long a read waits.
    ///
    /// # Errors
    /// When `limit` is zero.
    pub(crate) fn set_patience(&self, limit: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(limit))
    }

    /// Ends it, and says what its carrier complained of; empty when it did not.
    pub(crate) fn complaint(mut self) -> String {
        let bytes = match (&mut self.program, &self.framed) {
            (Some(program), _) => program.end(),
            (None, Some(framed)) => framed.complaint().to_vec(),
            (None, None) => Vec::new(),
        };
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }
}

/// Whether an error says that nobody is at the other end of a socket, or that it leads nowhere.
fn is_nobody(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(error.kind(), NotFound | ConnectionRefused | ConnectionReset | BrokenPipe | UnexpectedEof)
}

impl Program {
    fn end(&mut self) -> Vec<u8> {
        // one that has ended by itself needs no kill, and one that was reaped by another no wait
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
        self.complaint.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Dialed {
    fn drop(&mut self) {
        // already cut is as good
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        if let Some(program) = &mut self.program {
            let _ = program.child.kill();
            let _ = program.child.wait();
        }
    }
}

impl Read for Dialed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.framed {
            Some(framed) => framed.read(&mut self.socket, buffer),
            None => self.socket.read(buffer),
        }
    }
}

impl Write for Dialed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
