//! Lines of a stream, of bounded length. A line that is longer is an error, not memory.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// Longest line of an agent's output, in bytes, its newline included.
pub(crate) const LONGEST: usize = 16 << 20;

/// Why there is no next line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    /// The stream failed.
    #[error("its output cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// The line is too long.
    #[error("it wrote a line of more than {} MiB", LONGEST >> 20)]
    TooLong,
}

/// Reads lines; [`Lines::next`] can be cancelled and called again without losing any.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    stream: BufReader<R>,
    pending: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self { stream: BufReader::with_capacity(64 << 10, stream), pending: Vec::new() }
    }

    /// The next line without its newline; `None` at the end. A last line without a newline counts.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, LineError> {
        loop {
            let chunk = self.stream.fill_buf().await?;
            if chunk.is_empty() {
                return Ok((!self.pending.is_empty()).then(|| std::mem::take(&mut self.pending)));
            }
            let (taken, whole) = match chunk.iter().position(|b| *b == b'\n') {
                Some(at) => (at + 1, true),
                None => (chunk.len(), false),
            };
            if self.pending.len() + taken > LONGEST {
                return Err(LineError::TooLong);
            }
            self.pending.extend_from_slice(&chunk[..taken]);
            self.stream.consume(taken);
            if whole {
                self.pending.pop();
                return Ok(Some(std::mem::take(&mut self.pending)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_come_whole_and_the_last_one_without_a_newline_too() {
        let mut lines = Lines::new(&b"one\n\ntwo"[..]);
        assert_eq!(lines.next().await.unwrap(), Some(b"one".to_vec()));
        assert_eq!(lines.next().await.unwrap(), Some(Vec::new()));
        assert_eq!(lines.next().await.unwrap(), Some(b"two".to_vec()));
        assert_eq!(lines.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_line_without_end_is_an_error_and_not_memory() {
        let endless = tokio::io::repeat(b'x');
        let mut lines = Lines::new(endless);
        assert!(matches!(lines.next().await, Err(LineError::TooLong)));
        assert!(lines.pending.len() <= LONGEST);
    }
}
