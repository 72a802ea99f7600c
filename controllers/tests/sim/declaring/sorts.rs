//! That the seeds plan all sorts of things, each often enough to be held to: a test of the test.

use super::accounts::{told, unsure};
use super::{quiet, simulated};
use hmz_api::kinds::{Flow, Harness, Runtime};
use hmz_api::rest::{ApplyRequest, Effect, Planned};
use hmz_api::{AnyResource, Kind};
use hmz_controllers::declare::plan;
use std::collections::{BTreeMap, BTreeSet};

const PLANS: u64 = 200;

/// What has to be among them.
const ALL: [&str; 34] = [
    "another begins",
    "another falls back",
    "another is refused after all",
    "another is unsure",
    "another starts",
    "another waits",
    "begins",
    "configured",
    "created",
    "ends",
    "falls back",
    "is unsure",
    "pruned",
    "refused",
    "removes",
    "replaced",
    "runtime with a container",
    "runtime with a fallback",
    "runtime with a harness elsewhere",
    "runtime with a lease",
    "runtime with an image",
    "runtime with memory",
    "runtime with the GPUs",
    "starts",
    "starts a second box",
    "starts with GPUs",
    "starts with memory",
    "starts with what is to be pulled",
    "unsure: asked again",
    "unsure: before that or after",
    "unsure: no room for all",
    "unsure: only then",
    "waits",
    "works in a container",
];

fn words(effect: &Effect) -> Vec<&'static str> {
    match effect {
        Effect::Start { role, image, share, pulls, told, .. } => {
            let of = [
                ("falls back", told.is_some()),
                ("starts", told.is_none()),
                ("starts a second box", role == "harness"),
                ("starts with GPUs", !share.gpus.is_empty()),
                ("starts with memory", share.memory.is_some()),
                ("starts with what is to be pulled", *pulls),
                ("works in a container", image.starts_with("container:")),
            ];
            of.into_iter().filter(|(_, is)| *is).map(|(word, _)| word).collect()
        }
        Effect::Remove { .. } => vec!["removes"],
        Effect::Begin { .. } => vec!["begins"],
        Effect::End => vec!["ends"],
        Effect::Wait { .. } => vec!["waits"],
        Effect::Refuse { .. } => vec!["is refused after all"],
        Effect::Unsure { .. } => vec!["is unsure"],
    }
}

fn of_runtime(one: &AnyResource) -> Vec<&'static str> {
    let AnyResource::Runtime(runtime) = one else { return Vec::new() };
    let spec = &runtime.spec;
    let of = [
        ("runtime with a container", spec.container.is_some()),
        ("runtime with a fallback", !spec.fallback.is_empty()),
        ("runtime with a harness elsewhere", matches!(spec.harness, Harness::On(_))),
        ("runtime with a lease", spec.lease.is_some()),
        ("runtime with an image", spec.image.is_some()),
        ("runtime with memory", spec.memory.is_some()),
        ("runtime with the GPUs", !spec.gpus.is_empty()),
    ];
    of.into_iter().filter(|(_, is)| *is).map(|(word, _)| word).collect()
}

fn sorts(planned: &[Planned], request: &ApplyRequest) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    seen.extend(request.resources.iter().flat_map(of_runtime).map(str::to_owned));
    for one in planned {
        seen.extend(one.effects.iter().flat_map(words).map(str::to_owned));
        let others = one.others.iter().flat_map(|other| &other.effects);
        seen.extend(others.flat_map(words).map(|word| format!("another {word}")));
        seen.insert(match &one.outcome {
            Ok(applied) => applied.word().to_owned(),
            Err(_) => "refused".to_owned(),
        });
        if one.kind == Flow::KIND && !one.others.is_empty() {
            seen.insert("for a flow".into());
        }
        // whoever works on another runtime has its second boxes here
        let starts_second = |effect: &Effect| matches!(effect, Effect::Start { role, .. } if role == "harness");
        if one.kind == Runtime::KIND && one.others.iter().any(|other| other.effects.iter().any(starts_second)) {
            seen.insert("for a runtime of second boxes".into());
        }
    }
    for why in unsure(&told(planned)).values().flatten() {
        let of = ["is known only when", "no room for all", "before that or after", "is asked for again"];
        let word = ["only then", "no room for all", "before that or after", "asked again"];
        let nth = of.iter().position(|part| why.contains(part));
        seen.extend(nth.map(|nth| format!("unsure: {}", word[nth])));
    }
    seen
}

#[test]
fn the_seeds_plan_all_sorts_of_things() {
    let (mut seen, mut chance): (BTreeMap<String, usize>, usize) = (BTreeMap::new(), 0);
    for seed in 0..PLANS {
        let sorts = simulated(async {
            let (sim, request) = quiet(seed).await;
            sorts(&plan(sim.world(), &request).await.unwrap_or_default(), &request)
        });
        let is_chance = |word: &String| word.starts_with("unsure: ") && word != "unsure: only then";
        chance += usize::from(sorts.iter().any(is_chance));
        sorts.into_iter().for_each(|word| *seen.entry(word).or_default() += 1);
    }
    let missing: Vec<&str> = ALL.into_iter().filter(|word| !seen.contains_key(*word)).collect();
    assert!(missing.is_empty(), "{missing:?} of {seen:#?}");
    // what is chance is told as such, and little is
    assert!(chance * 8 < PLANS as usize, "{chance} of {PLANS} plans leave something to chance");
    // and most plans start something
    assert!(seen["starts"] * 4 > PLANS as usize, "{seen:#?}");
}
