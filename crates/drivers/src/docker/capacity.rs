//! The arithmetic of admission: what is held, what is free, and the words when it is not enough. Pure.
//!
//! CPUs, memory and GPUs are shared by every box of the daemon, whoever's it is; the number of containers is the runtime's
//! own. GPUs are handed out whole, each by its id.

use super::gpus::ALL;
use crate::gpus::{GpuAnswers, in_words};
use crate::types::{Shortage, Want};
use hmz_api::kinds::Share;
use hmz_api::{Cpus, Memory};
use std::collections::BTreeSet;

/// How many holders a refusal names before it only counts them.
const NAMED_HOLDERS: usize = 4;

/// The GPUs a runtime hands out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gpus {
    /// Their ids, in the order they are handed out.
    pub ids: Vec<String>,
    /// What they said when they were asked: those that do not answer are not handed out.
    pub answers: GpuAnswers,
    /// Memory of each, where that was saved.
    pub memory: Option<Memory>,
}

/// What a runtime hands out in total.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Total {
    /// CPUs.
    pub cpus: Cpus,
    /// Memory.
    pub memory: Memory,
    /// Containers of this runtime's own; `None`: any number.
    pub containers: Option<u32>,
    /// What they are called.
    pub unit: &'static str,
    /// GPUs.
    pub gpus: Gpus,
}

/// A share somebody has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The container's name.
    pub name: String,
    /// The host that asked for it.
    pub host: String,
    /// CPUs; zero when none were asked for.
    pub cpus: Cpus,
    /// Memory; zero when none was asked for.
    pub memory: Memory,
    /// Ids of GPUs; [`ALL`] is every one.
    pub gpus: Vec<String>,
    /// Whether it was made through the runtime that is asked now.
    pub own: bool,
}

/// The shares of `wants`, when all of them fit beside `held`; the refusal says everything that is short, joined by `; `.
/// `had` is the GPUs each has already, which it keeps where they are still what it asks for.
///
/// # Errors
/// What is short, in the words a user reads, `at` being the runtime as `docker@gpubox`.
pub fn grant(at: &str, total: &Total, held: &[Held], wants: &[Want], had: &[Vec<String>]) -> Result<Vec<Share>, Shortage> {
    let mut short = Vec::new();
    let mut could_fit = true;
    containers(at, total, held, wants, &mut short, &mut could_fit);
    cpus(at, total, held, wants, &mut short, &mut could_fit);
    memory(at, total, held, wants, &mut short, &mut could_fit);
    let free = gpus(at, &total.gpus, held, wants, &mut short, &mut could_fit);
    if !short.is_empty() {
        return Err(Shortage { message: short.join("; "), could_fit });
    }
    let given = hand_out(&total.gpus.answers, free, wants, had);
    Ok(wants.iter().zip(given).map(|(w, gpus)| Share { cpus: w.cpus, memory: w.memory, gpus }).collect())
}

fn containers(at: &str, total: &Total, held: &[Held], wants: &[Want], short: &mut Vec<String>, could_fit: &mut bool) {
    let Some(may) = total.containers else { return };
    let (may, runs) = (u64::from(may), held.iter().filter(|h| h.own).count() as u64);
    let more = wants.len() as u64;
    if more == 0 || runs.saturating_add(more) <= may {
        return;
    }
    *could_fit &= more <= may;
    let mut text = format!("{at} runs {runs} of the {may} {} it may", total.unit);
    if runs < may {
        text.push_str(&format!(", and {} for {more}", roles(wants.iter())));
    }
    short.push(text);
}

fn cpus(at: &str, total: &Total, held: &[Held], wants: &[Want], short: &mut Vec<String>, could_fit: &mut bool) {
    let Some((who, want)) = asked(wants, |w| w.cpus.unwrap_or_default().millis()) else { return };
    let want = Cpus::from_millis(want);
    let taken = sum(held.iter().map(|h| h.cpus.millis()));
    if taken.saturating_add(want.millis()) <= total.cpus.millis() {
        return;
    }
    *could_fit &= want <= total.cpus;
    let free = Cpus::from_millis(total.cpus.millis().saturating_sub(taken));
    let holders = holders(held, |h| {
        (h.cpus != Cpus::default()).then(|| format!("{} CPU{}", h.cpus, if h.cpus == Cpus::whole(1) { "" } else { "s" }))
    });
    short.push(format!("{at} has {free} of {} CPUs free, and {who} {want}{holders}", total.cpus));
}

