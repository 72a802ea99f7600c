//! `hmz restore`: puts a backup in the store's place. It needs no daemon, and ends one that a verb started.

use crate::{cli, daemon, edge, show};
use hmz_api::Error;
use hmz_server::restore;
use std::process::ExitCode;

/// Runs it.
///
/// # Errors
/// When the file is no backup that can be used, something is at work, or the daemon does not end. Then nothing was changed.
pub fn run(args: &cli::Restore) -> Result<ExitCode, Error> {
    let paths = edge::paths()?;
    // before anything ends
    let found = restore::look(&args.file)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| edge::io("could not start", &e))?;
    let alone = runtime.block_on(daemon::alone(&paths))?;
    let done = restore::restore(&paths, &args.file, &alone)?;
    drop(alone);
    show::print(&format!("restored {} from {}\n", restore::counted(&found), args.file.display()));
    if let Some(replaced) = &done.replaced {
        show::print(&format!("what was there before is in {}\n", replaced.display()));
    }
    for one in &done.gone {
        show::note("restore", &format!("{one} is not in it: what it started is removed"));
    }
    Ok(ExitCode::SUCCESS)
}
