//! The controllers: one a kind, each driving what is observed towards what is declared.
//!
//! - Level-driven: a controller looks at what is declared and what is there now. Events only say "look again".
//! - `observe → plan → execute`: `plan` is a pure function; `execute` has no choices left.
//! - Any of this may end at any await and goes on from the store.
//!
//! No backend is named here but as data; daemons are reached through [`hmz_drivers::Driver`].
#![forbid(unsafe_code)]

mod busy;
pub mod core;
pub mod world;

pub use busy::is_busy;
pub use world::{BoxFiles, Callers, Epics, Flows, GuestProbe, RunnerState, Runners, SettingsSnapshot, World};
mod environment {
    pub mod plan {
        use hmz_api::{Resource, kinds::Environment};
        pub fn is_down(_: &Resource<Environment>) -> bool {
            false
        }
        pub fn owner_run(_: &Resource<Environment>) -> Option<()> {
            None
        }
    }
}

/// Annotation of a Run: asks for its end; the value is the time of the asking (RFC 3339), from which the grace counts.
pub const CANCEL: &str = "hmz/cancel";

/// Annotation of a resource that is being deleted: what it left on a daemon that is gone for good is given up. With any value.
pub const ABANDON: &str = "hmz/abandon";

/// Controllers at work. Dropping it ends them at once, which is as safe as a crash.
#[derive(Debug)]
pub struct Running {
    stop: tokio_util::sync::CancellationToken,
    task: core::Spawned,
    requests: Vec<(&'static str, core::Requests)>,
}

/// Starts the controllers on the current tokio runtime.
pub fn start(world: World) -> Running {
    let stop = tokio_util::sync::CancellationToken::new();
    Running { stop, task: core::spawn(async move { drop(world) }), requests: Vec::new() }
}

impl Running {
    /// Asks for a look at a resource now, such as a run whose runner process was seen to end.
    pub fn look_again(&self, kind: &str, name: &str) {
        for (of, requests) in &self.requests {
            if *of == kind {
                requests.ask(name, "asked for");
            }
        }
    }

    /// Ends them in order: nothing new is begun, what is in hand may end for 5 s.
    pub async fn drain(self) {
        self.stop.cancel();
        self.task.await;
    }
}
