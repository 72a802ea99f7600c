//! The arithmetic of admission: what is held, what is free, and the words when it is not enough. Pure.
//!
//! CPUs and memory are shared by every box of the daemon, whoever's it is; the number of containers is the runtime's own.

use crate::types::{Shortage, Want};
use hmz_api::{Cpus, Memory};

/// How many holders a refusal names before it only counts them.
const NAMED_HOLDERS: usize = 4;

/// What a runtime hands out in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Total {
    /// CPUs.
    pub cpus: Cpus,
    /// Memory.
    pub memory: Memory,
    /// Containers of this runtime's own; `None`: any number.
    pub containers: Option<u32>,
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
    /// Whether it was made through the runtime that is asked now.
    pub own: bool,
}

/// Whether all of `wants` fit beside `held`; the refusal says everything that is short, joined by `; `.
///
/// # Errors
/// What is short, in the words a user reads, `at` being the runtime as `docker@gpubox`.
pub fn check(at: &str, total: &Total, held: &[Held], wants: &[Want]) -> Result<(), Shortage> {
    let mut short = Vec::new();
    let mut could_fit = true;
    containers(at, total, held, wants, &mut short, &mut could_fit);
    cpus(at, total, held, wants, &mut short, &mut could_fit);
    memory(at, total, held, wants, &mut short, &mut could_fit);
    if let Some((who, n)) = asked(wants, |w| u64::from(w.gpus.unwrap_or(0))) {
        short.push(format!("{at} hands out no GPUs yet, and {who} {n}"));
        could_fit = false;
    }
    if short.is_empty() { Ok(()) } else { Err(Shortage { message: short.join("; "), could_fit }) }
}

fn containers(at: &str, total: &Total, held: &[Held], wants: &[Want], short: &mut Vec<String>, could_fit: &mut bool) {
    let Some(may) = total.containers else { return };
    let (may, runs) = (u64::from(may), held.iter().filter(|h| h.own).count() as u64);
    let more = wants.len() as u64;
    if more == 0 || runs.saturating_add(more) <= may {
        return;
    }
    *could_fit &= more <= may;
    let mut text = format!("{at} runs {runs} of the {may} containers it may");
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
        }
    }

    fn held(name: &str, cpus: u64, memory: u64, own: bool) -> Held {
        let memory = Memory::from_bytes(memory << 30);
        Held { name: name.into(), host: "vm".into(), cpus: Cpus::whole(cpus), memory, own }
    }

    fn total(cpus: u64, memory: u64, containers: Option<u32>) -> Total {
        Total { cpus: Cpus::whole(cpus), memory: Memory::from_bytes(memory << 30), containers }
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
        assert_eq!(refusal(&t, &[], &[want("box", 0, 0, 1)]), "docker@gpubox hands out no GPUs yet, and 'box' asks for 1");
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
