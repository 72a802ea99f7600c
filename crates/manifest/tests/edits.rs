//! One field of settings.yaml is changed and every other byte stays.
#![cfg(test)]

use hmz_manifest::Context;
use hmz_manifest::settings::edit::{Edited, FieldPath, get, set, unset};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

fn context() -> Context {
    Context::new("/nowhere", Some("/home/me".into()))
}

fn path(text: &str) -> FieldPath {
    text.parse().unwrap()
}

/// The text after `PATH = VALUE`, or `-PATH`; the error's message otherwise.
fn edited(text: &str, edit: &str) -> Result<String, String> {
    let done = match edit.split_once(" = ") {
        Some((to, value)) => set(text, "s.yaml", &path(to), value, &context()),
        None => unset(text, "s.yaml", &path(edit.trim_start_matches('-')), &context()),
    };
    match done {
        Ok(Edited::Changed(new)) => Ok(new),
        Ok(Edited::Unchanged) => Ok(text.to_owned()),
        Err(e) => Err(e.message),
    }
}

#[track_caller]
fn becomes(rows: &[(&str, &str, &str)]) {
    for (text, edit, new) in rows {
        assert_eq!(edited(text, edit).as_deref(), Ok(*new), "{text:?} {edit}");
    }
}

const D: &str = "runtimes:\n  docker:\n    here:";

#[test]
fn a_value_is_replaced_where_it_stands() {
    let rows = [
        ("\n      cpus: 4  # four\n", "cpus = 8", "\n      cpus: 8  # four\n"),
        ("\n      cpus: 4", "cpus = 8", "\n      cpus: 8"),
        ("\r\n      cpus: 4\r\n", "cpus = 8", "\r\n      cpus: 8\r\n"),
        ("\n      image: 'a:1' # x\n", "image = b:2", "\n      image: 'b:2' # x\n"),
        ("\n      image: \"a:1\"\n", "image = it's", "\n      image: \"it's\"\n"),
        ("\n      image: a\n", "image = 3.12", "\n      image: 3.12\n"),
        ("\n      image: a\n", "image = '3.12'", "\n      image: \"3.12\"\n"),
        ("\n      \"cpus\" : 4\n", "cpus = 0.5", "\n      \"cpus\" : 0.5\n"),
        ("\n      cpus:   # none\n", "cpus = 8", "\n      cpus: 8   # none\n"),
        ("\n      cpus: ~\n", "cpus = 8", "\n      cpus: 8\n"),
        (" {cpus: 4, memory: 8G} # c\n", "memory = 16G", " {cpus: 4, memory: 16G} # c\n"),
        (
            " {cpus: 4,\n      # why\n      memory: 8G,\n    }\n",
            "cpus = 1",
            " {cpus: 1,\n      # why\n      memory: 8G,\n    }\n",
        ),
        ("\n      cpus: &c 4\n", "cpus = 8", "\n      cpus: &c 8\n"),
        ("\n      memory: !!str 8G\n", "memory = 4G", "\n      memory: !!str 4G\n"),
        ("\n      cpus: !!int 8\n", "cpus = 500m", "\n      cpus: 500m\n"),
        (
            "\n      workdir: |-   # kept\n        /a\n      cpus: 4\n",
            "workdir = /b",
            "\n      workdir: /b   # kept\n      cpus: 4\n",
        ),
        ("\n      workdir: >\n        /a\n\n# end\n", "workdir = /b", "\n      workdir: /b\n\n# end\n"),
        ("\n      image: a\n        b\n", "image = c", "\n      image: c\n"),
    ];
    for (body, edit, new) in rows {
        let (text, new) = (format!("{D}{body}"), format!("{D}{new}"));
        assert_eq!(edited(&text, &format!("runtimes.docker.here.{edit}")), Ok(new), "{text:?}");
    }
    becomes(&[
        ("\u{feff}a: 1\n", "a = 2", "\u{feff}a: 2\n"),
        ("a:\n- 1\n# between\n- 2 # two\nb: 1\n", "a = [3, 'x y', {k: v}]", "a: [3, x y, {k: v}]\nb: 1\n"),
        ("a: # why\n  - 1\nb: 1", "a = 2", "a: 2 # why\nb: 1"),
        ("a:\n  b: 1\n", "a = [no, 'no']", "a: [\"no\", \"no\"]\n"),
        ("a: &x\n  b: 1\nc: 2\n", "a = 1", "a: 1\nc: 2\n"),
        ("{a: 1, b: 2}", "b = {c: [1, 2]}", "{a: 1, b: {c: [1, 2]}}"),
        ("w:\n  /home/me/a.b: {flow: x}\n", "w.\"/home/me/a.b\".flow = z", "w:\n  /home/me/a.b: {flow: z}\n"),
    ]);
}

