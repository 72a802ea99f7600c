//! Sizes, CPUs and durations read the same in settings, in manifests and as a word of the command line.
#![cfg(test)]

mod held;

use hmz_api::kinds::RuntimeSpec;
use hmz_api::{AnyResource, Backend, Cpus, Memory, RuntimeRef, Span};
use hmz_manifest::{Context, read, settings};
use std::fmt::Debug;
use std::str::FromStr;

fn context() -> Context {
    Context::new("/", None)
}

fn in_settings(field: &str, written: &str) -> Option<RuntimeSpec> {
    let text = format!("runtimes: {{docker: {{r: {{{field}: {written}}}}}}}\n");
    let settings = settings::read(&text, "s", &context()).unwrap();
    let found = settings.get(&RuntimeRef::named(Backend::Docker, "r")).unwrap().clone().ok();
    // an editor has the number, if JSON has it, and not how it is written; nor does it count thousandths
    let value = held::documents(&text).map(|all| all[0]["runtimes"]["docker"]["r"][field].clone());
    let is_plain = value.is_some_and(|value| value.is_string() || value.to_string().as_str() == written);
    if is_plain && !(field == "cpus" && written.contains("0.0001")) {
        assert_eq!(held::is_valid("settings.json", &text), found.is_some(), "schemas/settings.json of {text}");
    }
    found
}

fn in_manifest(field: &str, text: &str) -> Option<RuntimeSpec> {
    let text = format!("apiVersion: hmz/v1\nkind: Runtime\nmetadata: {{name: 'docker:r'}}\nspec: {{{field}: {text}}}\n");
    match read(&text, "m", &context()).ok()?.pop()? {
        AnyResource::Runtime(runtime) => Some(runtime.spec),
        _ => None,
    }
}

#[track_caller]
fn same<T: FromStr + PartialEq + Debug>(field: &str, texts: &[&str], of: impl Fn(RuntimeSpec) -> Option<T>) {
    for text in texts {
        let word: Option<T> = text.parse().ok();
        for quoted in [(*text).to_owned(), format!("'{text}'"), format!("\"{text}\"")] {
            assert_eq!(in_settings(field, &quoted).and_then(&of), word, "{field}: {quoted} in settings");
            assert_eq!(in_manifest(field, &quoted).and_then(&of), word, "{field}: {quoted} in a manifest");
        }
    }
}

#[test]
fn every_source_reads_the_same() {
    let memory = [
        "8G",
        "8Gi",
        "8GB",
        "8gib",
        "1.5G",
        "512M",
        "1073741824",
        "64 G",
        "8X",
        "lots",
        "-8G",
        "-8",
        "8e9",
        "1.5",
        "G",
        ".5G",
        "inf",
        "+8",
        "0x10",
        "0o17",
        "+8G",
        "0e5",
    ];
    same::<Memory>("memory", &memory, |spec| spec.memory);
    let cpus = [
        "4",
        "0.5",
        "1.25",
        "500m",
        "0.0001",
        "-1",
        "4x",
        "1e3",
        ".inf",
        ".nan",
        "inf",
        "0x10",
        "4_000",
        ".5",
        "+4",
        "1000000000000",
    ];
    same::<Cpus>("cpus", &cpus, |spec| spec.cpus);
    let spans = [
        "120", "2m", "1h30m", "PT2M", "00:02:00", "1.5", "90s", "2 m", "soon", "-1", "1e3", ".5", "+4", "0x10", "1:00", "P1M",
        ".inf", "250ms",
    ];
    same::<Span>("lease", &spans, |spec| spec.lease);
}

#[test]
fn a_name_of_digits_is_a_name() {
    let settings = settings::read("runtimes: {docker: {9: {cpus: 1}}}\n", "s", &context()).unwrap();
    assert!(settings.get(&"docker:9".parse().unwrap()).is_some_and(Result::is_ok));
}
