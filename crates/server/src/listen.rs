//! The API socket: one daemon an HMZ_HOME, and only this user in this pid namespace is let in.

use crate::counted::{Count, Counted};
use crate::paths::Paths;
use hmz_api::Error;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use tokio::net::{UnixListener, UnixStream};

/// The lock that says a daemon lives; released when dropped or when the process dies.
#[derive(Debug)]
pub struct DaemonLock {
    _file: File,
}

/// Takes the lock; `None` when another daemon holds it.
///
/// # Errors
/// When the file cannot be made.
pub fn lock(paths: &Paths) -> Result<Option<DaemonLock>, Error> {
    let path = paths.lock();
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(|e| Error::failed(format!("{}: {e}", path.display())))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(DaemonLock { _file: file })),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(Error::failed(format!("{}: {e}", path.display()))),
    }
}

/// The socket, accepting only our own.
#[derive(Debug)]
pub struct ApiListener {
    inner: UnixListener,
    uid: u32,
    namespace: Option<std::path::PathBuf>,
    count: Count,
}

impl ApiListener {
    /// Binds the socket, in place of one that a dead daemon left. Call it with the lock held.
    ///
    /// # Errors
    /// When it cannot be bound.
    pub fn bind(paths: &Paths) -> Result<Self, Error> {
        let path = paths.socket();
        let failed = |e: std::io::Error| Error::failed(format!("{}: {e}", path.display()));
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        // its directory is 0700, so nobody is let in between the bind and the chmod
        let inner = UnixListener::bind(&path).map_err(failed)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let namespace = std::fs::read_link("/proc/self/ns/pid").ok();
        Ok(Self { inner, uid: rustix::process::getuid().as_raw(), namespace, count: Count::default() })
    }

    /// How many connections there are.
    pub fn count(&self) -> Count {
        self.count.clone()
    }

    /// The next connection of ours; others are closed at once.
    async fn next(&self) -> UnixStream {
        loop {
            match self.inner.accept().await {
                Ok((stream, _)) if self.is_ours(&stream) => return stream,
                Ok(_) => tracing::warn!("a connection of another user or another pid namespace was closed"),
                Err(e) => {
                    // out of descriptors, mostly: others end and give theirs back
                    tracing::warn!("accept: {e}");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn is_ours(&self, stream: &UnixStream) -> bool {
        let Ok(peer) = hmz_wire::peer_of(stream) else { return false };
        // pid 0 is a process that this namespace cannot see: one of a container that has the socket mounted
        peer.uid == self.uid
            && peer.pid > 0
            && self
                .namespace
                .as_ref()
                .is_none_or(|own| std::fs::read_link(format!("/proc/{}/ns/pid", peer.pid)).is_ok_and(|it| it == *own))
    }
}

impl axum::serve::Listener for ApiListener {
    type Io = Counted;
    type Addr = ();

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        (self.count.wrap(self.next().await), ())
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        Ok(())
    }
}
