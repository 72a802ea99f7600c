//! Claude's command line.
//!
//! No setting of the user's, the project's or the folder's is loaded (`--setting-sources ''`), no MCP server of a project
//! is started (`--strict-mcp-config`), hooks are off: what a project or an agent planted starts nothing here. Permission
//! prompts are not switched off but asked over its own channel.

use super::state::StateFolders;
use serde_json::json;

/// Whether the conversation is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conversation {
    /// It begins.
    Fresh,
    /// It goes on.
    Resumed,
}

pub(super) fn of(
    model: &str,
    effort: Option<&str>,
    session: &str,
    conversation: Conversation,
    state: &StateFolders,
) -> Vec<String> {
    let settings = settings(state);
    let mut argv: Vec<&str> = vec![
        "claude",
        "-p",
        "--input-format",
        "stream-json",
        "--output-format",
        "stream-json",
        "--verbose",
        "--permission-mode",
        "default",
        "--permission-prompt-tool",
        "stdio",
        "--setting-sources",
        "",
        "--strict-mcp-config",
        "--settings",
        &settings,
        "--model",
        model,
    ];
    if let Some(effort) = effort {
        argv.extend(["--effort", effort]);
    }
    argv.extend([if conversation == Conversation::Fresh { "--session-id" } else { "--resume" }, session]);
    argv.into_iter().map(str::to_owned).collect()
}

/// Its own second line of defence: tools may not read the sign-in, which the process itself must be able to read.
fn settings(state: &StateFolders) -> String {
    // `//` is its word for an absolute path
    let (config, global) = (state.config.display(), state.global.display());
    json!({
        "disableAllHooks": true,
        "permissions": {"deny": [
            format!("Read(/{config}/.credentials.json)"),
            format!("Read(/{global})"),
            format!("Edit(/{config}/**)"),
            format!("Edit(/{global})"),
        ]},
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line() {
        let state = StateFolders { config: "/home/me/.claude".into(), global: "/home/me/.claude.json".into() };
        let argv = of("claude-haiku-4-5", Some("low"), "6f9619ff-8b86-d011-b42d-00cf4fc964ff", Conversation::Fresh, &state);
        insta::assert_snapshot!(argv.join("\n"));
        let again = of("m", None, "id", Conversation::Resumed, &state);
        assert_eq!(again[again.len() - 4..], ["--model", "m", "--resume", "id"]);
    }
}
