//! What finds: `get` with its selectors and forms, `label` and `annotate`.

use super::Output;
use crate::complete;
use crate::output::jsonpath::{Path, Template};
use crate::output::select::Selection;
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use hmz_api::Error;

/// The forms that take a text.
const FORMS: [&str; 2] = ["jsonpath", "custom-columns"];

/// How what was found is printed.
#[derive(Debug, Clone, PartialEq)]
pub enum Form {
    /// As everywhere.
    Usual(Output),
    /// By a template.
    JsonPath(Template),
    /// In columns of one's own.
    Columns(Vec<(String, Path)>),
}

impl Form {
    /// Reads what stands after `-o`.
    ///
    /// # Errors
    /// A usage error with the column of what is wrong in a template.
    pub fn read(text: &str) -> Result<Self, Error> {
        if let Some(template) = text.strip_prefix("jsonpath=") {
            return Template::read(template).map(Self::JsonPath);
        }
        if let Some(columns) = text.strip_prefix("custom-columns=") {
            let column = |column: &str| {
                let (name, path) = column
                    .split_once(':')
                    .filter(|(name, _)| !name.trim().is_empty())
                    .ok_or_else(|| Error::usage(format!("'{column}': a column is NAME:PATH, such as CPUS:.spec.cpus")))?;
                Ok((name.trim().to_owned(), Path::read(path.trim())?))
            };
            return columns.split(',').map(column).collect::<Result<_, Error>>().map(Self::Columns);
        }
        Output::from_str(text, false).map(Self::Usual).map_err(|_| {
            let known: Vec<String> = Self::words().into_iter().map(|word| word.replace('=', "=…")).collect();
            Error::usage(format!("one of {}", known.join(", ")))
        })
    }

    /// What may stand after `-o`; a word that ends in `=` takes a text.
    pub fn words() -> Vec<String> {
        let usual = Output::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        usual.map(|value| value.get_name().to_owned()).chain(FORMS.map(|form| format!("{form}="))).collect()
    }
}

/// Which of a kind.
#[derive(Debug, Args)]
pub struct Which {
    /// Only those with these labels: team=red,tier!=test,env in (a,b),!old
    #[arg(short = 'l', long, value_name = "SELECTOR", allow_hyphen_values = true, add = ArgValueCompleter::new(complete::selector))]
    pub selector: Option<String>,
    /// Only those with these fields: status.used=docker:here,spec.flow!=boxed
    #[arg(long, value_name = "SELECTOR")]
    pub field_selector: Option<String>,
}

impl Which {
    /// What is selected of these kinds.
    ///
    /// # Errors
    /// A usage error that quotes the requirement, or names a field that none of them has.
    pub fn selection(&self, kinds: &[&str]) -> Result<Selection, Error> {
        let selection = Selection::read(self.selector.as_deref(), self.field_selector.as_deref())?;
        selection.check(kinds)?;
        Ok(selection)
    }

    /// Whether anything is said.
    pub const fn is_said(&self) -> bool {
        self.selector.is_some() || self.field_selector.is_some()
    }
}

/// `get`.
#[derive(Debug, Args)]
pub struct Get {
    /// A kind (envs, runs, runtimes, flows, all), or kind/name; also sets, and settings
    #[arg(add = ArgValueCompleter::new(complete::kind_or_all))]
    pub what: String,
    /// Names within the kind
    #[arg(add = ArgValueCompleter::new(complete::name))]
    pub names: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub which: Which,
    /// In the order of the values at a path, such as .metadata.creationTimestamp
    #[arg(long, value_name = "PATH", value_parser = Path::read)]
    pub sort_by: Option<Path>,
    /// How to print: wide, yaml, json, name, jsonpath=TEMPLATE or custom-columns=NAME:PATH,…
    #[arg(short, long, value_name = "FORM", value_parser = Form::read, add = ArgValueCompleter::new(complete::form))]
    pub output: Option<Form>,
    /// Go on printing what changes: a row when a cell changes (its age is none), and `kind/name deleted`; with -o json an
    /// object a line, {"type": "ADDED" | "MODIFIED" | "DELETED", "object": …}
    #[arg(short, long)]
    pub watch: bool,
}

/// `label` and `annotate`.
#[derive(Debug, Args)]
pub struct Mark {
    /// A kind, or kind/name; then names within the kind, and KEY=VALUE to set or KEY- to take away
    #[arg(add = ArgValueCompleter::new(complete::kind_or_name))]
    pub what: String,
    /// Names, and changes
    #[arg(required = true, add = ArgValueCompleter::new(complete::marked))]
    pub words: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub which: Which,
    /// Every one of the kind
    #[arg(long, conflicts_with_all = ["selector", "field_selector"])]
    pub all: bool,
    /// Change what has another value already
    #[arg(long)]
    pub overwrite: bool,
}
