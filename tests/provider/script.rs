//! What the provider says: a script is a list of steps, one for each time it is asked.

use serde_json::{Value, json};
use std::time::Duration;

/// A tool call, in words of this module; written out in the shape of claude's own tools.
#[derive(Debug, Clone)]
pub enum Call {
    /// A command for the Bash tool.
    Bash {
        /// The command.
        command: String,
        /// Whether it is to go on in the background.
        background: bool,
    },
    /// A file to read; a relative path is of the session's directory.
    Read {
        /// The file.
        path: String,
    },
    /// A file to write.
    Write {
        /// The file.
        path: String,
        /// What is in it then.
        content: String,
    },
    /// A text to replace, once.
    Edit {
        /// The file.
        path: String,
        /// The text that is there.
        old: String,
        /// The text in its place.
        new: String,
    },
    /// Any tool, as it is.
    Raw {
        /// The tool's name.
        name: String,
        /// Its input.
        input: Value,
    },
}

impl Call {
    /// The tool's name and its input, for a session in `cwd`.
    pub fn written_out(&self, cwd: &str) -> (String, Value) {
        let absolute = |path: &str| match path.starts_with('/') || cwd.is_empty() {
            true => path.to_owned(),
            false => format!("{}/{path}", cwd.trim_end_matches('/')),
        };
        let (name, input) = match self {
            Self::Bash { command, background: false } => ("Bash", json!({"command": command, "description": "scripted command"})),
            Self::Bash { command, background: true } => {
                ("Bash", json!({"command": command, "description": "scripted command", "run_in_background": true}))
            }
            Self::Read { path } => ("Read", json!({"file_path": absolute(path)})),
            Self::Write { path, content } => ("Write", json!({"file_path": absolute(path), "content": content})),
            Self::Edit { path, old, new } => ("Edit", json!({"file_path": absolute(path), "old_string": old, "new_string": new})),
            Self::Raw { name, input } => (name.as_str(), input.clone()),
        };
        (name.to_owned(), input)
    }
}

/// A command for the Bash tool.
pub fn bash(command: impl Into<String>) -> Call {
    Call::Bash { command: command.into(), background: false }
}

/// A command that is to go on in the background.
pub fn background(command: impl Into<String>) -> Call {
    Call::Bash { command: command.into(), background: true }
}

/// A file to read.
pub fn read(path: impl Into<String>) -> Call {
    Call::Read { path: path.into() }
}

/// A file to write.
pub fn write(path: impl Into<String>, content: impl Into<String>) -> Call {
    Call::Write { path: path.into(), content: content.into() }
}

/// A text to replace.
pub fn edit(path: impl Into<String>, old: impl Into<String>, new: impl Into<String>) -> Call {
    Call::Edit { path: path.into(), old: old.into(), new: new.into() }
}

/// What one answer says it used.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Tokens of input that were not cached.
    pub input: u64,
    /// Tokens of output.
    pub output: u64,
    /// Tokens read from the cache.
    pub cache_read: u64,
    /// Tokens written to the cache.
    pub cache_write: u64,
}

impl Default for Usage {
    fn default() -> Self {
        Self { input: 1000, output: 50, cache_read: 200, cache_write: 0 }
    }
}

/// What a step does once its waiting is over.
#[derive(Debug, Clone)]
pub enum Action {
    /// Text, tool calls, or both; with no call the turn ends.
    Answer {
        /// The text, when there is one.
        text: Option<String>,
        /// The calls, all in one message.
        calls: Vec<Call>,
    },
    /// An HTTP error.
    Error {
        /// The status.
        status: u16,
        /// Headers beside it, such as `retry-after`.
        headers: Vec<(String, String)>,
    },
    /// The answer begins, and then only pings come until the client goes away.
    Stall,
}

/// One answer.
#[derive(Debug, Clone)]
pub struct Step {
    /// What it does.
    pub action: Action,
    /// How long it waits before.
    pub delay: Option<Duration>,
    /// The gate it waits for before; the test opens it.
    pub gate: Option<String>,
    /// Whether the connection is cut before the message is whole.
    pub cut: bool,
    /// What it says it used.
    pub usage: Usage,
    /// After so many tries of this step, the other one is played instead.
    pub then: Option<(u32, Box<Step>)>,
}

impl Step {
    fn of(action: Action) -> Self {
        Self { action, delay: None, gate: None, cut: false, usage: Usage::default(), then: None }
    }

    /// A text that ends the turn.
    pub fn say(text: impl Into<String>) -> Self {
        Self::of(Action::Answer { text: Some(text.into()), calls: Vec::new() })
    }

    /// One tool call.
    pub fn call(call: Call) -> Self {
        Self::calls([call])
    }

    /// Several tool calls in one message.
    pub fn calls(calls: impl IntoIterator<Item = Call>) -> Self {
        Self::of(Action::Answer { text: None, calls: calls.into_iter().collect() })
    }

    /// An HTTP error, every time it is asked; with [`Step::times`] only so often.
    pub fn error(status: u16) -> Self {
        Self::of(Action::Error { status, headers: Vec::new() })
    }

    /// An answer that begins and never goes on.
    pub fn stall() -> Self {
        Self::of(Action::Stall)
    }

    /// The text said before the calls.
    #[must_use]
    pub fn saying(mut self, said: impl Into<String>) -> Self {
        if let Action::Answer { text, .. } = &mut self.action {
            *text = Some(said.into());
        }
        self
    }

    /// A header beside an error.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Action::Error { headers, .. } = &mut self.action {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// The connection is cut in the middle of the answer.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.cut = true;
        self
    }

    /// It waits so long before it answers.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// It answers once the test has opened the gate of that name.
    #[must_use]
    pub fn gated(mut self, gate: impl Into<String>) -> Self {
        self.gate = Some(gate.into());
        self
    }

    /// What it says it used.
    #[must_use]
    pub fn using(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// It is played for the first `times` tries of one session only; afterwards `then` is.
    #[must_use]
    pub fn times(mut self, times: u32, then: Step) -> Self {
        self.then = Some((times, Box::new(then)));
        self
    }
}
