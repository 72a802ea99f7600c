//! The secret of an HMZ_HOME, from which the keys of its boxes derive: 32 random bytes that only this user can read. It leaves
//! this machine in no form, and is in no message.

use crate::paths::Paths;
use hmz_api::Error;
use std::io::{ErrorKind, Read as _, Write as _};

/// Reads the secret, or makes it. Two processes that make it at once agree, since the file is linked into place only once.
///
/// # Errors
/// When the state directory cannot be written, or the file does not hold a secret.
pub fn secret(paths: &Paths) -> Result<[u8; 32], Error> {
    let file = paths.state.join("secret");
    let failed = |e: std::io::Error| Error::failed(format!("{}: {e}", file.display()));
    if !file.exists() {
        let fresh: [u8; 32] = hmz_wire::channel::handshake::random().map_err(failed)?;
        // only this user can read a temporary file
        let mut made = tempfile::NamedTempFile::new_in(&paths.state).map_err(failed)?;
        made.write_all(&fresh).and_then(|()| made.as_file().sync_all()).map_err(failed)?;
        match made.persist_noclobber(&file) {
            Ok(_) => {}
            Err(e) if e.error.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(failed(e.error)),
        }
    }
    let mut bytes = Vec::new();
    std::fs::File::open(&file).and_then(|found| found.take(64).read_to_end(&mut bytes)).map_err(failed)?;
    bytes.try_into().map_err(|_| {
        Error::failed(format!("{} does not hold a secret", file.display()))
            .hint("remove it; boxes on daemons of other machines cannot be worked in any more then, and have to be made again")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn it_stays_and_is_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let env = BTreeMap::from([("HMZ_HOME".to_owned(), at("h")), ("XDG_RUNTIME_DIR".to_owned(), at("r"))]);
        std::fs::create_dir(at("r")).unwrap();
        let paths = Paths::from_env(&env).unwrap();
        paths.prepare().unwrap();
        let first = secret(&paths).unwrap();
        assert_eq!(secret(&paths).unwrap(), first);
        assert_ne!(first, [0; 32]);
        let file = paths.state.join("secret");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&file, "short").unwrap();
        assert!(secret(&paths).unwrap_err().message.ends_with("does not hold a secret"));
    }
}
