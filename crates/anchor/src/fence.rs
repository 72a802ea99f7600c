//! The CLI's fence: Landlock on the process that becomes the CLI, and for uid 0 the capabilities that see around it.
//!
//! Read and execute: the system's own directories, the CLI's installation, what the session's fence names. Write: the
//! workdir, the scratch directory, and what the fence names. Sockets of the abstract namespace and signals do not leave.

use crate::{AnchorError, SupervisorConfig, sys};
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::thread::CapabilitySet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Directories every program reads.
const SYSTEM: [&str; 8] = ["/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/proc", "/sys"];

/// What every program reads too, but for the secrets in it, which only root could.
const CONFIGURATION: &str = "/etc";

/// The newest version of the kernel's interface this fence was written for; older kernels hold less of it.
const NEWEST: ABI = ABI::V6;

/// Fences this process and all that descends from it. It must have no new privileges already, and one thread.
pub(crate) fn enter(config: &SupervisorConfig, own: &[PathBuf]) -> Result<(), AnchorError> {
    drop_capabilities()?;
    let refused =
        |why: &str| AnchorError::Refused(format!("the agent would not be fenced: this kernel holds no Landlock rules ({why})"));
    // asked first, because what the rules' own errors say of a kernel without them is no sentence
    if let Err(e) = sys::landlock_version() {
        return Err(match e.raw_os_error() {
            Some(libc::ENOSYS) => refused("it is older than 5.13"),
            Some(libc::EOPNOTSUPP) => refused("they were switched off when it was started"),
            _ => refused(&e.to_string()),
        });
    }
    restrict(config, own).map_err(|e| refused(&e.to_string()))
}

fn restrict(config: &SupervisorConfig, own: &[PathBuf]) -> Result<(), Box<dyn std::error::Error>> {
    let read = AccessFs::from_read(NEWEST);
    let write = AccessFs::from_all(NEWEST) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    for dir in SYSTEM {
        rules = allow(rules, Path::new(dir), read)?;
    }
    for path in open_to_all(Path::new(CONFIGURATION)) {
        rules = allow(rules, &path, read)?;
    }
    rules = allow(rules, Path::new(CONFIGURATION), AccessFs::ReadDir.into())?;
    for file in ["/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"] {
        rules = allow(rules, Path::new(file), AccessFs::ReadFile.into())?;
    }
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    for file in ["/dev/null", "/dev/tty", "/dev/ptmx"] {
        rules = allow(rules, Path::new(file), device)?;
    }
    rules = allow(rules, Path::new("/dev/pts"), device | AccessFs::ReadDir)?;
    if let Ok(resolver) = std::fs::canonicalize("/etc/resolv.conf") {
        rules = allow(rules, &resolver, AccessFs::ReadFile.into())?;
    }
    for program in own {
        if let Some(dir) = program.parent() {
            rules = allow(rules, dir, read)?;
        }
    }
    let shared = [PathBuf::from(&config.place.workdir), PathBuf::from(&config.place.scratch)];
    // what is in a shared directory is allowed with it: the box writes there too, and may by now have put a link to
    // anything at the name of a session's own directory
    let is_outside = |path: &&PathBuf| !shared.iter().any(|dir| path.starts_with(dir));
    for path in config.fence.read.iter().filter(is_outside) {
        rules = allow(rules, path, read)?;
    }
    for path in config.fence.write.iter().filter(is_outside).chain(&shared) {
        rules = allow(rules, path, write)?;
    }
    match rules.restrict_self()?.ruleset {
        RulesetStatus::NotEnforced => Err("the rules are not enforced".into()),
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
    }
}

/// The fewest paths at and below `dir` that hold all that everybody may read there, and nothing else. For an ordinary user
/// that is `dir`: what is not for everybody is closed to them already.
///
/// A rule on a file is a rule on what the file is now: one that is replaced later cannot be read until the next session.
fn open_to_all(dir: &Path) -> Vec<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        return vec![dir.to_owned()];
    }
    match look(dir) {
        Found::Open => vec![dir.to_owned()],
        Found::Mixed(open) => open,
        Found::Closed => Vec::new(),
    }
}

