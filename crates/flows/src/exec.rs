//! A command of the flow's own in a box.

use crate::boxes::{Place, connect};
use crate::template::Left;
use hmz_anchor::exec::{Limits, run};
use hmz_api::Error;
use hmz_wire::{Bytes, Status};
use std::path::PathBuf;
use tokio_util::sync::CancellationToken;

/// How much of each of its outputs is kept, in bytes.
const OUTPUT: usize = 256 << 10;

/// Runs a command in the workdir to its end; `None` when `stop` came first, and then nothing of it is left.
///
/// # Errors
/// When it cannot be started, or the box is gone.
pub(crate) async fn exec(place: &Place, argv: Vec<String>, stop: &CancellationToken) -> Result<Option<Left>, Error> {
    // a connection of its own: its end is the end of everything it started
    let client = connect(&place.address, false).await?;
    let running = client.clone();
    let cwd = PathBuf::from(&place.address.workdir);
    let argv: Vec<Bytes> = argv.into_iter().map(|word| Bytes::from(word.into_bytes())).collect();
    let mut command = tokio::task::spawn_blocking(move || run(&running, &argv, &cwd, &[], Limits { output: OUTPUT, time: None }));
    let ended = tokio::select! {
        ended = &mut command => ended,
        () = stop.cancelled() => {
            client.shutdown();
            // it hears that the channel is lost
            let _ = command.await;
            return Ok(None);
        }
    };
    client.shutdown();
    let output = ended.map_err(|e| Error::failed(format!("a command was given up: {e}")))??;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let status = match output.status {
        Status::Exited(status) => status,
        Status::Signaled(signal) => 128 + signal,
    };
    Ok(Some(Left::Command { stdout: text(output.stdout), stderr: text(output.stderr), status }))
}