fn memory(at: &str, total: &Total, held: &[Held], wants: &[Want], short: &mut Vec<String>, could_fit: &mut bool) {
    let Some((who, want)) = asked(wants, |w| w.memory.unwrap_or_default().bytes()) else { return };
    let taken = sum(held.iter().map(|h| h.memory.bytes()));
    if taken.saturating_add(want) <= total.memory.bytes() {
        return;
    }
    *could_fit &= want <= total.memory.bytes();
    let free = Memory::from_bytes(total.memory.bytes().saturating_sub(taken)).in_words();
    let holders = holders(held, |h| (h.memory != Memory::default()).then(|| h.memory.in_words()));
    let (total, want) = (total.memory.in_words(), Memory::from_bytes(want).in_words());
    short.push(format!("{at} has {free} of {total} of memory free, and {who} {want}{holders}"));
}

/// The GPUs that are free.
fn gpus(at: &str, total: &Gpus, held: &[Held], wants: &[Want], short: &mut Vec<String>, could_fit: &mut bool) -> Vec<String> {
    let same = |id: &'_ String| total.answers.same(id).to_owned();
    let taken: BTreeSet<String> = held.iter().flat_map(|h| &h.gpus).map(same).collect();
    // one that is listed by its number and by its uuid is one
    let mut seen = BTreeSet::new();
    let all: Vec<&String> = total.ids.iter().filter(|id| seen.insert(same(id))).collect();
    let (silent, usable): (Vec<&String>, Vec<&String>) = all.iter().partition(|id| total.answers.is_silent(id));
    let is_free = |id: &&String| !taken.contains(ALL) && !taken.contains(&same(id));
    let free: Vec<String> = usable.iter().copied().filter(is_free).cloned().collect();
    let Some((who, want)) = asked(wants, |w| u64::from(w.gpus.unwrap_or(0))) else { return free };
    if want > free.len() as u64 {
        *could_fit &= want <= usable.len() as u64;
        let dead: Vec<&str> = silent.iter().copied().filter(is_free).map(String::as_str).collect();
        let notes = match in_words(&dead) {
            _ if all.is_empty() => " (its daemon lists no GPU by name: say which in the runtime's gpus)".to_owned(),
            // only where it would fit if they did
            Some(words) if want <= (free.len() + dead.len()) as u64 => format!(" ({words})"),
            _ => String::new(),
        };
        // of a GPU that is another runtime's, nobody here wants to know
        let own = |id: &&String| all.iter().any(|own| same(own) == same(id));
        let holders = holders(held, |h| {
            if h.gpus.iter().any(|id| id == ALL) {
                return Some("every GPU".to_owned());
            }
            let ids: Vec<&str> = h.gpus.iter().filter(own).map(String::as_str).collect();
            (!ids.is_empty()).then(|| format!("GPU {}", ids.join(", ")))
        });
        short.push(format!("{at} has {} of {} GPUs free, and {who} {want}{notes}{holders}", free.len(), all.len()));
    }
    let told = total.answers.least_memory(usable);
    if let Some(why) = gpu_memory(at, total.memory, told, wants) {
        short.push(why);
        *could_fit = false;
    }
    free
}

/// Why GPUs have too little memory for one of these, by what was saved of them, else by what they say. Of those of which nothing is
/// known nobody is promised any.
pub fn gpu_memory(at: &str, saved: Option<Memory>, told: Option<Memory>, wants: &[Want]) -> Option<String> {
    let asking = wants.iter().filter(|w| w.gpus.is_some_and(|n| n > 0));
    let most = asking.filter(|w| w.gpu_memory.is_some_and(|asks| asks > Memory::default())).max_by_key(|w| w.gpu_memory)?;
    let asks = most.gpu_memory?;
    let has = match (saved, told) {
        (Some(has), _) if asks > has => format!("{at}'s GPUs have {} each", has.in_words()),
        (None, Some(has)) if asks > has => format!("{at} has a GPU of {}", has.in_words()),
        (None, None) => format!("how much memory {at}'s GPUs have is not known (say it in the runtime's gpu_memory)"),
        _ => return None,
    };
    Some(format!("{has}, and '{}' asks for {}", most.key.role, asks.in_words()))
}

