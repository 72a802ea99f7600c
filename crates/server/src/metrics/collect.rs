//! What is told: of resources as the store has them, of controllers as they count, of agents as the journals tell. No daemon
//! is asked.

use super::exposition::{Exposition, Type};
use super::journals::Journals;
use super::own;
use hmz_api::kinds::condition::REACHABLE;
use hmz_api::{Error, Resource, Runtime};
use hmz_controllers::{Counts, Meters, Sort, Tally};
use hmz_store::Store;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The kinds there are.
const KINDS: [&str; 4] = ["Environment", "Flow", "Run", "Runtime"];
/// How many resources are held at a time while all are looked at.
const PAGE: usize = 256;

/// Collects. Clones are the same.
#[derive(Clone)]
pub(crate) struct Metrics {
    store: Store,
    counts: Counts,
    meters: Meters,
    epics: PathBuf,
    journals: Arc<Mutex<Journals>>,
}

impl Metrics {
    /// Of a daemon.
    pub fn new(store: Store, counts: Counts, meters: Meters, epics: PathBuf) -> Self {
        Self { store, counts, meters, epics, journals: Arc::default() }
    }

    /// All of them now.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn text(&self) -> Result<String, Error> {
        let revision = self.store.revision().await.map_err(Error::from)?;
        let counts = match self.counts.now() {
            Some(counts) => counts,
            None => self.counted().await?,
        };
        let runtimes = self.store.list::<Runtime>().await.map_err(Error::from)?;
        let this = self.clone();
        // journals are files
        let text = tokio::task::spawn_blocking(move || this.render(&counts, &runtimes, revision)).await;
        text.map_err(|e| Error::failed(format!("the metrics: {e}")))
    }

    /// What there is, by a look at each: just after the daemon's start nobody knows yet.
    async fn counted(&self) -> Result<Vec<(Sort, usize)>, Error> {
        let mut tally = Tally::default();
        for kind in KINDS {
            let mut after: Option<String> = None;
            loop {
                let page = self.store.page_any(kind, after.as_deref(), PAGE).await.map_err(Error::from)?;
                let Some(last) = page.last() else { break };
                after = Some(last.metadata().name.clone());
                for one in &page {
                    tally.add(one);
                }
            }
        }
        Ok(tally.counts())
    }

    fn render(&self, counts: &[(Sort, usize)], runtimes: &[Resource<Runtime>], revision: u64) -> String {
        let mut text = Exposition::default();
        text.family("hmz_build_info", Type::Gauge, "1, of this version.").sample(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        text.family("hmz_store_revision", Type::Gauge, "The store's revision: how many changes there were.")
            .sample(&[], revision as f64);
        resources(&mut text, counts);
        shares(&mut text, runtimes);
        boxes(&mut text, counts);
        self.controllers(&mut text);
        self.agents(&mut text);
        own::add(&mut text);
        text.finish()
    }

    fn controllers(&self, text: &mut Exposition) {
        let all = self.meters.figures();
        text.family("hmz_controller_queue_depth", Type::Gauge, "Resources to be looked at, now or when their time comes.");
        for one in &all {
            text.sample(&[("controller", one.name)], one.queued as f64);
        }
        text.family("hmz_controller_working", Type::Gauge, "Resources that are being looked at.");
        for one in &all {
            text.sample(&[("controller", one.name)], one.working as f64);
        }
        text.family("hmz_controller_reconciles_total", Type::Counter, "Looks at a resource by how they ended.");
        for one in &all {
            for (result, n) in [("done", one.done), ("conflict", one.conflicts), ("error", one.failures)] {
                text.sample(&[("controller", one.name), ("result", result)], n as f64);
            }
        }
        text.family("hmz_controller_reconcile_duration_seconds", Type::Histogram, "How long a look at a resource took.");
        for one in &all {
            let within: Vec<(f64, u64)> = one.latencies.iter().map(|(bound, n)| (bound.as_secs_f64(), *n)).collect();
            let count = one.done + one.conflicts + one.failures;
            text.histogram(&[("controller", one.name)], &within, count, one.took.as_secs_f64());
        }
    }

    fn agents(&self, text: &mut Exposition) {
        let mut journals = self.journals.lock().unwrap_or_else(PoisonError::into_inner);
        journals.read(&self.epics);
        text.family("hmz_runs_ended_total", Type::Counter, "Runs that ended, by how.");
        for (outcome, n) in &journals.ended {
            text.sample(&[("outcome", outcome)], *n as f64);
        }
        text.family("hmz_turns_total", Type::Counter, "Turns of agents that began.");
        for ((agent, cli, model), did) in &journals.did {
            text.sample(&[("agent", agent), ("cli", cli), ("model", model)], did.turns as f64);
        }
        text.family("hmz_turn_seconds_total", Type::Counter, "How long the turns of agents took that ended, in seconds.");
        for ((agent, cli, model), did) in &journals.did {
            text.sample(&[("agent", agent), ("cli", cli), ("model", model)], did.seconds);
        }
        text.family(
            "hmz_tokens_total",
            Type::Counter,
            "Tokens of agents by kind: input, output, cache_read, cache_write, reasoning.",
        );
        for ((agent, cli, model), did) in &journals.did {
            for (kind, n) in &did.tokens {
                text.sample(&[("agent", agent), ("cli", cli), ("model", model), ("kind", kind)], *n as f64);
            }
        }
        text.family("hmz_cost_dollars_total", Type::Counter, "What agents cost in US dollars, as far as their CLIs say.");
        for ((agent, cli, model), did) in &journals.did {
            if let Some(cost) = did.cost {
                text.sample(&[("agent", agent), ("cli", cli), ("model", model)], cost);
            }
        }
    }
}

