//! Running a program with nothing of this process's environment, with its output kept and with a deadline.

use super::{LIMIT, eventually};
use rustix::process::{Pid, Signal};
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// No more than this is kept of each output.
const KEPT: usize = 64 << 20;

/// A program about to be run.
#[derive(Debug, Clone)]
pub struct Invocation {
    words: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    stdin: Option<Vec<u8>>,
    limit: Duration,
}

impl Invocation {
    /// That program, in `/`, with no variable and an empty standard input.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self { words: vec![program.as_ref().to_owned()], env: Vec::new(), cwd: "/".into(), stdin: None, limit: LIMIT }
    }

    /// One more word.
    #[must_use]
    pub fn arg(mut self, word: impl AsRef<OsStr>) -> Self {
        self.words.push(word.as_ref().to_owned());
        self
    }

    /// More words.
    #[must_use]
    pub fn args<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.words.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// A variable; one said again replaces the earlier.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.retain(|(said, _)| said != name.as_ref());
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Several variables.
    #[must_use]
    pub fn envs<N: AsRef<OsStr>, V: AsRef<OsStr>>(self, variables: impl IntoIterator<Item = (N, V)>) -> Self {
        variables.into_iter().fold(self, |this, (name, value)| this.env(name, value))
    }

    /// The directory it starts in.
    #[must_use]
    pub fn cwd(mut self, dir: impl AsRef<Path>) -> Self {
        self.cwd = dir.as_ref().to_owned();
        self
    }

    /// What it reads.
    #[must_use]
    pub fn stdin(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(text.into());
        self
    }

    /// Its deadline, when [`LIMIT`] does not fit.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The same run by another program, such as `setpriv`: `words` go before its own.
    #[must_use]
    pub fn through<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.words.splice(0..0, words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// The command line, for messages.
    pub fn line(&self) -> String {
        self.words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    /// The command it is, for who starts it in another way.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).env_clear().envs(self.env.iter().cloned()).current_dir(&self.cwd);
        command
    }

    /// Its deadline.
    pub fn deadline(&self) -> Duration {
        self.limit
    }

    /// Starts it.
    pub fn start(self) -> Running {
        let mut child = self
            .command()
            .stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start `{}`: {e}", self.line()));
        if let (Some(mut pipe), Some(text)) = (child.stdin.take(), self.stdin.clone()) {
            // a program that does not read all of it closes the pipe, which is its own affair
            std::thread::spawn(move || pipe.write_all(&text));
        }
        let stdout = Capture::of(child.stdout.take().expect("its stdout is piped"));
        let stderr = Capture::of(child.stderr.take().expect("its stderr is piped"));
        Running { line: self.line(), limit: self.limit, child, stdout, stderr }
    }

    /// Runs it to its end.
    pub fn run(self) -> Finished {
        self.start().wait()
    }
}

/// Output as it comes.
#[derive(Debug, Clone)]
pub(super) struct Capture(Arc<Mutex<(Vec<u8>, bool)>>);

impl Capture {
    pub(super) fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let capture = Self(Arc::default());
        let kept = capture.0.clone();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(read @ 1..) = pipe.read(&mut buffer) {
                let kept = &mut kept.lock().unwrap().0;
                let room = KEPT - kept.len().min(KEPT);
                kept.extend_from_slice(&buffer[..read.min(room)]);
            }
            kept.lock().unwrap().1 = true;
        });
        capture
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().0.clone()
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap().0).into_owned()
    }

    pub(super) fn is_whole(&self) -> bool {
        self.0.lock().unwrap().1
    }
}

/// A program that runs. Dropped, it is killed.
#[derive(Debug)]
pub struct Running {
    line: String,
    limit: Duration,
    child: Child,
    stdout: Capture,
    stderr: Capture,
}

impl Running {
    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        // it has not been waited for, so the pid is still its own
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap_or_else(|e| panic!("signal {signal:?} to `{}`: {e}", self.line));
    }

    /// What it wrote to stdout so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What it wrote to stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until `text` is on its stdout or stderr.
    pub fn wait_for(&mut self, text: &str) {
        let what = format!("`{text}` from `{}`", self.line);
        let limit = self.limit;
        eventually(&what, limit, || {
            if self.stdout().contains(text) || self.stderr().contains(text) {
                return Some(());
            }
            let ended = self.child.try_wait().expect("look at a child");
            let whole = self.stdout.is_whole() && self.stderr.is_whole();
            assert!(ended.is_none() || !whole, "{what} did not come before its end\n{}", self.outputs());
            None
        });
    }

    fn outputs(&self) -> String {
        format!("--- stdout\n{}\n--- stderr\n{}", self.stdout(), self.stderr())
    }

    /// Waits for its end and for the end of its output: who holds its stdout after it is a leak.
    pub fn wait(mut self) -> Finished {
        let line = self.line.clone();
        let (stdout, stderr) = (self.stdout.clone(), self.stderr.clone());
        let shown = || format!("\n--- stdout\n{}\n--- stderr\n{}", stdout.text(), stderr.text());
        let status = {
            let what = format!("the end of `{line}`");
            let end = std::time::Instant::now() + self.limit;
            loop {
                if let Some(status) = self.child.try_wait().expect("look at a child") {
                    break status;
                }
                assert!(std::time::Instant::now() < end, "not within {:?}: {what}{}", self.limit, shown());
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        eventually(&format!("the end of the output of `{line}`, which has ended itself"), self.limit, || {
            (stdout.is_whole() && stderr.is_whole()).then_some(())
        });
        Finished { line, status, stdout: stdout.bytes(), stderr: stderr.bytes() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a program ended.
#[derive(Debug)]
pub struct Finished {
    line: String,
    /// Its status.
    pub status: ExitStatus,
    /// All it wrote to stdout.
    pub stdout: Vec<u8>,
    /// All it wrote to stderr.
    pub stderr: Vec<u8>,
}

impl Finished {
    /// Its stdout as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Its stderr as text.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Its exit status as a shell has it: 128+n for a signal.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or_default())
    }

    /// Sees that it ended so.
    #[track_caller]
    #[must_use]
    pub fn expect_code(self, code: i32) -> Self {
        assert!(self.code() == code, "`{}` ended with {}, not {code}\n{self}", self.line, self.code());
        self
    }

    /// Sees that it ended well.
    #[track_caller]
    #[must_use]
    pub fn ok(self) -> Self {
        self.expect_code(0)
    }

    /// Sees that stdout or stderr has `text`.
    #[track_caller]
    #[must_use]
    pub fn says(self, text: &str) -> Self {
        assert!(self.out().contains(text) || self.err().contains(text), "`{}` does not say `{text}`\n{self}", self.line);
        self
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "--- stdout\n{}\n--- stderr\n{}", self.out(), self.err())
    }
}
