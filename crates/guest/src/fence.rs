//! The fence of a session: Landlock, put on its spawner once and inherited by every command.
//!
//! Everything may be read and executed. Written may be what the session names, and what no program does without: the
//! terminals, the null and zero devices, shared memory, and `/proc`, where the kernel's own rules hold. Descriptors a
//! command is given are not touched by it. Signals stay inside the session: the commands of one cannot end another's.

use hmz_wire::Fence;
use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope, make_bitflags,
};
use rustix::fs::{Mode, OFlags, fstat, open};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The rights that are fenced: those of Linux 6.2, among them truncation and moving between directories.
const RIGHTS: ABI = ABI::V3;

/// Written by programs of all kinds.
const ALWAYS: [&str; 8] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm", "/proc"];

/// How far a fence holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// All of it.
    Full,
    /// Some rights are unknown to this kernel.
    Partial,
    /// Nothing is fenced.
    None,
}

impl Held {
    /// As [`hmz_wire::Welcome::fence`] says it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::None => "none",
        }
    }
}

/// Fences this process for good.
///
/// # Errors
/// When the kernel refuses what it said it could.
pub(crate) fn put_up(fence: &Fence) -> Result<Held, RulesetError> {
    let write = AccessFs::from_write(RIGHTS);
    let mut ruleset = scoped().handle_access(write)?.create()?;
    for path in fence.write.iter().map(|p| Path::new(OsStr::from_bytes(p))).chain(ALWAYS.iter().map(Path::new)) {
        if let Some((fd, directory)) = opened(path) {
            let rights = if directory { write } else { write & file_rights() };
            ruleset = ruleset.add_rule(PathBeneath::new(fd, rights))?;
        }
    }
    // this sets no_new_privs too
    Ok(match ruleset.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Held::Full,
        RulesetStatus::PartiallyEnforced => Held::Partial,
        RulesetStatus::NotEnforced => Held::None,
    })
}

/// With signals kept inside the session, where the kernel knows how (Linux 6.12); elsewhere the fence holds without it,
/// since a signal ends another session and opens nothing.
fn scoped() -> Ruleset {
    let hard = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).scope(Scope::Signal);
    hard.map_or_else(|_| Ruleset::default(), |scoped| scoped.set_compatibility(CompatLevel::BestEffort))
}

fn file_rights() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{WriteFile | Truncate})
}

/// The place and whether it is a directory. Its last component is not followed: a link the box planted at the name of
/// a session's directory opens nothing.
fn opened(path: &Path) -> Option<(OwnedFd, bool)> {
    if !path.is_absolute() {
        return None;
    }
    // /dev/ptmx is a link into /dev/pts in a container, which is named too
    let fd = open(path, OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty()).ok()?;
    let kind = rustix::fs::FileType::from_raw_mode(fstat(&fd).ok()?.st_mode);
    (kind != rustix::fs::FileType::Symlink).then_some((fd, kind == rustix::fs::FileType::Directory))
}
