//! Finding the daemon, starting it when it is missing, and being it.

use crate::edge;
use hmz_api::Error;
use hmz_server::restore::Alone;
use hmz_server::{Paths, ProcessId};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;

/// Variables a daemon in the background keeps of whoever started it. What a run needs comes with the run.
const KEPT: [&str; 16] = [
    "HOME",
    "USER",
    "LOGNAME",
    "PATH",
    "HMZ_HOME",
    "HMZ_LOG",
    "HMZ_IDLE",
    "HMZ_LOG_FORMAT",
    "HMZ_METRICS",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "XDG_RUNTIME_DIR",
    "DOCKER_CONFIG",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "SSH_AUTH_SOCK",
];

/// What the kernel adds to the name of a program that is not there any more.
const DELETED: &[u8] = b" (deleted)";

/// Less room than this, in bytes, is none: a line of the log and a page of the store.
const ROOM: u64 = 1 << 14;

/// How often, and how long apart, a socket is tried that another process is about to open.
const TRIES: u32 = 250;
const APART: Duration = Duration::from_millis(20);
/// How often it is looked whether a daemon has ended: longer than one takes that has work in hand.
const ENDING: u32 = 900;
/// How often a daemon is started within these tries.
const STARTS: u32 = 10;

/// A connection to the daemon; starts it when nobody answers.
///
/// # Errors
/// When it cannot be started or does not answer.
pub async fn connect(paths: &Paths) -> Result<UnixStream, Error> {
    if let Ok(stream) = UnixStream::connect(paths.socket()).await {
        match outdated(paths, &stream) {
            None => return Ok(stream),
            Some(daemon) => replace(paths, daemon).await,
        }
    }
    // ours says when it listens; one that somebody else started at the same moment may need a little longer, and one that
    // was on its way out when ours found it makes another start needed
    for _ in 0..STARTS {
        if !start(paths).await? {
            continue;
        }
        for _ in 0..TRIES / STARTS {
            if let Ok(stream) = UnixStream::connect(paths.socket()).await {
                return Ok(stream);
            }
            tokio::time::sleep(APART).await;
        }
    }
    Err(Error::failed("the daemon does not answer").hint(format!("its log: {}", paths.log().display())))
}

/// The daemon at the other end, when it is one that a verb started and its program was replaced since: an upgrade. Nothing
/// that runs ends with it. A verb whose own program was replaced is no newer than the daemon, and leaves it.
fn outdated(paths: &Paths, stream: &UnixStream) -> Option<ProcessId> {
    if is_deleted(&std::fs::read_link("/proc/self/exe").ok()?) {
        return None;
    }
    let pid = hmz_wire::peer_of(stream).ok()?.pid;
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let background = was_started_by_a_verb(pid)?;
    // a runner that found no daemon starts one from the copy it runs from, which no upgrade replaces
    let other = exe.starts_with(paths.state.join("guest")) && size(&exe)? != size(Path::new("/proc/self/exe"))?;
    (background && (other || is_deleted(&exe))).then(|| ProcessId::of(pid)).flatten()
}

/// Whether the daemon of that pid is one in the background.
fn was_started_by_a_verb(pid: i32) -> Option<bool> {
    let cmdline = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(cmdline.split(|b| *b == 0).any(|word| word == b"--background"))
}

/// The daemon that answers, when it is one in the background.
async fn in_background(paths: &Paths) -> Option<ProcessId> {
    let pid = hmz_wire::peer_of(&UnixStream::connect(paths.socket()).await.ok()?).ok()?.pid;
    was_started_by_a_verb(pid)?.then(|| ProcessId::of(pid)).flatten()
}

/// Whether the daemon that answers, if one does, is one in the background.
pub async fn is_in_background(paths: &Paths) -> bool {
    UnixStream::connect(paths.socket()).await.is_err() || in_background(paths).await.is_some()
}

/// Ends a daemon in the background, so that one in the foreground takes its place. Nothing that runs ends with it.
pub async fn make_room(paths: &Paths) {
    if let Some(daemon) = in_background(paths).await {
        replace(paths, daemon).await;
    }
}

fn size(file: &Path) -> Option<u64> {
    std::fs::metadata(file).ok().map(|found| found.len())
}

/// Whether the link to a process's program says that the file is not there any more.
fn is_deleted(exe: &Path) -> bool {
    exe.as_os_str().as_bytes().ends_with(DELETED)
}

/// Ends a daemon and waits until its socket is gone, so that the next one can be started.
async fn replace(paths: &Paths, daemon: ProcessId) {
    daemon.signal(Signal::TERM);
    for _ in 0..TRIES {
        if !daemon.is_alive() || UnixStream::connect(paths.socket()).await.is_err() {
            return;
        }
        tokio::time::sleep(APART).await;
    }
}

/// This executable; when it was replaced meanwhile, what is in its place, and when nothing is, itself.
///
/// # Errors
/// When /proc is not there.
pub fn executable() -> Result<PathBuf, Error> {
    let exe = std::env::current_exe().map_err(|e| edge::io("this program's own path", &e))?;
    let Some(place) = exe.as_os_str().as_bytes().strip_suffix(DELETED).map(|p| PathBuf::from(OsStr::from_bytes(p))) else {
        return Ok(exe);
    };
    Ok(if place.is_file() { place } else { PathBuf::from("/proc/self/exe") })
}