#[test]
fn a_field_that_is_missing_is_put_behind_the_others() {
    let here = "runtimes.docker.here.cpus = 4";
    becomes(&[
        ("", here, "runtimes:\n  docker:\n    here:\n      cpus: 4\n"),
        ("# mine\n", here, "# mine\nruntimes:\n  docker:\n    here:\n      cpus: 4\n"),
        ("# mine", here, "# mine\nruntimes:\n  docker:\n    here:\n      cpus: 4"),
        ("---\n", here, "---\nruntimes:\n  docker:\n    here:\n      cpus: 4\n"),
        ("a: 1\r\n", here, "a: 1\r\nruntimes:\r\n  docker:\r\n    here:\r\n      cpus: 4\r\n"),
        ("a: 1", here, "a: 1\nruntimes:\n  docker:\n    here:\n      cpus: 4"),
        ("runtimes:\n", here, "runtimes:\n  docker:\n    here:\n      cpus: 4\n"),
        ("runtimes: {}\n", here, "runtimes: {docker: {here: {cpus: 4}}}\n"),
        ("runtimes: ~ # c\n", here, "runtimes: {docker: {here: {cpus: 4}}} # c\n"),
        (
            "runtimes:\n    docker:  # d\n        here:\n            image: a # i\n\n# end\n",
            here,
            "runtimes:\n    docker:  # d\n        here:\n            image: a # i\n            cpus: 4\n\n# end\n",
        ),
        (
            "runtimes:\n    docker:\n        a: {}\n",
            here,
            "runtimes:\n    docker:\n        a: {}\n        here:\n            cpus: 4\n",
        ),
        ("runtimes: {docker: {here: {image: a}}}", here, "runtimes: {docker: {here: {image: a, cpus: 4}}}"),
        ("runtimes: {docker: {here: }}", "runtimes.docker.here.cpus = 4", "runtimes: {docker: {here: {cpus: 4} }}"),
        ("a: |+\n  x\n\n\nb: 1\n", "c = 1", "a: |+\n  x\n\n\nb: 1\nc: 1\n"),
        ("b: 1\na: |+\n  x\n\n\n", "c = 1", "b: 1\nc: 1\na: |+\n  x\n\n\n"),
        ("b: 1\n...\n", "c = 1", "b: 1\nc: 1\n...\n"),
        ("base: &b {cpus: 1}\nx:\n  <<: *b\n", "x.cpus = 2", "base: &b {cpus: 1}\nx:\n  <<: *b\n  cpus: 2\n"),
        ("runtimes:\n  docker:\n    9: {}\n", "runtimes.docker.9.cpus = 1", "runtimes:\n  docker:\n    9: {cpus: 1}\n"),
    ]);
}

#[test]
fn a_field_that_is_taken_out_takes_its_lines_and_no_others() {
    becomes(&[
        ("a: 1 # x\n# of b\nb: 2\n", "-a", "# of b\nb: 2\n"),
        ("a: 1\n# of b\nb: 2", "-b", "a: 1\n# of b"),
        ("a: 1\r\nb:\r\n  - 1\r\n  - 2\r\nc: 3\r\n", "-b", "a: 1\r\nc: 3\r\n"),
        ("a: {b: 1, c: 2, d: 3}\n", "-a.b", "a: {c: 2, d: 3}\n"),
        ("a: {b: 1, c: 2, d: 3}\n", "-a.c", "a: {b: 1, d: 3}\n"),
        ("a: {b: 1, c: 2, d: 3}\n", "-a.d", "a: {b: 1, c: 2}\n"),
        ("a: { b: 1 }\n", "-a.b", "a: {}\n"),
        ("a: {\n  b: 1, # one\n  c: 2\n}\n", "-a.b", "a: {\n  c: 2\n}\n"),
        ("a:\n  # note\n  b: 1\nc: 1\n", "-a.b", "a: {}\n  # note\nc: 1\n"),
        ("a: 1\n", "-a", "{}\n"),
        ("a: |\n  x\n  y\n\nb: 1\n", "-a", "\nb: 1\n"),
    ]);
}

