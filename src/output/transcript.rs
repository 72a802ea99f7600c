//! The transcript of a run: its journal as lines for a person.

use super::clean::{clean, cut, one_line};
use super::number::{money, tokens};
use super::style::{Look, Style};
use hmz_api::journal::{Event, Outcome, Record};
use std::collections::BTreeMap;

/// Before what somebody does or says.
const BULLET: &str = "●";
/// Before what a turn took.
const STAR: &str = "✻";
/// How much of what a tool is used on is shown, in characters.
const ABOUT: usize = 120;
/// How many lines of a command's output are shown.
const OUTPUT_LINES: usize = 20;
/// The order in which kinds of tokens are said; any other comes after them.
const KINDS: [&str; 5] = ["input", "output", "cache_read", "cache_write", "reasoning"];

/// Turns records into lines. It remembers the flow's name, which the last line says.
#[derive(Debug, Clone)]
pub struct Transcript {
    style: Style,
    flow: String,
}

impl Transcript {
    /// A transcript in that style.
    pub fn new(style: Style) -> Self {
        Self { style, flow: String::new() }
    }

    /// The lines of one record, each with a newline; empty when it is not shown.
    pub fn lines(&mut self, record: &Record) -> String {
        let s = self.style;
        let agent = one_line(&record.agent);
        match &record.event {
            Event::Began { flow, .. } => {
                self.flow = one_line(flow);
                String::new()
            }
            Event::Placed { text } | Event::Notice { text } => self.bullet(Look::Yellow, text),
            Event::Begins => format!("{}\n", s.paint(Look::Dim, &format!("{BULLET} {agent} is working"))),
            Event::Text { text } => self.bullet(Look::Green, text),
            Event::Reasoning { text } => self.block(Look::DimItalic, "", text),
            Event::Tool { name, about } => {
                let about = cut(&one_line(about), ABOUT);
                let about = s.paint(Look::Dim, &about);
                format!("{} {}({about})\n", s.paint(Look::Green, BULLET), one_line(name))
            }
            Event::ToolResult { .. } | Event::Unknown => String::new(),
            Event::Exec { environment, command, status, stdout, stderr } => {
                let command = cut(&one_line(command), ABOUT);
                let mut out = format!("{} {}$ {command}\n", s.paint(Look::Cyan, BULLET), one_line(environment));
                out.push_str(&self.output(stdout));
                out.push_str(&self.output(stderr));
                if *status != 0 {
                    out.push_str(&format!("  {}\n", s.paint(Look::Red, &format!("exit status {status}"))));
                }
                out
            }
            Event::Failed { text } => format!("{}\n", s.paint(Look::Red, &format!("hmz: {}", clean(text.trim_end())))),
            Event::Result { spent, cost } => self.footer(record, spent, *cost),
            Event::Ends { seconds, .. } => {
                let seconds = if seconds.is_finite() { seconds.max(0.0).round() } else { 0.0 };
                format!("{}\n", s.paint(Look::Dim, &joined(STAR, &[format!("Worked for {seconds}s"), agent])))
            }
            Event::Ended { outcome, message } => self.end(*outcome, message),
        }
    }

    /// A bullet and the first line, the others under it.
    fn bullet(&self, look: Look, text: &str) -> String {
        let text = clean(text);
        let text = text.trim_end().trim_start_matches('\n');
        if text.is_empty() {
            return String::new();
        }
        let mut out = format!("{} ", self.style.paint(look, BULLET));
        for (number, line) in text.split('\n').enumerate() {
            if number > 0 && !line.is_empty() {
                out.push_str("  ");
            }
            out.push_str(line);
            out.push('\n');
        }
        out
    }

    fn block(&self, look: Look, indent: &str, text: &str) -> String {
        let text = clean(text);
        let lines = text.trim_end().split('\n').filter(|_| !text.trim_end().is_empty());
        lines.map(|line| format!("{indent}{}\n", self.style.paint(look, line))).collect()
    }

    /// The last lines of an output, since that is where it says what went wrong.
    fn output(&self, text: &str) -> String {
        let text = text.trim_end();
        let lines: Vec<&str> = text.lines().collect();
        let skipped = lines.len().saturating_sub(OUTPUT_LINES);
        let mut out = String::new();
        if skipped > 0 {
            out.push_str(&format!("  {}\n", self.style.paint(Look::Dim, &format!("… {skipped} lines before"))));
        }
        out + &self.block(Look::Dim, "  ", &lines[skipped..].join("\n"))
    }

    fn footer(&self, record: &Record, spent: &BTreeMap<String, u64>, cost: Option<f64>) -> String {
        if spent.is_empty() {
            return String::new();
        }
        let known = KINDS.iter().filter_map(|kind| spent.get_key_value(*kind));
        let others = spent.iter().filter(|(kind, _)| !KINDS.contains(&kind.as_str()));
        let mut parts: Vec<String> = known.chain(others).map(|(kind, n)| format!("{} {}", one_line(kind), tokens(*n))).collect();
        parts.extend(cost.map(money));
        parts.push(one_line(&record.model));
        parts.push(one_line(&record.agent));
        format!("{}\n", self.style.paint(Look::Dim, &joined(STAR, &parts)))
    }

    fn end(&self, outcome: Outcome, message: &str) -> String {
        let (word, look) = match outcome {
            Outcome::Succeeded if message.is_empty() => return String::new(),
            Outcome::Succeeded => ("done", Look::Plain),
            Outcome::BudgetExceeded => ("stopped", Look::Yellow),
            Outcome::Failed => ("failed", Look::Red),
            Outcome::Cancelled => ("cancelled", Look::Yellow),
            Outcome::Refused => ("refused", Look::Red),
        };
        let flow = if self.flow.is_empty() { "the run" } else { &self.flow };
        let message = clean(message.trim_end());
        // some say it whole, and some begin with the flow
        let message = message.strip_prefix(&format!("{word} -- {flow}: ")).unwrap_or(&message);
        let message = message.strip_prefix(&format!("{flow}: ")).unwrap_or(message);
        let message = if message == word { "" } else { message };
        let text = if message.is_empty() { format!("{word} -- {flow}") } else { format!("{word} -- {flow}: {message}") };
        format!("{}\n", self.style.paint(look, &text))
    }
}

fn joined(head: &str, parts: &[String]) -> String {
    let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|p| !p.is_empty()).collect();
    format!("{head} {}", parts.join(" · "))
}

/// What `hmz exec` writes to stdout for a record: a turn's answer and a newline. Nothing when the answer is empty, or when
/// the transcript has just shown it on the same terminal. A terminal gets it neutralised, anything else word for word.
pub fn answer(record: &Record, stdout_is_terminal: bool, stderr_is_terminal: bool) -> Option<String> {
    let shown_already = stdout_is_terminal && stderr_is_terminal;
    match &record.event {
        Event::Ends { answer, .. } if !answer.is_empty() && !shown_already => {
            let answer = if stdout_is_terminal { clean(answer) } else { answer.clone() };
            Some(format!("{answer}\n"))
        }
        _ => None,
    }
}
