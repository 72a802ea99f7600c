//! Decides where an exec goes: here, to the box, or nowhere.
//!
//! Every process that runs here is the CLI's own (a redirected command is a stand-in and starts nothing), so the decision
//! needs the file alone:
//! - one of the CLI's own executables, by device and inode, whatever its path and first argument: here, unless the path
//!   leads through a directory the box writes too, where it could be another file by the time the kernel looks;
//! - a process listing by a name the policy gives, when it is not in a directory the CLI can write: here;
//! - below the workdir or the scratch directory, where both sides have the same files: looked at here, run in the box;
//! - a name on the box's PATH: to the box, whatever directory is tried first, so that a search of the PATH ends at once;
//! - a name that is not, in a directory of the PATH: ENOENT, as the box would say, without asking it;
//! - any other path: to the box as it is. When the box lacks it the stand-in says so and ends with 127, or 126;
//! - what has no path (a memfd, a deleted file) or cannot be read: EACCES.

use crate::SupervisorConfig;
use crate::sys::Notification;
use crate::{AnchorError, memory};
use hmz_wire::Bytes;
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Longest path, in bytes.
const MAX_PATH: usize = 4096;

/// Where an exec goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The kernel does it here.
    Here,
    /// It fails with this errno.
    Fail(i32),
    /// It is done in the box.
    Box(Target),
}

/// What is run in the box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// The program's path.
    pub(crate) program: Bytes,
    /// Whether a path that the box lacks may be found by its name.
    pub(crate) by_name: bool,
}

/// An exec as it was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// The thread.
    pub(crate) tid: i32,
    /// The directory a relative path starts at: a descriptor, or AT_FDCWD.
    pub(crate) dirfd: i32,
    /// Address of the path.
    pub(crate) path: u64,
    /// Address of the arguments' pointers.
    pub(crate) argv: u64,
    /// Address of the environment's pointers.
    pub(crate) envp: u64,
    /// Whether an empty path means the descriptor itself.
    pub(crate) empty_path: bool,
}

impl Call {
    /// What a notification asks for; `None` when it is no exec.
    pub(crate) fn of(n: &Notification) -> Option<Self> {
        let a = n.args;
        match i64::from(n.nr) {
            libc::SYS_execve => {
                Some(Self { tid: n.tid, dirfd: libc::AT_FDCWD, path: a[0], argv: a[1], envp: a[2], empty_path: false })
            }
            libc::SYS_execveat => Some(Self {
                tid: n.tid,
                dirfd: a[0] as i32,
                path: a[1],
                argv: a[2],
                envp: a[3],
                empty_path: a[4] & libc::AT_EMPTY_PATH as u64 != 0,
            }),
            _ => None,
        }
    }
}

/// The rules of a session.
#[derive(Debug)]
pub(crate) struct Policy {
    own: HashSet<(u64, u64)>,
    listings: HashSet<OsString>,
    shared: Vec<PathBuf>,
    writable: Vec<PathBuf>,
    path: HashSet<PathBuf>,
}

/// The executables that stay here: the CLI, what its policy names, and the interpreter when the CLI is a script.
pub(crate) fn own_programs(config: &SupervisorConfig) -> Vec<PathBuf> {
    let mut own = vec![config.program.clone()];
    own.extend(config.policy.own.iter().cloned());
    if let Some(line) = first_line(&config.program) {
        let mut words =
            line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty()).map(|w| PathBuf::from(OsStr::from_bytes(w)));
        if let Some(interpreter) = words.next() {
            if interpreter.file_name() == Some(OsStr::new("env")) {
                let path = config.env.get("PATH").map(OsString::from).unwrap_or_default();
                let name =
                    words.find(|w| !w.as_os_str().as_bytes().starts_with(b"-") && !w.as_os_str().as_bytes().contains(&b'='));
                if let Some(name) = name {
                    own.extend(std::env::split_paths(&path).map(|dir| dir.join(&name)).find(|p| p.is_file()));
                }
            }
            own.push(interpreter);
        }
    }
    own.into_iter().filter_map(|p| std::fs::canonicalize(p).ok()).collect()
}

/// The line of a script's interpreter, without its `#!`.
fn first_line(program: &Path) -> Option<Vec<u8>> {
    use std::io::Read;
    let mut head = Vec::new();
    std::fs::File::open(program).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?;
    Some(line.split(|&b| b == b'\n').next()?.to_vec())
}

