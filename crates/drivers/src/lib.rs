//! Drivers: how a box is made, found and removed on each backend.
//!
//! Controllers know [`Driver`] and nothing below it.
#![forbid(unsafe_code)]

mod allowance;
pub mod docker;
mod driver;
mod error;
mod gpus;
mod labels;
pub mod ssh;
pub mod swarm;
mod types;

pub use allowance::{lacking, silent_gpus};
pub use driver::{BoxEvent, BoxEvents, Driver, Progress, ProgressSink, Scales, ask_for_gpus};
pub use error::DriverError;
pub use gpus::GpuAnswers;
/// The way to a box, which a driver hands to whoever works in it.
pub use hmz_api::link::{Dial, Link, LinkKey, StreamLink};
pub use labels::Labels;
pub use types::{
    Admitted, BoxKey, BoxSpec, BoxState, Ending, Exit, Facts, GuestFiles, ObservedBox, Promised, Purpose, RemoveOutcome,
    Shortage, Started, Target, Want, is_same_box,
};
