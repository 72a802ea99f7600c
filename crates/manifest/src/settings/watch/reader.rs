//! What the file says, and since when.

use super::{Loaded, SETTLE};
use crate::place::Context;
use crate::report::Report;
use crate::settings::file::read_text;
use crate::settings::{is_blank, read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(super) struct Reader {
    path: PathBuf,
    context: Context,
    /// The content that was last seen (a text, nothing, or why there is none), and when it was seen first.
    seen: Option<(Result<Option<String>, Report>, Instant)>,
    loaded: Loaded,
}

impl Reader {
    pub fn new(path: &Path, context: Context) -> Self {
        Self { path: path.to_owned(), context, seen: None, loaded: Loaded::default() }
    }

    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// How long until what was read is settled; `None` when it is.
    pub fn due(&self, now: Instant) -> Option<Duration> {
        let (_, since) = self.seen.as_ref().filter(|_| !self.loaded.settled)?;
        Some(SETTLE.saturating_sub(now.saturating_duration_since(*since)))
    }

    /// Reads the file, and judges it when its content is another. Returns whether there is something to tell.
    pub fn look(&mut self, now: Instant) -> bool {
        let found = read_text(&self.path);
        let since = match &self.seen {
            Some((seen, since)) if *seen == found => *since,
            _ => {
                self.loaded.settled = false;
                let next = self.judge(&found);
                self.seen = Some((found, now));
                let changed = next != self.loaded;
                self.loaded = next;
                return changed;
            }
        };
        let settles = !self.loaded.settled && now.saturating_duration_since(since) >= SETTLE;
        self.loaded.settled |= settles;
        settles
    }

    fn judge(&self, found: &Result<Option<String>, Report>) -> Loaded {
        let origin = self.path.display().to_string();
        let keep = |problem: Report| Loaded { settings: self.loaded.settings.clone(), problem: Some(problem), settled: false };
        match found {
            Err(report) => keep(report.clone()),
            Ok(None) => Loaded::default(),
            // an editor truncates before it writes; who wants no runtimes writes so, or removes the file
            Ok(Some(text)) if is_blank(text) => keep(Report::without_place(
                origin,
                "the file is empty; what it said before holds until it says something, such as 'runtimes: {}'",
            )),
            Ok(Some(text)) => match read(text, &origin, &self.context) {
                Ok(settings) => Loaded { settings, problem: None, settled: false },
                Err(report) => keep(report),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn what_a_file_does_not_name_is_gone_after_a_second() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("settings.yaml");
        let mut reader = Reader::new(&path, Context::new("/", None));
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let names = |reader: &Reader| (reader.loaded().settings.runtimes.len(), reader.loaded().settled);
        std::fs::write(&path, "runtimes: {docker: {a: {}, b: {}}}").unwrap();
        assert!(reader.look(at(0)));
        assert_eq!((names(&reader), reader.due(at(400))), ((2, false), Some(Duration::from_millis(600))));
        assert!(!reader.look(at(999)) && reader.look(at(1000)));
        assert_eq!((names(&reader), reader.due(at(1000))), ((2, true), None));

        // deleted, and written again within the second: nothing was ever believed to be gone
        std::fs::remove_file(&path).unwrap();
        assert!(reader.look(at(2000)));
        assert_eq!(names(&reader), (0, false));
        std::fs::write(&path, "runtimes: {docker: {a: {}}}").unwrap();
        assert!(reader.look(at(2900)));
        assert_eq!(names(&reader), (1, false));
        assert!(!reader.look(at(3800)) && reader.look(at(3900)));
        assert_eq!(names(&reader), (1, true));

        // emptied: what it said holds, for as long as it says nothing
        std::fs::write(&path, "\u{feff}\n").unwrap();
        assert!(reader.look(at(5000)) && reader.look(at(99_000)));
        assert_eq!(names(&reader), (1, true));
        assert!(reader.loaded().problem.as_ref().unwrap().message.starts_with("the file is empty; "));
        // emptied on purpose
        std::fs::write(&path, "# nothing\n").unwrap();
        assert!(reader.look(at(100_000)));
        assert_eq!(*reader.loaded(), Loaded::default());
        assert_eq!(reader.loaded().settings, Settings::default());
    }
}
