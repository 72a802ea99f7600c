//! The daemon: the API over a Unix socket, and everything the controllers need of this machine.
//!
//! It is crash-only: it may be killed at any moment, nothing that runs ends with it, and the next one goes on from the store,
//! the daemons' own lists and the journals.
#![forbid(unsafe_code)]

mod attach;
mod callers;
mod claim;
mod counted;
mod epics;
mod events;
mod files;
mod guarded;
mod guest;
mod idle;
mod instance;
mod leftovers;
mod listen;
mod listing;
mod metrics;
mod orphans;
mod paths;
mod process;
mod removal;
pub mod restore;
mod routes;
mod runners;
mod saved;
mod secret;
mod serve;
mod settings;
mod sync;
mod world;

pub use guest::{GuestProgram, Image};
pub use paths::Paths;
pub use process::ProcessId;
pub use saved::SavedRuntimes;
pub use secret::secret;
pub use serve::{Config, State, serve};
pub use sync::{Folders, Source, SyncConfig};
