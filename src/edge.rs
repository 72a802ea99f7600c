//! The edge: what of the caller's environment is used, and how a verb ends.

use hmz_api::launch::CallerContext;
use hmz_api::{Error, ErrorKind};
use hmz_server::Paths;
use hmz_telemetry::TraceContext;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::OnceLock;

/// Variables of the caller that a run's processes here get, by name or by prefix (`*`). Nothing of them reaches a box.
const PASSED: [&str; 27] = [
    "ALL_PROXY",
    "all_proxy",
    "SSL_CERT_DIR",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_REGION",
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TERM",
    "ANTHROPIC_*",
    "CLAUDE_*",
    "DISABLE_*",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
    "IS_SANDBOX",
];

/// This process's environment, as far as it is UTF-8.
pub fn environment() -> BTreeMap<String, String> {
    std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect()
}

/// The paths of this HMZ_HOME, made.
///
/// # Errors
/// When they cannot be made.
pub fn paths() -> Result<Paths, Error> {
    let paths = Paths::from_env(&environment())?;
    paths.prepare()?;
    Ok(paths)
}

/// Where in a trace this process is: below what `TRACEPARENT` names, else at its beginning.
pub fn trace() -> &'static TraceContext {
    static TRACE: OnceLock<TraceContext> = OnceLock::new();
    TRACE.get_or_init(TraceContext::of_environment)
}

/// Who asks, with what a run of theirs needs.
pub fn caller() -> CallerContext {
    let env = environment();
    let passed = |name: &str| PASSED.iter().any(|p| p.strip_suffix('*').map_or(*p == name, |prefix| name.starts_with(prefix)));
    let cwd = std::env::current_dir().map(|d| d.display().to_string()).unwrap_or_else(|_| "/".into());
    CallerContext {
        cwd,
        // an endpoint that cannot be resolved is found out, and said, by whoever needs it
        docker_endpoint: hmz_drivers::docker::resolve_local(&env).ok(),
        env: env.into_iter().filter(|(name, _)| passed(name)).collect(),
        trace: Some(trace().to_string()),
    }
}

/// Prints an error as every verb does, and gives its exit status.
pub fn fail(verb: &str, error: &Error) -> ExitCode {
    crate::show::error(verb, error);
    ExitCode::from(error.exit_code())
}

/// A fault of reading or writing at the edge.
pub fn io(what: &str, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Failed, format!("{what}: {error}"))
}
