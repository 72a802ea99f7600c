//! A directory with a small program that has a bug.

use super::command::Invocation;
use std::path::{Path, PathBuf};

/// The program before.
pub const BUGGY: &str = "def add(a, b):\n    return a - b\n";
/// The program as it has to be.
pub const FIXED: &str = "def add(a, b):\n    return a + b\n";

/// The directory. It goes with the home it was made in.
#[derive(Debug, Clone)]
pub struct Project {
    dir: PathBuf,
}

impl Project {
    /// Makes `dir`, a git repository with one commit of `calc.py`.
    pub fn create(dir: PathBuf) -> Self {
        std::fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        let project = Self { dir };
        project.write("calc.py", BUGGY);
        project.git(&["init", "-q", "-b", "main", "."]);
        project.git(&["add", "-A"]);
        project.git(&["-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "-m", "init"]);
        project
    }

    fn git(&self, words: &[&str]) {
        let git = Invocation::new("git").args(words).cwd(&self.dir);
        let _ = git.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", "/nonexistent").run().ok();
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory as text.
    pub fn path(&self) -> &str {
        self.dir.to_str().expect("paths of tests are text")
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// What is in a file.
    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap_or_else(|e| panic!("{}: {e}", self.file(name).display()))
    }

    /// Writes a file, and the folders it is in.
    #[track_caller]
    pub fn write(&self, name: &str, content: &str) {
        let file = self.file(name);
        let parent = file.parent().expect("a file is in a folder");
        std::fs::create_dir_all(parent).and_then(|()| std::fs::write(&file, content)).unwrap_or_else(|e| panic!("{name}: {e}"));
    }

    /// Sees that the bug is gone.
    #[track_caller]
    pub fn assert_fixed(&self) {
        assert_eq!(self.read("calc.py"), FIXED, "calc.py is not fixed");
    }
}
