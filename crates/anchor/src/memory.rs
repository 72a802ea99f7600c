//! Reads what a waiting thread's system call points to.

use crate::sys;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The smallest page: what lies within one is there or not as a whole.
pub(crate) const PAGE: u64 = 4096;

/// Reads `buffer.len()` bytes, which lie within one page.
pub(crate) fn read(tid: i32, address: u64, buffer: &mut [u8]) -> Option<()> {
    if let Ok(n) = sys::read_memory(tid, address, buffer) {
        return (n == buffer.len()).then_some(());
    }
    // some containers' profiles deny the call, and allow the file
    File::open(format!("/proc/{tid}/mem")).ok()?.read_exact_at(buffer, address).ok()
}

/// A string that ends with a zero byte, which is left out. `None` when it cannot be read or is longer than `max`.
pub(crate) fn string(tid: i32, address: u64, max: usize) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let mut at = address;
    loop {
        let room = (PAGE - at % PAGE).min(256) as usize;
        let mut chunk = [0u8; 256];
        read(tid, at, &mut chunk[..room])?;
        if let Some(end) = chunk[..room].iter().position(|&b| b == 0) {
            text.extend_from_slice(&chunk[..end]);
            return (text.len() <= max).then_some(text);
        }
        text.extend_from_slice(&chunk[..room]);
        if text.len() > max {
            return None;
        }
        at = at.checked_add(room as u64)?;
    }
}

/// The value of `name` among the environment's strings at `envp`, of which no more than `most` are looked at.
pub(crate) fn variable(tid: i32, envp: u64, name: &[u8], most: u64) -> Option<Vec<u8>> {
    for i in 0..most {
        let mut raw = [0u8; 8];
        // pointers are aligned, so one never lies in two pages
        read(tid, envp.checked_add(8 * i)?, &mut raw)?;
        let at = u64::from_ne_bytes(raw);
        if at == 0 {
            return None;
        }
        let mut head = vec![0u8; name.len() + 1];
        let whole = (PAGE - at % PAGE) as usize >= head.len();
        if whole && (read(tid, at, &mut head).is_none() || head[name.len()] != b'=' || &head[..name.len()] != name) {
            continue;
        }
        if let Some(value) =
            string(tid, at, 128 << 10).as_deref().and_then(|s| s.strip_prefix(name)).and_then(|s| s.strip_prefix(b"="))
        {
            return Some(value.to_vec());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_there() {
        let own = std::process::id() as i32;
        let text = format!("{}\0", "x".repeat(9000));
        let at = text.as_ptr() as u64;
        assert_eq!(string(own, at, 9000).as_deref(), Some(&text.as_bytes()[..9000]));
        assert_eq!(string(own, at, 8999), None);
        assert_eq!(string(own, 8, 100), None);
        assert_eq!(string(own, u64::MAX, 100), None);
        let strings = ["A=1\0", "PATHS=no\0", "PATH=/a:/b\0"];
        let mut pointers: Vec<u64> = strings.iter().map(|s| s.as_ptr() as u64).collect();
        pointers.push(0);
        let at = pointers.as_ptr() as u64;
        assert_eq!(variable(own, at, b"PATH", 100).as_deref(), Some(&b"/a:/b"[..]));
        assert_eq!(variable(own, at, b"PATH", 2), None);
        assert_eq!(variable(own, at, b"B", 100), None);
    }
}
