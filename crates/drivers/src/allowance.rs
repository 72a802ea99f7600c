//! What a runtime was saved to hand out and its daemon has not got. Pure.

use crate::gpus::in_words;
use crate::types::Facts;
use hmz_api::kinds::RuntimeSpec;

/// The GPUs it hands out (those that were saved, else those its daemon lists) that did not answer when they were asked last.
pub fn silent_gpus(spec: &RuntimeSpec, facts: &Facts) -> Vec<String> {
    let ids = if spec.gpus.is_empty() { facts.gpus.as_deref().unwrap_or_default() } else { &spec.gpus };
    ids.iter().filter(|id| facts.gpu_answers.is_silent(id)).cloned().collect()
}

/// Each thing that is saved and lacking, as a clause about the daemon: `it is to hand out 8 CPUs and has 4`.
pub fn lacking(spec: &RuntimeSpec, facts: &Facts) -> Vec<String> {
    let mut short = Vec::new();
    if facts.nodes.as_ref().is_some_and(Vec::is_empty) {
        short.push("none of its nodes may take a task".to_owned());
    }
    short.extend(facts.container.clone());
    if let Some(kind) = spec.gpu_resource.as_ref().filter(|kind| !facts.generic.contains(kind)) {
        short.push(format!("no node advertises {kind}"));
    }
    if let Some(saved) = spec.cpus.filter(|saved| *saved > facts.cpus) {
        short.push(format!("it is to hand out {saved} CPUs and has {}", facts.cpus));
    }
    if let Some(saved) = spec.memory.filter(|saved| *saved > facts.memory) {
        let (mut wanted, mut has) = (saved.in_words(), facts.memory.in_words());
        if wanted == has {
            (wanted, has) = (format!("{} bytes", saved.bytes()), format!("{} bytes", facts.memory.bytes()));
        }
        short.push(format!("it is to hand out {wanted} of memory and has {has}"));
    }
    // what does not list its GPUs may have them all the same
    if facts.gpus.is_some() {
        let missing: Vec<&str> = spec.gpus.iter().filter(|id| !facts.gpu_names.contains(id)).map(String::as_str).collect();
        if !missing.is_empty() {
            short.push(format!("it has no GPU {}", missing.join(", ")));
        }
    }
    let silent = silent_gpus(spec, facts);
    short.extend(in_words(&silent.iter().map(String::as_str).collect::<Vec<_>>()));
    if let Some(runtime) = spec.runtime.as_ref().filter(|runtime| !facts.runtimes.contains(runtime)) {
        short.push(format!("it has no OCI runtime {runtime}"));
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::{Cpus, Memory};

    #[test]
    fn everything_that_is_lacking_is_said() {
        let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let facts = Facts {
            cpus: Cpus::whole(4),
            memory: Memory::from_bytes((8 << 30) - 4096),
            runtimes: text(&["runc"]),
            gpus: Some(text(&["0", "1"])),
            gpu_names: text(&["0", "GPU-a", "1", "GPU-b"]),
            ..Facts::default()
        };
        let spec = RuntimeSpec {
            cpus: Some(Cpus::from_millis(4500)),
            memory: Some(Memory::from_bytes(16 << 30)),
            gpus: text(&["1", "2", "3"]),
            runtime: Some("nvidia".into()),
            ..RuntimeSpec::default()
        };
        let said = [
            "it is to hand out 4.5 CPUs and has 4",
            "it is to hand out 16 GiB of memory and has 8 GiB",
            "it has no GPU 2, 3",
            "it has no OCI runtime nvidia",
        ];
        assert_eq!(lacking(&spec, &facts), said);
        // a difference that words do not show is said in bytes
        let close = RuntimeSpec { memory: Some(Memory::from_bytes(8 << 30)), ..RuntimeSpec::default() };
        assert_eq!(lacking(&close, &facts), ["it is to hand out 8589934592 bytes of memory and has 8589930496 bytes"]);
        // what is there, and what nobody knows, is not lacking
        let enough = RuntimeSpec { cpus: Some(Cpus::whole(4)), gpus: text(&["0", "GPU-b"]), ..RuntimeSpec::default() };
        assert_eq!(lacking(&enough, &facts), [] as [&str; 0]);
        assert_eq!(lacking(&RuntimeSpec { runtime: None, ..spec }, &Facts { gpus: None, ..facts }).len(), 2);
        // one that does not answer is lacking, whether it was saved or is only listed
        let mut dead = Facts { gpus: Some(text(&["0", "1"])), gpu_names: text(&["0", "1"]), ..Facts::default() };
        dead.gpu_answers.silent = ["1".to_owned()].into();
        let saved = |ids: &[&str]| RuntimeSpec { gpus: text(ids), ..RuntimeSpec::default() };
        assert_eq!(lacking(&saved(&[]), &dead), ["GPU 1 does not answer"]);
        assert_eq!((lacking(&saved(&["1"]), &dead).len(), lacking(&saved(&["0"]), &dead).len()), (1, 0));
        let swarm = RuntimeSpec { gpu_resource: Some("GPU".into()), ..RuntimeSpec::default() };
        let container = Facts { container: Some("it has no container db".into()), ..Facts::default() };
        assert_eq!(lacking(&RuntimeSpec::default(), &container), ["it has no container db"]);
        let nodes = Facts { nodes: Some(Vec::new()), ..Facts::default() };
        assert_eq!(lacking(&swarm, &nodes), ["none of its nodes may take a task", "no node advertises GPU"]);
        let nodes = Facts { nodes: Some(text(&["a"])), generic: text(&["GPU"]), ..Facts::default() };
        assert_eq!(lacking(&swarm, &nodes), [] as [&str; 0]);
    }
}
