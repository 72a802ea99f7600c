//! The directories of a box here: `/tmp/hmz-<uid>/b/<8 hex>/run` for the guest's socket, `…/s` for the scratch.

use crate::paths::{Paths, hex, private_dir};
use crate::removal::remove_tree;
use hmz_api::Error;
use hmz_drivers::{BoxKey, GuestFiles};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Makes and removes the directories of boxes.
#[derive(Debug, Clone)]
pub struct Files {
    boxes: PathBuf,
    program: PathBuf,
}

impl Files {
    /// For one HMZ_HOME. The running binary is copied into the state directory under its digest, so that an upgrade or a
    /// rebuild does not take it away from under a box.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn new(paths: &Paths) -> Result<Self, Error> {
        Ok(Self { boxes: paths.boxes.clone(), program: guest_program(&paths.state)? })
    }

    /// The copy of the running binary; runners are started from it too.
    pub fn program(&self) -> &Path {
        &self.program
    }

    fn dir(&self, key: &BoxKey) -> PathBuf {
        let text = format!("{}/{}/{}", key.instance, key.uid, key.incarnation);
        self.boxes.join(&hex(&Sha256::digest(text.as_bytes()))[..8])
    }

    /// The files of a box, made when they are not there.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn prepare(&self, key: &BoxKey) -> Result<GuestFiles, Error> {
        let dir = self.dir(key);
        let files = GuestFiles { program: self.program.clone(), socket_dir: dir.join("run"), scratch: dir.join("s") };
        private_dir(&self.boxes, true)?;
        private_dir(&files.socket_dir, true)?;
        private_dir(&files.scratch, true)?;
        Ok(files)
    }

    /// Removes them. A box may have planted anything in them: links are removed, never followed.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub fn remove(&self, key: &BoxKey) -> Result<(), Error> {
        let dir = self.dir(key);
        match remove_tree(&dir) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(Error::failed(format!("{}: {e}", dir.display()))),
        }
    }
}

/// `<state>/guest/<digest>/hmz`, a copy of this executable.
fn guest_program(state: &Path) -> Result<PathBuf, Error> {
    let failed = |e: std::io::Error| Error::failed(format!("the guest's program: {e}"));
    let mut own = File::open("/proc/self/exe").map_err(failed)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = own.read(&mut buffer).map_err(failed)?;
        if n == 0 {
            break;
        }
        digest.update(&buffer[..n]);
    }
    let dir = state.join("guest").join(&hex(&digest.finalize())[..16]);
    let target = dir.join("hmz");
    if target.exists() {
        return Ok(target);
    }
    std::fs::create_dir_all(&dir).map_err(failed)?;
    let fresh = dir.join(format!(".hmz.{}", std::process::id()));
    let mut source = File::open("/proc/self/exe").map_err(failed)?;
    let mut out = File::options().create(true).truncate(true).write(true).mode(0o755).open(&fresh).map_err(failed)?;
    std::io::copy(&mut source, &mut out).map_err(failed)?;
    out.flush().and_then(|()| out.sync_all()).map_err(failed)?;
    drop(out);
    std::fs::rename(&fresh, &target).map_err(failed)?;
    Ok(target)
}
