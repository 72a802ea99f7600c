//! A transcript folded as a pipeline's log is: a group a turn and a group a command, which the page shows closed.
//!
//! What an agent prints is in that log too, so nothing it says may be taken for a command of the pipeline's.

use super::clean::one_line;
use hmz_api::journal::{Event, Record};
use std::collections::BTreeSet;

/// Whose way of folding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// GitHub Actions: `::group::`.
    Github,
    /// GitLab: `section_start`.
    Gitlab,
}

impl Form {
    /// The one of the pipeline this runs in, by what it sets for its jobs.
    pub fn of_pipeline(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let is = |name: &str| variable(name).is_some_and(|value| value == "true");
        if is("GITHUB_ACTIONS") {
            Some(Self::Github)
        } else if is("GITLAB_CI") {
            Some(Self::Gitlab)
        } else {
            None
        }
    }
}

/// A log so far.
#[derive(Debug, Clone)]
pub struct Fold {
    form: Form,
    /// Whose turn the open group is.
    open: Option<String>,
    /// Whose turns have begun.
    working: BTreeSet<String>,
    groups: u32,
    at: i64,
}

impl Fold {
    /// One in which nothing is open.
    pub fn new(form: Form) -> Self {
        Self { form, open: None, working: BTreeSet::new(), groups: 0, at: 0 }
    }

    /// The lines of a record, `text`, with what opens and closes a group around them.
    pub fn lines(&mut self, record: &Record, text: &str) -> String {
        self.at = record.at as i64;
        let text = self.harmless(text);
        let agent = one_line(&record.agent);
        match &record.event {
            Event::Begins => {
                self.working.insert(agent.clone());
                self.close() + &self.begin(&format!("{agent} is working"), Some(agent))
            }
            Event::Exec { environment, command, status, .. } => {
                let said: String = text.split_inclusive('\n').skip(1).collect();
                let title = self.harmless(&format!("{}$ {}", one_line(environment), one_line(command)));
                let title = if *status == 0 { title } else { format!("{title} (exit status {status})") };
                self.close() + &self.begin(&title, None) + &said + &self.end()
            }
            _ if text.is_empty() => String::new(),
            Event::Ends { .. } => {
                self.working.remove(&agent);
                if self.open.as_ref() == Some(&agent) { text + &self.close() } else { self.close() + &text }
            }
            _ if !self.working.contains(&agent) => self.close() + &text,
            // several agents may be at work at once, and groups do not lie in each other
            _ if self.open.as_ref() != Some(&agent) => {
                self.close() + &self.begin(&format!("{agent} goes on"), Some(agent)) + &text
            }
            _ => text,
        }
    }

    /// Closes what is open.
    pub fn close(&mut self) -> String {
        if self.open.take().is_some() { self.end() } else { String::new() }
    }

    fn begin(&mut self, title: &str, of: Option<String>) -> String {
        self.groups += 1;
        self.open = of;
        match self.form {
            Form::Github => format!("::group::{title}\n"),
            Form::Gitlab => {
                format!("\u{1b}[0Ksection_start:{}:hmz_{}[collapsed=true]\r\u{1b}[0K{title}\n", self.at, self.groups)
            }
        }
    }

    fn end(&self) -> String {
        match self.form {
            Form::Github => "::endgroup::\n".into(),
            Form::Gitlab => format!("\u{1b}[0Ksection_end:{}:hmz_{}\r\u{1b}[0K\n", self.at, self.groups),
        }
    }

    /// Text in which nothing is a command of the pipeline's. GitLab's begin with a control character, and the transcript has
    /// none.
    fn harmless(&self, text: &str) -> String {
        if self.form == Form::Gitlab {
            return text.to_owned();
        }
        let line = |line: &str| {
            let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
            let rest = rest.strip_prefix("::").map_or_else(|| rest.to_owned(), |rest| format!(": :{rest}"));
            format!("{indent}{}", rest.replace("##[", "# #["))
        };
        text.split_inclusive('\n').map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::style::Style;
    use crate::output::transcript::Transcript;

    fn log(form: Form) -> String {
        let record = |agent: &str, event: &str| -> Record {
            serde_json::from_str(&format!(r#"{{"at": 1800000000.5, "agent": "{agent}", {event}}}"#)).unwrap()
        };
        let records = [
            record("coder", r#""kind": "placed", "text": "coder's harness runs here""#),
            record("coder", r#""kind": "begins""#),
            record("coder", r#""kind": "text", "text": "I look.\n  ::add-mask::x\n##[error]no""#),
            record("tester", r#""kind": "begins""#),
            record("coder", r#""kind": "text", "text": "I go on.""#),
            record("tester", r#""kind": "ends", "seconds": 1, "answer": """#),
            record("coder", r#""kind": "ends", "seconds": 3, "answer": """#),
            record(
                "",
                r#""kind": "exec", "environment": "box", "command": "make test", "status": 2, "stdout": "::error::x\n", "stderr": """#,
            ),
            record("", r#""kind": "ended", "outcome": "Failed", "message": "no""#),
        ];
        let (mut lines, mut fold) = (Transcript::new(Style::PLAIN), Fold::new(form));
        let text: String = records.iter().map(|record| fold.lines(record, &lines.lines(record))).collect();
        text + &fold.close()
    }

    #[test]
    fn a_turn_and_a_command_are_a_group_each() {
        let all = format!("{}\n---\n{}", log(Form::Github), log(Form::Gitlab)).replace('\u{1b}', "<ESC>").replace('\r', "<CR>");
        insta::assert_snapshot!(all);
    }

    #[test]
    fn the_pipeline_is_told_by_what_it_sets() {
        let of = |name: &'static str| Form::of_pipeline(move |asked| (asked == name).then(|| "true".to_owned()));
        assert_eq!((of("GITHUB_ACTIONS"), of("GITLAB_CI"), of("CI")), (Some(Form::Github), Some(Form::Gitlab), None));
    }
}
