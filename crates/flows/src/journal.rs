//! The journal of a run on disk: `epic.jsonl`, one record a line.
//!
//! One process appends; anybody reads. A reader passes over what it cannot read, and leaves a last line alone until its
//! newline is there.

use futures::Stream;
use futures::stream::unfold;
use hmz_api::clock::{Clock, SystemClock};
use hmz_api::journal::{Event, Record};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The journal's name in a run's epic directory.
pub const FILE: &str = "epic.jsonl";

/// Longest line that is read, in bytes; a longer one is passed over.
const LONGEST: usize = 4 << 20;

/// Longest text of a record, in bytes; a longer one is cut when it is written.
const LONGEST_TEXT: usize = 1 << 20;

/// How often a follower looks for more.
const LOOK: Duration = Duration::from_millis(10);

/// Whom a record is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// The agent role.
    pub agent: String,
    /// Its CLI.
    pub cli: String,
    /// Its model.
    pub model: String,
    /// The CLI's own session id.
    pub session: String,
}

/// Appends to a journal; each record is one write.
#[derive(Debug)]
pub struct Writer {
    file: Mutex<File>,
}

impl Writer {
    /// Opens the journal in the directory `epic`; only its owner can read it.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(epic: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(epic.join(FILE))?;
        // what a killed runner left of a line must not swallow ours
        let len = file.seek(SeekFrom::End(0))?;
        if len > 0 {
            let mut last = [0u8];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        Ok(Self { file: Mutex::new(file) })
    }

    /// Appends one record. The last one of a run is on the disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, about: &About, event: Event) -> io::Result<()> {
        let last = matches!(event, Event::Ended { .. });
        let record = Record {
            at: SystemClock.now().as_millisecond() as f64 / 1000.0,
            agent: about.agent.clone(),
            cli: about.cli.clone(),
            model: about.model.clone(),
            session: about.session.clone(),
            event: bounded(event),
        };
        let mut line = serde_json::to_vec(&record)?;
        line.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&line)?;
        if last { file.sync_all() } else { Ok(()) }
    }
}

/// The event with its texts cut to what a reader takes.
fn bounded(mut event: Event) -> Event {
    let cut = |text: &mut String| {
        if text.len() > LONGEST_TEXT {
            let end = (0..=LONGEST_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
            text.truncate(end);
            text.push('…');
        }
    };
    match &mut event {
        Event::Text { text }
        | Event::Reasoning { text }
        | Event::ToolResult { text, .. }
        | Event::Notice { text }
        | Event::Failed { text }
        | Event::Placed { text } => cut(text),
        Event::Tool { name, about } => [name, about].into_iter().for_each(cut),
        Event::Exec { command, stdout, stderr, .. } => [command, stdout, stderr].into_iter().for_each(cut),
        Event::Ends { answer, .. } => cut(answer),
        Event::Ended { message, .. } => cut(message),
        Event::Began { .. } | Event::Begins | Event::Result { .. } | Event::Unknown => {}
    }
    event
}

/// Reads whole lines of a file that may still grow.
#[derive(Debug)]
struct Tail {
    stream: BufReader<File>,
    pending: Vec<u8>,
    /// Whether the line is too long, so that the rest of it is thrown away.
    skipping: bool,
}

impl Tail {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { stream: BufReader::with_capacity(64 << 10, File::open(path)?), pending: Vec::new(), skipping: false })
    }

    /// The next record; `None` when there is none yet.
    fn next(&mut self) -> io::Result<Option<Record>> {
        loop {
            let chunk = self.stream.fill_buf()?;
            if chunk.is_empty() {
                return Ok(None);
            }
            let (taken, whole) = match chunk.iter().position(|b| *b == b'\n') {
                Some(at) => (at + 1, true),
                None => (chunk.len(), false),
            };
            self.skipping |= self.pending.len() + taken > LONGEST;
            if self.skipping {
                self.pending.clear();
            } else {
                self.pending.extend_from_slice(&chunk[..taken]);
            }
            self.stream.consume(taken);
            if whole {
                let line = std::mem::take(&mut self.pending);
                let skipped = std::mem::take(&mut self.skipping);
                if let (false, Ok(record)) = (skipped, serde_json::from_slice(&line)) {
                    return Ok(Some(record));
                }
            }
        }
    }
}

/// The records that are there now, one after the other.
///
/// # Errors
/// When the file cannot be opened. A read that fails later ends the records.
pub fn read(path: &Path) -> io::Result<impl Iterator<Item = Record> + use<>> {
    let mut tail = Tail::open(path)?;
    Ok(std::iter::from_fn(move || tail.next().ok().flatten()))
}

