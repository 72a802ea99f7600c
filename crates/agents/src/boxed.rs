//! What a session whose CLI runs in the box has done there before and besides: by the box's own shell, over the connection of
//! the run, whose commands are not fenced.

use hmz_anchor::exec::{Limits, Output, run};
use hmz_api::Error;
use hmz_api::launch::BoxAddress;
use hmz_wire::{Bytes, Client, Status};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long such a thing may take; it takes some milliseconds.
const LIMIT: Duration = Duration::from_secs(30);

/// How much of what it says is read, in bytes.
const OUTPUT: usize = 4 << 10;

/// Runs a line of the shell's with `args` as `$1` and so on, in the root directory; whether it ended with 0, and what it
/// said on standard error.
async fn shell(client: &Client, place: &BoxAddress, line: &str, args: &[&Path]) -> Result<(bool, String), Error> {
    let words = ["/bin/sh", "-c", line, "sh"].map(|word| Bytes::from(word.as_bytes()));
    let args = args.iter().map(|arg| Bytes::from(arg.as_os_str().as_encoded_bytes()));
    let argv: Vec<Bytes> = words.into_iter().chain(args).collect();
    let client = client.clone();
    let limits = Limits { output: OUTPUT, time: Some(LIMIT) };
    let done = tokio::task::spawn_blocking(move || run(&client, &argv, Path::new("/"), &[], limits)).await;
    let cannot = |why: String| Error::failed(format!("the box of '{}' cannot be prepared: {why}", place.environment));
    let Output { status, stderr, timed_out, .. } = done.map_err(|e| cannot(e.to_string()))?.map_err(|e| cannot(e.to_string()))?;
    if timed_out {
        return Err(cannot(format!("it did not answer within {} s", LIMIT.as_secs())));
    }
    Ok((status == Status::Exited(0), String::from_utf8_lossy(&stderr).trim().to_owned()))
}

/// Makes a directory nobody else may open; with `parents` those above it too, and then one that is there is taken.
///
/// # Errors
/// When it cannot be made, or something is there already.
pub(crate) async fn make_directory(client: &Client, place: &BoxAddress, dir: &Path, parents: bool) -> Result<(), Error> {
    let line = if parents { "umask 077; mkdir -p -- \"$1\"" } else { "umask 077; mkdir -- \"$1\"" };
    match shell(client, place, line, &[dir]).await? {
        (true, _) => Ok(()),
        (false, why) => {
            Err(Error::failed(format!("{} cannot be made in the box of '{}': {why}", dir.display(), place.environment)))
        }
    }
}

/// Whether a path is there.
///
/// # Errors
/// When the box cannot be asked.
pub(crate) async fn is_there(client: &Client, place: &BoxAddress, path: &Path) -> Result<bool, Error> {
    shell(client, place, "test -e \"$1\"", &[path]).await.map(|(is_there, _)| is_there)
}

/// The box's own value of a variable.
pub(crate) fn variable(client: &Client, name: &str) -> Option<String> {
    let env = &client.welcome().env;
    let (_, value) = env.iter().find(|(found, _)| found.as_slice() == name.as_bytes())?;
    String::from_utf8(value.to_vec()).ok().filter(|value| !value.is_empty())
}

/// A session's own directory in the scratch directory, the same path on both sides.
pub(crate) fn scratch(place: &BoxAddress, session: &str) -> PathBuf {
    Path::new(&place.scratch).join(session)
}
