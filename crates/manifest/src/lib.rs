//! Manifests and settings: YAML in and out, with the place of every fault.
//!
//! - [`read`] turns the text of a manifest into resources, or into every fault it found: origin, line, column, a
//!   snippet and a suggestion. Nothing is guessed, nothing unknown is let through, and what it returns holds absolute
//!   paths only.
//! - [`read_paths`] does the same for what `-f` names: files, directories, standard input.
//! - [`to_yaml`] writes a resource that reads back equal.
//! - [`settings`] reads, watches and changes `settings.yaml`, where one bad entry never hides another.
//! - [`template`] judges the texts of a flow without running it.
//! - [`schema`] generates the JSON Schemas in `schemas/`.
#![forbid(unsafe_code)]

mod across;
mod broken;
mod check;
mod de;
mod document;
mod emit;
mod folder;
mod odd;
mod paths;
mod place;
mod report;
pub mod schema;
pub mod settings;
mod suggest;
pub mod template;
mod tree;
mod written;

pub use across::Across;
pub use document::{Declared, read, read_declared};
pub use emit::{to_yaml, to_yaml_all, value_to_yaml};
pub use folder::watch_folders;
pub use paths::{Depth, manifests_of, read_manifest, read_paths, read_paths_declared};
pub use place::Context;
pub use report::{Report, into_error, without_snippets};
pub use suggest::nearest;
