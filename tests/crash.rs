//! Any process of ours may die at any moment, and so may what it talks to: what was begun goes on or ends cleanly, and
//! nothing is left. A real docker daemon, the built-in `script` agent.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

#[path = "crash/daemon.rs"]
mod daemon;
#[path = "crash/dockerd.rs"]
mod dockerd;
#[path = "crash/exec.rs"]
mod exec;
#[path = "crash/failpoints.rs"]
mod failpoints;
#[path = "crash/homes.rs"]
mod homes;
#[path = "crash/lost_box.rs"]
mod lost_box;
#[path = "crash/own_dockerd.rs"]
mod own_dockerd;
#[path = "crash/processes.rs"]
mod processes;
#[path = "crash/scene.rs"]
mod scene;
