//! Directories that two sides have, where descriptors do not cross: whether a directory is one and the same is proved and not
//! assumed, and the few files of a session's scratch directory that a command leaves for the CLI are brought over.

use crate::AnchorError;
use crate::exec::{Limits, Output, run};
use hmz_api::link::Link;
use hmz_wire::channel::handshake::random;
use hmz_wire::{Bytes, Client, GUEST_PROGRAM, Status};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// How long the box may take for a question about its files.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest file that is brought over, in bytes.
const MOST: usize = 16 << 10;
/// The status of a proof that fails.
const NOT_THE_SAME: i32 = 3;

/// The guest's program in the box a link leads to.
pub(crate) fn guest_of(link: &Link) -> String {
    link.guest().unwrap_or(GUEST_PROGRAM).to_owned()
}

/// Asks the box about its files, in the words of the guest's `file`.
fn ask(client: &Client, guest: &str, cwd: &Path, words: &[&str]) -> Result<Output, AnchorError> {
    let argv: Vec<Bytes> = [guest, "guest", "file"].iter().chain(words).map(|word| Bytes::from(word.as_bytes())).collect();
    run(client, &argv, cwd, &[], Limits { output: MOST, time: Some(PATIENCE) })
}

/// Makes a directory in the box.
///
/// # Errors
/// When the box cannot, or is gone.
pub(crate) fn make(client: &Client, guest: &str, dir: &str) -> Result<(), AnchorError> {
    let done = ask(client, guest, Path::new("/"), &["make", dir])?;
    if done.status == Status::Exited(0) {
        return Ok(());
    }
    Err(AnchorError::Refused(format!("the box has no scratch directory: {}", said(&done))))
}

fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().last().map_or_else(|| format!("{:?}", output.status), |line| line.trim().to_owned())
}

/// Whether the box's `dir` is the directory of that path here: what is written here is read there, and the other way round.
/// Nothing of it is left.
///
/// # Errors
/// When it cannot be told.
pub fn is_same(client: &Client, link: &Link, dir: &Path) -> Result<bool, AnchorError> {
    const WHAT: &str = "write in the workdir here";
    let hex = |bytes: [u8; 16]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let fresh = || random::<16>().map(hex).map_err(AnchorError::io("get random bytes"));
    let (name, here, there) = (fresh()?, fresh()?, fresh()?);
    let file = dir.join(format!(".hmz-{name}"));
    let answer = dir.join(format!(".hmz-{name}.there"));
    let Some(path) = file.to_str() else {
        return Err(AnchorError::Refused(format!("the workdir {} is no text", dir.display())));
    };
    let made = File::options().write(true).create_new(true).mode(0o600).open(&file);
    let mut made = match made {
        Ok(made) => made,
        // what is not here is not the same
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(false),
        Err(e) => return Err(AnchorError::io(WHAT)(e)),
    };
    let _gone = Gone([&file, &answer]);
    // over a network it is written when it is closed
    made.write_all(here.as_bytes()).and_then(|()| made.sync_all()).map_err(AnchorError::io(WHAT))?;
    drop(made);
    let guest = guest_of(link);
    let done = ask(client, &guest, Path::new("/"), &["prove", path, &here, &there])?;
    match done.status {
        Status::Exited(0) => {}
        Status::Exited(NOT_THE_SAME) => return Ok(false),
        _ => {
            return Err(AnchorError::Refused(format!(
                "it cannot be told whether {} is the same in the box: {}",
                dir.display(),
                said(&done)
            )));
        }
    }
    let read = content(&answer);
    if read.as_deref().is_ok_and(|read| read == there.as_bytes()) {
        return Ok(true);
    }
    // it was made elsewhere, and has to go there
    let left = answer.to_string_lossy();
    ask(client, &guest, Path::new("/"), &["remove", &left])?;
    Ok(false)
}

