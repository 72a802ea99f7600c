//! What is known of GPUs from having asked them. Pure.

use hmz_api::Memory;
use std::collections::{BTreeMap, BTreeSet};

/// The vendor and class of NVIDIA's devices in the container device interface.
pub const CDI: &str = "nvidia.com/gpu=";

/// An id without what the container device interface puts before it.
pub fn bare(id: &str) -> &str {
    id.strip_prefix(CDI).unwrap_or(id)
}

/// Whether an id is a number: what a machine calls a GPU by its place, and another id of it is its uuid.
pub fn is_number(id: &str) -> bool {
    let id = bare(id);
    !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit())
}

/// What GPUs said when they were asked. Of one that nobody asked, or that could not be asked, nothing is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GpuAnswers {
    /// Those that do not answer.
    pub silent: BTreeSet<String>,
    /// The uuid of those that were asked by their number.
    pub uuids: BTreeMap<String, String>,
    /// The memory of those that said it.
    pub memory: BTreeMap<String, Memory>,
}

impl GpuAnswers {
    /// What a GPU is called by whoever calls it by its number or its uuid: the same of both, where that was heard.
    pub fn same<'a>(&'a self, id: &'a str) -> &'a str {
        let id = bare(id);
        self.uuids.get(id).map_or(id, String::as_str)
    }

    /// The least memory that one of these has which said how much it has.
    pub fn least_memory<'a>(&self, ids: impl IntoIterator<Item = &'a String>) -> Option<Memory> {
        let of = |id: &String| {
            let known = self.memory.get(bare(id));
            known.or_else(|| self.memory.iter().find(|(other, _)| self.same(other) == self.same(id)).map(|(_, memory)| memory))
        };
        ids.into_iter().filter_map(of).min().copied()
    }

    /// Whether a GPU does not answer.
    pub fn is_silent(&self, id: &str) -> bool {
        self.silent.contains(bare(id)) || self.silent.iter().any(|silent| self.same(silent) == self.same(id))
    }
}

/// That these do not answer: `GPU 1 does not answer`, `GPUs 1, 2 do not answer`; nothing of none.
pub fn in_words(silent: &[&str]) -> Option<String> {
    match silent {
        [] => None,
        [one] => Some(format!("GPU {} does not answer", bare(one))),
        some => Some(format!("GPUs {} do not answer", some.iter().map(|id| bare(id)).collect::<Vec<_>>().join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_same_however_it_is_written() {
        assert_eq!((bare("nvidia.com/gpu=3"), bare("GPU-aa")), ("3", "GPU-aa"));
        assert_eq!(["3", "nvidia.com/gpu=10", "0:1", "GPU-1", ""].map(is_number), [true, true, false, false, false]);
        let answers = GpuAnswers {
            silent: ["1".to_owned()].into(),
            uuids: [("0", "GPU-a"), ("1", "GPU-b")].map(|(n, u)| (n.into(), u.into())).into(),
            memory: [("0", 80), ("GPU-b", 16)].map(|(id, gib)| (id.into(), Memory::from_bytes(gib << 30))).into(),
        };
        let least = |ids: &[&str]| answers.least_memory(&ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>());
        let gib = |n: u64| Some(Memory::from_bytes(n << 30));
        assert_eq!([least(&["0", "1"]), least(&["GPU-a", "2"]), least(&["2"]), least(&[])], [gib(16), gib(80), None, None]);
        assert_eq!(["0", "GPU-a", "nvidia.com/gpu=0", "2"].map(|id| answers.same(id)), ["GPU-a", "GPU-a", "GPU-a", "2"]);
        let silent = ["0", "GPU-a", "1", "nvidia.com/gpu=1", "GPU-b", "2"].map(|id| answers.is_silent(id));
        assert_eq!(silent, [false, false, true, true, true, false]);
    }

    #[test]
    fn what_does_not_answer_is_said() {
        assert_eq!(in_words(&[]), None);
        assert_eq!(in_words(&["nvidia.com/gpu=1"]).as_deref(), Some("GPU 1 does not answer"));
        assert_eq!(in_words(&["1", "GPU-b"]).as_deref(), Some("GPUs 1, GPU-b do not answer"));
    }
}
