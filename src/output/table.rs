//! Tables as kubectl prints them: NAME first, no borders, three spaces between columns.

use super::clean::{line, one_line};
use hmz_api::columns::{align, cells, headers};
use hmz_api::rest::{SettingsAnswer, SettingsLine, table};
use hmz_api::{AnyResource, Environment, Flow, Kind, Run, Runtime};
use jiff::Timestamp;
use std::borrow::Cow;

/// Columns and rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// The names of the columns.
    pub headers: Vec<&'static str>,
    /// A cell a column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// The table as text, each line with a newline. Lines are cut at `width` characters when there is one: a terminal's.
    pub fn render(&self, width: Option<usize>) -> String {
        self.render_after(&mut Vec::new(), width)
    }

    /// The rows of a table that is printed bit by bit: below the first ones the headers are left out. `widths` are those of
    /// the columns so far, none at the beginning; they grow and never shrink.
    pub fn render_after(&self, widths: &mut Vec<usize>, width: Option<usize>) -> String {
        let headers = self.headers.iter().map(|header| Cow::Borrowed(*header)).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(|cell| line(cell)).collect());
        let lines: Vec<Vec<Cow<'_, str>>> =
            if widths.is_empty() { std::iter::once(headers).chain(rows).collect() } else { rows.collect() };
        align(&lines, widths, width)
    }
}

/// Lines of cells, each column as wide as it has to be. `widths` are those of the columns so far; they grow and never shrink.
pub fn align(lines: &[Vec<impl AsRef<str>>], widths: &mut Vec<usize>, width: Option<usize>) -> String {
    align::align(lines.iter().map(|line| line.iter().map(AsRef::as_ref)), widths, width)
}

/// What became of settings.yaml.
pub fn settings(answer: &SettingsAnswer) -> Table {
    let headers = vec!["NAME", "CONDITION", "REASON", "MESSAGE"];
    let row = |line: &SettingsLine| {
        vec![line.name.clone(), format!("{}={:?}", line.kind, line.status), line.reason.clone(), line.message.clone()]
    };
    Table { headers, rows: answer.conditions.iter().map(row).collect() }
}

/// One resource as a table of one row.
pub fn of(item: &AnyResource, wide: bool, now: Timestamp) -> Table {
    of_kind(item.kind(), [item], wide, now)
}

/// Resources of one kind.
fn of_kind<'a>(kind: &str, items: impl IntoIterator<Item = &'a AnyResource>, wide: bool, now: Timestamp) -> Table {
    let row = |item: &AnyResource| cells(item, wide).into_iter().map(|cell| cell.text(now).into_owned()).collect();
    Table { headers: headers(kind, wide).to_vec(), rows: items.into_iter().map(row).collect() }
}

/// The word a person types for a kind: `env`, `run`, `runtime`, `flow`.
pub fn kind_word(kind: &str) -> String {
    match kind {
        "Environment" => "env".into(),
        other => other.to_lowercase(),
    }
}

/// `-o name`: `env/box`, a line each.
pub fn names<'a>(items: impl IntoIterator<Item = &'a AnyResource>) -> String {
    items.into_iter().map(|r| name(&kind_word(r.kind()), &r.metadata().name)).collect()
}

/// The same of one kind.
pub fn names_of(kind: &str, names: &[String]) -> String {
    let word = kind_word(kind);
    names.iter().map(|one| name(&word, one)).collect()
}

fn name(word: &str, name: &str) -> String {
    format!("{word}/{}\n", one_line(name))
}

/// The kinds there are among `items` as a table each, with its kind's word before each name when there are several kinds.
pub fn render(items: &[AnyResource], wide: bool, now: Timestamp, width: Option<usize>) -> String {
    let of = |kind: &'static str| (kind, of_kind(kind, items.iter().filter(|item| item.kind() == kind), wide, now));
    let all = [Run::KIND, Environment::KIND, Runtime::KIND, Flow::KIND].into_iter().map(of);
    let tables: Vec<(&str, Table)> = all.filter(|(_, table)| !table.rows.is_empty()).collect();
    let several = tables.len() > 1;
    let texts: Vec<String> = tables
        .into_iter()
        .map(|(kind, mut table)| {
            if several {
                let word = kind_word(kind);
                table.rows.iter_mut().filter_map(|row| row.first_mut()).for_each(|name| *name = format!("{word}/{name}"));
            }
            table.render(width)
        })
        .collect();
    texts.join("\n")
}

/// What [`render`] makes of the resources of one kind, of their listing as a table.
pub fn render_listing(listing: &str, width: Option<usize>) -> String {
    if table::lines(listing).nth(1).is_none() {
        return String::new();
    }
    if table::is_plain(listing) {
        return table::aligned(listing, width);
    }
    let clean = |line| table::cells(line).map(|cell| one_line(&table::unescaped(cell))).collect::<Vec<_>>().join("\t") + "\n";
    table::aligned(&table::lines(listing).map(clean).collect::<String>(), width)
}
