//! A resource as YAML.

use hmz_api::{AnyResource, Error};

/// Writes a resource as one YAML document that reads back equal; `get -o yaml` prints it.
///
/// # Errors
/// An internal error when a value has no YAML form; no resource that was read has one.
pub fn to_yaml(resource: &AnyResource) -> Result<String, Error> {
    let wrong = |e: String| Error::new(hmz_api::ErrorKind::Internal, format!("this cannot be written as YAML: {e}"));
    serde_saphyr::to_string(resource).map_err(|e| wrong(e.to_string()))
}

/// Writes any value as YAML, ending with a newline.
///
/// # Errors
/// As [`to_yaml`].
pub fn value_to_yaml(value: &serde_json::Value) -> Result<String, Error> {
    let text = serde_saphyr::to_string(value)
        .map_err(|e| Error::new(hmz_api::ErrorKind::Internal, format!("this cannot be written as YAML: {e}")))?;
    Ok(if text.ends_with('\n') { text } else { format!("{text}\n") })
}

/// Writes resources as one text of as many documents, which [`crate::read`] takes back.
///
/// # Errors
/// As [`to_yaml`].
pub fn to_yaml_all<'a>(resources: impl IntoIterator<Item = &'a AnyResource>) -> Result<String, Error> {
    let texts: Vec<String> = resources.into_iter().map(to_yaml).collect::<Result<_, _>>()?;
    Ok(texts.join("---\n"))
}