#[test]
fn what_cannot_be_changed_alone_is_refused() {
    for (text, edit, said) in [
        ("a: &x {b: 1}\nc: *x\n", "a.b = 2", "a.b cannot be changed without changing something else in the file"),
        ("a: &x 1\nc: *x\n", "a = 2", "a cannot be changed without changing something else in the file"),
        (
            "a: &x {b: 1}\nc: *x\n",
            "c.b = 2",
            "c.b cannot be changed here: c is an alias of something written elsewhere; write it out here first",
        ),
        (
            "x: &x {b: 1}\nc:\n  <<: *x\n",
            "-c.b",
            "c.b cannot be changed here: c is a mapping that has this from another one by <<; take it out there",
        ),
        ("a: [1]\n", "a.b = 2", "a.b cannot be changed here: a is a list, which is set as a whole"),
        ("a: text\n", "a.b = 2", "a.b cannot be set: a is a value and has no fields"),
        ("a: 1\na: 2\n", "a = 3", "the key 'a' of a is there twice, on lines 1 and 2"),
        ("a: 1\n", "-b", "there is no b in s.yaml"),
        ("a: 1\n", "a = ", "the value of a is nothing"),
        ("a: 1\n", "a = [1", "the value of a is not YAML: column 1: unclosed bracket '['"),
        ("a: 1\n", "runtime.docker.x.cpus = 1", "unknown field 'runtime', did you mean 'runtimes'?"),
    ] {
        assert_eq!(edited(text, edit).unwrap_err().lines().next(), Some(said), "{text:?} {edit}");
    }
    let broken = edited("a: 1\nb: [1\n", "a = 2").unwrap_err();
    assert!(broken.starts_with("s.yaml:2:4: unclosed bracket '['\n"), "{broken}");
    // an alias at the very end may be replaced: what it named stays
    becomes(&[("a: &x 1\nc: *x # c\n", "c = 2", "a: &x 1\nc: 2 # c\n")]);
}

#[test]
fn a_value_is_held_to_the_words_of_reading() {
    let text = "runtimes:\n  docker:\n    here: {cpus: 4}\n    worse: {cpus: x, image: 'a b'}\n";
    let rows = [
        ("here.memory = lots", "here.memory: 'lots' must be a number and unit, such as 64G or 512M"),
        ("here.cpsu = 4", "here.cpsu: unknown field 'cpsu', did you mean 'cpus'?"),
        ("here.workdir = w", "here.workdir: the workdir 'w' must be absolute or under ~/"),
        ("here = 4", "here: expected a mapping of settings"),
        (
            "-x = {}",
            "-x: invalid runtime name '-x': must start with a letter or digit and contain only letters, digits, dots, dashes, and underscores",
        ),
        ("here.cpus = .inf", "here.cpus: '.inf' is not a number of CPUs, such as 2 or 0.5"),
    ];
    for (edit, said) in rows {
        assert_eq!(edited(text, &format!("runtimes.docker.{edit}")).unwrap_err(), format!("runtimes.docker.{said}"));
    }
    let said = edited(text, "runtimes.dokcer.x = {}").unwrap_err();
    assert!(said.starts_with("runtimes.dokcer.x: 'dokcer' is not a runtime backend: "), "{said}");
    // what was wrong before does not hold up what is mended or changed beside it
    assert!(edited(text, "runtimes.docker.worse.cpus = 1").is_ok());
    assert!(edited(text, "runtimes.docker.here.cpus = 1").is_ok());
    // keys of others are theirs
    assert!(edited(text, "workspaces.\"/p\".flow = 7").is_ok());
    assert!(edited(text, "somebody = else").is_ok());
}

#[test]
fn a_field_is_read_through_merges() {
    let text = "b: &b {cpus: 1, image: 3.10}\nx:\n  <<: *b\n  run: [1, no, '2']\n";
    assert_eq!(get(text, "s", &path("x.cpus")).unwrap(), Some(json!(1)));
    assert_eq!(get(text, "s", &path("x")).unwrap(), Some(json!({"run": [1, "no", "2"], "cpus": 1, "image": 3.1})));
    assert_eq!(get(text, "s", &path("x.y")).unwrap(), None);
}

