//! `-e ROLE=BACKEND[@PROVIDER][/WORKDIR]`.

use super::split;
use crate::error::Error;
use crate::name::is_identifier;
use crate::reference::{Backend, RuntimeRef};
use std::fmt;
use std::str::FromStr;

/// Where an environment role is put, as one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvSpec {
    /// The runtime.
    pub runtime: RuntimeRef,
    /// The directory: absolute, `~` or `~/…`; `None`: the runtime's own.
    pub workdir: Option<String>,
}

impl fmt::Display for EnvSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.runtime.at())?;
        match &self.workdir {
            Some(dir) if dir.starts_with('/') => f.write_str(dir),
            Some(dir) => write!(f, "/{dir}"),
            None => Ok(()),
        }
    }
}

impl FromStr for EnvSpec {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text.trim(), "<role>").map_err(Error::usage)
    }
}

fn parse(text: &str, role: &str) -> Result<EnvSpec, String> {
    let head_end = text.find(['@', '/']).unwrap_or(text.len());
    let word = text[..head_end].trim();
    if word.is_empty() || word.contains(['[', ']', '=']) {
        return Err("expected <role>=<backend>[@<provider>][/<workdir>]".into());
    }
    let backend = Backend::from_word(word)
        .ok_or_else(|| format!("'{word}' is not a backend; one of local, ssh, docker, swarm, apple-container, slurm"))?;
    let rest = &text[head_end..];
    let (provider, rest) = match rest.strip_prefix('@') {
        None => (None, rest),
        Some(tail) => {
            let end = tail.find('/').unwrap_or(tail.len());
            (Some(tail[..end].trim()), &tail[end..])
        }
    };
    if let Some(provider) = provider {
        if backend == Backend::Local {
            return Err(format!("local takes no provider; write {role}=local/<workdir>"));
        }
        if provider.is_empty() {
            return Err(format!("an @ is written only before a provider; write {role}={word}/x"));
        }
        if provider.starts_with('[') {
            if backend != Backend::Ssh {
                return Err(format!(
                    "only ssh takes a host nobody saved; {word}@<name> names a {word} runtime saved on the runtimes page of /settings"
                ));
            }
            if !is_ssh_host(provider) {
                return Err(format!("'{}' is not an ssh host, as [user@]host[:port]", provider.trim_matches(['[', ']'])));
            }
            return Err("a host nobody saved is not supported yet; save it under a name".into());
        }
        RuntimeRef::check_name(provider).map_err(|e| e.message)?;
    } else if backend == Backend::Ssh {
        return Err("ssh needs a host: ssh@<saved host>/x, or ssh@[user@host:port]/x for a host not saved".into());
    }
    let workdir = match rest {
        "" if provider.is_none() => {
            return Err("expected <role>=<backend>[@<provider>][/<workdir>]; /<workdir> may be left off only for a runtime saved with one".into());
        }
        "" => None,
        dir if dir == "/~" || dir.starts_with("/~/") => Some(dir[1..].to_owned()),
        dir => Some(dir.to_owned()),
    };
    Ok(EnvSpec { runtime: RuntimeRef { backend, name: provider.map(str::to_owned) }, workdir })
}

/// Whether a bracketed provider is `[user@]host[:port]`.
fn is_ssh_host(text: &str) -> bool {
    let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) else { return false };
    let word = |w: &str| {
        w.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && w.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'%' | b'+' | b'-'))
    };
    let (user, host) = inner.split_once('@').map_or((None, inner), |(u, h)| (Some(u), h));
    let (host, port) = host.split_once(':').map_or((host, None), |(h, p)| (h, Some(p)));
    let is_port = |p: &str| (1..=5).contains(&p.len()) && p.bytes().all(|b| b.is_ascii_digit());
    word(host) && user.is_none_or(word) && port.is_none_or(is_port)
}

/// One item of `-e`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvArg {
    /// The environment role.
    pub role: String,
    /// Where it is put.
    pub spec: EnvSpec,
}

impl EnvArg {
    /// Reads one `-e` value, which may hold several items.
    ///
    /// # Errors
    /// A usage error that quotes the item.
    pub fn parse_all(value: &str) -> Result<Vec<Self>, Error> {
        split::items(value)
            .into_iter()
            .map(|item| {
                if item.is_empty() {
                    return Err(Error::usage(format!("-e '{value}': an item is empty")));
                }
                let wrong = |why: String| Error::usage(format!("-e '{item}': {why}"));
                let (role, text) =
                    item.split_once('=').ok_or_else(|| wrong("expected <role>=<backend>[@<provider>][/<workdir>]".into()))?;
                let role = role.trim();
                if !is_identifier(role) {
                    return Err(wrong(format!("the role '{role}' is not an identifier")));
                }
                let spec = parse(text.trim(), role).map_err(wrong)?;
                Ok(Self { role: role.to_owned(), spec })
            })
            .collect()
    }

    /// Reads every `-e` of a command line.
    ///
    /// # Errors
    /// A usage error that quotes the item, or names a role that is given twice.
    pub fn parse_flags<T: AsRef<str>>(values: impl IntoIterator<Item = T>) -> Result<Vec<Self>, Error> {
        let mut args: Vec<Self> = Vec::new();
        for value in values {
            for arg in Self::parse_all(value.as_ref())? {
                if args.iter().any(|a| a.role == arg.role) {
                    return Err(Error::usage(format!("-e: the role '{}' is given twice", arg.role)));
                }
                args.push(arg);
            }
        }
        Ok(args)
    }
}
