//! `hmz backup`: everything that is declared and known, as one file, while the daemon is at work.

use crate::cli;
use crate::client::Client;
use crate::{edge, show};
use hmz_api::Error;
use hmz_server::restore;
use std::path::Path;
use std::process::ExitCode;

/// Runs it. The file is there as a whole or not at all.
///
/// # Errors
/// When the daemon cannot be had, or the file cannot be written.
pub async fn run(client: Client, args: cli::Backup) -> Result<ExitCode, Error> {
    if show::is_stdout(&args.file)? {
        return to_stdout(&client).await;
    }
    let to = std::path::absolute(&args.file).map_err(|e| edge::io(&args.file.display().to_string(), &e))?;
    let dir = to.parent().filter(|_| to.file_name().is_some());
    let dir = dir.ok_or_else(|| Error::usage(format!("{} is no name of a file", to.display())))?;
    refuse(&to, dir, args.overwrite)?;
    let cannot = |e: std::io::Error| edge::io(&dir.display().to_string(), &e);
    // private from its beginning, in the same directory, so that it takes its name in one step
    let mut file = tempfile::Builder::new().prefix(".hmz-backup-").tempfile_in(dir).map_err(cannot)?;
    client.backup(file.as_file_mut()).await?;
    file.as_file().sync_all().map_err(cannot)?;
    // what cannot be restored is no backup
    let found = restore::look(file.path())?;
    if args.overwrite {
        file.persist(&to).map_err(|e| cannot(e.error))?;
    } else {
        file.persist_noclobber(&to).map_err(|e| cannot(e.error))?;
    }
    std::fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(cannot)?;
    show::print(&format!("{} has {}\n", args.file.display(), restore::counted(&found)));
    Ok(ExitCode::SUCCESS)
}

/// The same to standard output: not a byte of one that cannot be restored.
async fn to_stdout(client: &Client) -> Result<ExitCode, Error> {
    let mut file = tempfile::NamedTempFile::new().map_err(|e| edge::io("a file for the backup", &e))?;
    client.backup(file.as_file_mut()).await?;
    let found = restore::look(file.path())?;
    show::pour(file.path())?;
    show::aside(&format!("it has {}", restore::counted(&found)));
    Ok(ExitCode::SUCCESS)
}

/// Refuses what would lose something.
fn refuse(to: &Path, dir: &Path, overwrite: bool) -> Result<(), Error> {
    let state = edge::paths()?.state;
    if dir.canonicalize().is_ok_and(|dir| dir.starts_with(&state)) {
        return Err(Error::refused(format!("{} is where the store itself is; give a place elsewhere", dir.display())));
    }
    if std::fs::symlink_metadata(to).is_ok() && !overwrite {
        return Err(Error::refused(format!("{} is there already", to.display()))
            .hint("give another name, or --overwrite to have it replaced"));
    }
    Ok(())
}