/// A file of commented runtimes in the styles people write, and the paths of its fields.
fn files() -> impl Strategy<Value = (String, Vec<String>)> {
    let entry = (0..6usize, prop::collection::vec((0..7usize, 0..5usize), 1..5));
    (prop::collection::vec(entry, 1..6), 0..4usize, any::<[bool; 4]>()).prop_map(|(entries, indent, [crlf, mark, end, extra])| {
        let step = " ".repeat(indent + 1);
        let (mut text, mut paths) = (String::new(), Vec::new());
        if mark {
            text.push('\u{feff}');
        }
        text.push_str("# settings, by hand\n");
        if extra {
            text.push_str("workspaces:\n  /home/me/p: {flow: boxed, every: [1, 2]}   # mine\nspelling: 2\n\n");
        }
        text.push_str(&format!("runtimes:   # all of them\n{step}docker:\n"));
        for (n, (style, fields)) in entries.iter().enumerate() {
            let mut fields: Vec<(usize, usize)> = fields.clone();
            fields.sort_unstable();
            fields.dedup_by_key(|f| f.0);
            let written: Vec<String> = fields.iter().map(|(f, how)| field(*f, *how)).collect();
            paths.extend(fields.iter().map(|(f, _)| format!("runtimes.docker.r{n}.{}", FIELDS[*f].0)));
            let key = if *style == 4 { format!("\"r{n}\"") } else { format!("r{n}") };
            match style {
                0 | 1 => text.push_str(&format!("{step}{step}{key}: {{{}}}  # flow\n", written.join(", "))),
                _ => {
                    text.push_str(&format!("{step}{step}{key}:"));
                    text.push_str(if *style == 2 { " &a # anchored\n" } else { "\n" });
                    for (i, field) in written.iter().enumerate() {
                        if (i + style) % 3 == 0 {
                            text.push_str(&format!("{step}{step}{step}# between, with: a colon\n"));
                        }
                        let tail = if i % 2 == 0 { "   # why: 'quoted\" {" } else { "" };
                        text.push_str(&format!("{step}{step}{step}{field}{tail}\n"));
                    }
                    if *style == 5 {
                        text.push('\n');
                    }
                }
            }
        }
        if !end {
            text.truncate(text.trim_end().len());
        }
        (if crlf { text.replace('\n', "\r\n") } else { text }, paths)
    })
}

/// Each field and values for it.
const FIELDS: [(&str, [&str; 5]); 7] = [
    ("cpus", ["4", "0.5", "\"2\"", "500m", "12"]),
    ("memory", ["8G", "'16G'", "1073741824", "512Mi", "\"1T\""]),
    ("image", ["busybox", "python:3.12-slim", "'a:1'", "\"b\"", "3.10"]),
    ("workdir", ["/srv/p", "'/a b'", "~/w", "\"/c\"", "/é"]),
    ("lease", ["2m", "90", "1h30m", "\"PT1H\"", "'3m'"]),
    ("max_containers", ["1", "2", "3", "10", "7"]),
    ("harness", ["local", "'env'", "\"local\"", "env", "'local'"]),
];

fn field(field: usize, how: usize) -> String {
    let (name, values) = FIELDS[field];
    let key = match how {
        0 => format!("\"{name}\""),
        1 => format!("{name} "),
        _ => name.to_owned(),
    };
    format!("{key}: {}", values[how])
}

/// Lines that are not there any more, and lines that are new.
fn difference(old: &str, new: &str) -> (Vec<String>, Vec<String>) {
    let lines = |text: &str| text.split_inclusive('\n').map(str::to_owned).collect::<Vec<_>>();
    let (mut old, mut new) = (lines(old), lines(new));
    while !old.is_empty() && old.first() == new.first() {
        old.remove(0);
        new.remove(0);
    }
    while !old.is_empty() && old.last() == new.last() {
        old.pop();
        new.pop();
    }
    (old, new)
}

/// The same by another reader of YAML.
fn meaning(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn at<'a>(value: &'a mut Value, path: &str) -> (&'a mut serde_json::Map<String, Value>, String) {
    let (above, last) = path.rsplit_once('.').unwrap();
    let map = above.split('.').fold(value, |v, key| &mut v[key]).as_object_mut().unwrap();
    (map, last.to_owned())
}

/// Only the outermost comments, by their text.
fn comments(text: &str) -> usize {
    text.matches(['#']).count()
}

