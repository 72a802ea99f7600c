//! The guest behind one stream of bytes: a real `docker exec -i` into a real container which has no directory of ours.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by them")]

mod bulk;
mod commands;
#[path = "../../../../tests/support/container.rs"]
mod container;
mod cuts;
#[path = "../container/harness.rs"]
#[allow(dead_code, reason = "shared with the tests of the direct mode")]
mod harness;
mod ran;
mod trust;
mod world;
