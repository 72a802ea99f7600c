//! What agents did and used, added up over the journals of this home. A journal is read once: the next time only what was
//! added to it. What was counted stays counted when a journal is removed, since a counter only grows.

use hmz_api::journal::{Event, Record};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// Longest line that is read, in bytes; of a longer one nothing is counted.
const LONGEST: u64 = 16 << 20;

/// The kinds of records that count, as they stand in a line: a text in a record has its quotes escaped.
const COUNTED: [&str; 4] = ["\"kind\":\"result\"", "\"kind\":\"begins\"", "\"kind\":\"ends\"", "\"kind\":\"ended\""];

/// Who: agent role, CLI and model.
pub(super) type Who = (String, String, String);

/// What one of them did.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Did {
    /// Turns that began.
    pub turns: u64,
    /// The seconds of those that ended.
    pub seconds: f64,
    /// Kind → tokens.
    pub tokens: BTreeMap<String, u64>,
    /// US dollars, as far as its CLI says; `None`: it never said.
    pub cost: Option<f64>,
}

/// The journals, and what was counted in them.
#[derive(Debug, Default)]
pub(super) struct Journals {
    read: HashMap<PathBuf, u64>,
    /// What each did.
    pub did: BTreeMap<Who, Did>,
    /// How runs ended, and how many did so.
    pub ended: BTreeMap<&'static str, u64>,
}

impl Journals {
    /// Reads what was added. What cannot be read now is read when it can be.
    pub fn read(&mut self, epics: &Path) {
        for entry in std::fs::read_dir(epics).into_iter().flatten().flatten() {
            let path = entry.path().join(hmz_flows::journal::FILE);
            let from = self.read.get(&path).copied().unwrap_or(0);
            if let Ok(to) = self.rest(&path, from)
                && to > from
            {
                self.read.insert(path, to);
            }
        }
    }

    /// Counts the whole lines from there on, and says where the next begins.
    fn rest(&mut self, path: &Path, from: u64) -> std::io::Result<u64> {
        let mut file = File::open(path)?;
        if file.metadata()?.len() <= from {
            return Ok(from);
        }
        file.seek(SeekFrom::Start(from))?;
        let mut reader = BufReader::new(file);
        let (mut at, mut line) = (from, Vec::new());
        loop {
            line.clear();
            let n = reader.by_ref().take(LONGEST).read_until(b'\n', &mut line)? as u64;
            // a last line without its end is still being written
            if n == 0 || (line.last() != Some(&b'\n') && n < LONGEST) {
                return Ok(at);
            }
            at += n;
            let text = String::from_utf8_lossy(&line);
            if COUNTED.iter().any(|kind| text.contains(kind))
                && let Ok(record) = serde_json::from_str::<Record>(&text)
            {
                self.count(record);
            }
        }
    }

    fn count(&mut self, record: Record) {
        let who = (record.agent, record.cli, record.model);
        match record.event {
            Event::Begins => self.did.entry(who).or_default().turns += 1,
            Event::Ends { seconds, .. } => self.did.entry(who).or_default().seconds += seconds.max(0.0),
            Event::Result { spent, cost } => {
                let did = self.did.entry(who).or_default();
                for (kind, n) in spent {
                    let sum = did.tokens.entry(kind).or_default();
                    *sum = sum.saturating_add(n);
                }
                if let Some(cost) = cost {
                    *did.cost.get_or_insert(0.0) += cost.max(0.0);
                }
            }
            Event::Ended { outcome, .. } => *self.ended.entry(outcome.reason()).or_default() += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn what_is_added_is_counted_once_and_a_line_only_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let epic = dir.path().join("a-1");
        std::fs::create_dir(&epic).unwrap();
        let path = epic.join("epic.jsonl");
        let add = |text: &str| File::options().create(true).append(true).open(&path).unwrap().write_all(text.as_bytes()).unwrap();
        let line = |event: &str| format!("{{\"at\":1,\"agent\":\"coder\",\"cli\":\"claude\",\"model\":\"m\",{event}}}\n");
        let result = line("\"kind\":\"result\",\"spent\":{\"input\":10,\"output\":2},\"cost\":0.5");
        add(&line("\"kind\":\"begins\""));
        // a text that looks like a record is none
        add(&line("\"kind\":\"text\",\"text\":\"{\\\"kind\\\":\\\"result\\\",\\\"spent\\\":{\\\"input\\\":999}}\""));
        add("no json \"kind\":\"result\"\n");
        add(&result);
        add(&result[..40]);
        let mut journals = Journals::default();
        let who = ("coder".to_owned(), "claude".to_owned(), "m".to_owned());
        let tokens = |input, output| BTreeMap::from([("input".to_owned(), input), ("output".to_owned(), output)]);
        for _ in 0..2 {
            journals.read(dir.path());
            assert_eq!(journals.did[&who], Did { turns: 1, seconds: 0.0, tokens: tokens(10, 2), cost: Some(0.5) });
        }
        add(&result[40..]);
        add(&line("\"kind\":\"ends\",\"seconds\":1.5,\"answer\":\"\""));
        add(&line("\"kind\":\"ended\",\"outcome\":\"Succeeded\",\"message\":\"\""));
        journals.read(dir.path());
        let all = Did { turns: 1, seconds: 1.5, tokens: tokens(20, 4), cost: Some(1.0) };
        assert_eq!((&journals.did[&who], &journals.ended), (&all, &BTreeMap::from([("Succeeded", 1)])));
        std::fs::remove_dir_all(&epic).unwrap();
        journals.read(dir.path());
        assert_eq!(journals.did[&who], all);
    }
}