impl Policy {
    /// The rules of `config`, whose own executables are `own`.
    pub(crate) fn new(config: &SupervisorConfig, own: &[PathBuf]) -> Result<Self, AnchorError> {
        let identity = |p: &PathBuf| std::fs::metadata(p).map(|m| (m.dev(), m.ino())).ok();
        let real =
            |p: &str| std::fs::canonicalize(p).map_err(|e| AnchorError::Refused(format!("the directory {p} is not there: {e}")));
        let shared = vec![real(&config.place.workdir)?, real(&config.place.scratch)?];
        let mut writable = shared.clone();
        writable.extend(config.fence.write.iter().filter_map(|p| std::fs::canonicalize(p).ok()));
        let path = config.env.get("PATH").map(OsString::from).unwrap_or_default();
        Ok(Self {
            own: own.iter().filter_map(identity).collect(),
            listings: config.policy.listings.iter().map(OsString::from).collect(),
            shared,
            writable,
            path: std::env::split_paths(&path).collect(),
        })
    }

    /// The directories both sides have, with their real paths.
    pub(crate) fn shared(&self) -> &[PathBuf] {
        &self.shared
    }

    /// Decides. `path` is what `call.path` pointed to; `has` says whether a name is on the box's PATH, and is asked only when
    /// that matters.
    pub(crate) fn decide(&self, call: &Call, path: &[u8], has: &mut dyn FnMut(&str) -> bool) -> Decision {
        if path == b"." || path == b".." || path.ends_with(b"/") || path.ends_with(b"/.") || path.ends_with(b"/..") {
            // a directory, if anything
            return Decision::Fail(libc::EACCES);
        }
        let path = match absolute(call, path) {
            Ok(path) => path,
            Err(errno) => return Decision::Fail(errno),
        };
        let found = std::fs::metadata(&path);
        // what the box can change between this look and the kernel's is never let through
        let mut real_parent = real_parent_of(&path);
        let here = !self.is_shared(&path, real_parent.as_deref());
        if let Ok(found) = &found
            && here
            && found.is_file()
            && self.own.contains(&(found.dev(), found.ino()))
        {
            return Decision::Here;
        }
        // what is reached through a link of the kernel's has a path of its own, or none
        let path = match path.starts_with("/proc").then(|| std::fs::read_link(&path)) {
            Some(Ok(real)) if real.is_absolute() && found.is_ok() && same_file(&real, &path) => {
                real_parent = real_parent_of(&real);
                real
            }
            Some(Ok(_)) => return Decision::Fail(libc::EACCES),
            Some(Err(_)) | None => path,
        };
        let Some(name) = path.file_name().map(OsStr::to_os_string) else {
            return Decision::Fail(libc::EACCES);
        };
        if here && self.listings.contains(&name) {
            match &found {
                Ok(_) if self.is_system(&path) => return Decision::Here,
                Ok(_) => {}
                // a search of the PATH goes on to the one that is here, and never to the box's
                Err(_) => return Decision::Fail(libc::ENOENT),
            }
        }
        if found.is_ok_and(|found| found.is_dir()) && std::fs::canonicalize(&path).is_ok_and(|real| self.shared.contains(&real)) {
            return Decision::Fail(libc::EACCES);
        }
        let parent = path.parent().unwrap_or(Path::new("/"));
        if let Some(parent) = &real_parent
            && self.shared.iter().any(|dir| parent.starts_with(dir))
        {
            return self.below_shared(&parent.join(&name));
        }
        if self.shared.iter().any(|dir| parent.starts_with(dir)) {
            return Decision::Fail(libc::ENOENT);
        }
        let program = Bytes::from(path.as_os_str().as_bytes());
        if name.to_str().is_some_and(has) {
            return Decision::Box(Target { program, by_name: true });
        }
        if self.searched(call, parent) {
            return Decision::Fail(libc::ENOENT);
        }
        Decision::Box(Target { program, by_name: false })
    }

