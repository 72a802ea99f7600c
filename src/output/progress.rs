//! Long work while it goes on: one line that spins on a terminal, a line now and then elsewhere.

use super::clean::{cut, one_line};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write;
use std::time::{Duration, Instant};

/// How often the same stage says how far it is when there is no terminal.
const AGAIN: Duration = Duration::from_secs(30);
/// Frames a second on a terminal.
const FRAMES: u8 = 10;

/// Which lines a log gets of something that changes all the time.
#[derive(Debug, Clone, Default)]
pub struct Sparse {
    stage: String,
    said: Duration,
}

impl Sparse {
    /// The line to write `now` (since any fixed moment), if any: when the stage is another one, or was last said long ago.
    pub fn line(&mut self, stage: &str, detail: &str, now: Duration) -> Option<String> {
        if self.stage == stage && now.saturating_sub(self.said) < AGAIN {
            return None;
        }
        self.stage = stage.to_owned();
        self.said = now;
        Some(joined(stage, detail))
    }
}

fn joined(stage: &str, detail: &str) -> String {
    let text = if detail.is_empty() { stage.to_owned() } else { format!("{stage} · {detail}") };
    one_line(&text)
}

/// Progress on stderr. Dropping it clears its line.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    sparse: Sparse,
    begun: Instant,
}

impl Progress {
    /// On a terminal a spinner, else lines now and then.
    pub fn new(is_terminal: bool) -> Self {
        let bar = is_terminal.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(FRAMES));
            if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(1000 / u64::from(FRAMES)));
            bar
        });
        Self { bar, sparse: Sparse::default(), begun: Instant::now() }
    }

    /// What is being done, such as `pulling python:3.12-slim`, and how far it is, such as `12 of 40 MB`.
    pub fn update(&mut self, stage: &str, detail: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(cut(&joined(stage, detail), 500)),
            None => {
                if let Some(line) = self.sparse.line(stage, detail, self.begun.elapsed()) {
                    // nobody to tell when stderr is gone
                    let _ = writeln!(std::io::stderr(), "{line}");
                }
            }
        }
    }

    /// A text of a spinner that says nothing of its own elsewhere, such as who is working.
    pub fn spin(&mut self, text: Option<&str>) {
        if let Some(bar) = &self.bar {
            bar.set_message(one_line(text.unwrap_or_default()));
        }
    }

    /// Does something that writes to the terminal, with the spinner out of its way.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Ends it and clears its line.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_gets_a_line_a_stage() {
        let mut sparse = Sparse::default();
        let at = Duration::from_secs;
        assert_eq!(sparse.line("pulling busybox", "1 of 4 MB", at(0)).as_deref(), Some("pulling busybox · 1 of 4 MB"));
        assert_eq!(sparse.line("pulling busybox", "2 of 4 MB", at(1)), None);
        assert_eq!(sparse.line("pulling busybox", "3 of 4 MB", at(30)).as_deref(), Some("pulling busybox · 3 of 4 MB"));
        assert_eq!(sparse.line("starting\x1b[2J", "", at(31)).as_deref(), Some("starting␛[2J"));
        assert_eq!(sparse.line("starting\x1b[2J", "", at(32)), None);
    }
}
