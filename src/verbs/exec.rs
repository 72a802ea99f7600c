//! `hmz exec`: a run that belongs to this terminal. Its end cancels it; its signals end it with 128+n.

mod follow;
mod leave;
mod spec;

use crate::cli;
use crate::client::Client;
use crate::signals::{self, Signals};
use crate::{edge, show};
use futures::FutureExt;
use futures::future::BoxFuture;
use hmz_api::Error;
use hmz_api::rest::ApplyRequest;
use hmz_api::{AnyResource, ErrorKind};
use std::process::ExitCode;

/// Runs it.
///
/// # Errors
/// When it is refused (exit 2), or the daemon cannot be had.
pub async fn run(client: Client, args: cli::Exec) -> Result<ExitCode, Error> {
    // taken before anything is started, so that nothing is left behind by an early one
    let mut signals = Signals::new()?;
    let run = tokio::select! {
        run = spec::run(&client, &args) => run?,
        // nothing was asked for yet
        number = signals.next() => return Ok(signals::ended(number)),
    };
    let resources = vec![AnyResource::Run(Box::new(run))];
    let request = ApplyRequest { resources, caller: edge::caller(), attached: true, ..ApplyRequest::default() };
    let mut applying = Box::pin(client.apply(request));
    let mut told: Option<i32> = None;
    let results = loop {
        tokio::select! {
            results = &mut applying => break results?,
            number = signals.next() => {
                if told.replace(number).is_some() {
                    // a run that nobody attaches to is cancelled by the daemon
                    return Ok(signals::ended(number));
                }
            }
        }
    };
    let result = results.into_iter().next().ok_or_else(|| Error::new(ErrorKind::Internal, "the daemon answered nothing"))?;
    result.outcome?;
    tracing::info!(run = result.name, "declared");
    let mut following = Box::pin(follow::to_the_end(client.clone(), result.name.clone(), args.json));
    // a daemon that does not answer keeps nobody from leaving
    let mut cancelling = told.map(|_| cancel(&client, &result.name));
    let mut leaving = told.map(|_| leave::when_nobody_answers(client.clone(), result.name.clone()).boxed());
    loop {
        tokio::select! {
            ended = &mut following => {
                return match (ended?, told) {
                    (_, Some(number)) => Ok(signals::ended(number)),
                    (follow::End::Status(status), None) => Ok(ExitCode::from(status)),
                    (follow::End::Refused(message), None) => {
                        // nothing of it started, and this is where it is told: its listing would be a leftover
                        let _ = client.delete("Run", &result.name, false).await;
                        Err(hmz_api::verdict::refusal(&message))
                    }
                    (follow::End::Untold(message), None) => Err(Error::failed(message)),
                };
            }
            number = signals.next() => {
                if told.replace(number).is_some() && number == 2 {
                    // told twice: the daemon sees the stream end and cancels what is left
                    return Ok(signals::ended(number));
                }
                cancelling = Some(cancel(&client, &result.name));
                leaving = Some(leave::when_nobody_answers(client.clone(), result.name.clone()).boxed());
            }
            // the cancellation is on its way first
            Some(left) = async { Some(leaving.as_mut()?.await) }, if cancelling.is_none() => {
                show::error("exec", &left);
                return Ok(signals::ended(told.unwrap_or(2)));
            }
            Some(cancelled) = async { Some(cancelling.as_mut()?.await) } => {
                cancelling = None;
                match cancelled {
                    Err(e) if e.kind != ErrorKind::NotFound => return Err(e),
                    Ok(()) | Err(_) => {}
                }
            }
        }
    }
}

fn cancel(client: &Client, run: &str) -> BoxFuture<'static, Result<(), Error>> {
    show::note("exec", "ending the run: its agents and environments are taken down (again to leave at once)");
    let (client, run) = (client.clone(), run.to_owned());
    async move { client.cancel(&run).await }.boxed()
}
