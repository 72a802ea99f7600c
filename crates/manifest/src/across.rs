//! Several texts declare a resource once among them.

use crate::de::Fault;
use crate::document::{Declared, report};
use crate::report::Report;
use std::collections::BTreeMap;

/// What texts have declared so far, and the one that each is in.
#[derive(Debug, Default)]
pub struct Across(BTreeMap<(&'static str, String), String>);

impl Across {
    /// Takes what a text declares. What one before declares too is a fault.
    pub fn take(&mut self, declared: &[Declared], text: &str, origin: &str) -> Vec<Report> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut faults = Vec::new();
        for one in declared {
            let (kind, name) = (one.resource.kind(), &one.resource.metadata().name);
            if name.is_empty() {
                continue;
            }
            match self.0.get(&(kind, name.clone())) {
                Some(first) => {
                    let message = format!("{kind} '{name}' is declared here and in {first}");
                    faults.push(report(text, origin, Fault::new(one.at, message)));
                }
                None => drop(self.0.insert((kind, name.clone()), origin.to_owned())),
            }
        }
        faults
    }
}
