//! The CLI's fence: Landlock on the process that becomes the CLI, and for uid 0 the capabilities that see around it.
//!
//! Read and execute: the system's own directories, the CLI's installation, what the session's fence names. Write: the
//! workdir, the scratch directory, and what the fence names. Sockets of the abstract namespace and signals do not leave.

use crate::{AnchorError, SupervisorConfig};
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::thread::CapabilitySet;
use std::path::{Path, PathBuf};

/// Directories every program reads.
const SYSTEM: [&str; 9] = ["/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/etc", "/proc", "/sys"];

/// The newest version of the kernel's interface this fence was written for; older kernels hold less of it.
const NEWEST: ABI = ABI::V6;

/// Fences this process and all that descends from it. It must have no new privileges already, and one thread.
pub(crate) fn enter(config: &SupervisorConfig, own: &[PathBuf]) -> Result<(), AnchorError> {
    drop_capabilities()?;
    restrict(config, own)
        .map_err(|e| AnchorError::Refused(format!("the agent would not be fenced: this kernel holds no Landlock rules ({e})")))
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
    for path in &config.fence.read {
        rules = allow(rules, path, read)?;
    }
    let shared = [PathBuf::from(&config.place.workdir), PathBuf::from(&config.place.scratch)];
    // what is in the scratch directory is allowed with it: the box writes there too, and may by now have put a link to
    // anything at the name of a session's own directory
    let named = config.fence.write.iter().filter(|path| !path.starts_with(&config.place.scratch));
    for path in named.chain(&shared) {
        rules = allow(rules, path, write)?;
    }
    match rules.restrict_self()?.ruleset {
        RulesetStatus::NotEnforced => Err("the rules are not enforced".into()),
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
    }
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