struct Follower {
    path: PathBuf,
    tail: Option<Tail>,
    ready: VecDeque<Record>,
    ended: bool,
}

/// Most records a follower takes at once.
const BATCH: usize = 256;

/// The records from the first one on as they are written, the file's creation waited for. Ends after [`Event::Ended`].
///
/// Whoever follows a run that may have died without its last record stops by dropping the stream.
pub fn follow(path: &Path) -> impl Stream<Item = Record> + Send + 'static {
    let follower = Follower { path: path.to_path_buf(), tail: None, ready: VecDeque::new(), ended: false };
    unfold(follower, |mut follower| async move {
        loop {
            if let Some(record) = follower.ready.pop_front() {
                follower.ended = matches!(record.event, Event::Ended { .. });
                return Some((record, follower));
            }
            if follower.ended {
                return None;
            }
            // short reads of a local file; they are not worth a thread
            if follower.tail.is_none() {
                follower.tail = Tail::open(&follower.path).ok();
            }
            if let Some(tail) = &mut follower.tail {
                while follower.ready.len() < BATCH {
                    match tail.next() {
                        Ok(Some(record)) => follower.ready.push_back(record),
                        Ok(None) => break,
                        Err(error) => {
                            tracing::warn!(%error, path = %follower.path.display(), "a journal cannot be read");
                            return None;
                        }
                    }
                }
            }
            if follower.ready.is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt as _;
    use hmz_api::journal::Outcome;
    use std::os::unix::fs::PermissionsExt as _;

    fn notice(text: &str) -> Event {
        Event::Notice { text: text.into() }
    }

    fn ended() -> Event {
        Event::Ended { outcome: Outcome::Succeeded, message: String::new() }
    }

    fn texts(dir: &Path) -> Vec<String> {
        read(&dir.join(FILE))
            .unwrap()
            .filter_map(|r| if let Event::Notice { text } = r.event { Some(text) } else { None })
            .collect()
    }

    #[test]
    fn records_read_back_and_only_their_owner_can() {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::open(dir.path()).unwrap();
        let about = About { agent: "coder".into(), cli: "claude".into(), model: "m".into(), session: "s".into() };
        writer.write(&about, Event::Text { text: "a\nb".into() }).unwrap();
        writer.write(&about, ended()).unwrap();
        let records: Vec<Record> = read(&dir.path().join(FILE)).unwrap().collect();
        assert_eq!(records.len(), 2);
        assert_eq!((records[0].agent.as_str(), &records[0].event), ("coder", &Event::Text { text: "a\nb".into() }));
        assert!(records[0].at > 1.0e9);
        assert_eq!(std::fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_torn_line_is_passed_over_and_swallows_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::open(dir.path()).unwrap();
        writer.write(&About::default(), notice("one")).unwrap();
        let mut file = OpenOptions::new().append(true).open(dir.path().join(FILE)).unwrap();
        file.write_all(b"{\"at\":1,\"kind\":\"not").unwrap();
        assert_eq!(texts(dir.path()), ["one"]);
        Writer::open(dir.path()).unwrap().write(&About::default(), notice("two")).unwrap();
        assert_eq!(texts(dir.path()), ["one", "two"]);
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        std::fs::write(&path, vec![b'x'; LONGEST * 2]).unwrap();
        Writer::open(dir.path()).unwrap().write(&About::default(), notice("after")).unwrap();
        assert_eq!(texts(dir.path()), ["after"]);
        let long = notice(&"ä".repeat(LONGEST_TEXT));
        Writer::open(dir.path()).unwrap().write(&About::default(), long).unwrap();
        let said = texts(dir.path());
        assert_eq!((said.len(), said[1].len()), (2, LONGEST_TEXT + '…'.len_utf8()));
    }

    #[tokio::test]
    async fn a_follower_waits_for_the_file_and_ends_with_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let mut follower = Box::pin(follow(&dir.path().join(FILE)));
        let writer = tokio::spawn({
            let dir = dir.path().to_path_buf();
            async move {
                tokio::task::yield_now().await;
                let writer = Writer::open(&dir).unwrap();
                writer.write(&About::default(), notice("one")).unwrap();
                let mut file = OpenOptions::new().append(true).open(dir.join(FILE)).unwrap();
                file.write_all(b"{\"at\":1,\"kind\":\"notice\",").unwrap();
                tokio::time::sleep(LOOK * 2).await;
                file.write_all(b"\"text\":\"two\"}\n").unwrap();
                writer.write(&About::default(), ended()).unwrap();
            }
        });
        let mut seen = Vec::new();
        while let Some(record) = follower.next().await {
            seen.push(record.event);
        }
        writer.await.unwrap();
        assert_eq!(seen, [notice("one"), notice("two"), ended()]);
    }
}
