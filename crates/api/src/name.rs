//! Names of resources and roles.

use crate::error::Error;

/// Checks the name of a resource: at most 63 of lower-case letters, digits, `-` and `.`, beginning and ending with a
/// letter or digit. A runtime's resource name is `backend:name` and is checked by [`crate::RuntimeRef`] instead.
///
/// # Errors
/// A usage error that says the rule.
pub fn check(name: &str) -> Result<(), Error> {
    let ok = !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && name.bytes().last().is_some_and(|b| b.is_ascii_alphanumeric());
    if ok {
        return Ok(());
    }
    Err(Error::usage(format!(
        "'{name}' is not a name: at most 63 lower-case letters, digits, dashes and dots, beginning and ending with a letter or digit"
    )))
}

/// Whether `word` is an identifier, as a role has to be.
pub fn is_identifier(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_') && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}
