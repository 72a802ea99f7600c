//! What a runtime's daemon said, as a person reads it. Colours add nothing to the words.

use super::clean::one_line;
use super::style::{Look, Style};
use hmz_api::columns::runtime::memory;
use hmz_api::rest::{CheckState, Checked, DaemonHas};

/// How many nodes of a swarm are named.
const NAMED_NODES: usize = 8;

/// The answer on one line, then what it lacks; or that it did not answer.
pub fn lines(checked: &Checked, style: Style) -> String {
    let path = checked.runtime.path();
    let red = |text: String| style.paint(Look::Red, &one_line(&text));
    match (&checked.state, &checked.has) {
        (CheckState::Answers | CheckState::Lacks, Some(has)) => {
            let mut out = format!("{path} answers: {}\n", one_line(&said(checked, has)));
            if !checked.lacks.is_empty() {
                let text = one_line(&format!("lacks configured resources: {}", checked.lacks.join("; ")));
                out.push_str(&format!("{}\n", style.paint(Look::Yellow, &text)));
            }
            out
        }
        (CheckState::NotAsked, _) => format!("{}\n", red(format!("{path} cannot be asked: {}", checked.why))),
        _ => format!("{}\n", red(format!("{path} could not be reached: {}", checked.why))),
    }
}

fn said(checked: &Checked, has: &DaemonHas) -> String {
    let mut machine = vec![format!("{} CPUs", has.cpus), memory(has.memory)];
    if let Some(ids) = has.gpus.as_ref().filter(|ids| !ids.is_empty()) {
        machine.push(format!("GPUs {}", ids.join(", ")));
        machine.extend(has.gpu_memory.map(|each| format!("{}G each", each.bytes() >> 30)));
    }
    let mut parts = vec![match &has.home {
        Some(home) => format!("home {home}"),
        None => format!("{} {}", checked.runtime.backend, has.version),
    }];
    let mut machine = machine.join(", ");
    if let Some(nodes) = &has.nodes {
        parts.push(named(nodes));
        machine.push_str(" all told");
    }
    parts.push(machine);
    if !has.runtimes.is_empty() {
        parts.push(format!("OCI runtimes {}", has.runtimes.join(", ")));
    }
    parts.join("; ")
}

/// How many nodes there are, and what some of them are called.
fn named(nodes: &[String]) -> String {
    let few = nodes.iter().take(NAMED_NODES).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match nodes.len().saturating_sub(NAMED_NODES) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    match nodes.len() {
        0 => "no nodes".to_owned(),
        1 => format!("1 node: {few}"),
        n => format!("{n} nodes: {few}{more}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::{Cpus, Memory};

    fn checked() -> Checked {
        let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let has = DaemonHas {
            version: "29.4.3".into(),
            cpus: Cpus::whole(64),
            memory: Memory::from_bytes(2015 << 30),
            gpus: Some(words(&["0", "1"])),
            gpu_memory: None,
            home: None,
            runtimes: words(&["nvidia", "io.containerd.runc.v2", "runc"]),
            nodes: None,
        };
        let runtime = "docker:gpubox".parse().unwrap();
        Checked { runtime, state: CheckState::Answers, why: String::new(), has: Some(has), lacks: Vec::new() }
    }

    #[test]
    fn the_answer_is_one_line() {
        let line =
            "docker/gpubox answers: docker 29.4.3; 64 CPUs, 2015G, GPUs 0, 1; OCI runtimes nvidia, io.containerd.runc.v2, runc\n";
        assert_eq!(lines(&checked(), Style::PLAIN), line);
        assert_eq!(lines(&checked(), Style { colour: true }), line);
        let mut bare = checked();
        bare.runtime = "docker".parse().unwrap();
        let has = bare.has.as_mut().unwrap();
        (has.gpus, has.runtimes, has.cpus, has.memory) = (None, Vec::new(), Cpus::whole(2), Memory::from_bytes((8 << 30) - 1));
        assert_eq!(lines(&bare, Style::PLAIN), "docker answers: docker 29.4.3; 2 CPUs, 7G\n");
    }

    #[test]
    fn an_ssh_host_says_its_home() {
        let mut host = checked();
        host.runtime = "ssh:gpu".parse().unwrap();
        let has = host.has.as_mut().unwrap();
        (has.version, has.runtimes, has.home) = (String::new(), Vec::new(), Some("/home/me".into()));
        (has.memory, has.gpu_memory) = (Memory::from_bytes(251 << 30), Some(Memory::from_bytes(81_559 << 20)));
        assert_eq!(lines(&host, Style::PLAIN), "ssh/gpu answers: home /home/me; 64 CPUs, 251G, GPUs 0, 1, 79G each\n");
    }

    #[test]
    fn a_swarm_says_its_nodes() {
        let mut swarm = checked();
        swarm.runtime = "swarm:c".parse().unwrap();
        let has = swarm.has.as_mut().unwrap();
        (has.gpus, has.runtimes, has.cpus, has.memory) = (None, Vec::new(), Cpus::whole(96), Memory::from_bytes(512 << 30));
        let mut of = |nodes: &[&str]| {
            swarm.has.as_mut().unwrap().nodes = Some(nodes.iter().map(|n| (*n).to_owned()).collect());
            lines(&swarm, Style::PLAIN)
        };
        assert_eq!(of(&["a", "b", "c"]), "swarm/c answers: swarm 29.4.3; 3 nodes: a, b, c; 96 CPUs, 512G all told\n");
        let ten = of(&["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
        assert!(ten.contains("; 10 nodes: 1, 2, 3, 4, 5, 6, 7, 8 and 2 more; "), "{ten}");
    }

    #[test]
    fn what_it_lacks_is_yellow_and_said() {
        let mut short = checked();
        short.state = CheckState::Lacks;
        short.lacks = vec!["it is to hand out 65 CPUs and has 64".into(), "it has no GPU 2".into()];
        let first = lines(&checked(), Style::PLAIN);
        let text = "lacks configured resources: it is to hand out 65 CPUs and has 64; it has no GPU 2";
        assert_eq!(lines(&short, Style::PLAIN), format!("{first}{text}\n"));
        assert_eq!(lines(&short, Style { colour: true }), format!("{first}\x1b[33m{text}\x1b[0m\n"));
    }

    #[test]
    fn a_daemon_that_says_nothing_is_red_and_said() {
        let silent = Checked { state: CheckState::NoAnswer, why: "refused\x1b[2J".into(), has: None, ..checked() };
        let text = "docker/gpubox could not be reached: refused␛[2J";
        assert_eq!(lines(&silent, Style::PLAIN), format!("{text}\n"));
        assert_eq!(lines(&silent, Style { colour: true }), format!("\x1b[31m{text}\x1b[0m\n"));
        let unasked = Checked { state: CheckState::NotAsked, why: "not yet".into(), ..silent };
        assert_eq!(lines(&unasked, Style::PLAIN), "docker/gpubox cannot be asked: not yet\n");
    }
}
