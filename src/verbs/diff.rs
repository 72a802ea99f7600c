//! `hmz diff`: what `hmz apply` would do, before it does it. Changes nothing.

use crate::cli;
use crate::client::Client;
use crate::verbs::apply;
use hmz_api::Error;
use std::process::ExitCode;

/// The exit status when something differs.
const DIFFERS: u8 = 1;
/// The exit status of a failure that is no refusal: above that of a difference.
const FAILED: u8 = 3;

/// Runs it: 0 when nothing differs, 1 when something does, more when it cannot be told or would be refused.
///
/// # Errors
/// Never: what goes wrong is told, and is in the exit status.
pub async fn run(client: Client, args: cli::Diff) -> Result<ExitCode, Error> {
    let form = args.output.map(|cli::CheckOutput::Json| cli::AppliedOutput::Json);
    let told = match apply::plan(&client, "diff", &args.what, form).await {
        Ok(told) => told,
        Err(e) => {
            crate::show::error("diff", &e);
            return Ok(ExitCode::from(status(&e)));
        }
    };
    Ok(ExitCode::from(match told.worst {
        Some(worst) => status(&worst),
        None if told.differs => DIFFERS,
        None => 0,
    }))
}

/// The exit status of an error.
fn status(error: &Error) -> u8 {
    if error.exit_code() == DIFFERS { FAILED } else { error.exit_code() }
}
