//! The texts of a flow: minijinja templates over `task`, `params`, `steps` and `last`. What is not there is an error.

use hmz_api::kinds::FlowSpec;
use hmz_manifest::template::{Known, environment};
use minijinja::value::Serde;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

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

/// The parameters of a run: those that were given, and the flow's defaults for the others.
pub(crate) fn params(flow: &FlowSpec, given: &Map<String, Value>) -> Map<String, Value> {
    let defaults = flow.params.iter().filter_map(|(name, param)| Some((name.clone(), param.default.clone()?)));
    defaults.chain(given.clone()).collect()
}

/// The text with its expressions in place.
///
/// # Errors
/// A sentence that names what is not there.
pub(crate) fn render(text: &str, names: &Names<'_>) -> Result<String, String> {
    environment().render_str(text, Serde(names)).map_err(|e| say(&e))
}

/// Whether a text is well formed and names only what there is. One that needs nothing of a step before is rendered, which
/// finds the rest; of the first step that is every one.
///
/// # Errors
/// A sentence that names what is wrong.
pub(crate) fn check(text: &str, known: Known<'_>, is_first: bool, names: &Names<'_>) -> Result<(), String> {
    hmz_manifest::template::check(text, known).map_err(|fault| {
        let place = if fault.line > 1 { format!(" (line {} of the text)", fault.line) } else { String::new() };
        let suggestion = fault.suggestion.map(|meant| format!("; {meant}")).unwrap_or_default();
        format!("{}{place}{suggestion}", fault.message)
    })?;
    let environment = environment();
    let template = environment.template_from_str(text).map_err(|e| say(&e))?;
    let later = template.undeclared_variables(false).iter().any(|name| name == "steps" || name == "last");
    if is_first || !later { render(text, names).map(drop) } else { Ok(()) }
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
        let at = |text: &str, is_first| {
            let known = Known { params: &["depth"], steps: &["test"] };
            check(text, known, is_first, &Names { steps: BTreeMap::new(), last: None, ..names(&params) })
        };
        let said = |text: &str| at(text, false);
        assert_eq!(said("{{ task }} {{ params.depth }} {{ steps.test.stdout }} {{ last }}"), Ok(()));
        assert_eq!(said("{% for i in range(3) %}{{ i }}{% endfor %}"), Ok(()));
        assert_eq!(at("{{ last | default('nothing yet') }}", true), Ok(()));
        insta::assert_debug_snapshot!([
            said("{{ tsk }}"),
            said("{{ steps.other }}"),
            said("{{ params.width }}"),
            said("{{ params.depth.x.y }}"),
            said("{{ task | nofilter }}"),
            said("{% for i in range(9999) %}{% for j in range(9999) %}{{ i }}{% endfor %}{% endfor %}"),
            at("{{ last }}", true),
            said("a\n{{ task"),
        ]);
    }

    #[test]
    fn a_parameter_that_is_not_given_is_its_default() {
        let flow = serde_json::json!({"steps": [], "params": {"a": {"default": 1}, "b": {"default": null}, "c": {"default": 2}, "d": {}}});
        let flow: FlowSpec = serde_json::from_value(flow).unwrap();
        let given = serde_json::json!({"c": 3}).as_object().cloned().unwrap();
        assert_eq!(Value::Object(params(&flow, &given)), serde_json::json!({"a": 1, "b": null, "c": 3}));
    }
}