#[test]
fn ten_thousand_edits_change_one_line_and_one_field() {
    let mut runner = TestRunner::new(Config { cases: 10_000, failure_persistence: None, ..Config::default() });
    let edits = (files(), any::<prop::sample::Index>(), 0..7usize, 0..5usize, 0..3usize);
    runner
        .run(&edits, |((text, paths), which, other, value, kind)| {
            let there = which.get(&paths).clone();
            let (entry, name) = there.rsplit_once('.').unwrap();
            let (target, value) = match kind {
                // a value that is there, or one that may be missing
                0 => (there.clone(), FIELDS.iter().find(|f| f.0 == name).unwrap().1[value]),
                _ => (format!("{entry}.{}", FIELDS[other].0), FIELDS[other].1[value]),
            };
            let mut wanted = meaning(&text);
            if kind == 2 {
                // and one that goes, whatever is left
                let Ok(Edited::Changed(new)) = unset(&text, "s", &path(&there), &context()) else {
                    panic!("{there} is not taken out of\n{text}");
                };
                let (map, last) = at(&mut wanted, &there);
                map.shift_remove(&last);
                let left = map.len();
                prop_assert_eq!(meaning(&new), wanted, "{}\n{}", text, new);
                let (gone, come) = difference(&text, &new);
                prop_assert!(left == 0 || gone.len() <= 1 + usize::from(!text.ends_with('\n')), "{:?} {:?}", gone, come);
                return Ok(());
            }
            let is_there = paths.contains(&target);
            let new = match set(&text, "s", &path(&target), value, &context()) {
                Ok(Edited::Changed(new)) => new,
                Ok(Edited::Unchanged) => text.clone(),
                Err(e) => panic!("{target} = {value}: {e}\n{text}"),
            };
            let (map, last) = at(&mut wanted, &target);
            map.insert(last, meaning(value));
            prop_assert_eq!(meaning(&new), wanted, "{}\n{}", text, new);
            prop_assert_eq!(comments(&new), comments(&text));
            let (gone, come) = difference(&text, &new);
            let at_end = usize::from(!text.ends_with('\n'));
            let inline = text.lines().any(|l| l.contains("# flow") && l.contains(&format!("r{}", &entry[17..])));
            if is_there || inline {
                prop_assert!(gone.len() <= 1 && come.len() <= 1, "{:?} {:?}", gone, come);
            } else {
                prop_assert!(gone.len() <= at_end && come.len() <= 1 + at_end, "{:?} {:?}", gone, come);
            }
            prop_assert_eq!(new.contains('\r'), text.contains('\r'));
            prop_assert_eq!(new.replace("\r\n", "").contains(['\r', '\n']), text.replace("\r\n", "").contains(['\r', '\n']));
            prop_assert_eq!(new.ends_with('\n'), text.ends_with('\n'));
            Ok(())
        })
        .unwrap();
}

#[test]
fn no_text_is_damaged_however_it_is_written() {
    // the letters of YAML, in every order: most are no settings, and are refused; no edit panics or changes more than it says
    let text = prop::collection::vec(
        prop::sample::select(vec![
            "a",
            "b",
            ": ",
            ":\n",
            "\n",
            "  ",
            "- ",
            "{",
            "}",
            "[",
            "]",
            ", ",
            "# c\n",
            "|\n",
            ">-\n",
            "&x ",
            "*x",
            "\"",
            "'",
            "? ",
            "1",
            "\r\n",
            "<<: ",
            "!!str ",
            "~",
            "---\n",
            "...\n",
            "\u{feff}",
            "é",
            "\t",
            "a: ",
            "\n  b: ",
            "\n    a: ",
        ]),
        0..16,
    );
    let edits = prop::sample::select(vec!["a", "b", "a.b", "a.a", "b.a", "a.b.a"]);
    let values = prop::sample::select(vec!["1", "x y", "[1, z]", "{k: 1}", "'~'", "\"two\\nlines\""]);
    let mut runner = TestRunner::new(Config { cases: 10_000, failure_persistence: None, ..Config::default() });
    runner
        .run(&(text, edits, values), |(text, field, value)| {
            let text = text.concat();
            let wanted = get(value_of(value).as_str(), "v", &path("v")).unwrap();
            if let Ok(Edited::Changed(new)) = set(&text, "s", &path(field), value, &context()) {
                prop_assert_eq!(get(&new, "s", &path(field)).unwrap(), wanted, "{:?} {} {:?}", text, field, new);
                prop_assert_eq!(set(&new, "s", &path(field), value, &context()).unwrap(), Edited::Unchanged);
            }
            if let Ok(Edited::Changed(new)) = unset(&text, "s", &path(field), &context()) {
                prop_assert_eq!(get(&new, "s", &path(field)).unwrap(), None, "{:?} {} {:?}", text, field, new);
            }
            Ok(())
        })
        .unwrap();
}

fn value_of(value: &str) -> String {
    format!("v: {value}\n")
}
