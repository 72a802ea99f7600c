//! The directories of a box here: `/tmp/hmz-<uid>/b/<8 hex>/run` for the guest's socket, `…/s` for the scratch.

use crate::guest::{self, GuestProgram};
use crate::paths::{Paths, hex, private_dir};
use crate::removal::remove_tree;
use hmz_api::Error;
use hmz_drivers::{BoxKey, GuestFiles};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Makes and removes the directories of boxes.
#[derive(Debug, Clone)]
pub struct Files {
    boxes: PathBuf,
    program: PathBuf,
    guest: PathBuf,
}

impl Files {
    /// For one HMZ_HOME. The running binary and the guest's program are copied into the state directory under their digests,
    /// so that an upgrade or a rebuild does not take them away from under a run or a box.
    ///
    /// # Errors
    /// When they cannot be copied.
    pub fn new(paths: &Paths, program: GuestProgram) -> Result<Self, Error> {
        let failed = |e: std::io::Error| Error::failed(format!("the guest's program: {e}"));
        let kept = paths.state.join("guest");
        let own = guest::own()?.keep(&kept, "hmz").map_err(failed)?;
        let guest = match program {
            GuestProgram::Own => own.clone(),
            GuestProgram::Embedded(_) => program.image()?.keep(&kept, "hmz-guest").map_err(failed)?,
        };
        Ok(Self { boxes: paths.boxes.clone(), program: own, guest })
    }

    /// The copy of the running binary, which runners are started from.
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
        let files = GuestFiles { program: self.guest.clone(), socket_dir: dir.join("run"), scratch: dir.join("s") };
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
