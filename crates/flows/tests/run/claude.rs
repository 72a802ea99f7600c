//! Runs with the real claude, supervised, against a scripted provider on loopback.

pub const TESTS: &[crate::Test] = &[];
