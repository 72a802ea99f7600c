//! A repository, fetched by the user's own git into a folder below HMZ_HOME. Git brings its credentials along and asks for none:
//! there is nobody to answer. A commit's files are put in a folder of their own; `tree` is a link to those that are declared.

use super::Folders;
use super::files::{Place, Snapshot};
use hmz_api::Error;
use rustix::process::{Pid, Signal, kill_process_group};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// How long one call of git may take.
const LIMIT: Duration = Duration::from_secs(300);
/// Where what was fetched is held.
const HELD: &str = "refs/hmz/seen";
/// How much of what git says is told.
const SAID: usize = 4;
/// Variables that would lead git to another repository than this one.
const ASTRAY: [&str; 6] = [
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
];

/// What is kept of a repository here.
#[derive(Debug)]
pub(super) struct Repository {
    address: String,
    shown: String,
    reference: String,
    folders: Folders,
    folder: PathBuf,
}

impl Repository {
    /// The one at `address`, kept in `folder`.
    pub fn new(address: &str, shown: String, reference: Option<&str>, folders: &Folders, folder: PathBuf) -> Self {
        let reference = reference.unwrap_or("HEAD").to_owned();
        Self { address: address.to_owned(), shown, reference, folders: folders.clone(), folder }
    }

    fn bare(&self) -> PathBuf {
        self.folder.join("repository")
    }

    /// Where the files of what is declared are, whichever commit that is.
    pub fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    fn tree_of(&self, commit: &str) -> PathBuf {
        self.folder.join("trees").join(commit)
    }

    /// The commit that the source is at now.
    ///
    /// # Errors
    /// What git says.
    pub async fn fetch(&self) -> Result<String, Error> {
        match self.try_fetch().await {
            Ok(commit) => Ok(commit),
            Err(e) if self.is_torn() => {
                // a git that was killed left its locks, or half a repository: it is fetched anew
                tracing::info!("{} is fetched anew: {}", self.shown, e.message);
                remove(&self.bare())?;
                self.try_fetch().await
            }
            Err(e) => Err(e),
        }
    }

    async fn try_fetch(&self) -> Result<String, Error> {
        crate::paths::private_dir(&self.folder, false)?;
        if !self.bare().is_dir() {
            self.git(&["init", "--quiet", "--bare", "."], None).await?;
        }
        let refspec = format!("+{}:{HELD}", self.reference);
        let fetch = |depth: &'static [&'static str]| {
            let mut words = vec!["fetch", "--quiet", "--no-tags", "--no-recurse-submodules"];
            words.extend(depth);
            words.extend(["--", &self.address, &refspec]);
            words.into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        match self.git(&fetch(&["--depth=1"]), None).await {
            Ok(_) => {}
            // a server that only hands out files
            Err(e) if e.message.contains("shallow") => drop(self.git(&fetch(&[]), None).await?),
            Err(e) => return Err(e),
        }
        // a tag is an object of its own
        self.git(&["rev-parse", "--verify", &format!("{HELD}^{{commit}}")], None).await.map(|id| id.trim().to_owned())
    }

    /// Whether what is here was left by a git that was killed.
    fn is_torn(&self) -> bool {
        let bare = self.bare();
        bare.is_dir() && (has_lock(&bare, 0) || !bare.join("HEAD").is_file() || !bare.join("objects").is_dir())
    }

    /// What a fetched commit has.
    ///
    /// # Errors
    /// It cannot be taken out, or a folder is not in it.
    pub async fn snapshot(&self, commit: &str) -> Result<Snapshot, Error> {
        let tree = self.tree_of(commit);
        if !tree.is_dir() {
            // made beside it and put in its place whole
            let fresh = tree.with_extension("new");
            remove(&fresh)?;
            crate::paths::private_dir(&fresh, false)?;
            let index = self.folder.join("index");
            let _ = std::fs::remove_file(&index);
            let _ = std::fs::remove_file(index.with_extension("lock"));
            self.git(&["read-tree", commit], Some((&index, &fresh))).await?;
            self.git(&["checkout-index", "--all", "--force"], Some((&index, &fresh))).await?;
            std::fs::rename(&fresh, &tree).map_err(|e| Error::failed(format!("{}: {e}", tree.display())))?;
        }
        let subject = self.git(&["log", "-1", "--format=%s", commit], None).await.ok();
        let subject = subject.map(|text| text.trim().chars().take(100).collect::<String>());
        let (folders, named, commit) = (self.folders.clone(), self.tree(), commit.to_owned());
        let read = move || {
            Snapshot::read(&Place { root: &tree, named: &named, folders: &folders, is_closed: true }, Some((commit, subject)))
        };
        tokio::task::spawn_blocking(read).await.unwrap_or_else(|e| Err(Error::failed(e.to_string())))
    }

