//! What `run_args` says, put into the request that makes a box. Pure.
//!
//! Nothing of ours is replaced: the arguments that could are on no list, lists are added to, and what would be mounted over
//! a directory of ours is refused.

use hmz_api::grammar::run_args::parse;
use serde_json::{Map, Value, json};
use std::path::Path;

/// Puts the arguments into a request. `ours` are the directories of the box that are hmz's or the work's.
///
/// # Errors
/// An argument that is refused, in one sentence.
pub fn put(body: &mut Value, words: &[String], ours: &[&Path]) -> Result<(), String> {
    for setting in parse(words).map_err(|wrong| wrong.message)? {
        for target in targets(setting.place, &setting.value) {
            if let Some(over) = ours.iter().find(|dir| overlap(Path::new(&target), dir)) {
                return Err(format!("run_args: a mount at {target} is refused: it would be over or below {}", over.display()));
            }
        }
        match setting.place {
            // what is said here stands for what the box would have been given
            "/Env" => {
                let name = |v: &Value| v.as_str().and_then(|t| t.split_once('=')).map(|(name, _)| name.to_owned());
                let said = setting.value.as_array().and_then(|a| a.first()).and_then(name);
                if let Some(env) = body.pointer_mut("/Env").and_then(Value::as_array_mut) {
                    env.retain(|v| name(v) != said);
                }
            }
            // another driver has other options
            "/HostConfig/LogConfig/Type" => {
                set(body, "/HostConfig/LogConfig", json!({"Config": {}}), false);
            }
            _ => {}
        }
        set(body, setting.place, setting.value, true);
    }
    Ok(())
}

/// Where a setting mounts something.
pub fn targets(place: &str, value: &Value) -> Vec<String> {
    match place {
        "/HostConfig/Mounts" => {
            let mounts = value.as_array().map(Vec::as_slice).unwrap_or_default();
            mounts.iter().filter_map(|m| m.get("Target").and_then(Value::as_str)).map(str::to_owned).collect()
        }
        "/HostConfig/Tmpfs" => value.as_object().into_iter().flatten().map(|(target, _)| target.clone()).collect(),
        _ => Vec::new(),
    }
}

/// Whether one is in the other.
pub fn overlap(a: &Path, b: &Path) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

/// Sets a place, making the mappings on the way; what is there is `added` to when both are lists or mappings.
pub fn set(body: &mut Value, place: &str, value: Value, added: bool) {
    let mut at = body;
    for part in place.split('/').skip(1) {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        let Some(map) = at.as_object_mut() else { return };
        at = map.entry(part).or_insert(Value::Null);
    }
    match (at, value) {
        (Value::Array(there), Value::Array(more)) if added => there.extend(more),
        (Value::Object(there), Value::Object(more)) if added => there.extend(more),
        (at, value) => *at = value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(words: &[&str]) -> Result<Value, String> {
        let mut body = json!({
            "Env": ["HOME=/tmp", "USER=me"],
            "Labels": {"humanize": "1"},
            "HostConfig": {"CapAdd": [], "Mounts": [{"Target": "/w"}], "LogConfig": {"Type": "json-file", "Config": {"a": "b"}}},
        });
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        put(&mut body, &words, &[Path::new("/w/x"), Path::new("/.hmz")])?;
        Ok(body)
    }

    #[test]
    fn lists_are_added_to_and_nothing_of_ours_goes() {
        let made = with(&["-eHOME=/h", "-eA=b", "-lteam=a", "--cap-add=SYS_PTRACE", "-v/a:/b", "--shm-size=1k", "--tmpfs=/t"]);
        let made = made.unwrap();
        assert_eq!(made["Env"], json!(["USER=me", "HOME=/h", "A=b"]));
        assert_eq!(made["Labels"], json!({"humanize": "1", "team": "a"}));
        assert_eq!(made["HostConfig"]["CapAdd"], json!(["CAP_SYS_PTRACE"]));
        assert_eq!(made["HostConfig"]["Mounts"].as_array().map(Vec::len), Some(2));
        assert_eq!(made["HostConfig"]["ShmSize"], 1024);
        assert_eq!(made["HostConfig"]["Tmpfs"], json!({"/t": ""}));
    }

    #[test]
    fn another_log_driver_has_its_own_options() {
        let made = with(&["--log-driver=local", "--log-opt=max-size=1m"]).unwrap();
        assert_eq!(made["HostConfig"]["LogConfig"], json!({"Type": "local", "Config": {"max-size": "1m"}}));
    }

    #[test]
    fn a_mount_over_or_below_what_is_ours_is_refused() {
        for target in ["/w", "/w/x", "/w/x/y"] {
            let words = format!("/a:{target}");
            let why = format!("run_args: a mount at {target} is refused: it would be over or below /w/x");
            assert_eq!(with(&["-v", &words]), Err(why.clone()));
            assert_eq!(with(&["--tmpfs", target]), Err(why));
        }
        assert!(with(&["-v", "/a:/w/other"]).is_ok());
    }
}
