//! The text format: families with HELP and TYPE, each followed by its samples.

use std::fmt::Write as _;

/// What a family is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts of what was within bounds.
    Histogram,
}

/// The text so far.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
    family: &'static str,
}

impl Exposition {
    /// Begins a family; its samples follow.
    pub fn family(&mut self, name: &'static str, kind: Type, help: &str) -> &mut Self {
        let kind = match kind {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Histogram => "histogram",
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        self.family = name;
        self
    }

    /// A sample of the family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) -> &mut Self {
        self.line("", labels, value);
        self
    }

    /// A histogram: how many were within each bound, how many there were, and their sum.
    pub fn histogram(&mut self, labels: &[(&str, &str)], within: &[(f64, u64)], count: u64, sum: f64) -> &mut Self {
        let bucket = |bound: String, n: u64, this: &mut Self| {
            let all: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            this.line("_bucket", &all, n as f64);
        };
        for (bound, n) in within {
            bucket(bound.to_string(), *n, self);
        }
        bucket("+Inf".to_owned(), count, self);
        self.line("_sum", labels, sum);
        self.line("_count", labels, count as f64);
        self
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.text, "{}{suffix}", self.family);
        for (n, (name, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{}{name}=\"{value}\"", if n == 0 { '{' } else { ',' });
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = if value.is_infinite() {
            writeln!(self.text, "{close} {}Inf", if value > 0.0 { '+' } else { '-' })
        } else {
            // a whole number has no point, and what is none is NaN
            writeln!(self.text, "{close} {value}")
        };
    }

    /// All of it.
    pub fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_escaped_and_a_histogram_adds_up() {
        let mut text = Exposition::default();
        text.family("hmz_x_total", Type::Counter, "What\nis \\ it.")
            .sample(&[], 3.0)
            .sample(&[("a", "b\"c\\d\ne"), ("f", "")], 0.25);
        text.family("hmz_y", Type::Gauge, "Y.").sample(&[], f64::INFINITY).sample(&[("a", "b")], f64::NAN);
        text.family("hmz_z_seconds", Type::Histogram, "Z.").histogram(&[("a", "b")], &[(0.005, 1), (1.0, 3)], 4, 31.5);
        let told = "# HELP hmz_x_total What\\nis \\\\ it.\n# TYPE hmz_x_total counter\nhmz_x_total 3\nhmz_x_total{a=\"b\\\"c\\\\d\\ne\",f=\"\"} \
                    0.25\n# HELP hmz_y Y.\n# TYPE hmz_y gauge\nhmz_y +Inf\nhmz_y{a=\"b\"} NaN\n# HELP hmz_z_seconds Z.\n# TYPE hmz_z_seconds \
                    histogram\nhmz_z_seconds_bucket{a=\"b\",le=\"0.005\"} 1\nhmz_z_seconds_bucket{a=\"b\",le=\"1\"} \
                    3\nhmz_z_seconds_bucket{a=\"b\",le=\"+Inf\"} 4\nhmz_z_seconds_sum{a=\"b\"} 31.5\nhmz_z_seconds_count{a=\"b\"} 4\n";
        assert_eq!(text.finish(), told);
    }
}