fn resources(text: &mut Exposition, counts: &[(Sort, usize)]) {
    let mut kinds = BTreeMap::from(KINDS.map(|kind| (kind, 0)));
    let mut told: BTreeMap<(&str, &str, String), usize> = BTreeMap::new();
    for (sort, n) in counts {
        *kinds.entry(sort.kind).or_default() += n;
        for (condition, status) in &sort.conditions {
            *told.entry((sort.kind, condition.as_str(), format!("{status:?}"))).or_default() += n;
        }
    }
    text.family("hmz_resources", Type::Gauge, "Resources that are declared.");
    for (kind, n) in kinds {
        text.sample(&[("kind", kind)], n as f64);
    }
    text.family("hmz_conditions", Type::Gauge, "Conditions of resources.");
    for ((kind, condition, status), n) in told {
        text.sample(&[("kind", kind), ("type", condition), ("status", &status)], n as f64);
    }
}

/// What a runtime hands out of one thing, and what is held of it; nothing where that is not known.
type Amounts = (Option<f64>, Option<f64>);

fn shares(text: &mut Exposition, runtimes: &[Resource<Runtime>]) {
    text.family("hmz_runtime_up", Type::Gauge, "Whether the daemon of a runtime answers.");
    for runtime in runtimes {
        let conditions = &runtime.status.conditions;
        if let Some(reachable) = conditions.get(REACHABLE) {
            let up = reachable.status == hmz_api::ConditionStatus::True;
            text.sample(&[("runtime", runtime.name())], f64::from(u8::from(up)));
        }
    }
    let mut family = |name, help: &str, of: &dyn Fn(&Resource<Runtime>) -> Amounts| {
        text.family(name, Type::Gauge, help);
        for runtime in runtimes {
            let (total, held) = of(runtime);
            let Some(held) = held else { continue };
            text.sample(&[("runtime", runtime.name()), ("share", "held")], held);
            if let Some(total) = total {
                // more may be held than was saved since
                text.sample(&[("runtime", runtime.name()), ("share", "free")], (total - held).max(0.0));
            }
        }
    };
    let cpus = |cpus: hmz_api::Cpus| cpus.millis() as f64 / 1000.0;
    let memory = |memory: hmz_api::Memory| memory.bytes() as f64;
    family("hmz_runtime_cpus", "CPUs of a runtime that are held, and that are free.", &|r| {
        (r.spec.cpus.or(r.status.cpus).map(cpus), r.status.held_cpus.map(cpus))
    });
    family("hmz_runtime_memory_bytes", "Memory of a runtime that is held, and that is free.", &|r| {
        (r.spec.memory.or(r.status.memory).map(memory), r.status.held_memory.map(memory))
    });
    family("hmz_runtime_gpus", "GPUs of a runtime that are held, and that are free.", &|r| {
        let held = r.status.held_gpus.len() as f64;
        (Some(held + free_gpus(r) as f64), r.status.held_cpus.map(|_| held))
    });
    family("hmz_runtime_containers", "Boxes a runtime has, and how many more it may have where that is limited.", &|r| {
        let most = r.spec.max_containers.or(r.spec.max_tasks).filter(|n| *n > 0);
        (most.map(f64::from), r.status.containers.map(f64::from))
    });
}

/// How many of those a runtime hands out nobody holds, and answer.
fn free_gpus(r: &Resource<Runtime>) -> usize {
    let ids = if r.spec.gpus.is_empty() { &r.status.gpus } else { &r.spec.gpus };
    ids.iter().filter(|id| !r.status.held_gpus.contains(id) && !r.status.silent_gpus.contains(id)).count()
}

fn boxes(text: &mut Exposition, counts: &[(Sort, usize)]) {
    let mut states: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (sort, n) in counts {
        if let Some((runtime, state)) = &sort.boxes {
            *states.entry((runtime.as_str(), *state)).or_default() += n;
        }
    }
    text.family("hmz_boxes", Type::Gauge, "Boxes of environments: waiting, starting, ready, down or deleting.");
    for ((runtime, state), n) in states {
        text.sample(&[("runtime", runtime), ("state", state)], n as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::kinds::{RuntimeSpec, RuntimeStatus};

    #[test]
    fn a_gpu_that_is_held_and_does_not_answer_is_taken_off_once() {
        let some = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let mut runtime: Resource<Runtime> =
            Resource::new("docker:x", RuntimeSpec { gpus: some(&["0", "1", "2"]), ..RuntimeSpec::default() });
        runtime.status = RuntimeStatus { held_gpus: some(&["1"]), silent_gpus: some(&["1", "2"]), ..RuntimeStatus::default() };
        assert_eq!(free_gpus(&runtime), 1);
    }
}
