//! `hmz controller`: the daemon, in the foreground or (started by a verb) in the background.

use crate::client::Client;
use crate::{cli, daemon};
use crate::{edge, guest, show};
use hmz_api::{Error, name};
use hmz_manifest::Depth;
use hmz_server::{Config, Folders, Paths, Source, State, SyncConfig};
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often a daemon in the background is asked to make room, should a verb start the next one first.
const TAKES: u32 = 20;

/// Runs it until a signal, or (in the background) until there is nothing to do.
pub fn run(args: &cli::Controller, verbose: u8) -> ExitCode {
    match serve(args, verbose) {
        Ok(code) => code,
        Err(e) => edge::fail("controller", &e),
    }
}

fn serve(args: &cli::Controller, verbose: u8) -> Result<ExitCode, Error> {
    let paths = edge::paths()?;
    if args.background {
        // a fresh child leads no group, so this cannot fail; if it does, the daemon merely ends with its terminal
        let _ = rustix::process::setsid();
    }
    let level = if verbose > 1 { "debug" } else { "info" };
    let ansi = !args.background && std::io::IsTerminal::is_terminal(&std::io::stderr());
    let _guard = hmz_telemetry::start(hmz_telemetry::Process { name: "daemon", filter: level, ansi, target: true, file: None });
    let sync = args.sync.as_deref().map(|source| sync(args, source)).transpose()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| edge::io("could not start", &e))?;
    let said = edge::environment().remove("HMZ_METRICS").filter(|said| !said.is_empty());
    let config = Config {
        paths: paths.clone(),
        env: edge::environment(),
        guest: guest::program(),
        ends_when_idle: args.background,
        sync,
        metrics: args.metrics.clone().or(said),
        metrics_anywhere: args.metrics_anywhere,
    };
    let done = runtime.block_on(async {
        if config.sync.is_some() { in_place(config).await } else { hmz_server::serve(config, |state| say(args, state)).await }
    });
    runtime.shutdown_background();
    done.map(|()| ExitCode::SUCCESS)
}

/// Serves in place of a daemon in the background: what it does is gone on with. One in the foreground is somebody's.
async fn in_place(config: Config) -> Result<(), Error> {
    let mut last = Ok(());
    for _ in 0..TAKES {
        daemon::make_room(&config.paths).await;
        let taken = Arc::new(AtomicBool::new(false));
        let other = Arc::clone(&taken);
        last = hmz_server::serve(config.clone(), move |state| other.store(state == State::AnotherRuns, Ordering::Relaxed)).await;
        if !taken.load(Ordering::Relaxed) {
            return last;
        }
        if !daemon::is_in_background(&config.paths).await {
            return Err(already(&config.paths).await);
        }
    }
    last
}

/// That somebody runs a daemon, and what that keeps in step.
async fn already(paths: &Paths) -> Error {
    let error = Error::failed("a daemon runs in the foreground already for this HMZ_HOME, and one can keep one set in step");
    let sets = Client::new(paths.clone()).sets(false).await.unwrap_or_default();
    match sets.into_iter().find(|set| set.active) {
        Some(set) => {
            let source = set.source.unwrap_or_default();
            Error { message: format!("a daemon runs already, and keeps the set '{}' in step with {source}", set.name), ..error }
                .hint("hmz get sets")
        }
        None => error.hint("end it first, or give this one an HMZ_HOME of its own"),
    }
}

/// What is to be kept in step, with a name for the set that is told when it was made up.
fn sync(args: &cli::Controller, source: &str) -> Result<SyncConfig, Error> {
    let caller = edge::caller();
    let source = Source::read(source, Path::new(&caller.cwd))?;
    if let (Source::Folder(folder), Some(_)) = (&source, &args.sync_ref) {
        return Err(Error::usage("--sync-ref is for a repository, and a directory is taken as it is")
            .hint(format!("for what is committed in it: --sync file://{}", folder.display())));
    }
    if let Some(reference) =
        args.sync_ref.as_deref().filter(|r| r.is_empty() || r.starts_with(['-', '+']) || r.contains([':', ' ']))
    {
        return Err(Error::usage(format!("--sync-ref '{reference}': this is not a branch or a tag")));
    }
    for path in &args.sync_path {
        if path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(Error::usage(format!("--sync-path {}: this leads out of the source", path.display())));
        }
    }
    let set = args.sync_set.clone().unwrap_or_else(|| source.set_name());
    name::check(&set)?;
    let paths: Vec<PathBuf> =
        args.sync_path.iter().map(|path| path.components().filter(|p| *p != Component::CurDir).collect()).collect();
    let named = if args.sync_set.is_none() { "; --sync-set names it otherwise" } else { "" };
    show::note("controller", &format!("keeps the set '{set}' in step with {source}{named}"));
    Ok(SyncConfig {
        source,
        set,
        is_named: args.sync_set.is_some(),
        folders: Folders { paths, depth: if args.sync_recursive { Depth::Whole } else { Depth::Alone } },
        reference: args.sync_ref.clone(),
        interval: args.sync_interval.duration().max(std::time::Duration::from_secs(1)),
        allow_empty: args.sync_allow_empty,
        adopt: args.sync_adopt,
        home: edge::environment().remove("HOME").map(PathBuf::from),
        caller,
    })
}

/// Tells whoever started us, once, and lets go of the pipe.
fn say(args: &cli::Controller, state: State) {
    if !args.background {
        return;
    }
    let word = match state {
        State::Listening => "listening",
        State::AnotherRuns => "running",
    };
    // whoever started us may be gone already
    let _ = writeln!(std::io::stdout(), "{word}");
    if let Ok(null) = std::fs::File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}