/// Starts a daemon in the background and waits until it listens, or has found that another one does; false when somebody
/// killed it before that, which says nothing of the next one.
///
/// # Errors
/// When it cannot be started, or ended by itself.
async fn start(paths: &Paths) -> Result<bool, Error> {
    let failed = |e: std::io::Error| edge::io("could not start the daemon", &e);
    let log = std::fs::File::options().create(true).append(true).open(paths.log()).map_err(failed)?;
    let mut child = tokio::process::Command::new(executable()?)
        .args(["controller", "--background"])
        .env_clear()
        .envs(edge::environment().into_iter().filter(|(name, _)| KEPT.contains(&name.as_str())))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(failed)?;
    let Some(stdout) = child.stdout.take() else { return Err(Error::failed("could not start the daemon")) };
    let mut line = String::new();
    // it writes one line when it listens, or closes the pipe when it ends
    BufReader::new(stdout).read_line(&mut line).await.map_err(failed)?;
    if line.trim() == "listening" || line.trim() == "running" {
        return Ok(true);
    }
    let status = child.wait().await.map_err(failed)?;
    if status.signal().is_some() {
        return Ok(false);
    }
    let said = std::fs::read_to_string(paths.log()).unwrap_or_default();
    if let Some(refused) = refusal(&said).filter(|_| status.code() == Some(2)) {
        return Err(refused);
    }
    let last = match said.lines().last() {
        Some(line) => line.to_owned(),
        // its last words had no room either
        None => full(&paths.log()).unwrap_or_else(|| "it said nothing".into()),
    };
    Err(Error::failed(format!("the daemon ended at once ({status}): {last}")).hint(format!("its log: {}", paths.log().display())))
}

/// The refusal that a log ends with: the daemon's own words are the verb's.
fn refusal(log: &str) -> Option<Error> {
    let (_, last) = log.rsplit_once("hmz controller: error: ")?;
    let mut lines = last.lines();
    let error = Error::refused(lines.next()?);
    Some(lines.filter_map(|line| line.strip_prefix("  hint: ")).fold(error, |error, hint| error.hint(hint)))
}

/// Sees that no daemon is there, by ending one that a verb started, and that none comes for as long as the answer is held. What
/// runs goes on meanwhile.
///
/// # Errors
/// When one runs in the foreground, which is whoever's started it, or does not end.
pub async fn alone(paths: &Paths) -> Result<Alone, Error> {
    for _ in 0..ENDING {
        if let Some(alone) = hmz_server::restore::alone(paths)? {
            return Ok(alone);
        }
        // one that is about to listen, or to end, does not answer
        if let Ok(stream) = UnixStream::connect(paths.socket()).await {
            let pid = hmz_wire::peer_of(&stream).map_err(|e| Error::failed(format!("the daemon: {e}")))?.pid;
            let cmdline = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if !cmdline.is_empty() && !cmdline.split(|b| *b == 0).any(|word| word == b"--background") {
                return Err(Error::refused(format!("a daemon runs in the foreground, as process {pid}; it has to end first"))
                    .hint(format!("kill {pid}  # or end it where it was started; runs go on")));
            }
            if let Some(daemon) = ProcessId::of(pid) {
                daemon.signal(Signal::TERM);
            }
        }
        tokio::time::sleep(APART).await;
    }
    Err(Error::refused("the daemon does not end").hint(format!("its log: {}", paths.log().display())))
}

/// That there is no room where the log is, when there is none.
fn full(log: &Path) -> Option<String> {
    let dir = log.parent()?;
    let room = rustix::fs::statvfs(dir).ok()?;
    (room.f_bavail.saturating_mul(room.f_frsize) < ROOM).then(|| format!("no space left on the device of {}", dir.display()))
}

/// Whether a daemon is there, started if need be. A runner is of the program its run was started with, so it ends none.
async fn wake(paths: &Paths) -> bool {
    UnixStream::connect(paths.socket()).await.is_ok() || connect(paths).await.is_ok()
}

/// `hmz runner`, which the daemon starts. It starts a daemon when it finds none, so that its end is seen.
pub fn runner() -> ExitCode {
    let exe = match executable() {
        Ok(exe) => exe,
        Err(e) => return edge::fail("runner", &e),
    };
    let code = hmz_flows::runner::main(exe);
    if let Ok(paths) = edge::paths() {
        let woken = tokio::runtime::Builder::new_current_thread().enable_all().build().map(|rt| rt.block_on(wake(&paths)));
        if !matches!(woken, Ok(true)) {
            eprintln!("hmz runner: no daemon could be started; the next verb starts one");
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_with_its_hints_as_the_daemon_says_it() {
        let log = "INFO listening\nhmz controller: error: too old\nhmz controller: error: too new\n  hint: use that one\n";
        assert_eq!(refusal(log), Some(Error::refused("too new").hint("use that one")));
        assert_eq!(refusal("INFO listening\n"), None);
    }

    #[test]
    fn a_device_without_room_is_told() {
        // procfs has no blocks at all
        assert_eq!(full(Path::new("/proc/log")), Some("no space left on the device of /proc".into()));
        assert_eq!(full(Path::new("/log")), None);
    }
}
