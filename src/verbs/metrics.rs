//! `hmz metrics`: the daemon's metrics as they are.

use crate::client::Client;
use crate::show;
use hmz_api::Error;
use std::process::ExitCode;

/// Runs it.
///
/// # Errors
/// When the daemon cannot be had.
pub async fn run(client: Client) -> Result<ExitCode, Error> {
    show::print(&client.metrics().await?);
    Ok(ExitCode::SUCCESS)
}
