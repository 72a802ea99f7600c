//! The list of steps, in YAML: what the agent says and does in a turn.
//!
//! ```yaml
//! - say: I look around.
//! - run: hostname && uname -a        # by /bin/sh, where the agent's commands land
//! - run: exit 3
//!   expect_status: 3                 # else any status is fine, and 0 is not required
//! - write: {path: notes.txt, content: "asked: {{ prompt }}\n"}
//! - edit: {path: calc.py, old: a - b, new: a + b}
//! - read: calc.py
//! - wait_for: notes.txt              # until the path is there
//! - sleep: 1s
//! - fail: I give up.                 # the turn fails
//! ```
//!
//! A list of lists is one list a turn; a turn beyond the last one fails. A plain list is played every turn. Paths are
//! relative to the workdir. `{{ prompt }}` stands for what the turn was asked, in texts and commands alike and as it is.

use hmz_api::Error;
use hmz_api::quantity::Span;
use hmz_script::{Step, Steps};
use serde::Deserialize;
use std::io::Read as _;
use std::path::Path;

/// Largest list read, in bytes.
const LARGEST: u64 = 4 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Write {
    path: String,
    content: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    path: String,
    old: String,
    new: String,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Written {
    say: Option<String>,
    run: Option<String>,
    expect_status: Option<i32>,
    write: Option<Write>,
    edit: Option<Edit>,
    read: Option<String>,
    wait_for: Option<String>,
    sleep: Option<Span>,
    fail: Option<String>,
}

impl TryFrom<Written> for Step {
    type Error = String;
    fn try_from(written: Written) -> Result<Self, String> {
        let Written { say, run, expect_status, write, edit, read, wait_for, sleep, fail } = written;
        if expect_status.is_some() && run.is_none() {
            return Err("expect_status goes with run".to_owned());
        }
        let steps = [
            say.map(Self::Say),
            run.map(|command| Self::Run { command, expect_status }),
            write.map(|Write { path, content }| Self::Write { path, content }),
            edit.map(|Edit { path, old, new }| Self::Edit { path, old, new }),
            read.map(Self::Read),
            wait_for.map(Self::WaitFor),
            sleep.map(Self::Sleep),
            fail.map(Self::Fail),
        ];
        let mut steps = steps.into_iter().flatten();
        match (steps.next(), steps.next()) {
            (Some(step), None) => Ok(step),
            _ => Err("a step has exactly one of say, run, write, edit, read, wait_for, sleep, fail".to_owned()),
        }
    }
}

/// Reads a list of steps.
///
/// # Errors
/// A refusal that names the file and says what is wrong where.
pub fn read(path: &Path) -> Result<Steps, Error> {
    let wrong = |what: &dyn std::fmt::Display| Error::refused(format!("{}: {what}", path.display()));
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|e| wrong(&e))?;
    file.take(LARGEST).read_to_string(&mut text).map_err(|e| wrong(&e))?;
    if text.len() as u64 == LARGEST {
        return Err(wrong(&"a list of steps is smaller than 4 MiB"));
    }
    parse(&text).map_err(|e| wrong(&e))
}

fn parse(text: &str) -> Result<Steps, String> {
    // which of the two it is decides the reader, so that its errors have positions
    let items: Vec<serde_json::Value> = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
    let step = |written: Written| Step::try_from(written);
    if !items.is_empty() && items.iter().all(serde_json::Value::is_array) {
        let turns: Vec<Vec<Written>> = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
        let turns = turns.into_iter().map(|turn| turn.into_iter().map(step).collect());
        return Ok(Steps::Turns(turns.collect::<Result<_, _>>()?));
    }
    let steps: Vec<Written> = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
    Ok(Steps::Each(steps.into_iter().map(step).collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(name: &str) -> serde_json::Value {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas").join(name);
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    /// Reads a list, and sees that `schemas/steps.json` says the same of it.
    #[track_caller]
    fn parse(text: &str) -> Result<Steps, String> {
        let steps = super::parse(text);
        let options = serde_saphyr::options! { strict_booleans: true };
        let value: serde_json::Value = serde_saphyr::from_str_with_options(text, options).unwrap();
        let found = jsonschema::draft202012::new(&schema("steps.json")).unwrap().validate(&value).map_err(|e| e.to_string());
        assert_eq!(found.is_ok(), steps.is_ok(), "{text:?}: {found:?}, {:?}", steps.as_ref().err());
        steps
    }

    #[test]
    fn the_schema_has_the_fields_there_are() {
        // serde tells them when it is given another one
        fn fields<T: serde::de::DeserializeOwned>() -> Vec<String> {
            let refused = serde_json::from_str::<T>(r#"{"no such field": 1}"#).err().unwrap().to_string();
            let (_, expected) = refused.split_once("expected").unwrap();
            expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
        }
        let schema = schema("steps.json");
        for (definition, fields) in [("Step", fields::<Written>()), ("Write", fields::<Write>()), ("Edit", fields::<Edit>())] {
            let known = schema["$defs"][definition]["properties"].as_object().unwrap();
            assert_eq!(known.keys().cloned().collect::<Vec<_>>(), fields, "{definition}");
        }
        assert_eq!(schema["$defs"]["Span"], self::schema("manifest.json")["$defs"]["Span"]);
    }

    #[test]
    fn what_is_left_blank_or_is_a_number_reads() {
        for text in [
            "[]\n",
            "- say: 5\n",
            "- say: x\n  run:\n",
            "- run: true\n  expect_status:\n",
            "- sleep: 1\n",
            "- sleep: 1.5\n",
            "- sleep: 00:00:01\n",
            "- write: {path: 1, content: 2.5}\n",
            "- - read: a\n- []\n",
        ] {
            parse(text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
        }
    }

    #[test]
    fn every_step_reads() {
        let steps = parse(
            "- say: hello\n- run: ls\n- run: exit 3\n  expect_status: 3\n- write: {path: a, content: b}\n\
             - edit: {path: a, old: b, new: c}\n- read: a\n- wait_for: a\n- sleep: 1s\n- fail: no\n",
        );
        insta::assert_debug_snapshot!(steps.unwrap());
    }

    #[test]
    fn a_list_of_lists_is_one_a_turn() {
        let steps = parse("- - say: one\n- - say: two\n  - say: three\n").unwrap();
        assert_eq!(steps.of_turn(0), Some(&[Step::Say("one".into())][..]));
        assert_eq!(steps.of_turn(1).map(<[Step]>::len), Some(2));
        assert_eq!(steps.of_turn(2), None);
        let each = parse("- say: one\n").unwrap();
        assert_eq!(each.of_turn(7).map(<[Step]>::len), Some(1));
    }

    #[test]
    fn what_is_no_step_is_said() {
        for (text, part) in [
            ("- shout: x\n", "shout"),
            ("- say: x\n  run: y\n", "exactly one"),
            ("- {}\n", "exactly one"),
            ("- say: x\n  expect_status: 1\n", "expect_status goes with run"),
            ("- say:\n", "exactly one"),
            ("- sleep: soon\n", "is not a duration"),
            ("- sleep: -1\n", "negative"),
            ("- write: {path: a}\n", "content"),
            ("- edit: {path: a, old: b, new: c, all: true}\n", "all"),
            ("- run: {a: b}\n", ""),
            ("- say: x\n- - say: y\n", ""),
            ("say: x\n", "sequence"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }
}
