//! A connection to a daemon: at a socket here, at a port with or without TLS, or through one ssh of our own.

use super::tls;
use super::tunnel::Tunnel;
use super::way::{TlsFiles, Way};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// How long a port may take to take a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Both directions of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The way to a daemon, ready to be gone.
pub enum Road {
    /// At a socket here.
    Unix(PathBuf),
    /// At a port.
    Tcp(Port, Arc<Relay>),
    /// Through an ssh of our own.
    Ssh(Box<Tunnel>),
}

/// A port, and how it is spoken to.
#[derive(Clone)]
pub struct Port {
    /// A name or an address.
    host: String,
    port: u16,
    /// How to speak TLS there.
    tls: Option<Arc<ClientConfig>>,
}

/// A socket here that leads to a port, for programs of ours that speak to the daemon themselves.
pub struct Relay {
    dir: PathBuf,
    port: Arc<Mutex<Port>>,
    up: tokio::sync::Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(task) = self.up.get_mut() {
            task.abort();
        }
    }
}

impl std::fmt::Debug for Road {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => f.debug_tuple("Unix").field(path).finish(),
            Self::Tcp(Port { host, port, .. }, _) => f.debug_tuple("Tcp").field(host).field(port).finish(),
            Self::Ssh(tunnel) => f.debug_tuple("Ssh").field(tunnel).finish(),
        }
    }
}

impl Road {
    /// The road of a way. `sockets` is a directory of this user's alone, with a short path.
    ///
    /// # Errors
    /// TLS material that is missing or wrong, in words that name the file.
    pub fn new(way: &Way, sockets: &Path) -> Result<Self, String> {
        Ok(match way {
            Way::Unix(path) => Self::Unix(path.clone()),
            Way::Tcp { host, port, tls } => {
                let dir = own(sockets, &format!("{way:?}"));
                let port = Port::of(host, *port, tls.as_ref())?;
                let relay = Relay { dir, port: Arc::new(Mutex::new(port.clone())), up: tokio::sync::Mutex::default() };
                Self::Tcp(port, Arc::new(relay))
            }
            Way::Ssh(host) => Self::Ssh(Box::new(Tunnel::new(host.clone(), own(sockets, &format!("{way:?}"))))),
        })
    }

    /// A connection.
    ///
    /// # Errors
    /// Why there is none, in the words of whoever said so.
    pub async fn connect(&self) -> Result<Box<dyn Stream>, String> {
        match self {
            Self::Unix(path) => Ok(Box::new(unix(path).await?)),
            Self::Tcp(port, _) => port.connect().await,
            Self::Ssh(tunnel) => Ok(Box::new(unix(&tunnel.socket().await?).await?)),
        }
    }

    /// A socket here that leads to the daemon.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn socket(&self) -> Result<PathBuf, String> {
        match self {
            Self::Unix(path) => Ok(path.clone()),
            Self::Ssh(tunnel) => tunnel.socket().await,
            Self::Tcp(_, relay) => relay.socket().await,
        }
    }

    /// The road of the same way anew, with its files read again. What has sockets here keeps them: an ssh that is there stays, and
    /// a socket that leads to a port leads there on the new road.
    ///
    /// # Errors
    /// As for [`Road::new`].
    pub fn again(self: &Arc<Self>, way: &Way) -> Result<Arc<Self>, String> {
        Ok(match (&**self, way) {
            (Self::Ssh(_), _) => Arc::clone(self),
            (Self::Tcp(_, relay), Way::Tcp { host, port, tls }) => {
                let port = Port::of(host, *port, tls.as_ref())?;
                *relay.port.lock().unwrap_or_else(PoisonError::into_inner) = port.clone();
                Arc::new(Self::Tcp(port, Arc::clone(relay)))
            }
            _ => Arc::new(Self::new(way, Path::new("/"))?),
        })
    }

    /// Why a connection ended, with what the way there says of it.
    pub fn broke(&self, error: &(dyn Error + 'static)) -> String {
        let text = format!("the connection broke: {}", words(error));
        match self {
            Self::Ssh(tunnel) => tunnel.words(&text),
            _ => text,
        }
    }
}

/// The directory of one way's sockets.
fn own(sockets: &Path, way: &str) -> PathBuf {
    let digest = super::names::hex_digest(way.as_bytes());
    sockets.join(digest.get(..8).unwrap_or_default())
}

impl Port {
    fn of(host: &str, port: u16, tls: Option<&TlsFiles>) -> Result<Self, String> {
        Ok(Self { host: host.to_owned(), port, tls: tls.map(tls::config).transpose()? })
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, String> {
        let Self { host, port, tls } = self;
        let at = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let made = tokio::time::timeout(CONNECT, TcpStream::connect((host.as_str(), *port))).await;
        let made = made.map_err(|_| format!("{at}: no connection in {} s", CONNECT.as_secs()))?;
        let stream = made.map_err(|e| format!("{at}: {e}"))?;
        let _ = stream.set_nodelay(true);
        let Some(config) = tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(host.clone()).map_err(|e| format!("{at}: {e}"))?;
        let greeted = tokio::time::timeout(CONNECT, TlsConnector::from(Arc::clone(config)).connect(name, stream)).await;
        let stream = greeted.map_err(|_| format!("{at}: no TLS in {} s", CONNECT.as_secs()))?;
        Ok(Box::new(stream.map_err(|e| format!("{at}: {}", words(&e)))?))
    }
}

impl Relay {
    async fn socket(&self) -> Result<PathBuf, String> {
        let path = self.dir.join("s");
        let mut up = self.up.lock().await;
        if up.as_ref().is_some_and(|task| !task.is_finished()) {
            return Ok(path);
        }
        private(&self.dir)?;
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let port = Arc::clone(&self.port);
        *up = Some(tokio::spawn(async move {
            while let Ok((mut here, _)) = listener.accept().await {
                let port = port.lock().unwrap_or_else(PoisonError::into_inner).clone();
                tokio::spawn(async move {
                    // one that cannot be connected is closed, and whoever asked sees that
                    if let Ok(mut there) = port.connect().await {
                        let _ = tokio::io::copy_bidirectional(&mut here, &mut there).await;
                    }
                });
            }
        }));
        Ok(path)
    }
}

/// Makes a directory that is this user's alone.
///
/// # Errors
/// It cannot be made, or is not.
pub fn private(dir: &Path) -> Result<(), String> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
    let wrong = |e: std::io::Error| format!("{}: {e}", dir.display());
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(wrong)?;
    let found = std::fs::symlink_metadata(dir).map_err(wrong)?;
    if found.uid() != rustix::process::getuid().as_raw() || found.mode() & 0o022 != 0 || !found.is_dir() {
        return Err(format!("{} is not a directory only this user can write; remove it", dir.display()));
    }
    Ok(())
}

async fn unix(path: &Path) -> Result<UnixStream, String> {
    UnixStream::connect(path).await.map_err(|e| format!("{}: {e}", path.display()))
}

/// An error and what it was caused by, each said once.
fn words(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause.source();
    }
    text
}
