//! Writing to a stream whose reader may have gone.

use std::io::{self, ErrorKind, Write};

/// Whether somebody still reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// Yes.
    There,
    /// No: `hmz … | head -1` has what it wanted. Nobody is told.
    Gone,
}

/// Writes the text and flushes it.
///
/// # Errors
/// Anything but a broken pipe, such as a full disk.
pub fn put(stream: &mut impl Write, text: &str) -> io::Result<Reader> {
    match stream.write_all(text.as_bytes()).and_then(|()| stream.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_pipe_is_silent_and_a_full_disk_is_not() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(put(&mut writer, "x").unwrap(), Reader::Gone);
        let mut full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert_eq!(put(&mut full, "x").unwrap_err().kind(), ErrorKind::StorageFull);
        let mut good = Vec::new();
        assert_eq!(put(&mut good, "x").unwrap(), Reader::There);
        assert_eq!(good, b"x");
    }
}
