//! `hmz logs`: the transcript of a run, from its journal.

use crate::cli;
use crate::client::Client;
use crate::show;
use crate::verbs::name;
use futures::StreamExt;
use hmz_api::Error;
use std::process::ExitCode;

/// Runs it. The transcript is the answer here, so all of it goes to stdout.
///
/// # Errors
/// When there is no such run.
pub async fn run(client: Client, args: cli::Logs) -> Result<ExitCode, Error> {
    let run = name::of_kind("Run", &args.run)?;
    let mut records = Box::pin(client.journal(&run, 0, args.follow, false).await?);
    let mut transcript = show::Transcript::of_logs(args.json);
    while let Some(record) = records.next().await {
        transcript.show(&record?, None);
    }
    Ok(ExitCode::SUCCESS)
}
