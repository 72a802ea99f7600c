//! The archive: a tar of texts, compressed, each text bounded and all of them together.

use super::Scrub;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, Write};

/// How much all texts may be, in bytes.
const ALL: usize = 16 << 20;

/// What is written so far.
pub struct Archive<W: Write> {
    tar: tar::Builder<GzEncoder<W>>,
    scrub: Scrub,
    folder: String,
    room: usize,
    now: u64,
    /// What has no room.
    left: Vec<String>,
}

impl<W: Write> Archive<W> {
    /// An archive of one folder; every text goes through `scrub`.
    pub fn new(into: W, folder: &str, now: u64, scrub: Scrub) -> Self {
        let tar = tar::Builder::new(GzEncoder::new(into, Compression::default()));
        Self { tar, scrub, folder: folder.to_owned(), room: ALL, now, left: Vec::new() }
    }

    /// Adds a text; one that there is no room for is named at the end.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&mut self, name: &str, text: &str) -> io::Result<()> {
        let text = self.scrub.text(text);
        if text.len() > self.room {
            self.left.push(format!("{name}: {} bytes", text.len()));
            return Ok(());
        }
        self.room -= text.len();
        self.put(name, &text)
    }

    fn put(&mut self, name: &str, text: &str) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o600);
        header.set_size(text.len() as u64);
        header.set_mtime(self.now);
        self.tar.append_data(&mut header, format!("{}/{name}", self.folder), text.as_bytes())
    }

    /// Ends it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        let left = std::mem::take(&mut self.left);
        if !left.is_empty() {
            self.put("left-out.txt", &format!("{}\n", left.join("\n")))?;
        }
        self.tar.into_inner()?.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_does_not_grow_beyond_its_bound_and_says_what_is_left_out() {
        let mut archive = Archive::new(Vec::new(), "f", 0, Scrub::default());
        let large = "x ".repeat(5 << 20);
        archive.add("a", &large).unwrap();
        archive.add("b", &large).unwrap();
        archive.add("c", "small").unwrap();
        let bytes = archive.finish().unwrap();
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
        let names: Vec<String> =
            tar.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect();
        assert_eq!(names, ["f/a", "f/c", "f/left-out.txt"]);
    }
}
