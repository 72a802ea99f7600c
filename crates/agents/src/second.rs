//! A CLI in a second box: found there by the program that is in every second box, and told to a supervisor there.

use crate::path::find;
use crate::{Installed, Launch, of_cli};
use hmz_anchor::exec::{Limits, Output, run};
use hmz_anchor::{Passage, RelayConfig, SupervisorConfig};
use hmz_api::Error;
use hmz_api::launch::{BoxAddress, CallerContext};
use hmz_api::link::{Link, LinkKey};
use hmz_wire::channel::handshake::random;
use hmz_wire::{Bytes, Client, GUEST_PROGRAM, Status};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The hidden verb that finds a CLI where it runs.
pub const VERB: &str = "agent-here";

/// How long it may take; it takes some milliseconds.
const LIMIT: Duration = Duration::from_secs(30);

/// How much it says at most, in bytes.
const MOST: usize = 64 << 10;

/// Shells a CLI may look for before it runs a command.
const SHELLS: [&str; 4] = ["bash", "zsh", "dash", "sh"];

/// What was found in a second box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The CLI.
    pub installed: Installed,
    /// Shells, by their names: where they are.
    pub shells: BTreeMap<String, String>,
}

/// A second box in which a CLI was found.
#[derive(Debug, Clone)]
pub struct SecondBox {
    /// A connection to it, whose commands are not fenced.
    pub client: Client,
    /// Where it is. Its workdir and its scratch directory are those of the box that the commands land in.
    pub address: BoxAddress,
    /// What was found there.
    pub found: Found,
}

/// Says on standard output, as JSON, what is to be found of a CLI on this process's PATH, or why it cannot be used.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = args.next().unwrap_or_default().to_string_lossy().into_owned();
    let answer = here(&cli).map_err(|e| e.message);
    match serde_json::to_writer(std::io::stdout().lock(), &answer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn here(cli: &str) -> Result<Found, Error> {
    let exe = std::env::current_exe().map_err(|e| Error::failed(format!("this program's own path: {e}")))?;
    let path = std::env::var("PATH").unwrap_or_default();
    let caller = CallerContext { env: BTreeMap::from([("PATH".to_owned(), path.clone())]), ..CallerContext::default() };
    let installed = of_cli(cli, &exe)?.check(&caller)?;
    let path = format!("/bin:/usr/bin:{path}");
    let shell = |name: &&str| Some(((*name).to_owned(), find(name, &path)?.to_string_lossy().into_owned()));
    Ok(Found { installed, shells: SHELLS.iter().filter_map(shell).collect() })
}

/// Finds a CLI in a second box.
///
/// # Errors
/// A refusal that says why it cannot be used there; or the box does not answer.
pub async fn look(client: &Client, link: &Link, cli: &str) -> Result<Found, Error> {
    let program = link.guest().unwrap_or(GUEST_PROGRAM);
    let argv: Vec<Bytes> = [program, VERB, cli].map(|word| Bytes::from(word.as_bytes())).into();
    let client = client.clone();
    let limits = Limits { output: MOST, time: Some(LIMIT) };
    let done = tokio::task::spawn_blocking(move || run(&client, &argv, Path::new("/"), &[], limits)).await;
    let cannot = |why: String| Error::failed(format!("{cli} cannot be looked for there: {why}"));
    let Output { status, stdout, .. } = done.map_err(|e| cannot(e.to_string()))?.map_err(|e| cannot(e.to_string()))?;
    if status != Status::Exited(0) {
        return Err(cannot(format!("{status:?}")));
    }
    let answer: Result<Found, String> = serde_json::from_slice(&stdout).map_err(|e| cannot(e.to_string()))?;
    answer.map_err(|why| Error::refused(why.replace(" is not installed here", " is not installed there")))
}

impl SecondBox {
    /// The box's own variables, with `over` on top: a CLI's whole environment there.
    pub(crate) fn env(&self, over: impl IntoIterator<Item = (String, String)>) -> BTreeMap<String, String> {
        let own = self.client.welcome().env.iter();
        let own = own
            .filter_map(|(name, value)| Some((String::from_utf8(name.to_vec()).ok()?, String::from_utf8(value.to_vec()).ok()?)));
        own.chain(over).collect()
    }

    /// Directories a CLI may write there besides the workdir and the scratch directory, as in a box that is its own.
    pub(crate) fn writable(&self) -> Vec<PathBuf> {
        ["/tmp", "/var/tmp"].map(PathBuf::from).into()
    }

    /// What is started of a CLI that is to run there as this says. The supervisor there is told nothing by which the box that
    /// the commands land in could be reached, but through the relay. Its passage is said here.
    ///
    /// # Errors
    /// When no random bytes can be had.
    pub(crate) fn launch(&self, config: SupervisorConfig) -> Result<Launch, Error> {
        let passage = match &self.address.link {
            Link::Stream(_) => {
                let key = random().map_err(|e| Error::failed(format!("random bytes: {e}")))?;
                let guest = config.place.link.guest().unwrap_or(GUEST_PROGRAM).to_owned();
                Passage::Carried { key: LinkKey::new(key), guest }
            }
            Link::Direct { .. } | Link::Awaited { .. } => Passage::Handed,
        };
        let relay = RelayConfig {
            second: self.address.clone(),
            place: config.place.clone(),
            env_allow: config.env_allow.clone(),
            tmpdir: config.env.get("TMPDIR").cloned().unwrap_or_default(),
            leaves: config.policy.leaves.clone(),
        };
        let link = Link::Direct { socket: String::new(), pid: 0 };
        let place = BoxAddress { link, ..config.place.clone() };
        Ok(Launch::Second(Box::new((relay, SupervisorConfig { place, passage, ..config }))))
    }
}
