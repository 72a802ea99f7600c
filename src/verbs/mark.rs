//! `hmz label` and `hmz annotate`: what resources are marked with.

use crate::cli;
use crate::client::Client;
use crate::output::select;
use crate::show;
use crate::verbs::name;
use hmz_api::Error;
use hmz_api::rest::{Applied, Edit};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Labels.
    Labels,
    /// Annotations.
    Annotations,
}

/// Runs it.
///
/// # Errors
/// When the command line is wrong or the daemon cannot be had.
pub async fn run(client: Client, args: cli::Mark, what: What) -> Result<ExitCode, Error> {
    let is_change = |word: &&String| word.contains('=') || word.ends_with('-');
    let (words, names): (Vec<String>, Vec<String>) = args.words.iter().cloned().partition(|word| is_change(&word));
    let changes = select::changes(&words)?;
    if changes.is_empty() {
        return Err(Error::usage("nothing is changed: KEY=VALUE sets, KEY- takes away"));
    }
    let mut wanted = Vec::new();
    let by_selection = args.all || args.which.is_said();
    match args.what.split_once('/') {
        Some(_) => {
            for typed in std::iter::once(&args.what).chain(&names) {
                wanted.push(name::one(typed, None)?);
            }
        }
        None if by_selection && names.is_empty() => {
            let kind = name::kind(&args.what)?;
            let selection = args.which.selection(&[kind])?;
            let found = client.list(kind).await?;
            let meant = found.iter().filter(|one| selection.matches(one) && one.metadata().uid.is_some());
            wanted.extend(meant.map(|one| (kind, one.metadata().name.clone())));
        }
        None if names.is_empty() => return Err(name::one(&args.what, None).err().unwrap_or_else(|| Error::usage("no name"))),
        None => {
            for typed in &names {
                wanted.push(name::one(&args.what, Some(typed))?);
            }
        }
    }
    let (verb, done) = match what {
        What::Labels => ("label", "labelled"),
        What::Annotations => ("annotate", "annotated"),
    };
    let (labels, annotations) = match what {
        What::Labels => (changes, BTreeMap::new()),
        What::Annotations => (BTreeMap::new(), changes),
    };
    let edit = Edit { labels, annotations, overwrite: args.overwrite, ..Edit::default() };
    let mut worst = 0;
    for (kind, name) in wanted {
        let shown = name::shown(kind, &name);
        match client.edit(kind, &name, &edit).await {
            Ok(Applied::Unchanged) => show::print(&format!("{shown} unchanged\n")),
            Ok(_) => show::print(&format!("{shown} {done}\n")),
            Err(e) => {
                let told = Error { message: format!("{shown}: {}", e.message), ..e };
                worst = worst.max(told.exit_code());
                show::error(verb, &told);
            }
        }
    }
    Ok(ExitCode::from(worst))
}
