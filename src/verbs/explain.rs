//! `hmz explain` and `hmz api-resources`: what there is to declare, from the schemas.

use crate::cli;
use crate::output::{explain, table};
use crate::show;
use hmz_api::{AnyResource, Environment, Error, Flow, Kind, Run, Runtime};
use std::process::ExitCode;

/// Runs `explain`.
///
/// # Errors
/// When there is no such kind or field.
pub fn run(args: &cli::Explain) -> Result<ExitCode, Error> {
    let (word, path) = args.what.split_once('.').unwrap_or((&args.what, ""));
    let (kind, schema) = if matches!(word, "settings" | "settings.yaml") {
        ("settings.yaml", explain::schema("settings.json")?)
    } else {
        let kind = super::name::kind(word)?;
        (kind, explain::schema_of(kind)?)
    };
    show::print(&explain::explain(kind, &schema, path, args.recursive)?);
    Ok(ExitCode::SUCCESS)
}

/// Runs `api-resources`.
///
/// # Errors
/// Never.
pub fn kinds(args: &cli::ApiResources) -> Result<ExitCode, Error> {
    fn row<K: Kind>() -> Vec<String> {
        [K::PLURAL, &K::SHORT.join(","), hmz_api::API_VERSION, K::KIND].map(str::to_owned).to_vec()
    }
    let rows = [row::<Environment>(), row::<Flow>(), row::<Run>(), row::<Runtime>()];
    debug_assert!(rows.iter().all(|row| AnyResource::kind_of_word(&row[0]).is_some()));
    show::print(&if args.output == Some(cli::NameOutput::Name) {
        rows.iter().map(|row| format!("{}\n", row[0])).collect()
    } else {
        let header = ["NAME", "SHORTNAMES", "APIVERSION", "KIND"].map(str::to_owned).to_vec();
        let lines: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
        table::align(&lines, &mut Vec::new(), None)
    });
    Ok(ExitCode::SUCCESS)
}
