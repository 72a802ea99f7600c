//! The text format of Prometheus, read as strictly as its specification writes it.

use std::collections::{BTreeMap, BTreeSet};

/// The labels of a sample.
pub type Labels = BTreeMap<String, String>;

/// A family.
#[derive(Debug, Clone, Default)]
pub struct Family {
    pub kind: String,
    /// Suffix of the name (empty but for histograms), labels, value.
    pub samples: Vec<(String, Labels, f64)>,
}

/// All families, by name.
#[derive(Debug, Clone)]
pub struct Exposition(pub BTreeMap<String, Family>);

impl Exposition {
    /// Reads it; a fault is a panic with the line.
    #[track_caller]
    pub fn read(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line has no end");
        let mut families: BTreeMap<String, Family> = BTreeMap::new();
        let mut current: Option<String> = None;
        let mut helped: Option<String> = None;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap_or_else(|| panic!("no help: {line}"));
                assert!(is_name(name, true) && !help.trim().is_empty(), "{line}");
                assert!(helped.is_none(), "HELP without TYPE before {line}");
                helped = Some(name.to_owned());
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap_or_else(|| panic!("no type: {line}"));
                let of = helped.take().unwrap_or_else(|| panic!("TYPE without HELP: {line}"));
                assert_eq!(of, name, "{line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "counters, and they alone, end in _total: {line}");
                let family = Family { kind: kind.to_owned(), samples: Vec::new() };
                assert!(families.insert(name.to_owned(), family).is_none(), "twice: {line}");
                current = Some(name.to_owned());
            } else {
                assert!(!line.starts_with('#') && helped.is_none(), "{line}");
                let (name, labels, value) = sample(line);
                let of = current.as_ref().unwrap_or_else(|| panic!("a sample of no family: {line}"));
                let suffix = name.strip_prefix(of.as_str()).unwrap_or_else(|| panic!("of another family: {line}"));
                let family = families.get_mut(of).unwrap();
                let known = if family.kind == "histogram" { &["_bucket", "_sum", "_count"][..] } else { &[""] };
                assert!(known.contains(&suffix), "{line}");
                assert!(family.kind == "gauge" || value >= 0.0, "{line}");
                let twice = family.samples.iter().any(|(s, l, _)| s == suffix && *l == labels);
                assert!(!twice, "twice: {line}");
                family.samples.push((suffix.to_owned(), labels, value));
            }
        }
        for (name, family) in families.iter().filter(|(_, family)| family.kind == "histogram") {
            histogram(name, family);
        }
        Self(families)
    }

    /// The value of the one sample with exactly these labels.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels: Labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        self.0.get(name)?.samples.iter().find(|(_, l, _)| *l == labels).map(|(_, _, value)| *value)
    }

    /// The sum of those with these labels, whatever else they have.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |all: &Labels| labels.iter().all(|(k, v)| all.get(*k).is_some_and(|found| found == v));
        self.0[name].samples.iter().filter(|(_, all, _)| has(all)).map(|(_, _, value)| value).sum()
    }
}

fn is_name(name: &str, colons: bool) -> bool {
    let ok = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colons && c == ':');
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(ok)
}

/// `name{label="value",…} value`, with nothing else.
fn sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}"));
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name, true), "{line}");
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
            assert!(is_name(label, false), "{label}: {line}");
            let (mut text, mut chars) = (String::new(), value.char_indices());
            let end = loop {
                match chars.next().unwrap_or_else(|| panic!("a value without an end: {line}")) {
                    (at, '"') => break at,
                    (_, '\\') => match chars.next().map(|(_, c)| c) {
                        Some('n') => text.push('\n'),
                        Some(c @ ('\\' | '"')) => text.push(c),
                        other => panic!("{other:?} is escaped: {line}"),
                    },
                    (_, c) => text.push(c),
                }
            };
            assert!(labels.insert(label.to_owned(), text).is_none(), "{label} twice: {line}");
            rest = &value[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').unwrap_or_else(|| panic!("no }}: {line}"));
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("no value: {line}"));
    let number = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        value => value.parse().unwrap_or_else(|_| panic!("no number: {line}")),
    };
    (name.to_owned(), labels, number)
}

/// Of each series: buckets that grow with their bounds up to all of them, a count that is that, and a sum.
fn histogram(name: &str, family: &Family) {
    let mut series: BTreeSet<Labels> = BTreeSet::new();
    let without = |labels: &Labels| labels.iter().filter(|(k, _)| *k != "le").map(|(k, v)| (k.clone(), v.clone())).collect();
    family.samples.iter().for_each(|(_, labels, _)| {
        series.insert(without(labels));
    });
    for one in series {
        let of = |suffix: &str| -> Vec<(&Labels, f64)> {
            let mine = family.samples.iter().filter(|(s, labels, _)| s == suffix && without(labels) == one);
            mine.map(|(_, labels, value)| (labels, *value)).collect()
        };
        let bound = |labels: &Labels| if labels["le"] == "+Inf" { f64::INFINITY } else { labels["le"].parse().unwrap() };
        let buckets: Vec<(f64, f64)> = of("_bucket").into_iter().map(|(labels, value)| (bound(labels), value)).collect();
        assert!(buckets.is_sorted(), "{name} {one:?}: {buckets:?}");
        assert!(buckets.iter().is_sorted_by_key(|(_, n)| *n), "{name} {one:?}: {buckets:?}");
        let count = of("_count");
        assert_eq!((count.len(), of("_sum").len()), (1, 1), "{name} {one:?}");
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, count[0].1)), "{name} {one:?}");
    }
}