/// Ids for each, out of the free ones; there are enough.
fn hand_out(answers: &GpuAnswers, mut free: Vec<String>, wants: &[Want], had: &[Vec<String>]) -> Vec<Vec<String>> {
    let is_in = |ids: &[String], id: &String| ids.iter().any(|one| answers.same(one) == answers.same(id));
    let number = |w: &Want| usize::try_from(w.gpus.unwrap_or(0)).unwrap_or(usize::MAX);
    let mut given: Vec<Option<Vec<String>>> = Vec::new();
    for (n, want) in wants.iter().enumerate() {
        let kept = had.get(n).filter(|ids| ids.len() == number(want) && ids.iter().all(|id| is_in(&free, id)));
        if let Some(ids) = kept {
            free.retain(|id| !is_in(ids, id));
        }
        given.push(kept.cloned());
    }
    let mut rest = free.into_iter();
    wants.iter().zip(given).map(|(w, kept)| kept.unwrap_or_else(|| rest.by_ref().take(number(w)).collect())).collect()
}

fn sum(amounts: impl Iterator<Item = u64>) -> u64 {
    amounts.fold(0, u64::saturating_add)
}

/// Who asks for some of it, ending in `for`, and how much in all; `None` when nobody asks for any.
fn asked(wants: &[Want], amount: impl Fn(&Want) -> u64) -> Option<(String, u64)> {
    let all = sum(wants.iter().map(&amount));
    (all > 0).then(|| (format!("{} for", roles(wants.iter().filter(|w| amount(w) > 0))), all))
}

/// `'box' asks`, `'a' and 'b' ask`, `'a', 'b' and 'c' ask`.
fn roles<'a>(wants: impl Iterator<Item = &'a Want>) -> String {
    let names: Vec<_> = wants.map(|w| format!("'{}'", w.key.role)).collect();
    match names.split_last() {
        Some((last, [])) => format!("{last} asks"),
        Some((last, rest)) => format!("{} and {last} ask", rest.join(", ")),
        None => String::new(),
    }
}

