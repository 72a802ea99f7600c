//! Claude's own folders: what of them a session may write, what it may read.
//!
//! A session writes its project's transcripts and nothing else there: whoever can write the folder itself could plant
//! settings, commands and shell snapshots that other sessions run.

use crate::boxed::{scratch, variable};
use crate::{Installed, SessionStart};
use hmz_anchor::CliFence;
use hmz_api::Error;
use hmz_api::launch::CallerContext;
use hmz_wire::Client;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Longest name of a project's folder; a longer one is cut and gets a hash (2.1.332).
const LONGEST_SLUG: usize = 200;

/// Variables that name files of certificates, which it must be able to read.
const CERTIFICATES: &[&str] = &["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Where claude keeps its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateFolders {
    /// `~/.claude`, or what CLAUDE_CONFIG_DIR says.
    pub(super) config: PathBuf,
    /// `~/.claude.json`, or the file in CLAUDE_CONFIG_DIR.
    pub(super) global: PathBuf,
}

impl StateFolders {
    pub(super) fn of(caller: &CallerContext) -> Result<Self, Error> {
        if let Some(config) = caller.env.get("CLAUDE_CONFIG_DIR").filter(|dir| Path::new(dir).is_absolute()) {
            let config = PathBuf::from(config);
            return Ok(Self { global: config.join(".claude.json"), config });
        }
        let home = caller.env.get("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let home = home.ok_or_else(|| Error::refused("claude needs HOME, which is not set"))?;
        Ok(Self::in_home(&home))
    }

    fn in_home(home: &Path) -> Self {
        Self { config: home.join(".claude"), global: home.join(".claude.json") }
    }

    /// Where the claude of a box keeps it, by the box's own variables.
    ///
    /// # Errors
    /// When the box has neither.
    pub(super) fn in_box(client: &Client) -> Result<Self, Error> {
        let named = |name: &str| variable(client, name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        if let Some(config) = named("CLAUDE_CONFIG_DIR") {
            return Ok(Self { global: config.join(".claude.json"), config });
        }
        let home = named("HOME").ok_or_else(|| Error::refused("claude needs HOME, which the box does not set"))?;
        Ok(Self::in_home(&home))
    }

    /// The folder with links followed, if it is there.
    pub(super) fn real_config(&self) -> PathBuf {
        self.config.canonicalize().unwrap_or_else(|_| self.config.clone())
    }

    /// The folder of a workdir's transcripts.
    pub(super) fn project(&self, workdir: &Path) -> PathBuf {
        self.project_of(&workdir.canonicalize().unwrap_or_else(|_| workdir.to_path_buf()))
    }

    /// The same, of a workdir that is no link, as in a box, where it is mounted at its own path.
    pub(super) fn project_of(&self, workdir: &Path) -> PathBuf {
        self.config.join("projects").join(slug(&workdir.to_string_lossy()))
    }
}

/// A path as the name of a project's folder.
fn slug(path: &str) -> String {
    // it counts UTF-16 units, as its language does
    let slug: String =
        path.encode_utf16().map(|u| char::from_u32(u.into()).filter(char::is_ascii_alphanumeric).unwrap_or('-')).collect();
    if slug.len() <= LONGEST_SLUG {
        return slug;
    }
    let hash = path.encode_utf16().fold(0i32, |h, u| h.wrapping_shl(5).wrapping_sub(h).wrapping_add(i32::from(u)));
    format!("{}-{}", &slug[..LONGEST_SLUG], base36(hash.unsigned_abs()))
}

fn base36(mut n: u32) -> String {
    let mut digits = Vec::new();
    while n > 0 || digits.is_empty() {
        digits.push(char::from_digit(n % 36, 36).unwrap_or('0'));
        n /= 36;
    }
    digits.iter().rev().collect()
}

/// Whether the caller's variables carry what it signs in with, so that no sign-in of the user's is needed.
pub(super) fn key_in_environment(caller: &CallerContext) -> bool {
    const KEYS: &[&str] = &[
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_VERTEX",
        "CLAUDE_CODE_USE_FOUNDRY",
    ];
    KEYS.iter().any(|key| caller.env.get(*key).is_some_and(|value| !value.is_empty()))
}

/// Makes the directories a session writes in.
pub(super) fn prepare(start: &SessionStart, session: &str) -> Result<(), Error> {
    let cannot = |dir: &Path, e: std::io::Error| Error::failed(format!("{} cannot be made: {e}", dir.display()));
    let project = StateFolders::of(&start.caller)?.project(Path::new(&start.place.workdir));
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700);
    builder.recursive(true).create(&project).map_err(|e| cannot(&project, e))?;
    // the box can write here: what is already there was planted
    let scratch = scratch(&start.place, session);
    builder.recursive(false).create(&scratch).map_err(|e| cannot(&scratch, e))
}

/// What a session may touch here.
pub(super) fn fence(start: &SessionStart, installed: &Installed, session: &str) -> CliFence {
    let mut fence = CliFence {
        write: vec![PathBuf::from(&start.place.workdir), scratch(&start.place, session)],
        read: installed.directories.clone(),
    };
    if let Ok(state) = StateFolders::of(&start.caller) {
        fence.write.push(state.project(Path::new(&start.place.workdir)));
        if !key_in_environment(&start.caller) {
            // a rule on the file of the sign-in would not outlive its renewal, which puts a new file in its place
            fence.read.push(state.config);
        }
        // one that is there and cannot be read is tried again for 0.65 s each time, ten times a session
        fence.read.push(state.global);
    }
    // a node script needs its node
    fence.read.extend(installed.executables.iter().cloned());
    fence.read.extend(
        CERTIFICATES.iter().filter_map(|name| start.caller.env.get(*name)).map(PathBuf::from).filter(|p| p.is_absolute()),
    );
    fence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_named_as_the_cli_names_it() {
        assert_eq!(slug("/home/me/my_project.x"), "-home-me-my-project-x");
        assert_eq!(slug("/srv/ä/😀"), "-srv-----");
        let long = format!("/{}", "a".repeat(300));
        let cut = slug(&long);
        assert!(cut.starts_with(&format!("-{}-", "a".repeat(199))), "{cut}");
        assert_eq!(base36(35), "z");
        assert_eq!(base36(36), "10");
        assert_eq!(base36(0), "0");
    }

    #[test]
    fn the_config_folder_follows_its_variable() {
        let caller = |pairs: &[(&str, &str)]| CallerContext {
            env: pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..CallerContext::default()
        };
        let state = StateFolders::of(&caller(&[("HOME", "/home/me")])).unwrap();
        assert_eq!((state.config, state.global), ("/home/me/.claude".into(), "/home/me/.claude.json".into()));
        let state = StateFolders::of(&caller(&[("HOME", "/home/me"), ("CLAUDE_CONFIG_DIR", "/c")])).unwrap();
        assert_eq!((state.config, state.global), ("/c".into(), "/c/.claude.json".into()));
        assert!(StateFolders::of(&caller(&[])).is_err());
    }
}
