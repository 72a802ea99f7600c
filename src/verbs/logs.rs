//! `hmz logs`: the transcript of a run, from its journal.

use crate::cli;
use crate::client::Client;
use crate::show;
use crate::verbs::name;
use futures::StreamExt;
use hmz_api::Error;
use std::process::ExitCode;

/// How often in a row a stream that broke is opened again.
const LOST: u32 = 5;

/// Runs it. The transcript is the answer here, so all of it goes to stdout.
///
/// # Errors
/// When there is no such run.
pub async fn run(client: Client, args: cli::Logs) -> Result<ExitCode, Error> {
    if !args.follow {
        return print(&client, args).await;
    }
    tokio::select! {
        done = print(&client, args) => done,
        gone = show::unread() => Ok(gone),
    }
}

async fn print(client: &Client, args: cli::Logs) -> Result<ExitCode, Error> {
    let run = name::of_kind("Run", &args.run)?;
    let mut transcript = show::Transcript::of_logs(args.json, args.fold);
    let (mut shown, mut lost) = (0, 0);
    loop {
        let mut records = Box::pin(client.journal(&run, shown, args.follow, false).await?);
        let broke = loop {
            match records.next().await {
                Some(Ok(record)) => transcript.show(&record, None),
                Some(Err(e)) => break e,
                None => {
                    transcript.end();
                    return Ok(ExitCode::SUCCESS);
                }
            }
            (shown, lost) = (shown + 1, 0);
        };
        // the daemon was killed: the next one goes on where it was
        lost += 1;
        if lost == LOST {
            return Err(broke);
        }
    }
}
