//! Whether programs are on the PATH of a container that was created and not started: its files are asked for, and nothing of
//! it runs. The daemon alone resolves paths, inside the container.

use super::api::{Fault, encoded};
use super::session::Session;
use crate::error::DriverError;
use futures::stream::{StreamExt as _, TryStreamExt as _};
use serde::Deserialize;

/// The PATH of an image that sets none, as the guest takes it.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Most directories of a PATH that are looked at.
const MAX_DIRECTORIES: usize = 64;
/// Most links from a program to the file it is.
const MAX_LINKS: usize = 8;
/// How many files are asked for together.
const TOGETHER: usize = 8;

/// How Go writes kinds of files beside the permissions.
const DIRECTORY: u32 = 1 << 31;
const LINK: u32 = 1 << 27;

/// What a daemon says of a file.
#[derive(Debug, Deserialize)]
struct Stat {
    #[serde(default)]
    mode: u32,
    #[serde(rename = "linkTarget", default)]
    target: String,
}

/// The first of `programs` that is not on the container's PATH.
///
/// # Errors
/// The daemon does not answer.
pub async fn missing(session: &Session<'_>, id: &str, programs: &[String]) -> Result<Option<String>, DriverError> {
    if programs.is_empty() {
        return Ok(None);
    }
    let raw = session.inspect_raw(id).await?.unwrap_or_default();
    let env = raw.pointer("/Config/Env").and_then(|env| env.as_array()).cloned().unwrap_or_default();
    let set = env.iter().filter_map(|one| one.as_str()?.strip_prefix("PATH=")).next_back();
    // the variables of a container that is not ours are not those its execs are given
    let spec = &session.target.spec;
    let given = spec.exec_env.iter().filter(|_| spec.container.is_some()).filter_map(|one| one.strip_prefix("PATH=")).next_back();
    let path = given.or(set).unwrap_or(DEFAULT_PATH);
    for program in programs {
        let places: Vec<String> = places(path, program);
        let found = futures::stream::iter(places).map(|place| async move { is_executable(session, id, place).await });
        let found: Vec<bool> = found.buffered(TOGETHER).try_collect().await.map_err(|fault| session.fault(fault))?;
        if !found.contains(&true) {
            return Ok(Some(program.clone()));
        }
    }
    Ok(None)
}

/// Where a program may be. A relative part of PATH is where a command starts, and nothing is looked for there.
fn places(path: &str, program: &str) -> Vec<String> {
    let absolute = path.split(':').filter(|dir| dir.starts_with('/')).take(MAX_DIRECTORIES);
    absolute.map(|dir| format!("{}/{program}", dir.trim_end_matches('/'))).collect()
}

/// Whether a path in the container is a file that somebody may execute, links followed.
async fn is_executable(session: &Session<'_>, id: &str, path: String) -> Result<bool, Fault> {
    let mut path = path;
    for _ in 0..MAX_LINKS {
        let asked = format!("/containers/{id}/archive?path={}", encoded(&path));
        let Some(said) = session.api.head(&asked, "X-Docker-Container-Path-Stat").await? else { return Ok(false) };
        let Some(stat) = read(&said) else { return Ok(false) };
        if stat.mode & LINK == 0 {
            return Ok(stat.mode & DIRECTORY == 0 && stat.mode & 0o111 != 0);
        }
        // the daemon has made an absolute path of it
        if !stat.target.starts_with('/') || stat.target == path {
            return Ok(false);
        }
        path = stat.target;
    }
    Ok(false)
}

/// A daemon's word, which is JSON in base64.
fn read(said: &str) -> Option<Stat> {
    use base64::Engine as _;
    serde_json::from_slice(&base64::engine::general_purpose::STANDARD.decode(said).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_in_order_and_by_absolute_paths() {
        assert_eq!(places("/a:b::/c/:/", "x"), ["/a/x", "/c/x", "/x"]);
        assert_eq!(places(DEFAULT_PATH, "x").len(), 6);
    }

    #[test]
    fn what_the_daemon_says_of_a_file_is_read() {
        use base64::Engine as _;
        let said = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let stat = read(&said(r#"{"name":"sh","size":4,"mode":134218239,"mtime":"x","linkTarget":"/bin/dash"}"#)).unwrap();
        assert_eq!((stat.mode & LINK, stat.target.as_str()), (LINK, "/bin/dash"));
        let stat = read(&said(r#"{"name":"dash","mode":493,"linkTarget":""}"#)).unwrap();
        assert_eq!((stat.mode & (LINK | DIRECTORY), stat.mode & 0o111), (0, 0o111));
        assert!(read("%%").is_none() && read(&said("no")).is_none());
    }
}
