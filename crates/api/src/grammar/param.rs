//! `-p KEY=VALUE`, of which `budget.duration` is the run's limit.

use super::split;
use crate::error::Error;
use crate::kinds::RunParams;
use serde_json::Value;

/// One item of `-p`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamArg {
    /// The key, such as `budget.duration`.
    pub key: String,
    /// The value, as typed.
    pub value: String,
}

impl ParamArg {
    /// Reads one `-p` value, which may hold several items.
    ///
    /// # Errors
    /// A usage error that quotes the item.
    pub fn parse_all(value: &str) -> Result<Vec<Self>, Error> {
        split::items(value)
            .into_iter()
            .map(|item| match item.split_once('=') {
                Some((key, value)) if !key.trim().is_empty() => {
                    Ok(Self { key: key.trim().to_owned(), value: value.trim().to_owned() })
                }
                _ => Err(Error::usage(format!("-p '{item}': expected <key>=<value>"))),
            })
            .collect()
    }

    /// Puts items together.
    ///
    /// # Errors
    /// A key given twice, a budget key that is none, or a value that is not what the key takes.
    pub fn collect(args: &[Self]) -> Result<RunParams, Error> {
        let mut params = RunParams::default();
        let mut seen: Vec<&str> = Vec::new();
        for arg in args {
            if seen.contains(&arg.key.as_str()) {
                return Err(Error::usage(format!("-p: '{}' is given twice", arg.key)));
            }
            seen.push(&arg.key);
            match arg.key.as_str() {
                "budget.duration" => {
                    let span = arg.value.parse().map_err(|e| Error::usage(format!("-p {}={}: {e}", arg.key, arg.value)))?;
                    params.budget.duration = Some(span);
                }
                "budget" => return Err(Error::usage("-p: a budget is given a limit at a time, as budget.duration=10m")),
                key if key.starts_with("budget.") => {
                    return Err(Error::usage(format!("-p {key}={}: not a limit; one of budget.duration", arg.value)));
                }
                key => {
                    let value = serde_json::from_str(&arg.value).unwrap_or_else(|_| Value::String(arg.value.clone()));
                    params.own.insert(key.to_owned(), value);
                }
            }
        }
        Ok(params)
    }
}
