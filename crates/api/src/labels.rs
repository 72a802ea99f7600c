//! Labels on a box. They are a contract: the first group is what the Python implementation writes too, so that both
//! count each other's shares; `humanize.pid` is never written, because it makes the other side remove our boxes.

/// The uid of the user the box belongs to; what the user's clean-up recipe filters by.
pub const UID: &str = "humanize";
/// The runtime's name, or `local` with nothing saved.
pub const PROVIDER: &str = "humanize.provider";
/// What the box's name begins with, when the runtime says so itself.
pub const PREFIX: &str = "hmz.prefix";
/// The environment role (or the environment's name).
pub const ROLE: &str = "humanize.role";
/// The host that asked for the box.
pub const HOST: &str = "humanize.host";
/// CPUs of the share, as `%g` prints them; absent when none was asked.
pub const CPUS: &str = "humanize.cpus";
/// Bytes of memory of the share; absent when none was asked.
pub const MEMORY: &str = "humanize.memory";
/// GPU ids of the share, comma-separated, or `all`; absent when none was asked.
pub const GPUS: &str = "humanize.gpus";

/// The random id of the HMZ_HOME that made the box.
pub const INSTANCE: &str = "hmz.instance";
/// The environment's `metadata.uid`.
pub const ENV_UID: &str = "hmz.uid";
/// The incarnation: how many boxes the environment has had, this one included.
pub const INCARNATION: &str = "hmz.incarnation";
/// The run's `metadata.uid`; absent for a standalone environment.
pub const RUN: &str = "hmz.run";
/// What the container is for: `box`, `hold`, `lock` or `probe`.
pub const PURPOSE: &str = "hmz.purpose";