/// Whether everybody may read a path.
enum Found {
    /// It, and all below it.
    Open,
    /// Some of what is below it: these.
    Mixed(Vec<PathBuf>),
    /// Not.
    Closed,
}

fn look(path: &Path) -> Found {
    // a link is where it leads, which has rules of its own or none
    let Ok(found) = std::fs::symlink_metadata(path) else { return Found::Closed };
    if found.is_symlink() {
        return Found::Open;
    }
    let mode = found.permissions().mode();
    if !found.is_dir() {
        return if mode & 0o004 != 0 { Found::Open } else { Found::Closed };
    }
    let Ok(entries) = std::fs::read_dir(path) else { return Found::Closed };
    if mode & 0o005 != 0o005 {
        return Found::Closed;
    }
    let (mut open, mut all) = (Vec::new(), true);
    for entry in entries.flatten() {
        let path = entry.path();
        match look(&path) {
            Found::Open if entry.file_type().is_ok_and(|kind| kind.is_symlink()) => {}
            Found::Open => open.push(path),
            Found::Mixed(some) => {
                all = false;
                open.extend(some);
            }
            Found::Closed => all = false,
        }
    }
    if all { Found::Open } else { Found::Mixed(open) }
}

/// Adds a rule; a path that is not there, or may not be seen, needs none.
fn allow(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, Box<dyn std::error::Error>> {
    let Ok(fd) = PathFd::new(path) else {
        return Ok(rules);
    };
    // rights of directories mean nothing on a file, and the kernel refuses them there
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    Ok(rules.add_rule(PathBeneath::new(fd, access))?)
}

/// Takes from root what would let it read other processes in spite of the fence.
fn drop_capabilities() -> Result<(), AnchorError> {
    const WHAT: &str = "drop capabilities";
    let gone = CapabilitySet::SYS_ADMIN | CapabilitySet::PERFMON | CapabilitySet::SYS_PTRACE;
    let mut sets = rustix::thread::capabilities(None).map_err(AnchorError::errno(WHAT))?;
    if sets.effective.contains(CapabilitySet::SETPCAP) {
        for one in gone.iter() {
            rustix::thread::remove_capability_from_bounding_set(one).map_err(AnchorError::errno(WHAT))?;
        }
    }
    sets.effective &= !gone;
    sets.permitted &= !gone;
    sets.inheritable &= !gone;
    rustix::thread::set_capabilities(None, sets).map_err(AnchorError::errno(WHAT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn root_reads_what_everybody_may_and_no_more() {
        let root = tempfile::tempdir().expect("a directory");
        let make = |name: &str, mode: u32| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("its directory");
            fs::write(&path, "x").expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
        };
        for dir in ["", "ssl", "open", "shut"] {
            fs::create_dir_all(root.path().join(dir)).expect("a directory");
            fs::set_permissions(root.path().join(dir), fs::Permissions::from_mode(0o755)).expect("its mode");
        }
        make("passwd", 0o644);
        make("shadow", 0o640);
        make("ssl/cert.pem", 0o644);
        make("ssl/key.pem", 0o600);
        make("open/a", 0o644);
        make("shut/a", 0o644);
        fs::set_permissions(root.path().join("shut"), fs::Permissions::from_mode(0o700)).expect("its mode");
        std::os::unix::fs::symlink("shadow", root.path().join("link")).expect("a link");
        let Found::Mixed(mut open) = look(root.path()) else { panic!("some of it is open") };
        open.sort();
        let wanted = ["open", "passwd", "ssl/cert.pem"].map(|name| root.path().join(name));
        assert_eq!(open, wanted);
        assert!(matches!(look(&root.path().join("open")), Found::Open));
        assert!(matches!(look(&root.path().join("shut")), Found::Closed));
    }
}
