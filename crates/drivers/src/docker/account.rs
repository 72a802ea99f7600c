//! The user's lines in a box's `/etc/passwd` and `/etc/group`, so that programs that ask who they are get an answer.
//!
//! A box runs as the user here, whom its image mostly does not know. The two files are read from the container that was
//! created, and go back with a line more before it is started: one read and one write, and neither for root, whom every
//! image knows. What is no ordinary file is left as it is; the daemon alone resolves paths, inside the container.

use super::api::Fault;
use super::container::User;
use super::session::Session;
use crate::error::DriverError;
use bytes::Bytes;
use std::io::Read as _;

/// How much of the archive of `/etc` is read, in bytes. It comes in the order of names, so most of it is not needed.
const MAX_ETC: usize = 8 << 20;
/// The longest file that gets a line, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// The name of a user or group whose own name cannot be used.
pub const SPARE: &str = "hmz";
/// The files, and their mode where the image has none.
const PASSWD: &str = "passwd";
const GROUP: &str = "group";
const MODE: u32 = 0o644;

/// Gives a container that was created the lines it lacks. A daemon that cannot do it leaves a box whose user has no name.
///
/// # Errors
/// The daemon does not answer.
pub async fn write(session: &Session<'_>, id: &str, user: User) -> Result<(), DriverError> {
    if user.uid == 0 {
        return Ok(());
    }
    match written(session, id, user).await {
        Err(silent @ Fault::Silent(_)) => Err(session.fault(silent)),
        Err(Fault::Said(_, words)) => {
            tracing::warn!("{}: the user of a box has no name in it: {words}", session.at());
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

async fn written(session: &Session<'_>, id: &str, User { uid, gid }: User) -> Result<(), Fault> {
    let (archive, whole) = session.api.get_bytes(&format!("/containers/{id}/archive?path=/etc"), MAX_ETC).await?;
    let (passwd, group) = found(&archive, whole);
    // only the user here is known by name
    let own = if uid == session.who.uid { session.who.user_name.as_str() } else { SPARE };
    let passwd = passwd.with(own, uid, |name| format!("{name}:x:{uid}:{gid}::/tmp:/bin/sh"));
    let group = group.with(own, gid, |name| format!("{name}:x:{gid}:"));
    let files = [(PASSWD, passwd), (GROUP, group)].into_iter().filter_map(|(name, file)| Some((name, file?.not_of(uid))));
    let files: Vec<_> = files.collect();
    if files.is_empty() {
        return Ok(());
    }
    let archive = archived(&files).map_err(|e| Fault::Said(0, e.to_string()))?;
    session.api.put_tar(&format!("/containers/{id}/archive?path=/etc"), Bytes::from(archive)).await.map(drop)
}

/// One of the two files in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    /// It has none.
    Missing,
    /// It is no ordinary file, too long or not known: it stays as it is.
    Kept,
    /// An ordinary file.
    File(File),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct File {
    content: Vec<u8>,
    mode: u32,
    uid: u64,
    gid: u64,
}

impl Found {
    /// The file with a line for `id`; `None` when it knows that id already or stays as it is.
    fn with(self, name: &str, id: u32, line: impl Fn(&str) -> String) -> Option<File> {
        let mut file = match self {
            Self::Missing => File { content: Vec::new(), mode: MODE, uid: 0, gid: 0 },
            Self::Kept => return None,
            Self::File(file) => file,
        };
        let entries = || file.content.split(|b| *b == b'\n').map(|l| l.split(|b| *b == b':'));
        let number = id.to_string();
        if entries().any(|mut fields| fields.nth(2) == Some(number.as_bytes())) {
            return None;
        }
        let is_free = |name: &&str| entries().all(|mut fields| fields.next() != Some(name.as_bytes()));
        let numbered = format!("{SPARE}{id}");
        let name = [name, SPARE, &numbered].into_iter().filter(|name| is_name(name)).find(is_free)?;
        let line = line(name);
        if file.content.last().is_some_and(|last| *last != b'\n') {
            file.content.push(b'\n');
        }
        file.content.extend_from_slice(line.as_bytes());
        file.content.push(b'\n');
        Some(file)
    }
}

impl File {
    /// The same, root's where it was that user's. Podman says of every file that it is the box's user's; these are not to be.
    fn not_of(self, user: u32) -> Self {
        if self.uid == u64::from(user) { Self { uid: 0, gid: 0, ..self } } else { self }
    }
}

/// Whether a text may be a name: nothing that means something else in these files, and no number.
fn is_name(text: &str) -> bool {
    let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'@') || b >= 0x80;
    text.bytes().all(ok) && text.bytes().next().is_some_and(|b| b != b'-') && !text.bytes().all(|b| b.is_ascii_digit())
}

/// The two files in an archive of `/etc`, of which the end may be cut off.
fn found(archive: &[u8], whole: bool) -> (Found, Found) {
    let (mut passwd, mut group) = (Found::Missing, Found::Missing);
    let mut read = || -> std::io::Result<bool> {
        let mut is_dir = false;
        for entry in tar::Archive::new(archive).entries()? {
            let mut entry = entry?;
            // a container whose `/etc` is a link has nothing below it here
            is_dir |= entry.header().entry_type().is_dir();
            let at = match &*entry.path_bytes() {
                b"etc/passwd" => &mut passwd,
                b"etc/group" => &mut group,
                _ => continue,
            };
            *at = Found::Kept;
            let header = entry.header();
            let size = header.size()?;
            if header.entry_type().is_file() && size <= MAX_FILE {
                let (mode, uid, gid) = (header.mode()? & 0o7777, header.uid()?, header.gid()?);
                let mut content = Vec::new();
                // one that is cut off ends early, which is no error to a reader
                if entry.read_to_end(&mut content)? as u64 == size {
                    *at = Found::File(File { content, mode, uid, gid });
                }
            }
        }
        Ok(is_dir)
    };
    // what was not come to may be there
    if !(read().unwrap_or(false) && whole) {
        for file in [&mut passwd, &mut group] {
            if *file == Found::Missing {
                *file = Found::Kept;
            }
        }
    }
    (passwd, group)
}

/// An archive of files of `/etc`.
fn archived(files: &[(&str, File)]) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, file) in files {
        let mut header = tar::Header::new_ustar();
        header.set_mode(file.mode);
        header.set_uid(file.uid);
        header.set_gid(file.gid);
        header.set_mtime(0);
        header.set_size(file.content.len() as u64);
        archive.append_data(&mut header, name, file.content.as_slice())?;
    }
    archive.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &str) -> File {
        File { content: content.into(), mode: 0o640, uid: 3, gid: 4 }
    }

    /// An archive as the daemon sends it: `/etc` itself, and then what is in it.
    fn etc(add: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_size(0);
        archive.append_data(&mut header, "etc/", std::io::empty()).unwrap();
        add(&mut archive);
        archive.into_inner().unwrap()
    }

    fn with(archive: &mut tar::Builder<Vec<u8>>, name: &str, file: &File) {
        let content = archived(&[(name, file.clone())]).unwrap();
        let mut entries = tar::Archive::new(content.as_slice());
        let mut entry = entries.entries().unwrap().next().unwrap().unwrap();
        let mut header = entry.header().clone();
        archive.append_data(&mut header, format!("etc/{name}"), &mut entry).unwrap();
    }

    fn line(file: &str, name: &str, id: u32) -> Option<String> {
        let made = Found::File(self::file(file)).with(name, id, |name| format!("{name}:x:{id}:"))?;
        assert_eq!((made.mode, made.uid, made.gid), (0o640, 3, 4));
        Some(String::from_utf8(made.content).unwrap())
    }

    #[test]
    fn one_line_is_added_for_whom_the_file_does_not_know() {
        assert_eq!(line("root:x:0:0:\n", "me", 7).as_deref(), Some("root:x:0:0:\nme:x:7:\n"));
        assert_eq!(line("root:x:0:0:", "me", 7).as_deref(), Some("root:x:0:0:\nme:x:7:\n"));
        assert_eq!(line("root:x:0:0:\nnode:x:7:7:\n", "me", 7), None);
        assert_eq!(line("root:x:0:0:\nno:x:77:7:\n\n7:7\n", "me", 7).map(|t| t.ends_with("\nme:x:7:\n")), Some(true));
    }

    #[test]
    fn a_name_that_is_taken_or_is_none_is_not_used() {
        for name in ["me", "1000", "", "-x", "a:b", "a\nb", "a b", "a/b"] {
            assert_eq!(line("me:x:1:\n", name, 7).as_deref(), Some("me:x:1:\nhmz:x:7:\n"), "{name:?}");
        }
        assert_eq!(line("me:x:1:\nhmz:x:2:", "me", 7).as_deref(), Some("me:x:1:\nhmz:x:2:\nhmz7:x:7:\n"));
        assert_eq!(line("me:x:1:\nhmz:x:2:\nhmz7:x:3:", "me", 7), None);
        assert_eq!(line("", "Jos\u{e9}.x@y_z", 7).as_deref(), Some("Jos\u{e9}.x@y_z:x:7:\n"));
    }

    #[test]
    fn ordinary_files_are_read_and_nothing_else_is_touched() {
        let (passwd, group) = (file("a:x:1:"), file("b:x:2:"));
        let both = etc(|a| {
            with(a, "group", &group);
            with(a, "passwd", &passwd);
        });
        assert_eq!(found(&both, true), (Found::File(passwd.clone()), Found::File(group.clone())));
        assert_eq!(found(&etc(|_| ()), true), (Found::Missing, Found::Missing));
        let links = etc(|a| {
            let mut header = tar::Header::new_ustar();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            a.append_link(&mut header, "etc/passwd", "/etc/shadow").unwrap();
        });
        assert_eq!(found(&links, true), (Found::Kept, Found::Missing));
        let long = File { content: vec![b'x'; MAX_FILE as usize + 1], ..passwd };
        assert_eq!(found(&etc(|a| with(a, "passwd", &long)), true).0, Found::Kept);
    }

    #[test]
    fn what_is_cut_off_or_no_archive_is_not_taken_for_missing() {
        let cut = etc(|a| with(a, "group", &file("b:x:2:")));
        assert_eq!(found(&cut, false), (Found::Kept, Found::File(file("b:x:2:"))));
        // the header of a file, and not all of its content
        assert_eq!(found(&cut[..512 + 512 + 3], false), (Found::Kept, Found::Kept));
        assert_eq!(found(b"nothing like it", true), (Found::Kept, Found::Kept));
        assert_eq!(found(&[], true), (Found::Kept, Found::Kept));
        // `/etc` is a link
        let link = {
            let mut archive = tar::Builder::new(Vec::new());
            let mut header = tar::Header::new_ustar();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            archive.append_link(&mut header, "etc", "/tmp").unwrap();
            archive.into_inner().unwrap()
        };
        assert_eq!(found(&link, true), (Found::Kept, Found::Kept));
    }

    #[test]
    fn the_files_are_not_the_boxs_users_own() {
        let of = |uid, gid| File { uid, gid, ..file("") };
        assert_eq!((of(5, 6).not_of(5), of(3, 5).not_of(5)), (of(0, 0), of(3, 5)));
    }
}
