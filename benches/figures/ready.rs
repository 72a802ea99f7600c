//! An environment from `hmz apply` to ready, against a container made, started and used once through docker's API.

use crate::http::ask;
use crate::rounds::{compared, take_turns};
use crate::support::project::Project;
use crate::table::{Aim, Figure, Unit};
use crate::world::{IMAGE, World, docker_socket, ready};
use serde_json::json;
use std::time::Instant;

/// A label of what is made without hmz, so that a bench that was killed leaves nothing nameless.
const LABEL: &str = "hmz-bench";

/// Measures it.
pub fn measure(rounds: usize) -> Vec<Figure> {
    let world = World::new();
    let project = world.home.project("p");
    once(&world, &project, "warm");
    bare(&project);
    let (a, b) = take_turns(rounds, |n| once(&world, &project, &format!("box-{n}")), |_| bare(&project));
    vec![compared("environment ready, warm image", Unit::Seconds, &a, "create + start + exec", &b, Aim::Ratio(1.3))]
}

fn once(world: &World, project: &Project, name: &str) -> f64 {
    let manifest = world.manifest(name, project);
    let watched = world.watch(name).changes();
    let apply = world.home.hmz(["apply", "-f"]).arg(manifest);
    let began = Instant::now();
    let applied = apply.start();
    let (at, _) = ready(watched);
    let took = at.duration_since(began).as_secs_f64();
    let _ = applied.wait().ok();
    let _ = world.home.hmz(["delete", &format!("env/{name}")]).run().ok();
    took
}

/// The same by hand.
pub fn bare(project: &Project) -> f64 {
    let began = Instant::now();
    let container = make(project);
    let took = began.elapsed().as_secs_f64();
    remove(&container);
    took
}

/// Makes a container, starts it and runs one command in it; its id.
pub fn make(project: &Project) -> String {
    let socket = docker_socket();
    let id = |answer: &serde_json::Value| answer["Id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    let bind = format!("{0}:{0}", project.path());
    let body = json!({"Image": IMAGE, "Cmd": ["sleep", "600"], "Labels": {LABEL: "bare"}, "WorkingDir": project.path(),
        "HostConfig": {"Binds": [bind], "AutoRemove": true}});
    let container = id(&ask(&socket, "POST", "/containers/create", Some(&body)));
    ask(&socket, "POST", &format!("/containers/{container}/start"), None);
    let body = json!({"Cmd": ["true"], "AttachStdout": true, "AttachStderr": true});
    let exec = id(&ask(&socket, "POST", &format!("/containers/{container}/exec"), Some(&body)));
    ask(&socket, "POST", &format!("/exec/{exec}/start"), Some(&json!({"Detach": false, "Tty": false})));
    container
}

/// Removes it.
pub fn remove(container: &str) {
    ask(&docker_socket(), "DELETE", &format!("/containers/{container}?force=true&v=true"), None);
}
