//! Figures, and the table they are printed as.

use std::fmt::Write;

/// What a figure counts.
#[derive(Debug, Clone, Copy)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Bytes a second.
    Rate,
    /// A plain number.
    Count,
}

/// What is aimed at; less is better.
#[derive(Debug, Clone, Copy)]
pub enum Aim {
    /// A ratio no larger than this.
    Ratio(f64),
    /// A measured value no larger than this.
    Value(f64),
    /// Nothing: it is told for itself.
    Told,
}

/// One line.
#[derive(Debug, Clone)]
pub struct Figure {
    /// What is measured.
    pub name: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// The median.
    pub measured: f64,
    /// What it is compared with, and that one's median.
    pub baseline: Option<(&'static str, f64)>,
    /// Measured against the baseline.
    pub ratio: Option<f64>,
    /// What is aimed at.
    pub aim: Aim,
}

impl Figure {
    /// A figure with no baseline.
    pub fn alone(name: &'static str, unit: Unit, measured: f64, aim: Aim) -> Self {
        Self { name, unit, measured, baseline: None, ratio: None, aim }
    }

    fn is_met(&self) -> Option<bool> {
        match self.aim {
            Aim::Ratio(most) => self.ratio.map(|ratio| ratio <= most),
            Aim::Value(most) => Some(self.measured <= most),
            Aim::Told => None,
        }
    }
}

fn value(unit: Unit, n: f64) -> String {
    match unit {
        Unit::Seconds if n >= 1.0 => format!("{n:.2} s"),
        Unit::Seconds if n >= 1e-3 => format!("{:.2} ms", n * 1e3),
        Unit::Seconds if n >= 1e-6 => format!("{:.2} µs", n * 1e6),
        Unit::Seconds => format!("{:.0} ns", n * 1e9),
        Unit::Bytes if n < 1e5 => format!("{:.1} kB", n / 1e3),
        Unit::Bytes => format!("{:.1} MB", n / 1e6),
        Unit::Rate => format!("{:.0} MB/s", n / 1e6),
        Unit::Count => format!("{n}"),
    }
}

fn ratio(n: f64) -> String {
    if n < 0.1 { format!("{n:.4}") } else { format!("{n:.2}") }
}

/// All of them, a line each.
pub fn table(figures: &[Figure]) -> String {
    let head = ["WHAT", "MEASURED", "BASELINE", "RATIO", "AIM", "MET"].map(str::to_owned);
    let none = || "-".to_owned();
    let rows = figures.iter().map(|f| {
        [
            f.name.to_owned(),
            value(f.unit, f.measured),
            f.baseline.map_or_else(none, |(what, n)| format!("{} ({what})", value(f.unit, n))),
            f.ratio.map_or_else(none, ratio),
            match f.aim {
                Aim::Ratio(most) => format!("{most} of it"),
                Aim::Value(most) => value(f.unit, most),
                Aim::Told => none(),
            },
            f.is_met().map_or_else(none, |met| if met { "yes" } else { "NO" }.to_owned()),
        ]
    });
    let rows: Vec<[String; 6]> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}   ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
