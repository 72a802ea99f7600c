//! The texts of a flow: minijinja templates over `task`, `params`, `steps` and `last`. What is not there is an error.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;
use std::collections::BTreeMap;

/// The names a text may use.
pub(crate) const NAMES: [&str; 4] = ["task", "params", "steps", "last"];

/// What a step left for later ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Left {
    /// A turn's answer.
    Answer(String),
    /// What a command did.
    Command {
        /// What it wrote to stdout.
        stdout: String,
        /// What it wrote to stderr.
        stderr: String,
        /// Its exit status; 128+n for a signal.
        status: i32,
    },
}

/// What the texts of a flow can name.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Names<'a> {
    pub(crate) task: &'a str,
    pub(crate) params: &'a serde_json::Map<String, serde_json::Value>,
    pub(crate) steps: BTreeMap<String, Left>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<Left>,
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // the same delimiters always build
    if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
        environment.set_syntax(syntax);
    }
    environment
}

/// The text with its expressions in place.
///
/// # Errors
/// A sentence that names what is not there.
pub(crate) fn render(text: &str, names: &Names<'_>) -> Result<String, String> {
    environment().render_str(text, Serde(names)).map_err(|e| say(&e))
}

/// Whether a text is well formed and names only what there is: of `steps` only these ids. One that needs no step is
/// rendered, which finds the rest.
///
/// # Errors
/// A sentence that names what is wrong.
pub(crate) fn check(text: &str, ids: &[&str], names: &Names<'_>) -> Result<(), String> {
    let environment = environment();
    let template = environment.template_from_str(text).map_err(|e| say(&e))?;
    let mut used: Vec<String> = template.undeclared_variables(true).into_iter().collect();
    used.sort();
    let mut early = true;
    for name in used {
        let mut parts = name.split('.');
        match (parts.next(), parts.next()) {
            (Some("steps"), Some(id)) if !ids.contains(&id) => return Err(format!("no step before it has the id '{id}'")),
            (Some("steps" | "last"), _) => early = false,
            (Some(first), _) if NAMES.contains(&first) || environment.globals().any(|(global, _)| global == first) => {}
            (Some(first), _) => return Err(format!("'{first}' is not one of {}", NAMES.join(", "))),
            (None, _) => {}
        }
    }
    if early { render(text, names).map(drop) } else { Ok(()) }
}

fn say(error: &minijinja::Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) if line > 1 => format!("{what} (line {line} of the text)"),
        _ => what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(params: &serde_json::Map<String, serde_json::Value>) -> Names<'_> {
        let command = Left::Command { stdout: "3 failed\n".into(), stderr: String::new(), status: 1 };
        Names { task: "fix it", params, steps: [("test".to_owned(), command)].into(), last: Some(Left::Answer("done".into())) }
    }

    #[test]
    fn texts_name_the_task_the_parameters_and_earlier_steps() {
        let params = serde_json::json!({"depth": 3}).as_object().cloned().unwrap();
        let text = "{{ task }} {{ params.depth }} {{ steps.test.stdout }}{% if steps.test.status %}{{ last }}{% endif %}\n";
        assert_eq!(render(text, &names(&params)).unwrap(), "fix it 3 3 failed\ndone\n");
        assert_eq!(render("<b> & {{ task }}", &names(&params)).unwrap(), "<b> & fix it");
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        let params = serde_json::Map::new();
        for text in ["{{ nothing }}", "{{ params.depth }}", "{{ steps.other }}", "{{ task", "{{ task.x.y }}"] {
            assert!(render(text, &names(&params)).is_err(), "{text}");
        }
    }

    #[test]
    fn a_check_finds_before_what_a_rendering_would() {
        let params = serde_json::json!({"depth": 3}).as_object().cloned().unwrap();
        let said = |text: &str| check(text, &["test"], &names(&params));
        assert_eq!(said("{{ task }} {{ params.depth }} {{ steps.test.stdout }} {{ last }}"), Ok(()));
        assert_eq!(said("{{ params.width | default(2) }}{% if params.width is defined %}{{ params.width }}{% endif %}"), Ok(()));
        assert_eq!(said("{% for i in range(3) %}{{ i }}{% endfor %}"), Ok(()));
        insta::assert_debug_snapshot!([
            said("{{ tsk }}"),
            said("{{ steps.other }}"),
            said("{{ params.width }}"),
            said("a\n{{ task"),
        ]);
    }
}
