//! settings.yaml is replaced whole, by writers that take turns.
#![cfg(test)]

use hmz_api::Error;
use hmz_manifest::Context;
use hmz_manifest::settings::edit::{Edited, set};
use hmz_manifest::settings::file::{change, read_text};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

fn write(path: &Path, field: &str, value: &str) -> Result<Edited, Error> {
    let context = Context::new("/nowhere", None);
    change(path, |text| set(text, "s", &field.parse()?, value, &context))
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_link_stays_a_link_and_a_mode_a_mode() {
    let root = tempfile::tempdir().unwrap();
    let (home, dots) = (root.path().join("hmz"), root.path().join("dots"));
    std::fs::create_dir_all(&home).unwrap();
    std::fs::create_dir_all(&dots).unwrap();
    let (path, real) = (home.join("settings.yaml"), dots.join("real.yaml"));
    symlink("../dots/link", &path).unwrap();
    symlink("real.yaml", dots.join("link")).unwrap();

    // a link to a file that is not there: it is made where the link points, and is its owner's alone
    write(&path, "a", "1").unwrap();
    assert_eq!(std::fs::read_to_string(&real).unwrap(), "a: 1\n");
    assert_eq!(std::fs::metadata(&real).unwrap().mode() & 0o777, 0o600);
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o644)).unwrap();
    write(&path, "a", "2").unwrap();
    assert_eq!(read_text(&path).unwrap().as_deref(), Some("a: 2\n"));
    assert_eq!(std::fs::metadata(&real).unwrap().mode() & 0o777, 0o644);
    assert_eq!(std::fs::read_link(&path).unwrap(), Path::new("../dots/link"));
    assert_eq!(std::fs::read_link(dots.join("link")).unwrap(), Path::new("real.yaml"));
    let inode = std::fs::metadata(&real).unwrap().ino();
    assert_eq!(write(&path, "a", "2").unwrap(), Edited::Unchanged);
    assert_eq!(std::fs::metadata(&real).unwrap().ino(), inode, "what changes nothing writes nothing");
    assert_eq!(names(&dots), ["link", "real.yaml"]);
    assert_eq!(names(&home), [".settings.yaml.lock", "settings.yaml"]);
}

#[test]
fn what_somebody_without_the_lock_writes_meanwhile_is_kept() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("settings.yaml");
    let context = Context::new("/nowhere", None);
    let mut asked = 0;
    change(&path, |text| {
        asked += 1;
        // an editor saves between the look and the replacement, once where there was no file and once where there is one
        match asked {
            1 => std::fs::write(&path, "theirs: 1\n").unwrap(),
            2 => std::fs::write(&path, "theirs: 2\n").unwrap(),
            _ => {}
        }
        set(text, "s", &"ours".parse()?, "3", &context)
    })
    .unwrap();
    assert_eq!(asked, 3);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "theirs: 2\nours: 3\n");
    // one that never stops is given up, and has the last word
    let mut n = 0;
    let gave_up = change(&path, |text| {
        n += 1;
        std::fs::write(&path, format!("theirs: {n}0\n")).unwrap();
        set(text, "s", &"ours".parse()?, "4", &context)
    });
    assert!(gave_up.unwrap_err().message.ends_with("changes too often to be changed"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("theirs: {n}0\n"));
    assert_eq!(names(root.path()), [".settings.yaml.lock", "settings.yaml"]);
}

#[test]
fn writers_take_turns() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("settings.yaml");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || (0..25).for_each(|n| drop(write(path, &format!("w{writer}.n{n}"), "1").unwrap())));
        }
    });
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches(": 1\n").count(), 100, "{text}");
}

#[test]
fn what_is_no_file_is_not_waited_for_and_not_replaced() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("settings.yaml");
    std::fs::create_dir(&path).unwrap();
    assert!(read_text(&path).unwrap_err().to_string().ends_with("settings.yaml: this is not a file"));
    assert!(write(&path, "a", "1").unwrap_err().message.ends_with("this is not a file"));
    std::fs::remove_dir(&path).unwrap();
    symlink("settings.yaml", &path).unwrap();
    assert!(write(&path, "a", "1").unwrap_err().message.contains("too many links"), "a link to itself");
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, b"a: 1\nb: \xff\n").unwrap();
    assert!(write(&path, "a", "1").unwrap_err().message.contains("settings.yaml:2:4: this is not UTF-8 text (the byte 0xFF)"));
    assert_eq!(std::fs::read(&path).unwrap(), b"a: 1\nb: \xff\n");
    assert_eq!(names(root.path()), [".settings.yaml.lock", "settings.yaml"]);
}
