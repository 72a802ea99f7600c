//! The journal of a run on disk: `epic.jsonl`, one record a line.
//!
//! One process appends; anybody reads. A reader passes over what it cannot read, and leaves a last line alone until its
//! newline is there.

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
    /// How much of the file was read, in bytes.
    read: u64,
}

impl Tail {
    fn open(path: &Path) -> io::Result<Self> {
        let stream = BufReader::with_capacity(64 << 10, File::open(path)?);
        Ok(Self { stream, pending: Vec::new(), skipping: false, read: 0 })
    }

    /// The next record; `None` when there is none yet.
    fn next(&mut self) -> io::Result<Option<Record>> {
        loop {
            let chunk = self.stream.fill_buf()?;
            if chunk.is_empty() {
                // somebody cut the file: what its writer appends begins at its new end, of which nothing was read yet
                if self.stream.get_ref().metadata()?.len() >= self.read {
                    return Ok(None);
                }
                self.stream.seek(SeekFrom::Start(0))?;
                self.pending.clear();
                (self.read, self.skipping) = (0, false);
                continue;
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
            self.read += taken as u64;
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

/// Most records a follower takes at once.
const BATCH: usize = 256;

/// Reads the records of a journal as they are written, the file's creation waited for. What is written after the file was
/// cut is read too.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    tail: Option<Tail>,
    ready: VecDeque<Record>,
    /// Records still to be left out.
    skip: usize,
    ended: bool,
}

impl Follower {
    /// The records from number `from` on.
    pub fn new(path: &Path, from: usize) -> Self {
        Self { path: path.to_path_buf(), tail: None, ready: VecDeque::new(), skip: from, ended: false }
    }

    /// The next record, waited for; `None` after [`Event::Ended`], and when the file cannot be read. May be dropped at its
    /// await without losing a record.
    ///
    /// Whoever follows a run that may have died without its last record stops by not asking any more.
    pub async fn next(&mut self) -> Option<Record> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                self.ended = matches!(record.event, Event::Ended { .. });
                return Some(record);
            }
            if self.ended || !self.look() {
                return None;
            }
            if self.ready.is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// What is there now and was not told yet.
    pub fn rest(&mut self) -> Vec<Record> {
        let mut records = Vec::new();
        while self.look() && !self.ready.is_empty() {
            records.extend(self.ready.drain(..));
        }
        records
    }

    /// Takes what is there; false when the file cannot be read.
    fn look(&mut self) -> bool {
        // short reads of a local file; they are not worth a thread
        if self.tail.is_none() {
            self.tail = Tail::open(&self.path).ok();
        }
        let Some(tail) = &mut self.tail else { return true };
        while self.ready.len() < BATCH {
            match tail.next() {
                Ok(Some(_)) if self.skip > 0 => self.skip -= 1,
                Ok(Some(record)) => self.ready.push_back(record),
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, path = %self.path.display(), "a journal cannot be read");
                    return false;
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let mut follower = Follower::new(&dir.path().join(FILE), 0);
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
    #[tokio::test]
    async fn what_is_written_after_a_cut_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let writer = Writer::open(dir.path()).unwrap();
        let write = |text: &str| writer.write(&About::default(), notice(text)).unwrap();
        let mut follower = Follower::new(&path, 1);
        ["left out", "one", "two"].into_iter().for_each(write);
        assert_eq!(follower.next().await.map(|r| r.event), Some(notice("one")));
        assert_eq!(follower.next().await.map(|r| r.event), Some(notice("two")));
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        write("three");
        assert_eq!(follower.next().await.map(|r| r.event), Some(notice("three")));
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        assert!(follower.rest().is_empty());
        ["4", "5"].into_iter().for_each(write);
        let rest: Vec<Event> = follower.rest().into_iter().map(|r| r.event).collect();
        assert_eq!(rest, [notice("4"), notice("5")]);
    }
}
