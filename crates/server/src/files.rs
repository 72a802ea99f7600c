//! The directories of a box here: `/tmp/hmz-<uid>/<8 hex of the instance>/<8 hex>/run` for the guest's socket, `…/s` for
//! the scratch. They are short, since sockets are made in them.

use crate::claim;
use crate::guest::{self, GuestProgram};
use crate::orphans;
use crate::paths::{Paths, hex, private_dir};
use crate::removal::remove_tree;
use hmz_api::Error;
use hmz_api::clock::Clock;
use hmz_drivers::{BoxKey, GuestFiles};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// How much of a program's digest is in the path of its copy, in digits.
pub(crate) const DIGEST: usize = 16;

/// Makes and removes the directories of boxes.
#[derive(Debug, Clone)]
pub struct Files {
    /// The directories of all homes of this user.
    root: PathBuf,
    /// This home's.
    own: PathBuf,
    program: PathBuf,
    guest: PathBuf,
}

impl Files {
    /// For one HMZ_HOME. The running binary and the guest's program are copied into the state directory under their digests,
    /// so that an upgrade or a rebuild does not take them away from under a run or a box.
    ///
    /// # Errors
    /// When they cannot be copied.
    pub fn new(paths: &Paths, instance: &str, program: GuestProgram) -> Result<Self, Error> {
        let failed = |e: std::io::Error| Error::failed(format!("the guest's program: {e}"));
        let kept = paths.state.join("guest");
        let own = guest::own()?.keep(&kept, "hmz").map_err(failed)?;
        let guest = match program {
            GuestProgram::Own => own.clone(),
            GuestProgram::Embedded(_) => program.image()?.keep(&kept, "hmz-guest").map_err(failed)?,
        };
        Ok(Self { root: paths.boxes.clone(), own: claim::dir(paths, instance), program: own, guest })
    }

    /// The copy of the running binary, which runners are started from.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The copy of the guest's program.
    pub fn guest(&self) -> &Path {
        &self.guest
    }

    /// Where a box has its directories: one that an earlier version made has them where that had them.
    fn dir(&self, key: &BoxKey) -> PathBuf {
        let name = name_of(key);
        let before = self.root.join(orphans::BEFORE).join(&name);
        let is_there = std::fs::symlink_metadata(&before).is_ok_and(|found| found.is_dir());
        if is_there { before } else { self.own.join(name) }
    }

    /// The files of a box, made when they are not there.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn prepare(&self, key: &BoxKey) -> Result<GuestFiles, Error> {
        let dir = self.dir(key);
        let files = GuestFiles { program: self.guest.clone(), socket_dir: dir.join("run"), scratch: dir.join("s") };
        private_dir(&self.own, true)?;
        private_dir(&files.socket_dir, true)?;
        private_dir(&files.scratch, true)?;
        Ok(files)
    }

    /// The files of the second box of `serves`: it has that one's scratch directory, and this program, which supervises a CLI.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn prepare_second(&self, key: &BoxKey, serves: &BoxKey) -> Result<GuestFiles, Error> {
        let scratch = self.prepare(serves)?.scratch;
        Ok(GuestFiles { program: self.program.clone(), scratch, ..self.prepare(key)? })
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

    /// Removes what homes have left that are gone. `there` are all boxes that a daemon has.
    pub fn sweep(&self, there: &[BoxKey], clock: &dyn Clock) {
        orphans::sweep(&self.root, &self.own, there, clock);
    }

    /// Removes the copies of earlier programs, but for those that are used.
    ///
    /// # Errors
    /// When one cannot be removed.
    pub fn keep_programs(&self, used: &[PathBuf]) -> Result<(), Error> {
        let Some((own, all)) = self.program.parent().and_then(|own| Some((own, own.parent()?))) else { return Ok(()) };
        let failed = |dir: &Path, e: std::io::Error| Error::failed(format!("{}: {e}", dir.display()));
        for entry in std::fs::read_dir(all).map_err(|e| failed(all, e))? {
            let entry = entry.map_err(|e| failed(all, e))?;
            let (name, dir) = (entry.file_name(), entry.path());
            let is_copy = name.len() == DIGEST && name.to_str().is_some_and(|n| n.bytes().all(|b| b.is_ascii_hexdigit()));
            // a daemon may tell of a mount by another path to it
            let is_used = used.iter().any(|program| program.components().any(|part| part.as_os_str() == name));
            if is_copy
                && dir != own
                && Some(dir.as_path()) != self.guest.parent()
                && !is_used
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
            {
                tracing::info!(dir = %dir.display(), "removes the copy of an earlier program");
                remove_tree(&dir).map_err(|e| failed(&dir, e))?;
            }
        }
        Ok(())
    }
}

/// The name of a box's directory.
pub(crate) fn name_of(key: &BoxKey) -> String {
    let text = format!("{}/{}/{}", key.instance, key.uid, key.incarnation);
    hex(&Sha256::digest(text.as_bytes()))[..8].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn files(root: &Path) -> Files {
        let (boxes, state) = (root.join("boxes"), root.join("state"));
        let program = state.join("guest/0123456789abcdef/hmz");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::write(&program, "own").unwrap();
        Files { own: boxes.join("aaaaaaaa"), root: boxes, guest: program.clone(), program }
    }

    fn key() -> BoxKey {
        BoxKey { instance: "i".into(), uid: Uuid::from_u128(1), incarnation: 1, role: "box".into() }
    }

    #[test]
    fn a_box_is_below_its_home_and_stays_where_an_earlier_version_made_it() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path());
        let made = files.prepare(&key()).unwrap();
        assert_eq!(made.scratch, files.own.join(name_of(&key())).join("s"));
        assert!(made.scratch.is_dir() && made.socket_dir.is_dir());
        files.remove(&key()).unwrap();
        assert!(!files.own.join(name_of(&key())).exists());
        let before = files.root.join("b").join(name_of(&key()));
        std::fs::create_dir_all(&before).unwrap();
        assert_eq!(files.prepare(&key()).unwrap().scratch, before.join("s"));
        files.remove(&key()).unwrap();
        assert!(!before.exists());
        // a socket in a session's directory below the scratch has to fit into an address
        let longest = format!("/tmp/hmz-{}/aaaaaaaa/{}/run/{}", u32::MAX, name_of(&key()), hmz_wire::SOCKET_NAME);
        assert!(longest.len() < 64, "{longest}");
    }

    #[test]
    fn copies_of_earlier_programs_go_unless_they_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path());
        let guest = dir.path().join("state/guest");
        let victim = dir.path().join("victim");
        std::fs::create_dir_all(&victim).unwrap();
        for name in ["1111111111111111", "2222222222222222", "else"] {
            std::fs::create_dir(guest.join(name)).unwrap();
            std::fs::write(guest.join(name).join("hmz"), "old").unwrap();
        }
        std::os::unix::fs::symlink(&victim, guest.join("3333333333333333")).unwrap();
        // as a daemon tells of it that sees this machine's files elsewhere
        files.keep_programs(&["/elsewhere/state/guest/2222222222222222/hmz".into()]).unwrap();
        let left = |name: &str| guest.join(name).exists();
        let all = ["0123456789abcdef", "1111111111111111", "2222222222222222", "3333333333333333", "else"];
        assert_eq!(all.map(left), [true, false, true, true, true]);
        assert!(victim.exists());
    }
}
