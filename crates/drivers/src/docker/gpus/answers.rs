//! What was heard of a daemon's GPUs, and for how long it holds.
//!
//! Only what NVIDIA's program says itself is a no. Anything else that went wrong (no such program in the image, no answer in
//! time, a daemon that does not give the device) says nothing of the GPU: it is not withheld on a guess.

use crate::gpus::{GpuAnswers, bare, is_number};
use hmz_api::Memory;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Its exit status when it finds no device.
const NOT_FOUND: i64 = 6;
/// What it says then.
const NONE_FOUND: &str = "no devices were found";
/// Its exit status when one has fallen off the bus or cannot be reached any more.
const LOST: i64 = 15;

/// What asking one came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// It answers, with what it says of itself where it alone did.
    Answers(Option<Told>),
    /// It does not.
    Silent,
    /// That could not be found out.
    Unknown,
}

/// What one says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Its uuid.
    pub uuid: String,
    /// Its memory, where it says that.
    pub memory: Option<Memory>,
}

impl Told {
    /// One line: the index, the uuid, the memory in MiB.
    fn read(line: &str) -> Option<Self> {
        let mut fields = line.split(',').map(str::trim).skip(1);
        let uuid = fields.next().filter(|uuid| uuid.starts_with("GPU-"))?;
        let memory = fields.next().and_then(|mib| mib.parse::<u64>().ok()).and_then(|mib| mib.checked_mul(1 << 20));
        Some(Self { uuid: uuid.to_owned(), memory: memory.map(Memory::from_bytes) })
    }
}

impl Heard {
    /// Reads how `nvidia-smi --query-gpu=index,uuid,memory.total --format=csv,noheader,nounits` ended and what it said. The index is of no use: a
    /// container that is given one GPU calls it 0 whichever it is.
    pub fn read(code: Option<i64>, said: &str) -> Self {
        match code {
            Some(0) => {
                let lines = said.lines().filter(|line| line.contains(',')).count();
                let mut told = said.lines().filter_map(Told::read);
                match (told.next(), lines) {
                    (Some(one), 1) => Self::Answers(Some(one)),
                    (Some(_), _) => Self::Answers(None),
                    (None, _) => Self::Unknown,
                }
            }
            Some(NOT_FOUND) if said.to_ascii_lowercase().contains(NONE_FOUND) => Self::Silent,
            Some(LOST) => Self::Silent,
            _ => Self::Unknown,
        }
    }
}

#[derive(Debug, Default)]
struct Entry {
    /// Whether it was silent when it was asked last, and when that was. `None`: that could not be found out, or never was asked.
    silent: Option<(bool, Instant)>,
    /// What it was asked with since and could not be found out, and when.
    unknown: HashMap<String, Instant>,
    /// The uuid of one that was asked by its number, now or before.
    uuid: Option<String>,
    /// Its memory, as it said last.
    memory: Option<Memory>,
}

/// What was heard of the GPUs of a daemon, by id.
#[derive(Debug, Default)]
pub struct Known {
    entries: Mutex<HashMap<String, Entry>>,
    /// Held by whoever asks, so that who comes meanwhile does not ask again.
    pub asking: tokio::sync::Mutex<()>,
}

impl Known {
    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of `ids`, each once, of which nothing was heard that is younger than `age`. That it could not be found out with one
    /// thing says nothing of another: `with` is what they would be asked with.
    pub fn stale(&self, ids: &[String], with: &str, age: Duration) -> Vec<String> {
        let mut entries = self.entries();
        for entry in entries.values_mut() {
            entry.unknown.retain(|_, at| at.elapsed() < age);
        }
        let holds = |e: &Entry| e.unknown.contains_key(with) || e.silent.is_some_and(|(_, at)| at.elapsed() < age);
        let mut stale: Vec<String> = Vec::new();
        for id in ids {
            let is_there = stale.iter().any(|there| bare(there) == bare(id));
            if !is_there && !entries.get(bare(id)).is_some_and(holds) {
                stale.push(id.clone());
            }
        }
        stale
    }

    /// Takes in what was heard of one.
    pub fn note(&self, id: &str, with: &str, heard: Heard) {
        let mut entries = self.entries();
        let (entry, now) = (entries.entry(bare(id).to_owned()).or_default(), Instant::now());
        let is_silent = heard == Heard::Silent;
        match heard {
            Heard::Unknown => {
                entry.silent = None;
                entry.unknown.insert(with.to_owned(), now);
                return;
            }
            Heard::Answers(Some(told)) => {
                // of a part of a GPU it is the whole one's
                if is_number(id) {
                    entry.uuid = Some(told.uuid);
                }
                entry.memory = told.memory.or(entry.memory);
            }
            Heard::Answers(None) | Heard::Silent => {}
        }
        entry.silent = Some((is_silent, now));
        entry.unknown.clear();
    }

