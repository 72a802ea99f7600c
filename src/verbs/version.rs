//! `hmz version`: this program's, and the daemon's when one runs. It starts none.

use crate::client::Client;
use crate::edge;
use std::process::ExitCode;

/// Runs it.
pub fn run() -> ExitCode {
    let own = env!("CARGO_PKG_VERSION");
    let daemon =
        edge::paths().ok().filter(|paths| std::os::unix::net::UnixStream::connect(paths.socket()).is_ok()).and_then(|paths| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(Client::new(paths).version()).ok()
        });
    let text = match daemon {
        Some(version) => format!("hmz {own}\ndaemon {version}\n"),
        None => format!("hmz {own}\ndaemon not running\n"),
    };
    crate::show::print(&text);
    ExitCode::SUCCESS
}