    /// Has `tree` lead to a commit's files, and forgets those of all others.
    ///
    /// # Errors
    /// The link cannot be made.
    pub fn turn(&self, commit: &str) -> Result<(), Error> {
        let (tree, fresh) = (self.tree(), self.folder.join("tree.new"));
        let target = Path::new("trees").join(commit);
        if std::fs::read_link(&tree).is_ok_and(|now| now == target) {
            return Ok(());
        }
        let failed = |e: std::io::Error| Error::failed(format!("{}: {e}", tree.display()));
        let _ = std::fs::remove_file(&fresh);
        std::os::unix::fs::symlink(&target, &fresh).map_err(failed)?;
        std::fs::rename(&fresh, &tree).map_err(failed)?;
        for entry in std::fs::read_dir(self.folder.join("trees")).into_iter().flatten().flatten() {
            if entry.file_name() != *commit {
                // tried again at the next turn
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        Ok(())
    }

    async fn git<W: AsRef<std::ffi::OsStr>>(&self, words: &[W], into: Option<(&Path, &Path)>) -> Result<String, Error> {
        let bare = self.bare();
        crate::paths::private_dir(&bare, false)?;
        let mut command = Command::new("git");
        command
            .args(["-c", "gc.autoDetach=false", "-c", "maintenance.autoDetach=false", "-c", "core.hooksPath=/dev/null"])
            .args(["-c", "core.autocrlf=false", "-c", "advice.detachedHead=false"])
            .args(words)
            .current_dir(&bare)
            .env("GIT_DIR", &bare)
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GCM_INTERACTIVE", "never")
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        for name in ASTRAY {
            command.env_remove(name);
        }
        if let Some((index, files)) = into {
            command.env("GIT_INDEX_FILE", index).env("GIT_WORK_TREE", files);
        }
        // ssh asks a terminal or a window unless it is told to ask a program; one that the user has for it stays
        if std::env::var_os("SSH_ASKPASS_REQUIRE").is_none_or(|said| said != "force") {
            command.env("SSH_ASKPASS", "false").env("SSH_ASKPASS_REQUIRE", "force");
        }
        let child = command.spawn().map_err(|e| {
            let error = Error::failed(format!("git cannot be started: {e}"));
            if e.kind() == std::io::ErrorKind::NotFound { error.hint("install git") } else { error }
        })?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let done = match tokio::time::timeout(LIMIT, child.wait_with_output()).await {
            Ok(done) => done.map_err(|e| Error::failed(format!("git: {e}")))?,
            Err(_) => {
                // what it has started as well; it may have ended just now
                let _ = group.map(|group| kill_process_group(group, Signal::KILL));
                return Err(Error::failed(format!("git did not end within {} s", LIMIT.as_secs())));
            }
        };
        if done.status.success() {
            return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&done.stderr).replace(&self.address, &self.shown);
        let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).take(SAID).collect();
        Err(Error::failed(if said.is_empty() { format!("git ended with {}", done.status) } else { said.join("\n") }))
    }
}

fn remove(folder: &Path) -> Result<(), Error> {
    match std::fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::failed(format!("{}: {e}", folder.display()))),
        _ => Ok(()),
    }
}

/// Whether there is a lock of git's in it: nobody else works here.
fn has_lock(folder: &Path, depth: u32) -> bool {
    std::fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        path.extension().is_some_and(|e| e == "lock")
            || (depth < 3 && entry.file_name() != "objects" && path.is_dir() && has_lock(&path, depth + 1))
    })
}