    /// One cannot be asked now: what was heard last stands, as if it had been heard again.
    pub fn keep(&self, id: &str, with: &str) {
        let mut entries = self.entries();
        let (entry, now) = (entries.entry(bare(id).to_owned()).or_default(), Instant::now());
        match &mut entry.silent {
            Some((_, at)) => *at = now,
            None => drop(entry.unknown.insert(with.to_owned(), now)),
        }
    }

    /// Forgets everything.
    pub fn forget(&self) {
        self.entries().clear();
    }

    /// What was heard last of each, whenever that was.
    pub fn answers(&self) -> GpuAnswers {
        let mut answers = GpuAnswers::default();
        for (id, entry) in self.entries().iter() {
            if entry.silent.is_some_and(|(silent, _)| silent) {
                answers.silent.insert(id.clone());
            }
            if let Some(uuid) = &entry.uuid {
                answers.uuids.insert(id.clone(), uuid.clone());
            }
            if let Some(memory) = entry.memory {
                answers.memory.insert(id.clone(), memory);
            }
        }
        answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uuid(id: &str) -> Heard {
        Heard::Answers(Some(Told { uuid: id.into(), memory: None }))
    }

    #[test]
    fn only_what_the_program_itself_says_is_a_no() {
        let read = |code, said| Heard::read(Some(code), said);
        assert_eq!(read(0, "0, GPU-a\r\n"), uuid("GPU-a"));
        assert_eq!(read(0, "0, GPU-a, [N/A]\r\n"), uuid("GPU-a"));
        let memory = Some(Memory::from_bytes(81_559 << 20));
        assert_eq!(read(0, "0, GPU-a, 81559\r\n"), Heard::Answers(Some(Told { uuid: "GPU-a".into(), memory })));
        assert_eq!(read(0, "0, GPU-a\n1, GPU-b\n"), Heard::Answers(None));
        assert_eq!(read(6, "No devices were found\r\n"), Heard::Silent);
        assert_eq!(read(15, "Unable to determine the device handle"), Heard::Silent);
        for (code, said) in [(0, ""), (0, "0, [GPU requires reset]"), (6, ""), (9, "No devices were found"), (127, "not found")] {
            assert_eq!(read(code, said), Heard::Unknown, "{code} {said}");
        }
        assert_eq!(Heard::read(None, "0, GPU-a"), Heard::Unknown);
    }

    #[test]
    fn what_was_heard_holds_for_a_time_and_what_was_not_for_one_image() {
        let (known, age) = (Known::default(), Duration::from_secs(300));
        let ids: Vec<String> = ["0", "nvidia.com/gpu=0", "1", "2"].map(Into::into).into();
        assert_eq!(known.stale(&ids, "a", age), ["0", "1", "2"]);
        known.note("nvidia.com/gpu=0", "a", uuid("GPU-a"));
        known.note("1", "a", Heard::Silent);
        known.note("2", "a", Heard::Unknown);
        assert_eq!(known.stale(&ids, "a", age), [] as [&str; 0]);
        assert_eq!(known.stale(&ids, "b", age), ["2"]);
        // nor does the one take the place of the other
        known.note("2", "b", Heard::Unknown);
        for with in ["a", "b"] {
            assert_eq!(known.stale(&ids, with, age), [] as [&str; 0], "{with}");
        }
        assert_eq!(known.stale(&ids, "c", age), ["2"]);
        assert_eq!(known.stale(&ids, "a", Duration::ZERO), ["0", "1", "2"]);
        known.forget();
        assert_eq!(known.answers(), GpuAnswers::default());
    }

    #[test]
    fn of_one_that_cannot_be_asked_what_was_heard_last_stands() {
        let (known, age) = (Known::default(), Duration::from_secs(300));
        known.note("0", "a", Heard::Silent);
        let ids: Vec<String> = ["0", "1"].map(Into::into).into();
        for id in &ids {
            known.keep(id, "a");
        }
        assert_eq!(known.stale(&ids, "a", age), [] as [&str; 0]);
        assert_eq!(known.stale(&ids, "b", age), ["1"]);
        assert_eq!(known.answers().silent, ["0".to_owned()].into());
    }

    #[test]
    fn a_number_is_another_word_for_a_uuid_and_a_part_of_a_gpu_is_not() {
        let known = Known::default();
        known.note("0", "a", uuid("GPU-a"));
        known.note("0:1", "a", uuid("GPU-a"));
        known.note("GPU-b", "a", uuid("GPU-b"));
        assert_eq!(known.answers().uuids, [("0".to_owned(), "GPU-a".to_owned())].into());
        // that it does not answer any more, or not alone, changes nothing about that
        known.note("0", "a", Heard::Answers(None));
        assert_eq!(known.answers().same("0"), "GPU-a");
        known.note("0", "a", Heard::Silent);
        let answers = known.answers();
        assert!(answers.is_silent("0") && answers.is_silent("GPU-a") && !answers.is_silent("GPU-b"));
    }
}
