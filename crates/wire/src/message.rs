//! The messages. Texts that the kernel takes as bytes (paths, argv, environment) are bytes here too.

use serde::{Deserialize, Serialize};

/// The protocol's version; both ends must have the same.
pub const VERSION: u32 = 3;

/// Bytes of a path, an argument or a variable.
pub type Bytes = serde_bytes::ByteBuf;

/// What a session's commands may write in the box (Landlock). Everything may be read and executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// Directories writable with all below them; one that does not exist is left out.
    pub write: Vec<Bytes>,
    /// Whether it is an error when the box's kernel cannot hold the fence.
    pub required: bool,
}

/// From the supervisor (or whoever works in the box) to the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGuest {
    /// The first message. Anything else first ends the connection.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// Whether this connection keeps a leased box alive.
        owner: bool,
        /// What the commands of this connection may write; `None`: what the user of the box may.
        fence: Option<Fence>,
    },
    /// Start a command; the frame carries its descriptors in the order of [`Spawn::fds`].
    Spawn(Spawn),
    /// The same for a stand-in, whose socket the frame carries behind the command's descriptors: the guest tells it the end
    /// itself, in the stand-in's own words.
    SpawnFor(Spawn),
    /// Signal a command: its whole process group.
    Signal {
        /// Which command.
        id: u64,
        /// The signal's number.
        signal: i32,
    },
    /// Whoever waited for the command is gone: kill its session.
    Close {
        /// Which command.
        id: u64,
    },
    /// Answer [`FromGuest::Pong`].
    Ping(u64),
    /// Make a terminal in the box; the answers come in the order of the asking.
    OpenTerminal,
    /// Tell of each command from now on how long it ran ([`FromGuest::Ran`]). An older guest ends the connection: it is said only
    /// where somebody hears it.
    Measure,
}

/// A command to start. It leads a session of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawn {
    /// Chosen by the sender, never used twice on a connection.
    pub id: u64,
    /// A path, or a name without a slash to be found on the box's PATH.
    pub program: Bytes,
    /// Whether a path that is not there may be found by its last component on the box's PATH.
    pub by_name: bool,
    /// The arguments, the first one included.
    pub argv: Vec<Bytes>,
    /// Variables set on top of the box's own.
    pub env: Vec<(Bytes, Bytes)>,
    /// The directory it starts in.
    pub cwd: Bytes,
    /// Its umask.
    pub umask: u32,
    /// Signals blocked in it: bit n-1 is signal n.
    pub blocked: u64,
    /// Signals ignored in it: bit n-1 is signal n.
    pub ignored: u64,
    /// The number each descriptor of the frame gets in the command.
    pub fds: Vec<i32>,
    /// The number of the descriptor that becomes its controlling terminal.
    pub ctty: Option<i32>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// It exited with this status (0 to 255).
    Exited(i32),
    /// It died of this signal.
    Signaled(i32),
}

/// What the guest says of itself and of the box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`VERSION`].
    pub version: u32,
    /// The box's host name.
    pub hostname: String,
    /// The user commands run as.
    pub uid: u32,
    /// Their group.
    pub gid: u32,
    /// The kernel's boot id: the same as here in the direct mode.
    pub boot_id: String,
    /// The box's own variables, as commands get them.
    pub env: Vec<(Bytes, Bytes)>,
    /// Names (never paths) of the programs on the box's PATH.
    pub programs: Vec<String>,
    /// Whether the session's fence holds: `full`, `partial`, `none`.
    pub fence: String,
}

/// From the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromGuest {
    /// The answer to a `Hello`.
    Welcome(Box<Welcome>),
    /// The `Hello` was refused; the connection ends.
    Refused(String),
    /// The command was started: its exec succeeded.
    Started {
        /// Which.
        id: u64,
    },
    /// It could not be started.
    SpawnFailed {
        /// Which.
        id: u64,
        /// The errno of the step that failed.
        errno: i32,
    },
    /// It ended. Said at once, though a child of it holds its stdout.
    Exited {
        /// Which.
        id: u64,
        /// How.
        status: Status,
        /// Whether processes of its group or session live on; then [`FromGuest::Empty`] follows when the last has ended.
        alive: bool,
    },
    /// The same of one whose stand-in has been told it by the guest.
    Told {
        /// Which.
        id: u64,
        /// As of [`FromGuest::Exited`].
        alive: bool,
    },
    /// The last process of an ended command's session has ended.
    Empty {
        /// Which.
        id: u64,
    },
    /// The programs on the box's PATH changed.
    Programs(Vec<String>),
    /// The answer to a `Ping`.
    Pong(u64),
    /// A terminal in the box: the frame carries the side to be held here and the side a command gets.
    Terminal,
    /// None could be made, for this errno.
    NoTerminal(i32),
    /// A command has ended, which is told next: how long it ran. Said where [`ToGuest::Measure`] was.
    Ran {
        /// Which.
        id: u64,
        /// How.
        status: Status,
        /// Nanoseconds from its start to its end.
        nanos: u64,
    },
}
