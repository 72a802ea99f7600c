//! The way to a box that is only being started: a file appears that says it, or why there is no box.

use crate::ClientError;
use hmz_api::journal::Outcome;
use hmz_api::launch::{BoxAddress, Told};
use hmz_api::link::Link;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a box may take: it may have to wait for its room again, as long as its run does, and one that nobody starts any
/// more has to end somebody's waiting.
pub(crate) const LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// How often the file is looked for where the kernel tells of it, and where it does not.
const TOLD: Duration = Duration::from_secs(1);
const UNTOLD: Duration = Duration::from_millis(20);

/// Waits until `file` says where the box of `role` is; blocks, for `limit` at most.
///
/// # Errors
/// [`ClientError::NotStarted`] when it says why there is none or does not appear, and when it cannot be read.
pub(crate) fn await_box(file: &Path, role: &str, limit: Duration) -> Result<BoxAddress, ClientError> {
    let due = Instant::now() + limit;
    // watched before it is looked for: it may appear in between
    let watch = watch(file);
    loop {
        match std::fs::read(file) {
            Ok(text) => return told(&text, role),
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e.into()),
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let message = format!("the box of '{role}' did not come");
            return Err(ClientError::NotStarted { message, outcome: Outcome::Failed });
        }
        wait(watch.as_ref(), left);
    }
}

/// The box itself: of one that is only being started, what its file says once it is there. Blocks until then.
///
/// # Errors
/// As [`ClientError::NotStarted`] says, or the file cannot be read.
pub fn located(address: &BoxAddress) -> Result<BoxAddress, ClientError> {
    match &address.link {
        Link::Awaited { file, role } => await_box(Path::new(file), role, LIMIT),
        Link::Direct { .. } | Link::Stream(_) => Ok(address.clone()),
    }
}

fn told(text: &[u8], role: &str) -> Result<BoxAddress, ClientError> {
    let told: Told = serde_json::from_slice(text).map_err(std::io::Error::from)?;
    let none = |message: String, outcome| ClientError::NotStarted { message, outcome };
    match told {
        Told::Down { outcome, message } => Err(none(message, outcome)),
        Told::Up(mut boxes) => match boxes.remove(role) {
            // one that is awaited again would never end
            Some(BoxAddress { link: Link::Awaited { .. }, .. }) | None => {
                Err(none(format!("'{role}' has no box"), Outcome::Failed))
            }
            Some(address) => Ok(address),
        },
    }
}

/// Tells of files that appear beside it; `None` where the kernel has no more room for that.
fn watch(file: &Path) -> Option<OwnedFd> {
    let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    inotify::add_watch(&fd, file.parent()?, WatchFlags::CREATE | WatchFlags::MOVED_TO).ok()?;
    Some(fd)
}

/// Until something appeared, or for a while.
fn wait(watch: Option<&OwnedFd>, left: Duration) {
    let span = left.min(if watch.is_some() { TOLD } else { UNTOLD });
    let timeout = Timespec::try_from(span).ok();
    let mut polled: Vec<_> = watch.map(|fd| PollFd::new(fd, PollFlags::IN)).into_iter().collect();
    // an interrupted wait looks once more
    let _ = poll(&mut polled, timeout.as_ref());
    if let Some(fd) = watch {
        // what it tells is taken; the file itself says the rest
        let mut buffer = [0; 4096];
        while matches!(rustix::io::read(fd, &mut buffer), Ok(1..)) {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, clippy::panic, reason = "a test fails by them")]
    use super::*;
    use std::collections::BTreeMap;

    fn address(link: Link) -> BoxAddress {
        let text = |s: &str| s.to_owned();
        BoxAddress { environment: text("e"), used: text("docker@here"), link, workdir: text("/w"), scratch: text("/t") }
    }

    fn say(dir: &Path, told: &Told) {
        let part = dir.join("part");
        std::fs::write(&part, serde_json::to_vec(told).expect("JSON")).expect("a file");
        std::fs::rename(part, dir.join("boxes.json")).expect("a file");
    }

    #[test]
    fn it_is_waited_for_until_it_is_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("boxes.json");
        let waits = std::thread::spawn({
            let file = file.clone();
            move || await_box(&file, "box", Duration::from_secs(60))
        });
        let up = address(Link::Direct { socket: "/s".into(), pid: 7 });
        say(dir.path(), &Told::Up(BTreeMap::from([("box".into(), up.clone())])));
        assert_eq!(waits.join().expect("a thread").expect("an address"), up);
        // one that is there already
        assert_eq!(await_box(&file, "box", Duration::ZERO).expect("an address"), up);
        assert!(matches!(await_box(&file, "other", Duration::ZERO), Err(ClientError::NotStarted { .. })));
    }

    #[test]
    fn why_there_is_none_is_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("boxes.json");
        assert!(matches!(await_box(&file, "box", Duration::ZERO), Err(ClientError::NotStarted { outcome: Outcome::Failed, .. })));
        say(dir.path(), &Told::Down { outcome: Outcome::Refused, message: "no such image".into() });
        match await_box(&file, "box", Duration::ZERO) {
            Err(ClientError::NotStarted { outcome: Outcome::Refused, message }) => assert_eq!(message, "no such image"),
            other => panic!("{other:?}"),
        }
        let again = Link::Awaited { file: file.display().to_string(), role: "box".into() };
        say(dir.path(), &Told::Up(BTreeMap::from([("box".into(), address(again))])));
        assert!(matches!(await_box(&file, "box", Duration::ZERO), Err(ClientError::NotStarted { .. })));
        std::fs::write(&file, "{").expect("a file");
        assert!(matches!(await_box(&file, "box", Duration::ZERO), Err(ClientError::Wire(_))));
    }
}
