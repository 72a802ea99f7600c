//! The real claude, and the variables with which it runs here: the scripted provider is its only way out.

use std::path::PathBuf;

/// The key the provider is asked with; it opens nothing.
pub const API_KEY: &str = "sk-scripted-0000";

/// The program: `HMZ_TEST_CLAUDE`, else `claude` on PATH.
///
/// # Panics
/// When there is none.
pub fn claude() -> PathBuf {
    if let Some(named) = std::env::var_os("HMZ_TEST_CLAUDE").filter(|v| !v.is_empty()) {
        let named = PathBuf::from(named);
        assert!(named.is_file(), "HMZ_TEST_CLAUDE={} is not a file", named.display());
        return named;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join("claude"))
        .find(|program| program.is_file())
        .expect("these tests need the real claude: run `make test`, or export HMZ_TEST_CLAUDE=$(tests/testbed/claude)")
}

/// The variables that point claude at a provider on loopback and keep it from anything else.
pub fn variables(provider: &str) -> Vec<(&'static str, String)> {
    let mut all = vec![("ANTHROPIC_BASE_URL", provider.to_owned()), ("ANTHROPIC_API_KEY", API_KEY.to_owned())];
    for switch in [
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_AUTOUPDATER",
        "DISABLE_TELEMETRY",
        "DISABLE_ERROR_REPORTING",
        "DISABLE_BUG_COMMAND",
        // a refused connection is tried again ten times otherwise, for more than two minutes
        "CLAUDE_CODE_MAX_RETRIES",
    ] {
        all.push((switch, "1".to_owned()));
    }
    all
}

/// PATH with that claude first, then the system's own programs.
pub fn path() -> String {
    let claude = claude();
    let dir = claude.parent().expect("a program is in a directory");
    format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", dir.display())
}

/// The name of an image that has it, made when it is not there.
///
/// # Panics
/// When it cannot be made.
pub fn image() -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/testbed/claude-image");
    let made = std::process::Command::new(script).env("HMZ_TEST_CLAUDE", claude()).output().expect("the testbed's scripts run");
    assert!(made.status.success(), "{script}: {}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).expect("text").trim().to_owned()
}

/// The directory of node, which came with claude.
///
/// # Panics
/// When there is none on PATH.
pub fn node() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dir = std::env::split_paths(&path).find(|dir| dir.join("node").is_file());
    dir.expect("these tests need node on PATH, as claude's installation does")
}
