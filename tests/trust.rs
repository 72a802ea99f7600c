//! What runs in a box is hostile, and so may be an agent that was talked into it: what they try through the whole product,
//! on a real daemon, and what it changes here, which is nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod provider;
mod support;

#[path = "trust/box_side.rs"]
mod box_side;
#[path = "trust/here.rs"]
mod here;
#[path = "trust/planted.rs"]
mod planted;
#[path = "trust/secrets.rs"]
mod secrets;
#[path = "trust/sockets.rs"]
mod sockets;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Every file below a directory with what is in it and its mode, links unfollowed, without what is below `but`.
fn everything(dir: &Path, but: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    use std::os::unix::fs::MetadataExt;
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let about = path.symlink_metadata().unwrap();
            if path == but {
                continue;
            } else if about.is_dir() {
                left.push(path.clone());
                found.insert(path, (about.mode(), Vec::new()));
            } else if about.is_file() || about.is_symlink() {
                let content = if about.is_symlink() {
                    path.read_link().unwrap().into_os_string().into_encoded_bytes()
                } else {
                    std::fs::read(&path).unwrap()
                };
                found.insert(path, (about.mode(), content));
            }
        }
    }
    found
}

/// Writes a file and the directories it is in.
fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// The answer of a rogue that returned a JSON object of attempts: each one and how it ended.
fn attempts(answer: &str) -> BTreeMap<String, String> {
    serde_json::from_str(answer.trim()).unwrap_or_else(|e| panic!("{e}: {answer}"))
}
