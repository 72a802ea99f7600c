//! What `-f` takes, on real files.
#![cfg(test)]

use hmz_manifest::{Context, Depth, read_paths};
use std::io::empty;
use std::path::PathBuf;

fn env(name: &str, workdir: &str) -> String {
    format!("apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: {name}}}\nspec: {{runtime: docker, workdir: {workdir}}}\n")
}

fn names(paths: &[&str], stdin: &str, base: &std::path::Path) -> Result<Vec<(String, Option<String>)>, String> {
    names_in(Depth::Alone, paths, stdin, base)
}

fn names_in(depth: Depth, paths: &[&str], stdin: &str, base: &std::path::Path) -> Result<Vec<(String, Option<String>)>, String> {
    let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
    let found = read_paths(&paths, depth, &mut stdin.as_bytes(), &Context::new(base, None)).map_err(|e| {
        assert_eq!(e.exit_code(), 2);
        e.message
    })?;
    Ok(found
        .into_iter()
        .map(|r| {
            let hmz_api::AnyResource::Environment(e) = r else { panic!("an environment") };
            (e.metadata.name, e.spec.workdir)
        })
        .collect())
}

#[test]
fn files_directories_and_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().canonicalize().unwrap();
    std::fs::create_dir_all(base.join("d/below")).unwrap();
    std::fs::write(base.join("d/b.yml"), env("b", "./w")).unwrap();
    std::fs::write(base.join("d/a.yaml"), env("a", "/w")).unwrap();
    std::fs::write(
        base.join("d/c.json"),
        r#"{"apiVersion":"hmz/v1","kind":"Environment","metadata":{"name":"c"},"spec":{"runtime":"docker"}}"#,
    )
    .unwrap();
    std::fs::write(base.join("d/notes.txt"), "not: [a manifest").unwrap();
    std::fs::write(base.join("d/below/x.yaml"), env("x", "/w")).unwrap();
    let at = |path: &str| Some(base.join(path).to_str().unwrap().to_owned());
    let found = names(&["d/", "-", "d/below/x.yaml"], &env("i", "./w"), &base).unwrap();
    let expected = [("a", Some("/w".into())), ("b", at("d/w")), ("c", None), ("i", at("w")), ("x", Some("/w".into()))];
    assert_eq!(found, expected.map(|(name, workdir)| (name.to_owned(), workdir)));
}

#[test]
fn folders_below_are_read_where_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().canonicalize().unwrap();
    std::fs::create_dir_all(base.join("d/below/more")).unwrap();
    std::fs::create_dir_all(base.join("d/.git")).unwrap();
    for (file, name) in [("d/z.yaml", "z"), ("d/below/b.yaml", "b"), ("d/below/more/m.yml", "m"), ("d/.git/g.yaml", "g")] {
        std::fs::write(base.join(file), env(name, "./w")).unwrap();
    }
    std::os::unix::fs::symlink(base.join("d"), base.join("d/below/up")).unwrap();
    std::os::unix::fs::symlink("below/b.yaml", base.join("d/link.yaml")).unwrap();
    let at = |path: &str| Some(base.join(path).to_str().unwrap().to_owned());
    let found = names_in(Depth::Whole, &["d"], "", &base).unwrap();
    let expected = [("b", at("d/below/w")), ("m", at("d/below/more/w")), ("b", at("d/w")), ("z", at("d/w"))];
    assert_eq!(found, expected.map(|(name, workdir)| (name.to_owned(), workdir)));
    std::fs::create_dir_all(base.join("none/at/all")).unwrap();
    let none = names_in(Depth::Whole, &["none"], "", &base).unwrap_err();
    assert_eq!(none, "none: no *.yaml, *.yml or *.json in this directory or below it");
}

#[test]
fn what_cannot_be_read_is_said() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("none")).unwrap();
    std::fs::write(folder.path().join("bytes.yaml"), b"a: b\nc: \xff\n").unwrap();
    std::fs::write(folder.path().join("one.yaml"), "kind: Rn\n").unwrap();
    std::fs::write(folder.path().join("two.yaml"), "kind: Flw\n").unwrap();
    let said = |paths: &[&str]| names(paths, "", folder.path()).unwrap_err();
    assert_eq!(said(&["gone.yaml"]), "gone.yaml: No such file or directory (os error 2)");
    assert_eq!(said(&["none"]), "none: no *.yaml, *.yml or *.json in this directory");
    let bytes = "bytes.yaml:2:4: this is not UTF-8 text (the byte 0xFF); save the file as UTF-8\n  |\n2 | c: \u{fffd}\n  |    ^";
    assert_eq!(said(&["bytes.yaml"]), bytes);
    assert_eq!(said(&["-"]), "no resource in -");
    assert_eq!(said(&["-", "-"]), "-f - is given twice");
    let both = said(&["one.yaml", "two.yaml"]);
    assert!(both.contains("one.yaml:1:7: 'Rn' is not a kind") && both.contains("two.yaml:1:7: 'Flw' is not a kind"), "{both}");
    assert!(read_paths(&[], Depth::Alone, &mut empty(), &Context::new("/", None)).is_err());
}
