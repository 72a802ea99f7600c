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

impl fmt::Display for AgentSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cli)?;
        if let Some(account) = &self.account {
            write!(f, "@{account}")?;
        }
        write!(f, "/{}", self.model)?;
        if let Some(effort) = &self.effort {
            write!(f, ":{effort}")?;
        }
        Ok(())
    }
}

impl FromStr for AgentSpec {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::usage(format!("'{text}': expected <harness>[@<provider>]/<model>[:<effort>]"));
        let (head, tail) = text.trim().split_once('/').ok_or_else(wrong)?;
        let (cli, account) = match head.split_once('@') {
            Some((_, "")) => {
                return Err(Error::usage(format!("'{text}': expected an account after @, as in {head}deepseek/MODEL:EFFORT")));
            }
            Some((cli, account)) => (cli, Some(account.to_owned())),
            None => (head, None),
        };
        // what follows the last colon is an effort only if it is a word; a model may hold colons itself
        let (model, effort) = match tail.rsplit_once(':') {
            Some((model, effort)) if effort.chars().all(|c| c.is_ascii_alphabetic() || matches!(c, '-' | '_' | ' ')) => {
                (model, Some(effort))
            }
            _ => (tail, None),
        };
        if cli.is_empty() || model.is_empty() || cli.contains(char::is_whitespace) {
            return Err(wrong());
        }
        let effort = effort.filter(|e| !e.is_empty() && *e != "auto").map(str::to_owned);
        Ok(Self { cli: cli.to_owned(), account, model: model.to_owned(), effort })
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
                let spec = text.parse::<AgentSpec>().map_err(|e| {
                    if e.message.contains("expected an account") {
                        return Error::usage(format!("-a {}", e.message));
                    }
                    Error::usage(format!("-a '{item}': expected [<role>=]<harness>[@<provider>]/<model>[:<effort>]"))
                })?;
                Ok(Self { role: role.map(str::to_owned), spec })
            })
            .collect()
    }
}
