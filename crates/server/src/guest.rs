//! The program that is the first process of a box: its bytes, and the digest it is known by here and on daemons elsewhere.

use crate::paths::hex;
use hmz_api::Error;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// This process's program, whatever became of the file it was started from.
const OWN: &str = "/proc/self/exe";

/// Which program a box is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestProgram {
    /// A program of its own, embedded in this one. It is static and takes the same words.
    Embedded(&'static [u8]),
    /// This program itself.
    Own,
}

/// A program's bytes and what they are known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The executable file.
    pub bytes: Cow<'static, [u8]>,
    /// The SHA-256 of `bytes`, in hex.
    pub digest: String,
}

impl Image {
    fn of(bytes: Cow<'static, [u8]>) -> Self {
        let digest = hex(&Sha256::digest(&bytes));
        Self { bytes, digest }
    }

    /// `<dir>/<16 hex of the digest>/<name>`, written when it is not there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn keep(&self, dir: &Path, name: &str) -> std::io::Result<PathBuf> {
        let dir = dir.join(&self.digest[..crate::files::DIGEST]);
        let target = dir.join(name);
        if target.exists() {
            return Ok(target);
        }
        std::fs::create_dir_all(&dir)?;
        let fresh = dir.join(format!(".{name}.{}", std::process::id()));
        let mut out = File::options().create(true).truncate(true).write(true).mode(0o755).open(&fresh)?;
        out.write_all(&self.bytes)?;
        out.sync_all()?;
        drop(out);
        std::fs::rename(&fresh, &target)?;
        Ok(target)
    }
}

impl GuestProgram {
    /// Its bytes and their digest.
    ///
    /// # Errors
    /// When this program's own file cannot be read.
    pub fn image(self) -> Result<Image, Error> {
        match self {
            Self::Embedded(bytes) => Ok(Image::of(Cow::Borrowed(bytes))),
            Self::Own => own(),
        }
    }
}

/// This program's own image.
///
/// # Errors
/// When its file cannot be read.
pub(crate) fn own() -> Result<Image, Error> {
    let bytes = std::fs::read(OWN).map_err(|e| Error::failed(format!("this program's own file: {e}")))?;
    Ok(Image::of(Cow::Owned(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn it_is_known_by_its_digest_and_written_once() {
        let dir = tempfile::tempdir().unwrap();
        let image = GuestProgram::Embedded(b"abc").image().unwrap();
        assert_eq!(image.digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let path = image.keep(dir.path(), "hmz-guest").unwrap();
        assert_eq!(path, dir.path().join("ba7816bf8f01cfea/hmz-guest"));
        assert_eq!(std::fs::read(&path).unwrap(), b"abc");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        // one that a box runs is not touched
        std::fs::write(&path, "kept").unwrap();
        assert_eq!(image.keep(dir.path(), "hmz-guest").unwrap(), path);
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn without_one_it_is_this_program() {
        let image = GuestProgram::Own.image().unwrap();
        assert_eq!(image.bytes, std::fs::read(OWN).unwrap());
        assert_eq!(image.digest, hex(&Sha256::digest(&image.bytes)));
    }
}
