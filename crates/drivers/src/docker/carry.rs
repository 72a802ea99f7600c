//! The hidden verb `hmz carry`: the stream to a box of a daemon elsewhere, for a session whose daemon of ours is gone and with it
//! the shorter way. It goes to that daemon by itself, and holds nothing when its standard input ends.

use super::road::Road;
use hmz_wire::channel::{CARRIED, Carried};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// How long one answer of the daemon is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Carries what the variable says. Why it could not is said in one line on standard error.
pub fn carry() -> ExitCode {
    match carried() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn carried() -> Result<(), String> {
    let said = std::env::var(CARRIED).map_err(|_| "hmz carry is not for people".to_owned())?;
    let Carried { way, container, exec } = serde_json::from_str(&said).map_err(|e| e.to_string())?;
    let text = |e: std::io::Error| e.to_string();
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let made = |dir: PathBuf| tempfile::Builder::new().prefix("hmz-c").tempdir_in(dir);
    // short: sockets are made in it
    let dir = own.map_or_else(|| made("/tmp".into()), |own| made(own).or_else(|_| made("/tmp".into()))).map_err(text)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(2)
        .enable_all()
        .build()
        .map_err(text)?;
    let road = runtime.block_on(async { Road::new(&way, dir.path()) })?;
    let socket = runtime.block_on(road.socket())?;
    // what is connected stays so, and a process that is killed later leaves no directory behind
    let carried = hmz_wire::channel::carry(&socket, &container, &exec, PATIENCE, || drop(dir)).map_err(text);
    drop(road);
    runtime.shutdown_background();
    carried
}
