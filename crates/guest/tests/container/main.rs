//! The guest in real containers, driven by the client over the real socket.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by them")]

#[path = "../../../../tests/support/container.rs"]
mod container;

mod commands;
mod descriptors;
mod ends;
mod harness;
mod trust;
