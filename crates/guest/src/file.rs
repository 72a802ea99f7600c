//! What a session asks of a box's files when the two sides do not have them together, as commands of the guest's own program:
//! they run as any command of the session, so with its user and behind its fence.
//!
//! - `make DIR`: makes the directory, and what is missing on the way to it, for its user alone.
//! - `show FILE`: writes an ordinary file to the standard output.
//! - `prove FILE HERE THERE`: when `FILE` holds `HERE`, makes `FILE.there`, which holds `THERE`. Status 3: it does not, and
//!   nothing was made.
//! - `clear DIR…`: removes directories and all below them, following no link, and those above that are empty then; one that
//!   is not there is removed.
//! - `remove FILE`: removes it; one that is not there is removed.

use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Most of a file that is shown or compared, in bytes.
const MOST: u64 = 64 << 10;

/// The status that says that a file does not hold what it should.
pub(crate) const NOT_THE_SAME: u8 = 3;

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Make(PathBuf),
    Show(PathBuf),
    Prove { file: PathBuf, here: OsString, there: OsString },
    Remove(PathBuf),
    Clear(Vec<PathBuf>),
}

impl Asked {
    /// What the words after `file` ask; `None`: nothing that is known.
    pub(crate) fn of(words: &[OsString]) -> Option<Self> {
        match words {
            [word, path] if word == "make" => Some(Self::Make(path.into())),
            [word, path] if word == "show" => Some(Self::Show(path.into())),
            [word, dirs @ ..] if word == "clear" => Some(Self::Clear(dirs.iter().map(PathBuf::from).collect())),
            [word, path] if word == "remove" => Some(Self::Remove(path.into())),
            [word, path, here, there] if word == "prove" => {
                Some(Self::Prove { file: path.into(), here: here.clone(), there: there.clone() })
            }
            _ => None,
        }
    }
}

/// Does it.
///
/// # Errors
/// Why the file system would not.
pub(crate) fn answer(asked: &Asked) -> io::Result<ExitCode> {
    match asked {
        Asked::Make(dir) => DirBuilder::new().recursive(true).mode(0o700).create(dir)?,
        Asked::Show(file) => io::stdout().write_all(&content(file)?)?,
        Asked::Remove(file) => match std::fs::remove_file(file) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        },
        Asked::Clear(dirs) => {
            // one that will not go is said at the end: the others go all the same
            let mut first = Ok(());
            for dir in dirs {
                match std::fs::remove_dir_all(dir) {
                    Err(e) if e.kind() != ErrorKind::NotFound => {
                        first = first.and(Err(io::Error::new(e.kind(), format!("{}: {e}", dir.display()))));
                        continue;
                    }
                    _ => {}
                }
                // what was made on the way to it, but nothing right below the root
                let above = dir.ancestors().skip(1).take_while(|dir| dir.components().count() > 2);
                for empty in above {
                    if std::fs::remove_dir(empty).is_err() {
                        break;
                    }
                }
            }
            first?;
        }
        Asked::Prove { file, here, there } => {
            match content(file) {
                Ok(found) if found == here.as_encoded_bytes() => {}
                Ok(_) => return Ok(ExitCode::from(NOT_THE_SAME)),
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    return Ok(ExitCode::from(NOT_THE_SAME));
                }
                Err(e) => return Err(e),
            }
            let mut answer = file.clone().into_os_string();
            answer.push(".there");
            // never through a link, and never over what is there
            let mut made = File::options().write(true).create_new(true).open(answer)?;
            made.write_all(there.as_encoded_bytes())?;
            made.sync_all()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The content of an ordinary file. A pipe, which would be waited for, is none.
fn content(file: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = File::from(rustix::fs::open(file, flags, Mode::empty())?);
    if !opened.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is no ordinary file"));
    }
    let mut bytes = Vec::new();
    opened.take(MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_the_same_is_answered_and_another_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("deep/nonce");
        let prove = Asked::Prove { file: file.clone(), here: "a".into(), there: "b".into() };
        let code = |asked: &Asked| format!("{:?}", answer(asked).expect("an answer"));
        let not = format!("{:?}", ExitCode::from(NOT_THE_SAME));
        assert_eq!(code(&prove), not, "the directory is not there");
        assert_eq!(code(&Asked::Make(dir.path().join("deep"))), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(code(&prove), not, "the file is not there");
        std::fs::write(&file, "other").expect("a file");
        assert_eq!(code(&prove), not, "it holds something else");
        assert!(!dir.path().join("deep/nonce.there").exists());
        std::fs::write(&file, "a").expect("a file");
        assert_eq!(code(&prove), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(std::fs::read(dir.path().join("deep/nonce.there")).expect("the answer"), b"b");
        assert!(answer(&prove).is_err(), "what is there is not written over");
        answer(&Asked::Remove(file.clone())).and_then(|_| answer(&Asked::Remove(file))).expect("it goes, and is gone");
    }

    #[test]
    fn links_and_pipes_are_not_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let (link, pipe) = (dir.path().join("link"), dir.path().join("pipe"));
        std::os::unix::fs::symlink("/etc/passwd", &link).expect("a link");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        for file in [link, pipe] {
            assert!(answer(&Asked::Show(file)).is_err());
        }
    }

    #[test]
    fn a_directory_goes_with_those_above_it_that_are_empty_then() {
        let dir = tempfile::tempdir().expect("a directory");
        let deep = dir.path().join("a/b/c");
        std::fs::create_dir_all(deep.join("more")).expect("directories");
        std::fs::write(dir.path().join("a/stays"), "").expect("a file");
        answer(&Asked::Clear(vec![deep.clone()])).and_then(|_| answer(&Asked::Clear(vec![deep]))).expect("it goes, and is gone");
        assert!(!dir.path().join("a/b").exists() && dir.path().join("a/stays").exists());
    }

    #[test]
    fn one_that_does_not_go_keeps_no_other() {
        let dir = tempfile::tempdir().expect("a directory");
        let (file, other) = (dir.path().join("file"), dir.path().join("other"));
        std::fs::write(&file, "").expect("a file");
        std::fs::create_dir(&other).expect("a directory");
        let said = answer(&Asked::Clear(vec![file.join("below"), other.clone()])).expect_err("a file has nothing below it");
        assert!(said.to_string().contains("file/below"), "{said}");
        assert!(!other.exists());
    }

    #[test]
    fn words() {
        let of = |words: &[&str]| Asked::of(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of(&["make", "/a"]), Some(Asked::Make("/a".into())));
        assert_eq!(of(&["prove", "/a", "b"]), None);
        assert_eq!(of(&[]), None);
    }
}
