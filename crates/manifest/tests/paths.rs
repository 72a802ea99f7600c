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
    std::fs::create_dir_all(base.join("other")).unwrap();
    for (file, name) in
        [("other/l.yaml", "l"), ("d/z.yaml", "z"), ("d/below/b.yaml", "b"), ("d/below/more/m.yml", "m"), ("d/.git/g.yaml", "g")]
    {
        std::fs::write(base.join(file), env(name, "./w")).unwrap();
    }
    std::os::unix::fs::symlink(base.join("d"), base.join("d/below/up")).unwrap();
    std::os::unix::fs::symlink("../other/l.yaml", base.join("d/link.yaml")).unwrap();
    let at = |path: &str| Some(base.join(path).to_str().unwrap().to_owned());
    let found = names_in(Depth::Whole, &["d"], "", &base).unwrap();
    let expected = [("b", at("d/below/w")), ("m", at("d/below/more/w")), ("l", at("d/w")), ("z", at("d/w"))];
    assert_eq!(found, expected.map(|(name, workdir)| (name.to_owned(), workdir)));
    std::fs::create_dir_all(base.join("none/at/all")).unwrap();
    let none = names_in(Depth::Whole, &["none"], "", &base).unwrap_err();
    assert_eq!(none, "none: no *.yaml, *.yml or *.json in this directory or below it");
}

#[test]
fn what_lies_beside_manifests_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().canonicalize().unwrap();
    std::fs::create_dir(base.join("below")).unwrap();
    for file in [".gitlab-ci.yml", ".pre-commit-config.yaml", "first-run.steps.yaml", "below/x.steps.yml", "below/.y.json"] {
        std::fs::write(base.join(file), "- say: it is no manifest\n").unwrap();
    }
    std::fs::write(base.join("steps.yaml"), env("a", "/w")).unwrap();
    std::fs::write(base.join(".b.yaml"), env("b", "/w")).unwrap();
    let found = |name: &str| Ok(vec![(name.to_owned(), Some("/w".to_owned()))]);
    for depth in [Depth::Alone, Depth::Whole] {
        assert_eq!(names_in(depth, &["."], "", &base), found("a"));
    }
    // what is named is read
    assert_eq!(names(&[".b.yaml"], "", &base), found("b"));
    // what is another program's without a dot is refused: it would be taken for not declared any more
    std::fs::write(base.join("package.json"), "{\"name\": \"x\"}").unwrap();
    assert!(names(&["."], "", &base).is_err());
}

#[test]
fn a_resource_is_declared_in_one_place() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().canonicalize().unwrap();
    std::fs::create_dir(base.join("d")).unwrap();
    for (file, name) in [("a.yaml", "x"), ("b.yaml", "x"), ("d/y.yaml", "y"), ("d/z.yaml", "x"), ("d/again.yaml", "x")] {
        std::fs::write(base.join(file), format!("\u{feff}{}", env(name, "./w"))).unwrap();
    }
    let said = |paths: &[&str], stdin: &str| names(paths, stdin, &base).unwrap_err();
    let place = "\n  |\n3 | metadata: {name: x}\n  |                  ^";
    assert_eq!(said(&["a.yaml", "b.yaml"], ""), format!("b.yaml:3:18: Environment 'x' is declared here and in a.yaml{place}"));
    assert_eq!(said(&["d"], ""), format!("d/z.yaml:3:18: Environment 'x' is declared here and in d/again.yaml{place}"));
    assert_eq!(said(&["-", "a.yaml"], &env("x", "/w")), format!("a.yaml:3:18: Environment 'x' is declared here and in -{place}"));
    assert_eq!(names(&["a.yaml", "d/y.yaml"], "", &base).unwrap().len(), 2);
    // one of another kind is another, and a name that is to be made is none yet
    let made = "apiVersion: hmz/v1\nkind: Run\nmetadata: {generateName: x-}\nspec: {flow: x}\n";
    std::fs::write(base.join("r.yaml"), made).unwrap();
    std::fs::write(base.join("s.yaml"), made).unwrap();
    std::fs::write(base.join("t.yaml"), made.replace("generateName: x-", "name: x")).unwrap();
    let paths = ["a.yaml", "r.yaml", "s.yaml", "t.yaml"].map(PathBuf::from);
    let found = read_paths(&paths, Depth::Alone, &mut empty(), &Context::new(&base, None)).unwrap();
    assert_eq!(found.len(), 4);
}

#[test]
fn a_manifest_that_cannot_be_looked_at_is_not_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().canonicalize().unwrap();
    std::fs::write(base.join("a.yaml"), env("a", "/w")).unwrap();
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, base.join(name)).unwrap();
    // what is known to be no file, and the lock of one that is edited
    std::fs::create_dir(base.join("folder.yaml")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(base.join("socket.yaml")).unwrap();
    link("/dev/null", "device.yaml");
    link("me@here.1:2", ".#a.yaml");
    for depth in [Depth::Alone, Depth::Whole] {
        let read = || names_in(depth, &["."], "", &base);
        assert_eq!(read(), Ok(vec![("a".to_owned(), Some("/w".to_owned()))]));
        for (to, said) in
            [("gone.yaml", "No such file or directory (os error 2)"), ("b.yaml", "Too many levels of symbolic links")]
        {
            link(to, "b.yaml");
            let found = read().unwrap_err();
            assert!(found.starts_with(&format!("./b.yaml: {said}")), "{found}");
            std::fs::remove_file(base.join("b.yaml")).unwrap();
        }
    }
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
