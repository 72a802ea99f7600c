//! The process that plays a list of steps. It blocks, has no async runtime and needs neither HOME nor the network.

use crate::protocol::{Ask, Say};
use crate::steps::{Step, Steps};
use crate::text::{cut, first_line};
use hmz_api::journal::Event;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, ErrorKind, Read as _, Seek as _, SeekFrom, StdinLock, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How much of a command's output or of a file is told, in bytes.
const LONGEST: usize = 4 << 10;

/// Longest line, in bytes.
const LONGEST_LINE: u64 = 16 << 20;

/// How often a path that is waited for is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// What the one thread that plays hears.
enum Heard {
    Prompt(String),
    Interrupt,
    /// The session has ended.
    Over,
    /// The command has ended and waits to be reaped.
    Exited,
}

/// Why a turn ends before its last step.
enum Stop {
    Interrupted,
    Over,
    Failed(String),
}

impl From<std::io::Error> for Stop {
    fn from(e: std::io::Error) -> Self {
        Self::Failed(e.to_string())
    }
}

/// Plays the steps it is told first on its standard input, for the prompts that follow there.
pub fn main(_: impl Iterator<Item = OsString>) -> ExitCode {
    let mut stdin = std::io::stdin().lock();
    let begin = match heard(&mut stdin) {
        Ok(Some(line)) => serde_json::from_str(&line),
        // nobody asked anything
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("script-agent: {error}");
            return ExitCode::FAILURE;
        }
    };
    let Ok(Ask::Begin { steps, before }) = begin else {
        eprintln!("script-agent: expected steps first");
        return ExitCode::from(2);
    };
    drop(stdin);
    let (tell, heard) = channel();
    let asked = tell.clone();
    std::thread::spawn(move || listen(&asked));
    match (Player { tell, heard, said: String::new(), outputs: 0 }).play(&steps, before) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("script-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The next line; `None` at the end.
fn heard(stdin: &mut StdinLock<'_>) -> std::io::Result<Option<String>> {
    let mut line = String::new();
    let read = stdin.by_ref().take(LONGEST_LINE).read_line(&mut line)?;
    Ok((read > 0).then_some(line))
}

fn listen(tell: &Sender<Heard>) {
    let mut stdin = std::io::stdin().lock();
    loop {
        let heard = match heard(&mut stdin) {
            Ok(Some(line)) => match serde_json::from_str(&line) {
                Ok(Ask::Prompt { text }) => Heard::Prompt(text),
                Ok(Ask::Interrupt) => Heard::Interrupt,
                Ok(Ask::Begin { .. }) | Err(_) => continue,
            },
            _ => Heard::Over,
        };
        let over = matches!(heard, Heard::Over);
        if tell.send(heard).is_err() || over {
            return;
        }
    }
}

struct Player {
    tell: Sender<Heard>,
    heard: Receiver<Heard>,
    /// What the turn said last.
    said: String,
    /// Numbers the files of commands' outputs.
    outputs: u32,
}

impl Player {
    fn play(mut self, steps: &Steps, before: usize) -> std::io::Result<()> {
        let mut turn = before;
        while let Ok(heard) = self.heard.recv() {
            let prompt = match heard {
                Heard::Prompt(prompt) => prompt,
                Heard::Over => return Ok(()),
                // of a turn that has ended
                Heard::Interrupt | Heard::Exited => continue,
            };
            self.said.clear();
            let ended = match steps.of_turn(turn) {
                Some(steps) => steps.iter().try_for_each(|step| self.step(step, &prompt)),
                None => Err(Stop::Failed(format!("the script has no turn {}", turn + 1))),
            };
            turn += 1;
            say(&match ended {
                Ok(()) => Say::Answered { text: std::mem::take(&mut self.said) },
                Err(Stop::Failed(text)) => Say::Failed { text },
                Err(Stop::Interrupted) => Say::Interrupted,
                Err(Stop::Over) => return Ok(()),
            })?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step, prompt: &str) -> Result<(), Stop> {
        let fill = |text: &str| text.replace("{{ prompt }}", prompt).replace("{{prompt}}", prompt);
        match step {
            Step::Say(text) => {
                self.said = fill(text);
                tell(Event::Text { text: self.said.clone() })?;
            }
            Step::Run { command, expect_status } => {
                let command = fill(command);
                tool("Bash", &command)?;
                let (status, output) = self.run(&command)?;
                result(status != 0, &output)?;
                if let Some(wanted) = expect_status.filter(|wanted| *wanted != status) {
                    return Err(Stop::Failed(format!("'{command}' ended with {status} and not with {wanted}")));
                }
            }
            Step::Write { path, content } => {
                tool("Write", &absolute(path))?;
                let written = std::fs::write(path, fill(content));
                answered(path, written.map(|()| String::new()))?;
            }
            Step::Edit { path, old, new } => {
                tool("Edit", &absolute(path))?;
                answered(path, edit(path, old, &fill(new)).map(|()| String::new()))?;
            }
            Step::Read(path) => {
                tool("Read", &absolute(path))?;
                answered(path, File::open(path).and_then(|mut file| beginning(&mut file)))?;
            }
            Step::WaitFor(path) => {
                while !Path::new(path).exists() {
                    self.rest(LOOK)?;
                }
            }
            Step::Sleep(span) => self.rest(span.duration())?,
            Step::Fail(text) => return Err(Stop::Failed(fill(text))),
        }
        Ok(())
    }

    /// Does nothing for a while, unless something is said.
    fn rest(&mut self, span: Duration) -> Result<(), Stop> {
        let until = Instant::now() + span;
        loop {
            match self.heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) | Ok(Heard::Over) => return Err(Stop::Over),
                Ok(Heard::Interrupt) => return Err(Stop::Interrupted),
                Ok(Heard::Prompt(_) | Heard::Exited) => {}
            }
        }
    }

    /// A file for a command's output, as a CLI's own shell tool has it: a child that keeps it open keeps nobody waiting.
    fn output(&mut self) -> std::io::Result<(PathBuf, File)> {
        loop {
            self.outputs += 1;
            let path = std::env::temp_dir().join(format!("script-{}-{}.output", std::process::id(), self.outputs));
            match OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&path) {
                // somebody else's
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                made => return Ok((path, made?)),
            }
        }
    }

    /// Runs a command; its status and the beginning of its output.
    fn run(&mut self, command: &str) -> Result<(i32, String), Stop> {
        let (path, mut output) = self.output()?;
        let spawned = Command::new("/bin/sh")
            .args(["-c", command])
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .process_group(0)
            .spawn();
        let _ = std::fs::remove_file(&path);
        let mut child = spawned?;
        let pid = Pid::from_raw(child.id().cast_signed()).ok_or_else(|| Stop::Failed("a command without a pid".into()))?;
        let tell = self.tell.clone();
        std::thread::spawn(move || {
            // not reaped here, so that the pid stays the command's own until it has been signalled for the last time
            while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {}
            let _ = tell.send(Heard::Exited);
        });
        let mut stop = None;
        loop {
            match self.heard.recv() {
                Ok(Heard::Exited) => break,
                Ok(Heard::Prompt(_)) => {}
                Ok(Heard::Interrupt) => stop = Some(Stop::Interrupted),
                Ok(Heard::Over) | Err(_) => stop = Some(Stop::Over),
            }
            if stop.is_some() {
                // its exit is heard next
                let _ = kill_process_group(pid, Signal::KILL);
            }
        }
        let status = child.wait()?;
        if let Some(stop) = stop {
            return Err(stop);
        }
        output.seek(SeekFrom::Start(0))?;
        Ok((status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(-1), beginning(&mut output)?))
    }
}

