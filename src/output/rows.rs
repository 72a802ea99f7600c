//! What a watch prints: what is there, then what changes and what goes.
//!
//! As a table, a row when a cell of it changes; that it is older now is no change. As JSON, one object a line: `type`
//! (`ADDED`, `MODIFIED`, `DELETED`) and `object`. As YAML, a document a change. What goes is told as `env/box deleted`, in
//! YAML as a comment.

use super::clean::one_line;
use super::table::{self, kind_word};
use hmz_api::{AnyResource, Error, ErrorKind};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

/// How it prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A table.
    Table,
    /// A table with more columns.
    Wide,
    /// A document a resource.
    Yaml,
    /// An object a line.
    Json,
    /// `kind/name`.
    Name,
}

/// The column that changes by itself.
const AGE: &str = "AGE";

/// What a watch tells of.
pub trait Watched {
    /// Its name within its kind.
    fn name(&self) -> &str;
    /// `env/box`.
    fn shown(&self) -> String;
    /// Its row.
    fn row(&self, wide: bool, now: Timestamp) -> table::Table;
    /// All of it.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    fn whole(&self) -> Result<Value, Error>;
}

impl Watched for AnyResource {
    fn name(&self) -> &str {
        &self.metadata().name
    }

    fn shown(&self) -> String {
        format!("{}/{}", kind_word(self.kind()), one_line(&self.metadata().name))
    }

    fn row(&self, wide: bool, now: Timestamp) -> table::Table {
        table::of(self, wide, now)
    }

    fn whole(&self) -> Result<Value, Error> {
        serde_json::to_value(self).map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))
    }
}

/// A watch of one kind.
#[derive(Debug)]
pub struct Rows {
    form: Form,
    widths: Vec<usize>,
    /// What was printed last of each name, as it is compared.
    shown: BTreeMap<String, String>,
    begun: bool,
}

impl Rows {
    /// One that has printed nothing yet.
    pub const fn new(form: Form) -> Self {
        Self { form, widths: Vec::new(), shown: BTreeMap::new(), begun: false }
    }

    /// The text of those of `items` that are new or have changed; empty when none has.
    ///
    /// # Errors
    /// When one cannot be written as JSON or YAML.
    pub fn there(&mut self, items: &[impl Watched], now: Timestamp, width: Option<usize>) -> Result<String, Error> {
        let mut changed: Option<table::Table> = None;
        let mut text = String::new();
        for item in items {
            let row = item.row(self.form == Form::Wide, now);
            let compared = match self.form {
                Form::Table | Form::Wide => cells(&row),
                Form::Name => item.name().to_owned(),
                Form::Json | Form::Yaml => item.whole()?.to_string(),
            };
            let before = self.shown.insert(item.name().to_owned(), compared.clone());
            if before.as_ref() == Some(&compared) {
                continue;
            }
            match self.form {
                Form::Table | Form::Wide => match &mut changed {
                    Some(table) => table.rows.extend(row.rows),
                    None => changed = Some(row),
                },
                Form::Name => text.push_str(&format!("{}\n", item.shown())),
                Form::Json => {
                    let kind = if before.is_none() { "ADDED" } else { "MODIFIED" };
                    text.push_str(&format!("{{\"type\":\"{kind}\",\"object\":{compared}}}\n"));
                }
                Form::Yaml => {
                    text.push_str(if self.begun { "---\n" } else { "" });
                    text.push_str(&hmz_manifest::value_to_yaml(&item.whole()?)?);
                }
            }
            self.begun = true;
        }
        Ok(changed.map_or(text, |table| table.render_after(&mut self.widths, width)))
    }

    /// The text of one that is gone; empty when it was never there.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn gone(&mut self, item: &impl Watched) -> Result<String, Error> {
        if self.shown.remove(item.name()).is_none() {
            return Ok(String::new());
        }
        let told = format!("{} deleted\n", item.shown());
        Ok(match self.form {
            Form::Table | Form::Wide | Form::Name => told,
            Form::Json => format!("{{\"type\":\"DELETED\",\"object\":{}}}\n", item.whole()?),
            Form::Yaml => format!("---\n# {told}"),
        })
    }
}

/// The cells of a row without its age.
fn cells(table: &table::Table) -> String {
    let age = table.headers.iter().position(|header| *header == AGE);
    let kept = |row: &Vec<String>| -> Vec<String> {
        row.iter().enumerate().filter(|(column, _)| Some(*column) != age).map(|(_, cell)| cell.clone()).collect()
    };
    table.rows.iter().map(|row| kept(row).join("\0")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, flow: &str, version: u64) -> AnyResource {
        let value = serde_json::json!({"apiVersion": "hmz/v1", "kind": "Run", "spec": {"flow": flow},
            "metadata": {"name": name, "resourceVersion": version, "creationTimestamp": "2023-11-14T22:13:20Z"}});
        serde_json::from_value(value).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    /// What a watch prints of two runs, of a change that no cell shows, of one that a cell shows, and of a removal.
    fn printed(form: Form) -> String {
        let mut rows = Rows::new(form);
        let mut text = rows.there(&[run("fix-add", "boxed", 1), run("b", "boxed", 2)], at(1), None).unwrap();
        text += &rows.there(&[run("b", "boxed", 2)], at(7), None).unwrap();
        text += &rows.there(&[run("b", "boxed", 3)], at(60), None).unwrap();
        text += &rows.there(&[run("b", "another-one", 4)], at(61), None).unwrap();
        text += &rows.gone(&run("b", "another-one", 5)).unwrap();
        text += &rows.gone(&run("b", "another-one", 5)).unwrap();
        text += &rows.there(&[run("b", "another-one", 6)], at(62), None).unwrap();
        text
    }

    #[test]
    fn a_row_is_printed_when_a_cell_changed_and_a_removal_is_said() {
        let forms = [Form::Table, Form::Wide, Form::Name, Form::Json, Form::Yaml];
        let all: Vec<String> = forms.into_iter().map(|form| format!("# {form:?}\n{}", printed(form))).collect();
        insta::assert_snapshot!(all.join("\n"));
    }
}
