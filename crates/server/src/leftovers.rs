//! Copies of the store that were being made when whoever made them was killed: each is as large as the store, and nobody looks for it.

use std::path::Path;

/// What the names of copies begin with: those a daemon sends, and those a restore puts in the store's place.
pub(crate) const COPIES: [&str; 2] = ["backup-", "restore-"];
/// How many letters and digits follow.
const RANDOM: usize = 6;
/// What the store's engine puts beside one while it writes it.
const BESIDE: [&str; 4] = ["", "-journal", "-wal", "-shm"];

/// Removes them. Whoever calls has the daemon's lock: nobody makes one now.
pub(crate) fn sweep(state: &Path) {
    let Ok(entries) = std::fs::read_dir(state) else { return };
    for entry in entries.flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || !entry.file_name().to_str().is_some_and(is_copy) {
            continue;
        }
        match std::fs::remove_file(entry.path()) {
            Ok(()) => tracing::info!("swept {}, which somebody left who was killed", entry.path().display()),
            Err(e) => tracing::warn!("{} stays: {e}", entry.path().display()),
        }
    }
}

/// Whether a name is one that a copy is made under; nobody else's is: a backup is not to be kept beside the store.
fn is_copy(name: &str) -> bool {
    let Some(rest) = COPIES.iter().find_map(|prefix| name.strip_prefix(prefix)) else { return false };
    let random = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
    random == RANDOM && BESIDE.contains(&&rest[random..])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by it")]
    use super::*;

    #[test]
    fn what_is_made_is_swept_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let mut left = Vec::new();
        for prefix in COPIES {
            let (_, path) = tempfile::Builder::new().prefix(prefix).tempfile_in(dir.path()).unwrap().keep().unwrap();
            std::fs::write(format!("{}-journal", path.display()), "").unwrap();
            left.push(path);
        }
        let own = [
            "store.db",
            "store.db.replaced-1",
            "backup-2026.db",
            "backup-abcdef.db",
            "restore-",
            "restore-abcde",
            "backup-abcdefg",
        ];
        for name in own {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        std::fs::create_dir(dir.path().join("backup-folder")).unwrap();
        sweep(dir.path());
        assert!(left.iter().all(|path| !path.exists()));
        let mut there: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        there.retain(|name| name != "backup-folder");
        there.sort();
        let mut own = own.map(str::to_owned);
        own.sort();
        assert_eq!(there, own);
        assert!(dir.path().join("backup-folder").exists());
    }
}
