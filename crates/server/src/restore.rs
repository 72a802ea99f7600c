//! Putting a backup in the store's place.
//!
//! Nothing is touched before the backup was read as a whole. The store it replaces stays beside it, and at each moment one of
//! the two is there under the store's name. No daemon is there meanwhile: whoever calls has ended it, and its lock is held.

use crate::listen;
use crate::paths::Paths;
use hmz_api::{AnyResource, Error};
use hmz_store::StoreError;
use hmz_store::backup::{Contents, Kept, adopt, contents, fold};
use rustix::fs::Mode;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// How many resources there are now.
    pub resources: usize,
    /// Where the store is that was there before; `None` when there was none.
    pub replaced: Option<PathBuf>,
    /// What was there before and is not now, as a person names it. What of it runs is swept.
    pub gone: Vec<String>,
}

/// The lock that no daemon has while a store is replaced.
#[derive(Debug)]
pub struct Alone {
    _lock: listen::DaemonLock,
}

/// Sees that no daemon is there, and that none comes for as long as the answer is held; `None` when one is.
///
/// # Errors
/// When the lock cannot be had.
pub fn alone(paths: &Paths) -> Result<Option<Alone>, Error> {
    Ok(listen::lock(paths)?.map(|lock| Alone { _lock: lock }))
}

/// Reads a backup as a whole; it is not changed.
///
/// # Errors
/// When it is none, is damaged, or was written by a newer version.
pub fn look(file: &Path) -> Result<Contents, Error> {
    contents(file).map_err(|e| backup_error(e, file))
}

/// Puts `file` in the store's place.
///
/// # Errors
/// As [`look`]; when a run is at work, or the store that is there cannot be looked at though it is whole; when a file cannot be
/// written. Then the store is as it was.
pub fn restore(paths: &Paths, file: &Path, _alone: &Alone) -> Result<Restored, Error> {
    let (store, state) = (paths.store(), &paths.state);
    let failed = |e: std::io::Error| Error::failed(format!("{}: {e}", state.display()));
    // what is read and what is put there are the same bytes
    let mut copy = tempfile::Builder::new().prefix(crate::leftovers::COPIES[1]).tempfile_in(state).map_err(failed)?;
    std::fs::File::open(file)
        .and_then(|mut from| std::io::copy(&mut from, &mut copy))
        .map_err(|e| Error::usage(format!("{}: {e}", file.display())))?;
    copy.flush().map_err(failed)?;
    let new = contents(copy.path()).map_err(|e| backup_error(e, file))?;
    let old = match store.exists().then(|| fold(&store)) {
        None => None,
        Some(Ok(old)) => Some(old),
        // that is what a backup is for
        Some(Err(StoreError::Unreadable { .. } | StoreError::Newer { .. })) => None,
        // there may be runs at work in it
        Some(Err(other)) => return Err(other.into()),
    };
    if let Some(run) = old.iter().flat_map(|old| &old.resources).find(|one| one.is_at_work) {
        let error = Error::refused(format!("{} is at work, and a restored store would know nothing of it", shown(run)));
        return Err(error.hint(format!("hmz wait --for=condition=Complete {0}  # or: hmz cancel {0}", shown(run))));
    }
    let after = old.as_ref().map_or(0, |old| old.revision);
    adopt(copy.path(), file, after).map_err(|e| backup_error(e, file))?;
    std::fs::set_permissions(copy.path(), std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let replaced = if store.exists() { Some(set_aside(&store, old.is_none()).map_err(failed)?) } else { None };
    copy.persist(&store).map_err(|e| failed(e.error))?;
    std::fs::File::open(state).and_then(|dir| dir.sync_all()).map_err(failed)?;
    let is_gone = |one: &Kept| !new.resources.iter().any(|kept| kept.kind == one.kind && kept.uid == one.uid);
    let gone = old.iter().flat_map(|old| &old.resources).filter(|one| one.is_declared && is_gone(one)).map(shown).collect();
    Ok(Restored { resources: new.resources.len(), replaced, gone })
}

/// Gives the store a second name, under which it stays; one that could not be read stays with its log.
fn set_aside(store: &Path, unread: bool) -> std::io::Result<PathBuf> {
    let mut nth = 1;
    loop {
        let aside = store.with_extension(format!("db.replaced-{nth}"));
        match std::fs::hard_link(store, &aside) {
            Ok(()) => {
                let log = |of: &Path| PathBuf::from(format!("{}-wal", of.display()));
                if unread && log(store).exists() {
                    // the log of one is no other's
                    std::fs::rename(log(store), log(&aside))?;
                }
                rustix::fs::chmod(&aside, Mode::RUSR | Mode::WUSR)?;
                return Ok(aside);
            }
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => nth += 1,
            Err(e) => return Err(e),
        }
    }
}

fn shown(one: &Kept) -> String {
    let word = if one.kind == "Environment" { "env".to_owned() } else { one.kind.to_lowercase() };
    format!("{word}/{}", one.name)
}

/// What is wrong with a backup, in words that name it.
fn backup_error(error: StoreError, file: &Path) -> Error {
    let file = file.display();
    match error {
        StoreError::Newer { found, known, .. } => {
            Error::refused(format!("{file} was written by a newer hmz: its schema is {found}, and this one knows {known}"))
                .hint("restore it with that hmz; the store was not touched")
        }
        StoreError::Unreadable { why, .. } => Error::refused(format!("{file} is no whole backup: {why}"))
            .hint("the store was not touched; give a file that hmz backup wrote"),
        other => Error::from(other),
    }
}

/// How many resources of each kind there are, in words: `2 envs, 1 run`.
pub fn counted(found: &Contents) -> String {
    let kinds = ["Run", "Environment", "Runtime", "Flow"].into_iter().filter_map(AnyResource::kind_of_word);
    let counts = kinds.filter_map(|kind| {
        let n = found.resources.iter().filter(|one| one.kind == kind).count();
        let word = if kind == "Environment" { "environment".to_owned() } else { kind.to_lowercase() };
        (n > 0).then(|| format!("{n} {word}{}", if n == 1 { "" } else { "s" }))
    });
    let counts: Vec<String> = counts.collect();
    if counts.is_empty() { "no resources".into() } else { counts.join(", ") }
}
