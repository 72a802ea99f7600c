//! What a watch of settings.yaml prints: each line of it that is new or says something else, and each that is gone.

use super::clean::one_line;
use super::table;
use hmz_api::rest::SettingsAnswer;
use std::collections::BTreeMap;

/// A watch of settings.yaml as a table.
#[derive(Debug, Default)]
pub struct SettingsRows {
    widths: Vec<usize>,
    /// What was printed last, by name and condition.
    shown: BTreeMap<(String, String), Vec<String>>,
}

impl SettingsRows {
    /// What is to be printed of it as it is now.
    pub fn next(&mut self, now: &SettingsAnswer, width: Option<usize>) -> String {
        let mut table = table::settings(now);
        let key = |n: usize| now.conditions.get(n).map(|line| (line.name.clone(), line.kind.clone())).unwrap_or_default();
        let rows: BTreeMap<_, _> = table.rows.iter().enumerate().map(|(n, row)| (key(n), row.clone())).collect();
        // what a name is said of in another way is not gone
        let is_there = |name: &str| now.conditions.iter().any(|line| line.name == name);
        let gone = self.shown.keys().map(|(name, _)| name).filter(|name| !is_there(name));
        let mut text: String = gone.map(|name| format!("{} is not named any more\n", one_line(name))).collect();
        let mut n = 0..;
        table.rows.retain(|row| n.next().is_some_and(|n: usize| self.shown.get(&key(n)) != Some(row)));
        if !table.rows.is_empty() {
            text.push_str(&table.render_after(&mut self.widths, width));
        }
        self.shown = rows;
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::condition::ConditionStatus::{self, False, True};
    use hmz_api::rest::SettingsLine;

    #[test]
    fn what_is_new_or_changed_is_printed_and_what_is_gone_is_told() {
        let mut rows = SettingsRows::default();
        let mut next = |lines: &[(&str, ConditionStatus, &str)]| {
            let line = |(name, status, message): &(&str, ConditionStatus, &str)| SettingsLine {
                name: (*name).to_owned(),
                kind: "SettingsValid".into(),
                status: *status,
                reason: if *status == True { "Read" } else { "Unreadable" }.into(),
                message: (*message).to_owned(),
            };
            let conditions = lines.iter().map(line).collect();
            rows.next(&SettingsAnswer { path: "/s.yaml".into(), conditions }, None)
        };
        let (file, here) = (("settings.yaml", True, ""), ("docker:here", True, ""));
        let first = "NAME            CONDITION            REASON   MESSAGE\nsettings.yaml   SettingsValid=True   Read     \n";
        assert_eq!(next(&[file]).replace(" \n", "\n").trim_end(), first.replace(" \n", "\n").trim_end());
        assert!(next(&[file, here]).starts_with("docker:here     SettingsValid=True"));
        assert_eq!(next(&[file, here]), "");
        assert!(next(&[file, ("docker:here", False, "s.yaml:3:1: no")]).contains("Unreadable   s.yaml:3:1: no"));
        assert_eq!(next(&[file]), "docker:here is not named any more\n");
    }
}
