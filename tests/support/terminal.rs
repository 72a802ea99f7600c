//! A program on a terminal of its own, as a person has it.

use super::command::{Capture, Invocation};
use super::eventually;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::Duration;

/// The terminal, and the program on it. Dropped, the terminal hangs up and the program is killed.
#[derive(Debug)]
pub struct Terminal {
    controller: File,
    child: Child,
    shown: Capture,
    limit: Duration,
    line: String,
}

impl Terminal {
    /// Starts it on a terminal of that size.
    pub fn start(invocation: Invocation, rows: u16, columns: u16) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&controller).and_then(|()| unlockpt(&controller)).expect("the other end of the terminal");
        let name = ptsname(&controller, Vec::new()).expect("its name");
        let end: OwnedFd =
            rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).expect("open it");
        set_size(&controller, rows, columns);
        let (line, limit) = (invocation.line(), invocation.deadline());
        // it becomes the session's leader and the terminal its own
        let mut command = invocation.through(["setsid", "--ctty", "--"]).command();
        let copy = || end.try_clone().expect("one more end of the terminal");
        let child = command.stdin(copy()).stdout(copy()).stderr(end.try_clone().expect("one more end of the terminal")).spawn();
        let child = child.unwrap_or_else(|e| panic!("cannot start `{line}` on a terminal: {e}"));
        let controller = File::from(controller);
        let shown = Capture::of(controller.try_clone().expect("one more controlling end"));
        Self { controller, child, shown, limit, line }
    }

    /// Changes its size; the program is told by SIGWINCH.
    pub fn resize(&self, rows: u16, columns: u16) {
        set_size(&self.controller, rows, columns);
    }

    /// Types; `\x03` is ^C.
    pub fn type_in(&mut self, text: &str) {
        self.controller.write_all(text.as_bytes()).unwrap_or_else(|e| panic!("type to `{}`: {e}", self.line));
    }

    /// All that was shown so far.
    pub fn shown(&self) -> String {
        self.shown.text()
    }

    /// Waits until `text` is shown.
    pub fn wait_for(&mut self, text: &str) {
        let end = std::time::Instant::now() + self.limit;
        while !self.shown().contains(text) {
            // what it wrote last may still be on its way when it has ended
            let over = self.child.try_wait().expect("look at a child").is_some() && self.shown.is_whole();
            let late = std::time::Instant::now() > end;
            assert!(!late && !over || self.shown().contains(text), "`{}` does not show `{text}`\n{}", self.line, self.shown());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for its end and gives its exit status as a shell has it.
    pub fn wait(&mut self) -> i32 {
        let what = format!("the end of `{}` on a terminal", self.line);
        let status = eventually(&what, self.limit, || self.child.try_wait().expect("look at a child"));
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
    }
}

fn set_size(terminal: impl rustix::fd::AsFd, rows: u16, columns: u16) {
    tcsetwinsize(terminal, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).expect("the terminal's size");
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
