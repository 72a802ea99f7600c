//! Claude's whole environment, and what its commands may bring along. Tables, not code.

use crate::SessionStart;
use crate::boxed::scratch;
use std::collections::BTreeMap;

/// Variables of the caller's that claude gets. A trailing `*` matches any ending.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    // what the user set for it
    "ANTHROPIC_*",
    "CLAUDE_CODE_*",
    "CLAUDE_CONFIG_DIR",
    "CLAUDE_SECURESTORAGE_CONFIG_DIR",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_REGION",
];

/// Variables of the caller's that say how servers are reached; whatever asks one gets them.
pub(super) const NETWORK: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// What the user wishes of it, wherever it runs: limits and what it does not do.
const WISHES: &[&str] = &[
    "API_TIMEOUT_MS",
    "MAX_THINKING_TOKENS",
    "BASH_DEFAULT_TIMEOUT_MS",
    "BASH_MAX_TIMEOUT_MS",
    "BASH_MAX_OUTPUT_LENGTH",
    "DISABLE_TELEMETRY",
    "DISABLE_ERROR_REPORTING",
    "DISABLE_BUG_COMMAND",
    "DISABLE_PROMPT_CACHING*",
];

/// Variables of the caller's that claude gets in a box besides: what the user wishes of it. No key, no sign-in, no address (one may
/// hold a key) and no path is among them; what it signs in with is the box's own.
const PASSED_TO_A_BOX: &[&str] =
    &["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "CLAUDE_CODE_MAX_OUTPUT_TOKENS", "CLAUDE_CODE_MAX_RETRIES"];

/// What the patterns above match and claude does not get: they are of the claude that may have started us, or they
/// would have it run a program here or keep its files elsewhere.
const KEPT_BACK: &[&str] = &[
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_EXECPATH",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_MESSAGING_*",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_CODE_CHILD_NOTES_DIR",
    "CLAUDE_CODE_SHELL",
    "CLAUDE_CODE_SHELL_PREFIX",
    "CLAUDE_CODE_TMPDIR",
];

/// Variables a command may bring along into the box. Keys, sockets and the CLI's own are not among them.
pub(super) const ALLOWED_IN_COMMANDS: &[&str] =
    &["TERM", "PAGER", "GIT_PAGER", "GIT_EDITOR", "NO_COLOR", "LANG", "LC_*", "CLAUDECODE", "TMPDIR"];

fn goes_into_a_box(name: &str) -> bool {
    matches(WISHES, name) || matches(PASSED_TO_A_BOX, name)
}

fn matches(patterns: &[&str], name: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => *pattern == name,
    })
}

fn is_passed(name: &str) -> bool {
    (matches(PASSED, name) || matches(WISHES, name) || matches(NETWORK, name)) && !matches(KEPT_BACK, name)
}

/// The environment of a session's process.
pub(super) fn of(start: &SessionStart, session: &str, shell: &str) -> BTreeMap<String, String> {
    let passed = start.caller.env.iter().filter(|(name, _)| is_passed(name));
    let mut env: BTreeMap<String, String> = passed.map(|(name, value)| (name.clone(), value.clone())).collect();
    env.extend(ours(start, session));
    env.extend(shells(shell));
    env
}

/// The shell its commands are run with, by a path where it runs itself.
pub(super) fn shells(shell: &str) -> [(String, String); 2] {
    ["SHELL", "CLAUDE_CODE_SHELL"].map(|name| (name.to_owned(), shell.to_owned()))
}

/// What a session's process in a box gets on top of the box's own variables.
pub(super) fn in_box(start: &SessionStart, session: &str) -> BTreeMap<String, String> {
    let passed = start.caller.env.iter().filter(|(name, _)| goes_into_a_box(name));
    passed.map(|(name, value)| (name.clone(), value.clone())).chain(ours(start, session)).collect()
}

/// What it gets wherever it runs.
fn ours(start: &SessionStart, session: &str) -> [(String, String); 6] {
    let scratch = scratch(&start.place, session).to_string_lossy().into_owned();
    [
        ("TERM", "dumb"),
        ("TMPDIR", &scratch),
        ("CLAUDE_CODE_TMPDIR", &scratch),
        // its memory folder is read by the user's own later sessions
        ("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1"),
        // a turn is over when it answers; nothing starts another one by itself
        ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_caller_holds_besides_stays_with_the_caller() {
        for name in [
            "SSH_AUTH_SOCK",
            "DBUS_SESSION_BUS_ADDRESS",
            "DOCKER_HOST",
            "AWS_SECRET_ACCESS_KEY",
            "GITHUB_TOKEN",
            "LD_PRELOAD",
            "NODE_OPTIONS",
        ] {
            assert!(!is_passed(name), "{name}");
        }
        for name in ["CLAUDE_CODE_SHELL_PREFIX", "CLAUDE_CODE_MESSAGING_TOKEN"] {
            assert!(!is_passed(name), "{name}");
        }
        for name in ["ANTHROPIC_BASE_URL", "LC_ALL", "HTTPS_PROXY"] {
            assert!(is_passed(name), "{name}");
        }
    }

    #[test]
    fn no_key_and_no_address_goes_into_a_box() {
        for name in [
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_CUSTOM_HEADERS",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CONFIG_DIR",
            "AWS_BEARER_TOKEN_BEDROCK",
            "HTTPS_PROXY",
            "HOME",
            "PATH",
        ] {
            assert!(!goes_into_a_box(name), "{name}");
        }
        assert!(goes_into_a_box("DISABLE_TELEMETRY"));
    }

    #[test]
    fn no_key_and_no_socket_goes_along_with_a_command() {
        for name in [
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CODE_MESSAGING_SOCKET",
            "HOME",
            "PATH",
            "SHELL",
        ] {
            assert!(!matches(ALLOWED_IN_COMMANDS, name), "{name}");
        }
        assert!(matches(ALLOWED_IN_COMMANDS, "LC_ALL"));
    }
}