fn say(message: &Say) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

fn tell(event: Event) -> std::io::Result<()> {
    say(&Say::Event { event })
}

fn tool(name: &str, about: &str) -> std::io::Result<()> {
    tell(Event::Tool { name: name.to_owned(), about: first_line(about) })
}

fn result(is_error: bool, text: &str) -> std::io::Result<()> {
    tell(Event::ToolResult { is_error, text: text.to_owned() })
}

/// Tells what became of a file; an error fails the turn.
fn answered(path: &str, done: std::io::Result<String>) -> Result<(), Stop> {
    match done {
        Ok(text) => Ok(result(false, &text)?),
        Err(e) => {
            let text = format!("{path}: {e}");
            result(true, &text)?;
            Err(Stop::Failed(text))
        }
    }
}

fn edit(path: &str, old: &str, new: &str) -> std::io::Result<()> {
    let text = std::fs::read_to_string(path)?;
    match text.matches(old).count() {
        1 => std::fs::write(path, text.replacen(old, new, 1)),
        n => Err(std::io::Error::other(format!("'{old}' is there {n} times and not once"))),
    }
}

fn beginning(file: &mut File) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.take(LONGEST as u64 + 4).read_to_end(&mut bytes)?;
    Ok(cut(&String::from_utf8_lossy(&bytes), LONGEST))
}

/// The path as people expect to read it.
fn absolute(path: &str) -> String {
    std::env::current_dir().map(|dir| dir.join(path)).unwrap_or_else(|_| path.into()).to_string_lossy().into_owned()
}
