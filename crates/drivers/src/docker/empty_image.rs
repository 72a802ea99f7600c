//! The empty image that locks and holds are made from, as an archive for `/images/load`.
//!
//! It is the same to the byte wherever it is made, so that two who bring it at once bring one image.

use super::names::{EMPTY_IMAGE, EMPTY_TAG};
use serde_json::json;

/// A tar block, in bytes.
const BLOCK: usize = 512;

/// The archive.
pub fn archive() -> Vec<u8> {
    // what Go calls the machine; the daemon warns of an image of another one
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({"architecture": machine, "config": {}, "os": "linux", "rootfs": {"diff_ids": [], "type": "layers"}});
    let manifest = json!([{"Config": "config.json", "Layers": [], "RepoTags": [format!("{EMPTY_IMAGE}:{EMPTY_TAG}")]}]);
    let mut tar = Vec::new();
    file(&mut tar, "config.json", config.to_string().as_bytes());
    file(&mut tar, "manifest.json", manifest.to_string().as_bytes());
    tar.resize(tar.len() + 2 * BLOCK, 0);
    tar
}

/// Appends a file in the ustar format; `name` is shorter than 100 bytes.
fn file(tar: &mut Vec<u8>, name: &str, content: &[u8]) {
    let mut header = [0u8; BLOCK];
    let mut put = |at: usize, text: &str| {
        for (to, from) in header.iter_mut().skip(at).zip(text.bytes()) {
            *to = from;
        }
    };
    put(0, name);
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{:011o}\0", content.len()));
    put(136, "00000000000\0");
    put(148, "        "); // the checksum counts its own field as spaces
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
    for (to, from) in header.iter_mut().skip(148).zip(format!("{sum:06o}\0 ").bytes()) {
        *to = from;
    }
    tar.extend_from_slice(&header);
    tar.extend_from_slice(content);
    tar.resize(tar.len().next_multiple_of(BLOCK), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_each_time_and_in_whole_blocks() {
        assert_eq!(archive(), archive());
        assert_eq!(archive().len() % BLOCK, 0);
    }
}
