//! `hmz sh`: a shell, or one command, in an environment.

use crate::cli;
use crate::client::Client;
use crate::edge;
use crate::verbs::name;
use hmz_api::kinds::condition;
use hmz_api::launch::BoxAddress;
use hmz_api::{Environment, Error, Resource};
use hmz_controllers::{Carrier, address_of};
use hmz_server::Paths;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

/// Runs it; the exit status is the command's, 128+n when it died of signal n.
pub fn run(args: &cli::Sh) -> ExitCode {
    match shell(args) {
        Ok(code) => code,
        Err(e) => edge::fail("sh", &e),
    }
}

fn shell(args: &cli::Sh) -> Result<ExitCode, Error> {
    let name = name::of_kind("Environment", &args.environment)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| edge::io("could not start", &e))?;
    let paths = edge::paths()?;
    let environment = runtime.block_on(Client::new(paths.clone()).get_as::<Environment>(&name))?;
    // what follows blocks in threads of its own and wants the signals
    drop(runtime);
    let address = address(&environment, &paths)?;
    hmz_anchor::log::commands(edge::trace());
    let argv = args.command.iter().map(|word| hmz_wire::Bytes::from(word.clone().into_vec())).collect::<Vec<_>>();
    let tty = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let status = hmz_anchor::tty::shell(&address, argv, tty).map_err(|e| Error::failed(e.to_string()))?;
    Ok(match status {
        hmz_wire::Status::Exited(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        hmz_wire::Status::Signaled(signal) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(255)),
    })
}

/// Where the box of a ready environment is.
fn address(environment: &Resource<Environment>, paths: &Paths) -> Result<BoxAddress, Error> {
    let status = &environment.status;
    if !status.conditions.is_true(condition::READY) {
        let why = status
            .conditions
            .get(condition::READY)
            .map(|c| format!(": {}", c.message))
            .filter(|m| m.len() > 2)
            .unwrap_or_default();
        return Err(Error::failed(format!("env/{} is not ready{why}", environment.name()))
            .hint(format!("hmz wait --for=condition=Ready env/{}", environment.name())));
    }
    let carrier = Carrier::new(hmz_server::secret(paths)?, &edge::environment());
    address_of(environment, &carrier)
        .ok_or_else(|| Error::failed(format!("env/{} does not say where its box is", environment.name())))
}
