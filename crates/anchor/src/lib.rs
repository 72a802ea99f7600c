//! The supervisor: runs an unmodified agent CLI here while every command it starts lands in a box.

mod config;

pub use config::{CliFence, ExecPolicy, SupervisorConfig};
