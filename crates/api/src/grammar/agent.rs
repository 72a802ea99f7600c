//! `-a [ROLE=]CLI[@ACCOUNT]/MODEL[:EFFORT]`.

use super::split;
use crate::error::Error;
use crate::name::is_identifier;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// Which CLI with which model plays an agent role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSpec {
    /// The CLI's word, such as `claude` or `script`.
    pub cli: String,
    /// The account, when one was named.
    pub account: Option<String>,
    /// The model; for `script`, the path of the list of steps (absolute, or relative to the manifest or the caller).
    pub model: String,
    /// How hard to think; `None` says nothing to the CLI.
    pub effort: Option<String>,
}

impl AgentSpec {
    /// The name that refusals know its CLI's agent by, such as `ClaudeCodeAgent`.
    pub fn class(&self) -> String {
        let mut letters = self.cli.chars();
        let first = letters.next().map(|c| c.to_ascii_uppercase());
        match self.cli.as_str() {
            "claude" => "ClaudeCodeAgent".to_owned(),
            _ => first.into_iter().chain(letters).collect::<String>() + "Agent",
        }
    }
}

impl fmt::Display for AgentSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cli)?;
        if let Some(account) = &self.account {
            write!(f, "@{account}")?;
        }
        write!(f, "/{}", self.model)?;
        match &self.effort {
            Some(effort) => write!(f, ":{effort}"),
            // the end of the model would be read as an effort
            None if self.model.rsplit_once(':').is_some_and(|(_, tail)| is_effort(tail)) => f.write_str(":auto"),
            None => Ok(()),
        }
    }
}

/// Whether what follows the last colon is an effort: nothing, or words joined by spaces, dashes and underscores. Anything
/// else belongs to the model, which may hold colons itself.
fn is_effort(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphabetic() || matches!(c, '-' | '_' | ' '))
}

/// Why a text is no agent.
enum Wrong {
    Shape,
    /// An `@` without an account; what stands before it.
    Account(String),
}

impl Wrong {
    fn say(&self, expected: &str) -> String {
        match self {
            Self::Shape => format!("expected {expected}<harness>[@<provider>]/<model>[:<effort>]"),
            Self::Account(cli) => format!("expected an account after @, as in {cli}@deepseek/MODEL:EFFORT"),
        }
    }
}

fn parse(text: &str) -> Result<AgentSpec, Wrong> {
    let word =
        |w: &str| !w.is_empty() && !w.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '=' | ',' | '@'));
    let (head, tail) = text.trim().split_once('/').ok_or(Wrong::Shape)?;
    let (cli, account) = match head.split_once('@') {
        Some((cli, account)) => (cli.trim(), Some(account.trim())),
        None => (head.trim(), None),
    };
    let (model, effort) = match tail.rsplit_once(':') {
        Some((model, effort)) if is_effort(effort) => (model.trim(), effort.trim()),
        _ => (tail.trim(), ""),
    };
    if !word(cli) || model.is_empty() || model.contains(char::is_control) {
        return Err(Wrong::Shape);
    }
    match account {
        Some("") => return Err(Wrong::Account(cli.to_owned())),
        Some(account) if !word(account) => return Err(Wrong::Shape),
        _ => {}
    }
    let effort = Some(effort).filter(|e| !e.is_empty() && *e != "auto");
    Ok(AgentSpec {
        cli: cli.to_owned(),
        account: account.map(str::to_owned),
        model: model.to_owned(),
        effort: effort.map(str::to_owned),
    })
}

impl FromStr for AgentSpec {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).map_err(|wrong| Error::usage(format!("'{text}': {}", wrong.say(""))))
    }
}

impl Serialize for AgentSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AgentSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for AgentSpec {
    fn schema_name() -> Cow<'static, str> {
        "AgentSpec".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "description": "<cli>[@<account>]/<model>[:<effort>], such as claude/claude-haiku-4-5:low"})
    }
}

/// One item of `-a`: with a role, or positional (the first role without an agent takes it).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentArg {
    /// The role; `None` when positional.
    pub role: Option<String>,
    /// Who plays it.
    pub spec: AgentSpec,
}

impl AgentArg {
    /// Reads one `-a` value, which may hold several items.
    ///
    /// # Errors
    /// A usage error that quotes the item.
    pub fn parse_all(value: &str) -> Result<Vec<Self>, Error> {
        split::items(value)
            .into_iter()
            .map(|item| {
                if item.is_empty() {
                    return Err(Error::usage(format!("-a '{value}': an item is empty")));
                }
                let slash = item.find('/').unwrap_or(item.len());
                let (role, text) = match item[..slash].split_once('=') {
                    Some((role, _)) => (Some(role.trim()), &item[item.find('=').map_or(0, |i| i + 1)..]),
                    None => (None, item),
                };
                if let Some(role) = role.filter(|r| !is_identifier(r)) {
                    return Err(Error::usage(format!("-a '{item}': the role '{role}' is not an identifier")));
                }
                let spec = parse(text).map_err(|wrong| Error::usage(format!("-a '{item}': {}", wrong.say("[<role>=]"))))?;
                Ok(Self { role: role.map(str::to_owned), spec })
            })
            .collect()
    }

    /// Reads every `-a` of a command line.
    ///
    /// # Errors
    /// A usage error that quotes the item, or names a role that is given twice.
    pub fn parse_flags<T: AsRef<str>>(values: impl IntoIterator<Item = T>) -> Result<Vec<Self>, Error> {
        let mut args: Vec<Self> = Vec::new();
        for value in values {
            for arg in Self::parse_all(value.as_ref())? {
                if let Some(role) = arg.role.as_deref().filter(|r| args.iter().any(|a| a.role.as_deref() == Some(*r))) {
                    return Err(Error::usage(format!("-a: the role '{role}' is given twice")));
                }
                args.push(arg);
            }
        }
        Ok(args)
    }
}
