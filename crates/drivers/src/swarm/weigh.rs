//! What a swarm would answer, without asking its scheduler: nothing is made, no lock is taken.
//!
//! What the runtime was saved to hand out is counted as an admission counts it, and what no node could ever hold is refused as the
//! scheduler's answer is. Which node a task gets is never guessed: there is room where a node has it though everything that is not
//! on one yet came to that same node. Where none has, it is known only when it is asked for.

use super::admission::{grant, held, no_gpus};
use super::manager::Manager;
use super::nodes::{self, Amounts, Node};
use super::seen::Service;
use super::task::Task;
use crate::docker::capacity::Held;
use crate::error::DriverError;
use crate::types::{Admitted, BoxKey, Promised, Want};
use hmz_api::kinds::Share;
use std::collections::BTreeMap;

/// Weighs a gang beside what the swarm holds and what others are `promised`; what is to be `gone` holds nothing. `None`: the
/// scheduler alone can tell.
///
/// # Errors
/// The manager does not answer, or no node could ever hold one of them.
pub async fn weigh(
    manager: &Manager<'_>,
    wants: &[Want],
    promised: &[Promised],
    gone: &[BoxKey],
) -> Result<Option<Admitted>, DriverError> {
    if let Some(short) = no_gpus(manager, wants) {
        return Ok(Some(Admitted::Short(short)));
    }
    let (services, now) = manager.services(&[]).await?;
    let keys: Vec<&BoxKey> = wants.iter().map(|w| &w.key).chain(gone).chain(promised.iter().map(|p| &p.key)).collect();
    let (mut ends, mut stays): (Vec<Service>, Vec<Service>) = (Vec::new(), Vec::new());
    for service in services {
        let is_of_one = keys.iter().any(|key| service.is_of(key));
        if is_of_one { ends.push(service) } else { stays.push(service) }
    }
    let (age, provider) = (manager.session.limits.hold_age, manager.session.provider());
    let mut counted = held(&stays, now, age, provider, &[]);
    counted.extend(promised.iter().map(|p| Held {
        name: p.name.clone(),
        host: manager.session.who.hostname.clone(),
        cpus: p.share.cpus.unwrap_or_default(),
        memory: p.share.memory.unwrap_or_default(),
        gpus: Vec::new(),
        own: p.provider == provider,
    }));
    let shares = match grant(manager, &counted, wants) {
        Ok(shares) => shares,
        Err(short) => return Ok(Some(Admitted::Short(short))),
    };

    let (all, tasks) = (manager.nodes().await?, manager.wanted_tasks().await?);
    let constraints = &manager.session.target.spec.constraints;
    let is_ours = |task: &&Task| stays.iter().chain(&ends).any(|s| s.id == task.service);
    let for_good = on_nodes(tasks.iter().filter(|task| !is_ours(task)));
    for share in &shares {
        if let Some(why) = nodes::impossible(&all, &for_good, constraints, &Amounts::reserved(share)) {
            return Err(DriverError::Refused(format!("{}: {why}", manager.at())));
        }
    }
    let taken = on_nodes(tasks.iter().filter(|task| !ends.iter().any(|s| s.id == task.service)));
    let mut unplaced = Amounts::default();
    for hold in stays.iter().filter(|s| !s.may_have_tasks() && s.counts(now, age)) {
        unplaced.add(&Amounts::reserved(&hold.share));
    }
    tasks.iter().filter(|task| task.node.is_empty() && !task.is_over()).for_each(|task| unplaced.add(&task.reserves));
    promised.iter().for_each(|p| unplaced.add(&Amounts::reserved(&p.share)));
    let open: Vec<&Node> = all.iter().filter(|n| n.takes_tasks() && constraints.iter().all(|c| n.answers(c))).collect();
    Ok(have_room(&open, &taken, unplaced, &shares).then_some(Admitted::Held(shares)))
}

/// What tasks that are on a node reserve there, by the node's id.
fn on_nodes<'a>(tasks: impl Iterator<Item = &'a Task>) -> BTreeMap<String, Amounts> {
    let mut reserved: BTreeMap<String, Amounts> = BTreeMap::new();
    for task in tasks.filter(|task| task.takes()) {
        reserved.entry(task.node.clone()).or_default().add(&task.reserves);
    }
    reserved
}

/// Whether each of these shares is sure to find a node, wherever those before it and what is `unplaced` go.
fn have_room(open: &[&Node], taken: &BTreeMap<String, Amounts>, mut unplaced: Amounts, shares: &[Share]) -> bool {
    let none = Amounts::default();
    shares.iter().all(|share| {
        let need = Amounts::reserved(share);
        let is_sure = open.iter().any(|node| {
            let mut there = taken.get(&node.id).unwrap_or(&none).clone();
            there.add(&unplaced);
            node.has.less(&there).holds(&need)
        });
        unplaced.add(&need);
        is_sure
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::Cpus;

    fn share(cpus: u64, gpus: usize) -> Share {
        Share { cpus: Some(Cpus::whole(cpus)), memory: None, gpus: vec!["GPU".into(); gpus] }
    }

    #[test]
    fn there_is_room_where_one_node_has_it_for_all_that_may_come_there() {
        let node = |id: &str, cpus, gpus| {
            let mut node = Node::of(&serde_json::json!({"ID": id})).unwrap();
            node.has = Amounts::reserved(&share(cpus, gpus));
            node
        };
        let (small, large) = (node("small", 2, 0), node("large", 4, 2));
        let open = [&small, &large];
        let none = BTreeMap::new;
        let sure = |taken, unplaced, shares: &[Share]| have_room(&open, &taken, Amounts::reserved(&unplaced), shares);
        assert!(sure(none(), share(0, 0), &[share(4, 2)]));
        assert!(sure(none(), share(0, 0), &[share(2, 0), share(2, 0)]));
        // the first may go to either, and then the second has the other or not
        assert!(!sure(none(), share(0, 0), &[share(2, 0), share(3, 0)]));
        assert!(!sure(none(), share(3, 0), &[share(2, 0)]));
        assert!(sure(none(), share(2, 0), &[share(2, 0)]));
        let taken = || BTreeMap::from([("large".to_owned(), Amounts::reserved(&share(3, 1)))]);
        assert!(sure(taken(), share(0, 0), &[share(2, 0)]));
        assert!(!sure(taken(), share(0, 0), &[share(3, 0)]));
        assert!(sure(taken(), share(0, 0), &[share(1, 1)]) && !sure(taken(), share(0, 0), &[share(1, 2)]));
        assert!(!have_room(&[], &none(), Amounts::default(), &[share(0, 0)]));
    }
}
