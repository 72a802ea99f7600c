//! What a daemon has room for: CPUs, memory, GPUs by their ids, and containers of a runtime, as a real one's admission counts
//! them, and the words where there is none.

use crate::daemon::{Daemon, State};
use hmz_api::kinds::Share;
use hmz_api::{Cpus, Memory};
use hmz_drivers::{Admitted, BoxKey, BoxState, DriverError, ObservedBox, Promised, Purpose, Scales, Shortage, Target, Want};
use std::collections::BTreeSet;

/// What stands around that part of a reason which is so at one moment only.
const MOMENT: [char; 2] = ['⟨', '⟩'];

/// Memory of each daemon.
pub const MEMORY: u64 = 8 << 30;

/// A reason without what was so only at the moment it was given.
pub fn lasting(reason: &str) -> String {
    let mut parts = reason.split(MOMENT[0]);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "⟨⟩" + part.split_once(MOMENT[1]).map_or("", |(_, rest)| rest))
}

fn gpus(want: &Want) -> usize {
    want.gpus.unwrap_or(0) as usize
}

/// What a daemon has and holds at one moment.
pub struct Seen {
    cpus: u64,
    gpus: Vec<String>,
    target: Target,
    /// What holds a share.
    all: Vec<ObservedBox>,
}

impl Seen {
    pub fn of(daemon: &Daemon, state: &State, target: &Target) -> Self {
        let all = state.holding(&[]).cloned().collect();
        Self { cpus: daemon.cpus, gpus: daemon.gpus.clone(), target: target.clone(), all }
    }
}

impl Scales for Seen {
    fn weigh(&self, wants: &[Want], promised: &[Promised], gone: &[BoxKey]) -> Admitted {
        let keys: Vec<&BoxKey> = wants.iter().map(|w| &w.key).chain(gone).chain(promised.iter().map(|p| &p.key)).collect();
        let has = Has { cpus: self.cpus, gpus: &self.gpus, target: &self.target, all: self.all.iter().collect() };
        weighed(&has, wants, &keys, promised).map_or_else(Admitted::Short, Admitted::Held)
    }
}

/// The same where it is looked at and not kept.
struct Has<'a> {
    cpus: u64,
    gpus: &'a Vec<String>,
    target: &'a Target,
    all: Vec<&'a ObservedBox>,
}

/// The shares that would be held beside what is there, but for these, and what is promised.
fn weighed(has: &Has<'_>, wants: &[Want], but: &[&BoxKey], promised: &[Promised]) -> Result<Vec<Share>, Shortage> {
    let Has { cpus, gpus: ids, target, all } = has;
    let (at, spec) = (target.runtime.at(), &target.spec);
    let own = |provider: &str| provider == target.runtime.provider();
    let left_out = |key: &BoxKey| but.iter().any(|but| but.uid == key.uid && *but == key);
    let counts = |one: &&&ObservedBox| !one.key.as_ref().is_some_and(left_out);
    let there = all.iter().filter(counts).map(|one| (one.provider.as_str(), &one.share));
    let held: Vec<(&str, &Share)> = there.chain(promised.iter().map(|p| (p.provider.as_str(), &p.share))).collect();
    let (mut short, mut could_fit) = (Vec::new(), true);
    let mut lacks = |what: &str, free: String, asked: String, fits: bool| {
        short.push(format!("lacks {what}: {free} free of what is handed out, {asked} asked for"));
        could_fit &= fits;
    };
    let running = held.iter().filter(|(provider, _)| own(provider)).count();
    let may = spec.max_containers.filter(|may| *may > 0).map_or(usize::MAX, |may| may as usize);
    if running + wants.len() > may {
        lacks("containers", format!("{running} of {may} run, the rest"), wants.len().to_string(), wants.len() <= may);
    }
    let total = spec.cpus.map_or(cpus * 1000, Cpus::millis);
    let taken: u64 = held.iter().filter_map(|(_, share)| share.cpus).map(Cpus::millis).sum();
    let asked: u64 = wants.iter().filter_map(|want| want.cpus).map(Cpus::millis).sum();
    if asked > 0 && taken + asked > total {
        let words = |millis| Cpus::from_millis(millis).to_string();
        lacks("CPUs", words(total.saturating_sub(taken)), words(asked), asked <= total);
    }
    let total = spec.memory.map_or(MEMORY, Memory::bytes);
    let taken: u64 = held.iter().filter_map(|(_, share)| share.memory).map(Memory::bytes).sum();
    let asked: u64 = wants.iter().filter_map(|want| want.memory).map(Memory::bytes).sum();
    if asked > 0 && taken + asked > total {
        let words = |bytes| Memory::from_bytes(bytes).in_words();
        lacks("memory", words(total.saturating_sub(taken)), words(asked), asked <= total);
    }
    let of = if spec.gpus.is_empty() { *ids } else { &spec.gpus };
    let taken: BTreeSet<&String> = held.iter().flat_map(|(_, share)| &share.gpus).collect();
    let mut free: Vec<String> = of.iter().filter(|id| !taken.contains(id)).cloned().collect();
    let asked: usize = wants.iter().map(gpus).sum();
    if asked > free.len() {
        lacks("GPUs", free.len().to_string(), asked.to_string(), asked <= of.len());
    }
    if !short.is_empty() {
        let message = format!("{at} has no room ⟨{}⟩", short.join(", "));
        return Err(Shortage { message, could_fit });
    }
    // each keeps those it has
    let had = |want: &Want| {
        let is_it = |key: &BoxKey| key.uid == want.key.uid && *key == want.key;
        let there = all.iter().find(|one| one.key.as_ref().is_some_and(is_it));
        there.map(|one| one.share.gpus.clone()).unwrap_or_default()
    };
    let mut kept = Vec::new();
    for want in wants {
        let had = Some(had(want)).filter(|had| had.len() == gpus(want) && had.iter().all(|id| free.contains(id)));
        free.retain(|id| !had.as_ref().is_some_and(|had| had.contains(id)));
        kept.push(had);
    }
    let mut rest = free.into_iter();
    let given = kept.into_iter().zip(wants).map(|(kept, want)| kept.unwrap_or_else(|| rest.by_ref().take(gpus(want)).collect()));
    Ok(given.zip(wants).map(|(gpus, want)| Share { cpus: want.cpus, memory: want.memory, gpus }).collect())
}