fn holders(held: &[Held], part: impl Fn(&Held) -> Option<String>) -> String {
    let all: Vec<_> = held.iter().filter_map(|h| part(h).map(|p| format!("{p} held by {} on {}", h.name, h.host))).collect();
    if all.is_empty() {
        return String::new();
    }
    let mut text = all.iter().take(NAMED_HOLDERS).cloned().collect::<Vec<_>>().join("; ");
    if all.len() > NAMED_HOLDERS {
        text.push_str(&format!("; and {} more", all.len() - NAMED_HOLDERS));
    }
    format!(" ({text})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::BoxKey;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn want(role: &str, cpus: u64, memory: u64, gpus: u32) -> Want {
        let key = BoxKey { instance: "i".into(), uid: Uuid::nil(), incarnation: 1, role: role.into() };
        let some = |n: u64| (n > 0).then_some(n);
        Want {
            key,
            run: None,
            cpus: some(cpus).map(Cpus::whole),
            memory: some(memory).map(|n| Memory::from_bytes(n << 30)),
            gpus: (gpus > 0).then_some(gpus),
            gpu_memory: None,
            image: None,
        }
    }

    fn held(name: &str, cpus: u64, memory: u64, own: bool) -> Held {
        let memory = Memory::from_bytes(memory << 30);
        Held { name: name.into(), host: "vm".into(), cpus: Cpus::whole(cpus), memory, gpus: Vec::new(), own }
    }

    fn total(cpus: u64, memory: u64, containers: Option<u32>) -> Total {
        Total {
            cpus: Cpus::whole(cpus),
            memory: Memory::from_bytes(memory << 30),
            containers,
            unit: "containers",
            gpus: Gpus::default(),
        }
    }

    fn check(at: &str, total: &Total, held: &[Held], wants: &[Want]) -> Result<(), Shortage> {
        grant(at, total, held, wants, &[]).map(drop)
    }

    fn refusal(total: &Total, held: &[Held], wants: &[Want]) -> String {
        check("docker@gpubox", total, held, wants).unwrap_err().to_string()
    }

    #[test]
    fn the_words_of_each_shortage() {
        let (t, one) = (total(4, 8, Some(2)), [want("box", 8, 0, 0)]);
        assert_eq!(refusal(&t, &[], &one), "docker@gpubox has 4 of 4 CPUs free, and 'box' asks for 8");
        assert_eq!(
            refusal(&t, &[held("h", 2, 5, false)], &one),
            "docker@gpubox has 2 of 4 CPUs free, and 'box' asks for 8 (2 CPUs held by h on vm)"
        );
        assert_eq!(
            refusal(&t, &[held("h", 0, 5, false)], &[want("box", 0, 16, 0)]),
            "docker@gpubox has 3 GiB of 8 GiB of memory free, and 'box' asks for 16 GiB (5 GiB held by h on vm)"
        );
        let two = [held("a", 0, 0, true), held("b", 0, 0, true)];
        assert_eq!(refusal(&t, &two, &[want("box", 0, 0, 0)]), "docker@gpubox runs 2 of the 2 containers it may");
        assert_eq!(
            refusal(&t, &[], &[want("box", 0, 0, 1)]),
            "docker@gpubox has 0 of 0 GPUs free, and 'box' asks for 1 (its daemon lists no GPU by name: say which in the \
             runtime's gpus)"
        );
        assert_eq!(
            refusal(&t, &[], &[want("a", 3, 0, 0), want("b", 3, 9, 0)]),
            "docker@gpubox has 4 of 4 CPUs free, and 'a' and 'b' ask for 6; \
             docker@gpubox has 8 GiB of 8 GiB of memory free, and 'b' asks for 9 GiB"
        );
        assert_eq!(
            refusal(&t, &two[..1], &[want("a", 0, 0, 0), want("b", 0, 0, 0)]),
            "docker@gpubox runs 1 of the 2 containers it may, and 'a' and 'b' ask for 2"
        );
    }

    fn with_gpus(ids: &[&str], silent: &[&str]) -> Total {
        let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let answers = GpuAnswers { silent: silent.iter().map(|id| (*id).to_owned()).collect(), ..GpuAnswers::default() };
        let gpus = Gpus { ids: owned(ids), answers, memory: Some(Memory::from_bytes(16 << 30)) };
        Total { gpus, ..total(4, 8, None) }
    }

    fn holds(name: &str, ids: &[&str]) -> Held {
        Held { gpus: ids.iter().map(|id| (*id).to_owned()).collect(), ..held(name, 0, 0, false) }
    }

    #[test]
    fn the_words_of_each_shortage_of_gpus() {
        let two = with_gpus(&["0", "1"], &[]);
        let ask = |n| [want("box", 0, 0, n)];
        assert_eq!(refusal(&two, &[], &ask(3)), "docker@gpubox has 2 of 2 GPUs free, and 'box' asks for 3");
        assert_eq!(
            refusal(&two, &[holds("a", &["0"]), holds("b", &["nvidia.com/gpu=1"])], &ask(1)),
            "docker@gpubox has 0 of 2 GPUs free, and 'box' asks for 1 (GPU 0 held by a on vm; GPU nvidia.com/gpu=1 held by b on vm)"
        );
        assert_eq!(
            refusal(&two, &[holds("others", &["7"])], &ask(3)),
            "docker@gpubox has 2 of 2 GPUs free, and 'box' asks for 3"
        );
        assert_eq!(
            refusal(&two, &[holds("a", &["all"])], &ask(1)),
            "docker@gpubox has 0 of 2 GPUs free, and 'box' asks for 1 (every GPU held by a on vm)"
        );
        assert_eq!(
            refusal(&with_gpus(&["0", "1"], &["1"]), &[], &ask(2)),
            "docker@gpubox has 1 of 2 GPUs free, and 'box' asks for 2 (GPU 1 does not answer)"
        );
        assert_eq!(
            refusal(&with_gpus(&["0", "1"], &["0", "1"]), &[], &ask(1)),
            "docker@gpubox has 0 of 2 GPUs free, and 'box' asks for 1 (GPUs 0, 1 do not answer)"
        );
        // what does not answer is no reason where it would not fit anyway
        assert_eq!(
            refusal(&with_gpus(&["0", "1"], &["1"]), &[], &ask(3)),
            "docker@gpubox has 1 of 2 GPUs free, and 'box' asks for 3"
        );
        assert_eq!(
            refusal(&with_gpus(&["0", "1"], &["1"]), &[holds("a", &["0", "1"])], &ask(1)),
            "docker@gpubox has 0 of 2 GPUs free, and 'box' asks for 1 (GPU 0, 1 held by a on vm)"
        );
        let big = [Want { gpu_memory: Some(Memory::from_bytes(24 << 30)), ..want("box", 0, 0, 1) }];
        assert_eq!(refusal(&two, &[], &big), "docker@gpubox's GPUs have 16 GiB each, and 'box' asks for 24 GiB");
        let mut unsaid = two.clone();
        unsaid.gpus.memory = None;
        assert_eq!(
            refusal(&unsaid, &[], &big),
            "how much memory docker@gpubox's GPUs have is not known (say it in the runtime's gpu_memory), and 'box' asks for 24 GiB"
        );
        unsaid.gpus.answers.memory = [("0", 80), ("1", 16)].map(|(id, gib)| (id.into(), Memory::from_bytes(gib << 30))).into();
        assert_eq!(refusal(&unsaid, &[], &big), "docker@gpubox has a GPU of 16 GiB, and 'box' asks for 24 GiB");
        unsaid.gpus.ids = vec!["0".into()];
        assert_eq!(check("d", &unsaid, &[], &big), Ok(()));
        assert!(check("d", &two, &[holds("a", &["0"])], &ask(2)).unwrap_err().could_fit);
        assert!(!check("d", &two, &[], &ask(3)).unwrap_err().could_fit);
        assert!(!check("d", &two, &[], &big).unwrap_err().could_fit);
    }

    #[test]
    fn gpus_are_given_whole_and_each_once_and_who_has_some_keeps_them() {
        let three = with_gpus(&["0", "1", "2"], &[]);
        let wants = [want("a", 0, 0, 1), want("b", 0, 0, 0), want("c", 0, 0, 1)];
        let given = |had: &[Vec<String>]| {
            let shares = grant("d", &three, &[holds("h", &["1"])], &wants, had).unwrap();
            shares.into_iter().map(|s| s.gpus.join(",")).collect::<Vec<_>>()
        };
        assert_eq!(given(&[]), ["0", "", "2"]);
        assert_eq!(given(&[vec!["2".into()], vec![], vec![]]), ["2", "", "0"]);
        // what was taken meanwhile, or is of another number, is not kept
        assert_eq!(given(&[vec!["1".into()], vec![], vec!["0".into(), "2".into()]]), ["0", "", "2"]);
    }

    #[test]
    fn a_gpu_counts_once_under_its_number_and_its_uuid() {
        let mut two = with_gpus(&["0", "1"], &[]);
        two.gpus.answers.uuids = [("0", "GPU-a"), ("1", "GPU-b")].map(|(n, u)| (n.to_owned(), u.to_owned())).into();
        let one = [want("a", 0, 0, 1)];
        let given = |total: &Total, held: &[Held], had: &[&str]| {
            let had = [had.iter().map(|id| (*id).to_owned()).collect()];
            grant("docker@gpubox", total, held, &one, &had).map(|shares| shares[0].gpus.join(",")).map_err(|short| short.message)
        };
        assert_eq!(given(&two, &[holds("h", &["GPU-a"])], &[]).as_deref(), Ok("1"));
        assert_eq!(
            given(&two, &[holds("h", &["GPU-a"]), holds("i", &["nvidia.com/gpu=1"])], &[]),
            Err("docker@gpubox has 0 of 2 GPUs free, and 'a' asks for 1 (GPU GPU-a held by h on vm; GPU nvidia.com/gpu=1 held by i on vm)"
                .into())
        );
        // who has one under its other name keeps it so, and nobody else gets it
        assert_eq!(given(&two, &[], &["GPU-b"]).as_deref(), Ok("GPU-b"));
        let both = [want("a", 0, 0, 1), want("b", 0, 0, 1)];
        let shares = grant("d", &two, &[], &both, &[vec!["GPU-a".into()], vec![]]).unwrap();
        assert_eq!((shares[0].gpus.as_slice(), shares[1].gpus.as_slice()), (&["GPU-a".to_owned()][..], &["1".to_owned()][..]));
        // one that the runtime lists twice is one
        two.gpus.ids.push("GPU-a".into());
        assert_eq!(refusal(&two, &[], &[want("box", 0, 0, 3)]), "docker@gpubox has 2 of 2 GPUs free, and 'box' asks for 3");
    }

    #[test]
    fn whether_waiting_helps() {
        let t = total(4, 8, Some(2));
        assert!(check("d", &t, &[held("h", 2, 0, false)], &[want("box", 4, 0, 0)]).unwrap_err().could_fit);
        assert!(!check("d", &t, &[], &[want("box", 5, 0, 0)]).unwrap_err().could_fit);
        assert!(!check("d", &t, &[], &[want("box", 0, 0, 1)]).unwrap_err().could_fit);
    }

    #[test]
    fn a_role_that_asks_for_nothing_fits_an_overcommitted_daemon() {
        assert_eq!(check("d", &total(4, 8, None), &[held("h", 9, 90, false)], &[want("box", 0, 0, 0)]), Ok(()));
    }

    #[test]
    fn a_strangers_box_counts_for_cpus_and_not_for_containers() {
        let t = total(4, 8, Some(1));
        assert_eq!(check("d", &t, &[held("h", 1, 0, false)], &[want("box", 3, 0, 0)]), Ok(()));
    }

    fn shares() -> impl Strategy<Value = Vec<(u64, u64, bool)>> {
        prop::collection::vec((0u64..6, 0u64..6, any::<bool>()), 0..6)
    }

    proptest! {
        #[test]
        fn admitted_exactly_when_the_sums_fit(has in shares(), asks in shares(), cpus in 0u64..20, mem in 0u64..20, max in 0u32..8) {
            let t = total(cpus, mem, Some(max));
            let has: Vec<_> = has.iter().map(|(c, m, own)| held("h", *c, *m, *own)).collect();
            let wants: Vec<_> = asks.iter().map(|(c, m, _)| want("w", *c, *m, 0)).collect();
            let all = |f: &dyn Fn(&Held) -> u64, g: &dyn Fn(&Want) -> u64| {
                (has.iter().map(f).sum::<u64>(), wants.iter().map(g).sum::<u64>())
            };
            let (hc, wc) = all(&|h| h.cpus.millis(), &|w| w.cpus.unwrap_or_default().millis());
            let (hm, wm) = all(&|h| h.memory.bytes(), &|w| w.memory.unwrap_or_default().bytes());
            let own = has.iter().filter(|h| h.own).count() + wants.len();
            let fits = (wc == 0 || hc + wc <= t.cpus.millis())
                && (wm == 0 || hm + wm <= t.memory.bytes())
                && (wants.is_empty() || own <= max as usize);
            prop_assert_eq!(check("d", &t, &has, &wants).is_ok(), fits);
        }

        #[test]
        fn amounts_at_the_edge_do_not_overflow(c in any::<u64>(), m in any::<u64>()) {
            let t = total(1, 1, None);
            let one = Want { cpus: Some(Cpus::from_millis(c)), memory: Some(Memory::from_bytes(m)), ..want("w", 0, 0, 0) };
            let has = Held { cpus: Cpus::from_millis(c), memory: Memory::from_bytes(m), ..held("h", 0, 0, false) };
            let fits = c <= 500 && m <= (1 << 29);
            prop_assert_eq!(check("d", &t, &[has], &[one]).is_ok(), fits);
        }
    }
}