fn content(file: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = File::options().read(true).custom_flags(flags.bits() as i32).open(file)?;
    let mut bytes = Vec::new();
    opened.take(1024).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Files that are gone when it is; those that are not there need not go.
struct Gone<'a>([&'a Path; 2]);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        for file in self.0 {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// What a command leaves for the CLI, brought over from a box that does not share the scratch directory.
#[derive(Debug, Clone)]
pub(crate) struct Left {
    /// What stands before such a file's path at the end of a command's last argument.
    pub(crate) marks: Vec<String>,
    /// The scratch directory, the same path on both sides.
    pub(crate) scratch: PathBuf,
    /// The guest's program.
    pub(crate) guest: String,
}

impl Left {
    /// The file that a command with these arguments leaves, below the scratch directory; `None`: it leaves none.
    pub(crate) fn file(&self, argv: &[Bytes]) -> Option<PathBuf> {
        let last = std::str::from_utf8(argv.last()?).ok()?;
        let path = self.marks.iter().find_map(|mark| last.rsplit_once(mark.as_str()))?.1.trim();
        let below = Path::new(path).strip_prefix(&self.scratch).ok()?;
        let plain = below.components().all(|part| matches!(part, Component::Normal(_))) && below != Path::new("");
        plain.then(|| below.to_owned())
    }

    /// Brings it over. One that is not there was not left.
    pub(crate) fn bring(&self, client: &Client, below: &Path) {
        let path = self.scratch.join(below);
        let Some(path) = path.to_str() else { return };
        match ask(client, &self.guest, Path::new("/"), &["show", path]) {
            Ok(shown) if shown.status == Status::Exited(0) && !shown.truncated => {
                if let Err(e) = self.write(below, &shown.stdout) {
                    tracing::debug!("what a command left is not here: {e}");
                }
            }
            Ok(shown) => tracing::debug!("a command left nothing: {}", said(&shown)),
            Err(e) => tracing::debug!("what a command left is not here: {e}"),
        }
    }

    /// Follows no link below the scratch directory.
    fn write(&self, below: &Path, content: &[u8]) -> io::Result<()> {
        let scratch = rustix::fs::open(&self.scratch, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let file = openat2(&scratch, below, flags, Mode::from_raw_mode(0o600), resolve)?;
        File::from(file).write_all(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(scratch: &Path) -> Left {
        Left { marks: vec![" && pwd -P >| ".into()], scratch: scratch.into(), guest: "/g".into() }
    }

    #[test]
    fn the_file_a_command_leaves_is_below_the_scratch_directory_or_none() {
        let left = left(Path::new("/s"));
        let file = |last: &str| left.file(&[Bytes::from(&b"bash"[..]), Bytes::from(last.as_bytes())]);
        assert_eq!(file("eval x && pwd -P >| /s/one/claude-6e4f-cwd"), Some("one/claude-6e4f-cwd".into()));
        for other in
            ["eval x", "x && pwd -P >| /other/f", "x && pwd -P >| /s/../etc/f", "x && pwd -P >| /s", "x && pwd -P >| s/f"]
        {
            assert_eq!(file(other), None, "{other}");
        }
        assert_eq!(left.file(&[]), None);
    }

    #[test]
    fn it_is_written_through_no_link() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("s")).expect("a directory");
        let left = left(&dir.path().join("s"));
        left.write(Path::new("f"), b"1").and_then(|()| left.write(Path::new("f"), b"2")).expect("it is written");
        assert_eq!(std::fs::read(dir.path().join("s/f")).expect("it"), b"2");
        std::os::unix::fs::symlink(dir.path(), dir.path().join("s/link")).expect("a link");
        std::os::unix::fs::symlink(dir.path().join("out"), dir.path().join("s/out")).expect("a link");
        for through in ["link/f", "out"] {
            assert!(left.write(Path::new(through), b"x").is_err(), "{through}");
        }
        assert!(!dir.path().join("out").exists());
    }
}
