//! The kinds: Run, Environment, Runtime, Flow.

mod any;
mod environment;
mod flow;
mod run;
mod runtime;

pub use any::AnyResource;
pub use environment::{
    BoxedAgent, Environment, EnvironmentSpec, EnvironmentStatus, PassedFor, PassedOver, RestartPolicy, Served, Share,
};
pub use flow::{Command, Flow, FlowAgent, FlowEnvironment, FlowParam, FlowSpec, FlowStatus, Step};
pub use run::{Admission, Budget, EnvironmentRequest, RoleStatus, Run, RunParams, RunSpec, RunStatus, SecondBox, WorkPlace};
pub use runtime::{
    DefaultRequest, Endpoint, Harness, Holder, Runtime, RuntimeSource, RuntimeSpec, RuntimeStatus, SshAddress, is_ssh_word,
};

/// Names of conditions; the reasons are beside the controllers that set them.
pub mod condition {
    /// Environment: its share is held and its runtime chosen.
    pub const SCHEDULED: &str = "Scheduled";
    /// Reason of [`SCHEDULED`]: another runtime than the one that was named holds the share; the message says why and which.
    pub const FELL_BACK: &str = "FellBack";
    /// Reason of `Created`: the CLI of an agent cannot run in the box, where the box's runtime says that it does.
    pub const NO_HARNESS: &str = "NoHarness";
    /// Reason of `Created`: the kernel killed the box for memory.
    pub const OUT_OF_MEMORY: &str = "OutOfMemory";
    /// Reason of `Created`: the box was asked to end through its daemon, or because that was stopped itself.
    pub const STOPPED: &str = "Stopped";
    /// Reason of `Created`: somebody killed the box.
    pub const KILLED_BY_HAND: &str = "KilledByHand";
    /// Reason of `Created`: the box's first process ended.
    pub const EXITED: &str = "Exited";
    /// Reason of `Created`: what placed the box took it away from where it was.
    pub const MOVED: &str = "Moved";
    /// Reason of `Created`: somebody removed the box.
    pub const REMOVED_BY_HAND: &str = "RemovedByHand";
    /// Reason of `Created`: the box is gone and nobody knows why.
    pub const UNKNOWN: &str = "Unknown";
    /// Reason of `Created`: the guest in a run's box never answered.
    pub const GUEST_SILENT: &str = "GuestSilent";
    /// Every reason that says that a box ended.
    pub const DEATHS: [&str; 8] = [OUT_OF_MEMORY, STOPPED, KILLED_BY_HAND, EXITED, MOVED, REMOVED_BY_HAND, UNKNOWN, GUEST_SILENT];
    /// Environment: the image is on the daemon.
    pub const IMAGE_READY: &str = "ImageReady";
    /// Environment: the box was created and started.
    pub const CREATED: &str = "Created";
    /// Environment: the guest in the box answers and is who it says.
    pub const GUEST_READY: &str = "GuestReady";
    /// Environment, and what `hmz wait` waits for: usable now.
    pub const READY: &str = "Ready";
    /// Run: it is well formed and nothing refused it.
    pub const ACCEPTED: &str = "Accepted";
    /// Run: each of its environments is ready.
    pub const ENVIRONMENTS_READY: &str = "EnvironmentsReady";
    /// Run: its runner is at work.
    pub const RUNNING: &str = "Running";
    /// Run: it ended; the reason says how.
    pub const COMPLETE: &str = "Complete";
    /// Runtime of settings.yaml: whether its entry can be read; absent while it can. Of settings.yaml itself: whether all of it can.
    pub const SETTINGS_VALID: &str = "SettingsValid";
    /// Runtime of settings.yaml: whether it is still named there; absent while it is. One that is not takes nothing new and goes
    /// when nobody is on it.
    pub const SAVED: &str = "Saved";
    /// Metrics in settings.yaml: whether they are told where it says.
    pub const LISTENING: &str = "Listening";
    /// Runtime: the daemon answers.
    pub const REACHABLE: &str = "Reachable";
    /// Set: its source could be read.
    pub const FETCHED: &str = "Fetched";
    /// Set: what was found last in its source is what is declared.
    pub const SYNCED: &str = "Synced";
    /// Runtime: the daemon has what the runtime is to hand out.
    pub const SUFFICIENT: &str = "Sufficient";
}

/// Annotations that controllers and the server understand.
pub mod annotation {
    /// Run: it was cancelled, at the time (RFC 3339) that is the value. Its controller ends it; one that has ended stays as it is.
    pub const CANCEL: &str = "hmz/cancel";
    /// Run: it belongs to a verb and is cancelled when the verb goes away.
    pub const ATTACHED: &str = "hmz/attached";
    /// Run: the directory its verb was in, where `./.hmz/flows` is. It outlives the daemon that was told.
    pub const CWD: &str = "hmz/cwd";
    /// Run, environment: the trace of whoever declared it, a `traceparent`; what is done for it is logged as of that trace.
    pub const TRACE: &str = "hmz/traceparent";
    /// What its manifest said when it was last applied (labels, annotations, spec), as JSON: what it says no more goes.
    pub const LAST_APPLIED: &str = "hmz/last-applied";
}

/// Labels that the server understands.
pub mod label {
    /// The set it is a member of.
    pub const SET: &str = "hmz/set";
}
