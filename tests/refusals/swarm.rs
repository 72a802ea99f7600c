//! What a swarm does not take, in hmz's words and its scheduler's. What was begun for it is not left.

use super::{Place, flow};
use crate::support::swarm::Nodes;
use crate::support::{LIMIT, eventually};
use rustix::fs::FlockOperation;

/// A place with runtimes on the testbed's swarm.
struct OnSwarm {
    nodes: Nodes,
    place: Place,
}

impl OnSwarm {
    fn new(turn: FlockOperation) -> Self {
        let (nodes, place) = (Nodes::get(turn), Place::new());
        let (manager, w1, config) = (&nodes.place["manager"], &nodes.place["w1"], &nodes.place["ssh_config"]);
        let hosts: String = ["w1", "w2"].map(|n| format!("    {n}: {{alias: {n}, config: {config}}}\n")).concat();
        let on = format!("endpoint: 'unix://{manager}', harness: local, nodes: {{w1: w1, w2: w2}}");
        place.home.settings(&format!(
            "runtimes:\n  ssh:\n{hosts}  swarm:\n    \
             c: {{{on}, cpus: 100, constraints: [node.labels.zone==c]}}\n    \
             one: {{{on}, max_tasks: 1}}\n    \
             nowhere: {{{on}, constraints: [node.labels.zone==x]}}\n    \
             fpga: {{{on}, gpu_resource: FPGA}}\n    \
             worker: {{endpoint: 'unix://{w1}', harness: local}}\n    \
             gone: {{endpoint: 'unix:///nowhere.sock', harness: local}}\n"
        ));
        for cpus in ["64", "101"] {
            flow(&place.project, &format!("cpus{cpus}"), &format!("box: {{image: 'busybox:latest', cpus: {cpus}}}"));
        }
        Self { nodes, place }
    }

    /// No service of this home is left.
    fn nothing_is_left(&self) {
        let Some(label) = self.place.home.label() else { return };
        let left = || self.nodes.docker("manager", &["service", "ls", "-q", "--filter", &format!("label={label}")]);
        eventually("no service of this home is left", LIMIT, || left().is_empty().then_some(()));
    }
}

#[test]
fn what_no_swarm_can_hold() {
    let on = OnSwarm::new(FlockOperation::LockShared);
    on.place.table(&[
        ("-f small $A -e box=swarm$P", "swarm is in no active swarm: its swarm is inactive\n"),
        ("-f small $A -e box=swarm@worker$P", "swarm@worker is a worker of its swarm, and only a manager can be asked\n"),
        (
            "-f small $A -e box=swarm@gone$P",
            "could not connect to swarm@gone: could not ask unix:///nowhere.sock what it has: /nowhere.sock: No such file",
        ),
        (
            "-f two $A -e box=swarm@one$P -e other=swarm@one$P",
            "swarm@one runs 0 of the 1 tasks it may, and 'box' and 'other' ask for 2",
        ),
        (
            "-f gpu $A -e box=swarm@c$P",
            "swarm@c hands out no GPUs, and 'box' asks for 1: say which generic resource its nodes advertise them as in the \
             runtime's gpu_resource\n",
        ),
        ("-f cpus64 $A -e box=swarm@c$P", "swarm@c: no node of the swarm has 64 CPUs: its 1 node that may take the task has "),
        ("-f small $A -e box=swarm@nowhere$P", "swarm@nowhere: no node of the swarm has node.labels.zone==x (no suitable node ("),
        ("-f gpu $A -e box=swarm@fpga$P", "swarm@fpga: no node of the swarm has 1 FPGA: the most any of its 3 nodes "),
        ("-f small $A -e box=swarm@c/srv/only-w1", "swarm@c: no directory to give the task on the node it landed on: "),
        ("-f noimage $A -e box=swarm@c$P", "swarm@c: could not start a container of 127.0.0.1:1/hmz-test/none:1 on w2: "),
    ]);
    // what boxes of other homes hold counts too, and the scheduler has its own say
    on.place.refused(on.place.exec("-f cpus101 $A -e box=swarm@c$P"), " of 100 CPUs free, and 'box' asks for 101\n");
    on.place.refused(on.place.exec("-f cpus64 $A -e box=swarm@c$P"), "(no suitable node (");
    on.nothing_is_left();
}

#[test]
fn what_no_node_takes_in_time() {
    // alone: it takes all of a node
    let on = OnSwarm::new(FlockOperation::LockExclusive);
    let cpus = on.nodes.docker("w2", &["info", "--format", "{{.NCPU}}"]);
    let name = format!("test-takes-{}", std::process::id());
    // one of the other implementation, which ends some time
    let labels = ["--label", "humanize=0", "--label", "humanize.provider=x"];
    let takes = ["service", "create", "-q", "--name", &name, "--reserve-cpu", &cpus, "--constraint", "node.labels.zone==c"];
    on.nodes.docker("manager", &[&takes[..], &labels, &["busybox:latest", "sleep", "100000"]].concat());
    flow(&on.place.project, "half", "box: {image: 'busybox:latest', cpus: 0.5}");
    let finished = on.place.exec("-f half $A -e box=swarm@c$P");
    // an environment that declines to wait is refused for good, as where its runtime hands out no more
    let text = format!(
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: half}}\nspec: {{runtime: 'swarm:c', workdir: '{}', image: \
         'busybox:latest', cpus: 0.5, admission: refuse}}\n",
        on.place.project.path()
    );
    on.place.project.write("half.yaml", &text);
    let home = &on.place.home;
    let declared = home.hmz(["apply", "--wait", "--timeout", "2m", "-f", "half.yaml"]).cwd(on.place.project.dir()).run();
    on.nodes.docker("manager", &["service", "rm", &name]);
    let _ = declared.expect_code(2).says("error: env/half: swarm@c: no node took it within 30s: no suitable node (");
    let refused: serde_json::Value = serde_json::from_str(&home.hmz(["get", "env/half", "-o", "json"]).run().ok().out()).unwrap();
    assert_eq!(refused["status"]["refused_generation"], 1, "{refused}");
    let _ = home.hmz(["delete", "env/half"]).run().ok();
    on.place.refused(finished, "hmz exec: error: swarm@c: no node took it within 30s: no suitable node (");
    on.nothing_is_left();
}
