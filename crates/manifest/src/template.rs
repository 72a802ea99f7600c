//! The texts of a flow as far as they can be judged without running it: their syntax, and the names they use.
//!
//! A text is a minijinja template over `task`, `params`, `steps` and `last`. Whoever renders one takes the environment from
//! here, so that what is judged and what is rendered are the same language.

use crate::suggest::nearest;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior};

/// The names a text may use.
pub const NAMES: [&str; 4] = ["task", "params", "steps", "last"];

/// What is wrong with a text, and where in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateFault {
    /// One sentence.
    pub message: String,
    /// `did you mean 'task'?`, when a word is near.
    pub suggestion: Option<String>,
    /// The line of the text, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

/// What a text may name besides `task` and `last`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// The flow's parameters.
    pub params: &'a [&'a str],
    /// The ids of the steps before.
    pub steps: &'a [&'a str],
}

/// How much a text may do when it is rendered: instructions, and 64 bytes of what it makes for each. It is rendered by the
/// daemon too, before a run starts.
const FUEL: u64 = 1_000_000;

/// The language of the texts: what is not there is an error, a last newline stays, and none goes on for ever.
pub fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    // the same delimiters always build
    if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
        environment.set_syntax(syntax);
    }
    environment
}

/// Whether a text is well formed and names only what there may be.
///
/// # Errors
/// The first fault.
pub fn check(text: &str, known: Known<'_>) -> Result<(), TemplateFault> {
    let environment = environment();
    let template = environment.template_from_str(text).map_err(|error| {
        let message = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
        let (line, column) = place(text, error.range().map_or(text.len(), |range| range.start));
        TemplateFault { message, suggestion: None, line, column }
    })?;
    let mut faults: Vec<TemplateFault> = Vec::new();
    for name in template.undeclared_variables(true) {
        let mut parts = name.split('.');
        let (first, second) = (parts.next().unwrap_or_default(), parts.next());
        let (message, meant) = match (first, second) {
            ("steps", Some(id)) if !known.steps.contains(&id) => {
                (format!("no step before it has the id '{id}'"), nearest(id, known.steps.iter().copied()))
            }
            ("params", Some(param)) if !known.params.contains(&param) => {
                (format!("the flow declares no parameter '{param}'"), nearest(param, known.params.iter().copied()))
            }
            (name, _) if NAMES.contains(&name) || environment.globals().any(|(global, _)| global == name) => continue,
            (name, _) => (format!("'{name}' is not one of {}", NAMES.join(", ")), nearest(name, NAMES)),
        };
        let used = if NAMES.contains(&first) { name.split('.').take(2).collect::<Vec<_>>().join(".") } else { first.to_owned() };
        let (line, column) = place(text, used_at(text, &used));
        let suggestion = meant.map(|meant| format!("did you mean '{meant}'?"));
        faults.push(TemplateFault { message, suggestion, line, column });
    }
    faults.sort_by(|a, b| (a.line, a.column, &a.message).cmp(&(b.line, b.column, &b.message)));
    faults.into_iter().next().map_or(Ok(()), Err)
}

/// Line and column, from 1, of a byte of a text.
fn place(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
}

/// Where a name is used in an expression or a statement; the beginning of the text when it is not written out as it is.
fn used_at(text: &str, name: &str) -> usize {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut from = 0;
    while let Some(open) = ["{{", "{%"].iter().filter_map(|mark| text[from..].find(mark)).min().map(|at| from + at) {
        let end = ["}}", "%}"].iter().filter_map(|mark| text[open..].find(mark)).min().map_or(text.len(), |at| open + at);
        let inside = &text[open..end];
        let found = inside.match_indices(name).find(|(at, _)| {
            !inside[..*at].ends_with(|c| is_word(c) || c == '.') && !inside[at + name.len()..].starts_with(is_word)
        });
        if let Some((at, _)) = found {
            return open + at;
        }
        from = end.max(open + 2);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Result<(), String> {
        let known = Known { params: &["depth", "width"], steps: &["test"] };
        check(text, known).map_err(|f| {
            let suggestion = f.suggestion.map(|s| format!(", {s}")).unwrap_or_default();
            format!("{}:{}: {}{suggestion}", f.line, f.column, f.message)
        })
    }

    #[test]
    fn a_text_names_what_there_may_be() {
        for text in [
            "{{ task }} {{ params.depth }} {{ steps.test.stdout }} {{ last }}",
            "{{ params.width | default(2) }}{% if params.width is defined %}{{ params.width }}{% endif %}",
            "{% for i in range(3) %}{{ i }}{% endfor %}",
            "{% for name in params %}{{ name }}{% endfor %}",
            "{% set x = task %}{{ x }}",
            "tsk {{ 'tsk' }}",
            "",
        ] {
            assert_eq!(said(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_fault_says_where_in_the_text_it_is() {
        let faults = [
            "{{ tsk }}",
            "tsk\n  ä {{ task }} {{ tsk }}",
            "{{ steps.tset.stdout }}",
            "{{ steps.other }}",
            "{{ params.dpeth }}",
            "{{ params.other | default(1) }}",
            "{{ nothing.like.it }}",
            "a\n{{ task",
            "{% if task %}\nx",
            "{{ task | }}",
            "{% fro x in y %}",
            "{{ b }}{{ a }}",
        ];
        let said: Vec<String> = faults.iter().map(|text| format!("{text:?}: {}", said(text).unwrap_err())).collect();
        insta::assert_snapshot!(said.join("\n"));
    }
}
