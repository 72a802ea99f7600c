//! `hmz runtime import-ssh`: hosts of ssh's configuration as runtimes.

use super::Place;
use crate::cli::ImportSsh;
use crate::{edge, show};
use hmz_api::Error;
use hmz_api::rest;
use std::process::ExitCode;

pub(super) async fn run(place: &Place, args: ImportSsh) -> Result<ExitCode, Error> {
    let config = args.config.map(std::path::absolute).transpose().map_err(|e| edge::io("--config", &e))?;
    let config = config.map(|path| path.display().to_string());
    if args.list {
        let found = place.saved.ssh_hosts(config.as_deref()).await?;
        let line = |host: &rest::FoundSshHost| match &host.saved {
            Some(runtime) => format!("{} is saved as {}\n", host.alias, runtime.path()),
            None => format!("{}\n", host.alias),
        };
        show::print(&found.iter().map(line).collect::<String>());
        return Ok(ExitCode::SUCCESS);
    }
    let imported = place.saved.import(rest::ImportSsh { names: args.hosts, config }).await?;
    for (runtime, what) in &imported.hosts {
        let word = if *what == rest::Applied::Created { "imported" } else { what.word() };
        show::print(&format!("{} {word}\n", runtime.path()));
    }
    for sentence in &imported.left {
        show::note("runtime import-ssh", sentence);
    }
    if imported.hosts.is_empty() && imported.left.is_empty() {
        show::note("runtime import-ssh", "the configuration names no host");
    }
    Ok(ExitCode::SUCCESS)
}
