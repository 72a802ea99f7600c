//! Where things are: `$HMZ_HOME` for what a person keeps, a directory of this machine for the store, a private runtime
//! directory for sockets, and a short private directory under `/tmp` for boxes.

use hmz_api::Error;
use rustix::fs::Mode;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// File systems another machine may have mounted too; an SQLite store must not be on one.
const NETWORK: [u64; 7] = [
    0x6969,      /* nfs */
    0xFF53_4D42, /* cifs */
    0xFE53_4D42, /* smb2 */
    0x5346_414F, /* afs */
    0x0BD0_0BD0, /* lustre */
    0x4750_4653, /* gpfs */
    0x00C3_6400, /* ceph */
];

/// The paths of one HMZ_HOME.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// `$HMZ_HOME`, absolute.
    pub home: PathBuf,
    /// The store's directory: `home/state`, or below `/var/tmp` when the home is on a network file system.
    pub state: PathBuf,
    /// The directory of the API socket.
    pub runtime: PathBuf,
    /// The user's directory on this machine below which each HMZ_HOME has the directory of its boxes.
    pub boxes: PathBuf,
}

impl Paths {
    /// The paths as the environment says: `HMZ_HOME`, else `HOME/.hmz`; `XDG_RUNTIME_DIR`.
    ///
    /// # Errors
    /// When there is neither HMZ_HOME nor HOME, or a private directory is not private.
    pub fn from_env(env: &BTreeMap<String, String>) -> Result<Self, Error> {
        let said = |name: &str| env.get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let home = match (said("HMZ_HOME"), said("HOME")) {
            (Some(home), _) => home,
            (None, Some(home)) => home.join(".hmz"),
            (None, None) => return Err(Error::usage("neither HMZ_HOME nor HOME says where hmz keeps its files")),
        };
        let home = std::path::absolute(&home).map_err(|e| Error::usage(format!("{}: {e}", home.display())))?;
        private_dir(&home, false)?;
        // the same home by another path must find the same daemon
        let home = home.canonicalize().map_err(|e| Error::failed(format!("{}: {e}", home.display())))?;
        let digest = hex(&Sha256::digest(home.as_os_str().as_encoded_bytes()));
        let uid = rustix::process::getuid().as_raw();
        let tmp = PathBuf::from(format!("/tmp/hmz-{uid}"));
        private_dir(&tmp, true)?;
        let runtime = match said("XDG_RUNTIME_DIR").filter(|d| d.is_dir()) {
            Some(dir) => dir.join("hmz").join(&digest[..8]),
            None => tmp.join("run").join(&digest[..8]),
        };
        let state =
            if on_network(&home) { PathBuf::from(format!("/var/tmp/hmz-{uid}/{}", &digest[..8])) } else { home.join("state") };
        Ok(Self { state, runtime, boxes: tmp, home })
    }

    /// Makes the directories that are missing, each private.
    ///
    /// # Errors
    /// When one cannot be made or belongs to somebody else.
    pub fn prepare(&self) -> Result<(), Error> {
        private_dir(&self.state, false)?;
        private_dir(&self.runtime, true)?;
        private_dir(&self.boxes, true)?;
        private_dir(&self.epics(), false)
    }

    /// The API socket.
    pub fn socket(&self) -> PathBuf {
        self.runtime.join("api.sock")
    }

    /// The lock a daemon holds while it lives.
    pub fn lock(&self) -> PathBuf {
        self.runtime.join("daemon.lock")
    }

    /// What a daemon in the background writes.
    pub fn log(&self) -> PathBuf {
        self.state.join("daemon.log")
    }

    /// settings.yaml.
    pub fn settings(&self) -> PathBuf {
        self.home.join("settings.yaml")
    }

    /// Journals of runs, a directory each.
    pub fn epics(&self) -> PathBuf {
        self.home.join("epics")
    }

    /// The store.
    pub fn store(&self) -> PathBuf {
        self.state.join("store.db")
    }
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Makes `dir` (and its parents) 0700. With `strict`, one that is there must be a real directory, ours, closed to others.
pub(crate) fn private_dir(dir: &Path, strict: bool) -> Result<(), Error> {
    let failed = |e: std::io::Error| Error::failed(format!("{}: {e}", dir.display()));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    if !strict {
        return Ok(());
    }
    let found = std::fs::symlink_metadata(dir).map_err(failed)?;
    let ours = found.is_dir() && found.uid() == rustix::process::getuid().as_raw();
    if !ours {
        return Err(Error::refused(format!("{} is not a directory of this user's", dir.display()))
            .hint(format!("remove it: rm -rf {}", dir.display())));
    }
    if found.permissions().mode() & 0o077 != 0 {
        rustix::fs::chmod(dir, Mode::RWXU).map_err(|e| failed(e.into()))?;
    }
    Ok(())
}

fn on_network(dir: &Path) -> bool {
    // an unreadable statfs is taken for a local disk: the store then says what is wrong with it
    rustix::fs::statfs(dir).is_ok_and(|found| NETWORK.contains(&(found.f_type as u64 & 0xFFFF_FFFF)))
}