    /// A file both sides have. A symlink may lead to something only the box has, so the box follows it.
    fn below_shared(&self, path: &Path) -> Decision {
        let found = match rustix::fs::lstat(path) {
            Ok(found) => found,
            Err(e) => return Decision::Fail(e.raw_os_error()),
        };
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Symlink => {}
            FileType::RegularFile => {
                if let Err(e) = rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS) {
                    return Decision::Fail(e.raw_os_error());
                }
                if !is_program(path) {
                    return Decision::Fail(libc::ENOEXEC);
                }
            }
            _ => return Decision::Fail(libc::EACCES),
        }
        Decision::Box(Target { program: Bytes::from(path.as_os_str().as_bytes()), by_name: false })
    }

    /// Whether the path, or the real directory it is in, is one of those the box can change.
    fn is_shared(&self, path: &Path, real_parent: Option<&Path>) -> bool {
        let below = |path: &Path| self.shared.iter().any(|dir| path.starts_with(dir));
        below(path) || real_parent.is_some_and(below)
    }

    /// Whether the file is where the CLI cannot have put it.
    fn is_system(&self, path: &Path) -> bool {
        std::fs::canonicalize(path).is_ok_and(|real| !self.writable.iter().any(|dir| real.starts_with(dir)))
    }

    /// Whether `dir` is tried because it is on a PATH: the CLI's, or the one the command would get.
    fn searched(&self, call: &Call, dir: &Path) -> bool {
        if self.path.contains(dir) {
            return true;
        }
        memory::variable(call.tid, call.envp, b"PATH", 4096)
            .is_some_and(|path| std::env::split_paths(&OsString::from_vec(path)).any(|one| one == dir))
    }
}

/// Whether the kernel knows how to run it: what it does not know, a shell's caller gives to the shell as a script.
fn is_program(path: &Path) -> bool {
    // the box may put a pipe there, on which an open would wait
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else {
        // one that may be executed and not read
        return true;
    };
    let mut head = [0u8; 4];
    rustix::io::read(&file, &mut head).is_ok_and(|n| head[..n].starts_with(b"#!") || head[..n] == *b"\x7fELF")
}

/// The real directory a path is in, when that is there.
fn real_parent_of(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path.parent()?).ok()
}

fn same_file(a: &Path, b: &Path) -> bool {
    let id = |p: &Path| std::fs::metadata(p).map(|m| (m.dev(), m.ino())).ok();
    id(a).is_some_and(|a| Some(a) == id(b))
}