/// Admission, as one moment: the real ones hold a lock.
pub fn admitted(daemon: &Daemon, target: &Target, wants: &[Want]) -> Admitted {
    let mut state = daemon.state();
    let keys: Vec<&BoxKey> = wants.iter().map(|w| &w.key).collect();
    let has = Has { cpus: daemon.cpus, gpus: &daemon.gpus, target, all: state.holding(&[]).collect() };
    let answer = weighed(&has, wants, &keys, &[]);
    match answer {
        Err(short) => {
            for key in keys {
                state.take_away(key, Purpose::Hold);
            }
            Admitted::Short(short)
        }
        Ok(shares) => {
            for (want, share) in wants.iter().zip(&shares) {
                if state.of(&want.key, Purpose::Box).is_none() {
                    let provider = target.runtime.provider();
                    state.add(Purpose::Hold, &want.key, want.run, provider, share.clone(), BoxState::Created, None);
                }
            }
            Admitted::Held(shares)
        }
    }
}

/// What is said to those who ask for a share in a container that runs already: nothing is held, and it has what its machine has.
///
/// # Errors
/// It does not run.
pub fn attached(daemon: &Daemon, target: &Target, container: &str, wants: &[Want]) -> Result<Admitted, DriverError> {
    runs(daemon, target, container)?;
    let at = target.runtime.at();
    let short = |want: &Want| {
        let more = want.cpus.is_some_and(|cpus| cpus.millis() > daemon.cpus * 1000)
            || want.memory.is_some_and(|memory| memory.bytes() > MEMORY)
            || gpus(want) > 0;
        more.then(|| format!("{at}: the container {container} has not what '{}' asks for", want.key.role))
    };
    Ok(match wants.iter().find_map(short) {
        Some(message) => Admitted::Short(Shortage { message, could_fit: false }),
        None => {
            let share = |want: &Want| Share { cpus: want.cpus, memory: want.memory, gpus: Vec::new() };
            Admitted::Held(wants.iter().map(share).collect())
        }
    })
}

/// Whether somebody's container runs.
///
/// # Errors
/// It does not.
pub fn runs(daemon: &Daemon, target: &Target, container: &str) -> Result<(), DriverError> {
    if daemon.theirs.iter().any(|there| there == container) {
        return Ok(());
    }
    let at = target.runtime.at();
    Err(DriverError::Refused(format!("{at}: cannot work in the container {container}: there is none of that name")))
}