/// The path as this process finds the same file: absolute, and with the caller's own entries of /proc. Errno otherwise.
fn absolute(call: &Call, path: &[u8]) -> Result<PathBuf, i32> {
    let tid = call.tid;
    if path.len() > MAX_PATH {
        return Err(libc::ENAMETOOLONG);
    }
    if path.is_empty() {
        return if call.empty_path { Ok(PathBuf::from(format!("/proc/{tid}/fd/{}", call.dirfd))) } else { Err(libc::ENOENT) };
    }
    let path = Path::new(OsStr::from_bytes(path));
    if path.is_absolute() {
        let mut parts = path.components().skip(1).map(Component::as_os_str);
        let (first, second) = (parts.next(), parts.next());
        let rest: PathBuf = parts.collect();
        let pair = (first.map(OsStr::as_bytes), second.map(OsStr::as_bytes));
        return Ok(match pair {
            (Some(b"proc"), Some(b"self" | b"thread-self")) => PathBuf::from(format!("/proc/{tid}")).join(rest),
            (Some(b"dev"), Some(b"fd")) => PathBuf::from(format!("/proc/{tid}/fd")).join(rest),
            _ => path.to_path_buf(),
        });
    }
    let start = if call.dirfd == libc::AT_FDCWD { format!("/proc/{tid}/cwd") } else { format!("/proc/{tid}/fd/{}", call.dirfd) };
    let base = std::fs::read_link(start).map_err(|_| libc::EACCES)?;
    if !base.is_absolute() {
        return Err(libc::EACCES);
    }
    Ok(base.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        dir: tempfile::TempDir,
        policy: Policy,
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().expect("a directory");
        let root = std::fs::canonicalize(dir.path()).expect("a path");
        for sub in ["work", "scratch", "state"] {
            std::fs::create_dir(root.join(sub)).expect("a directory");
        }
        let own = std::fs::metadata("/proc/self/exe").expect("a program");
        let policy = Policy {
            own: HashSet::from([(own.dev(), own.ino())]),
            listings: HashSet::from(["ps".into()]),
            shared: vec![root.join("work"), root.join("scratch")],
            writable: vec![root.join("work"), root.join("scratch"), root.join("state")],
            path: HashSet::from(["/usr/bin".into(), "/usr/local/bin".into()]),
        };
        Place { dir, policy }
    }

    impl Place {
        fn decide(&self, path: &str) -> Decision {
            let tid = std::process::id() as i32;
            let call = Call { tid, dirfd: libc::AT_FDCWD, path: 0, argv: 0, envp: 0, empty_path: false };
            let path = path.replace('~', &self.dir.path().display().to_string());
            self.policy.decide(&call, path.as_bytes(), &mut |name| ["sh", "ps", "bash"].contains(&name))
        }

        fn put(&self, name: &str, text: &str, mode: u32) {
            use std::os::unix::fs::PermissionsExt;
            let path = self.dir.path().join(name);
            std::fs::write(&path, text).expect("a file");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("a mode");
        }

        fn link(&self, name: &str, to: &str) {
            std::os::unix::fs::symlink(to, self.dir.path().join(name)).expect("a link");
        }
    }

    fn by_name(decision: &Decision) -> Option<bool> {
        match decision {
            Decision::Box(target) => Some(target.by_name),
            _ => None,
        }
    }

    #[test]
    fn the_clis_own_program_stays_unless_the_box_could_change_the_way_to_it() {
        let place = place();
        let own = std::fs::canonicalize("/proc/self/exe").expect("a path");
        let own = own.to_str().expect("text");
        place.link("state/rg", own);
        place.link("work/rg", own);
        place.link("work/away", &place.dir.path().join("state").display().to_string());
        place.link("state/back", &place.dir.path().join("work").display().to_string());
        for path in [own, "/proc/self/exe", "~/state/rg", "/proc/thread-self/exe"] {
            assert_eq!(place.decide(path), Decision::Here, "{path}");
        }
        for path in ["~/work/rg", "~/state/back/rg", "~/work/away/rg", "/proc/self/root/~/work/rg"] {
            assert_ne!(place.decide(path), Decision::Here, "{path}");
        }
    }

    #[test]
    fn listings_stay_where_the_cli_cannot_have_made_them() {
        let place = place();
        assert_eq!(place.decide("/bin/ps"), Decision::Here);
        // a search goes on, though the box has one
        assert_eq!(place.decide("/usr/local/bin/ps"), Decision::Fail(libc::ENOENT));
        place.put("work/ps", "#!/bin/sh", 0o755);
        place.put("state/ps", "#!/bin/sh", 0o755);
        assert_eq!(by_name(&place.decide("~/work/ps")), Some(false));
        assert_eq!(by_name(&place.decide("~/state/ps")), Some(true));
    }

    #[test]
    fn names_are_looked_up_in_the_box() {
        let place = place();
        for path in ["/bin/sh", "/usr/local/bin/bash", "/no/such/bash"] {
            assert_eq!(by_name(&place.decide(path)), Some(true), "{path}");
        }
        assert_eq!(place.decide("/usr/bin/missing"), Decision::Fail(libc::ENOENT));
        assert_eq!(by_name(&place.decide("/opt/tool/missing")), Some(false));
    }

    #[test]
    fn shared_files_are_looked_at_here() {
        let place = place();
        place.put("work/script", "#!/bin/sh", 0o755);
        place.put("work/plain", "#!/bin/sh", 0o644);
        place.put("work/text", "echo", 0o755);
        place.link("work/venv", "/only/in/the/box");
        assert_eq!(by_name(&place.decide("~/work/script")), Some(false));
        assert_eq!(by_name(&place.decide("~/work/venv")), Some(false));
        let scratch = place.decide("~/scratch/../work/script");
        assert!(matches!(scratch, Decision::Box(t) if t.program.ends_with(b"/work/script")));
        for (path, errno) in [
            ("~/work/plain", libc::EACCES),
            ("~/work/text", libc::ENOEXEC),
            ("~/work/nothing", libc::ENOENT),
            ("~/work", libc::EACCES),
            ("~/work/", libc::EACCES),
            ("~/work/no/sh", libc::ENOENT),
            ("", libc::ENOENT),
        ] {
            assert_eq!(place.decide(path), Decision::Fail(errno), "{path}");
        }
    }

    #[test]
    fn what_has_no_path_is_refused() {
        let place = place();
        let memory = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
        let number = std::os::fd::AsRawFd::as_raw_fd(&memory);
        for path in [format!("/proc/self/fd/{number}"), format!("/dev/fd/{number}")] {
            assert_eq!(place.decide(&path), Decision::Fail(libc::EACCES));
        }
        assert_eq!(place.decide(&"x".repeat(5000)), Decision::Fail(libc::ENAMETOOLONG));
    }

    #[test]
    fn a_scripts_interpreter_is_the_clis_own() {
        let place = place();
        place.put("state/plain", "#!/bin/sh -e\n", 0o755);
        place.put("state/envy", "#!/usr/bin/env -S A=b sh\n", 0o755);
        let line = |name: &str| first_line(&place.dir.path().join(name));
        assert_eq!(line("state/plain").as_deref(), Some(&b"/bin/sh -e"[..]));
        assert_eq!(line("state/envy").as_deref(), Some(&b"/usr/bin/env -S A=b sh"[..]));
        place.put("state/none", "text", 0o755);
        assert_eq!(line("state/none"), None);
    }
}
