//! What `run_args` says, put into the request that makes a service. Pure.
//!
//! They are read as for a container, by the same list; what a service has no place for is refused.

use crate::docker::arguments::{overlap, set, targets};
use hmz_api::grammar::run_args::parse;
use serde_json::{Value, json};
use std::path::Path;

const CONTAINER: &str = "/TaskTemplate/ContainerSpec";

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
        let (place, value) = translated(setting.place, setting.value)?;
        if place == "/TaskTemplate/ContainerSpec/Env" {
            // what is said here stands for what the box would have been given
            let name = |v: &Value| v.as_str().and_then(|t| t.split_once('=')).map(|(name, _)| name.to_owned());
            let said = value.as_array().and_then(|a| a.first()).and_then(name);
            if let Some(env) = body.pointer_mut(&place).and_then(Value::as_array_mut) {
                env.retain(|v| name(v) != said);
            }
        }
        if place == "/TaskTemplate/LogDriver/Name" {
            // another driver has other options
            set(body, "/TaskTemplate/LogDriver", json!({"Options": {}}), false);
        }
        set(body, &place, value, true);
    }
    Ok(())
}

/// Where a service has what a container has there.
fn translated(place: &str, value: Value) -> Result<(String, Value), String> {
    let of_container = |name: &str, value| Ok((format!("{CONTAINER}/{name}"), value));
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    match place {
        "/Env" => of_container("Env", value),
        "/Labels" => Ok(("/Labels".into(), value)),
        "/Hostname" => of_container("Hostname", value),
        "/HostConfig/CapAdd" => of_container("CapabilityAdd", value),
        "/HostConfig/CapDrop" => of_container("CapabilityDrop", value),
        "/HostConfig/GroupAdd" => of_container("Groups", value),
        "/HostConfig/Mounts" => of_container("Mounts", value),
        "/HostConfig/Sysctls" => of_container("Sysctls", value),
        "/HostConfig/Ulimits" => of_container("Ulimits", value),
        "/HostConfig/Dns" => of_container("DNSConfig/Nameservers", value),
        "/HostConfig/DnsSearch" => of_container("DNSConfig/Search", value),
        "/HostConfig/DnsOptions" => of_container("DNSConfig/Options", value),
        // NAME:ADDRESS of the one is ADDRESS NAME of the other
        "/HostConfig/ExtraHosts" => {
            let hosts = texts(&value).into_iter().map(|t| match t.split_once([':', '=']) {
                Some((name, address)) => Ok(format!("{address} {name}")),
                None => Err(format!("run_args: --add-host {t} is refused: it is not NAME:ADDRESS")),
            });
            of_container("Hosts", json!(hosts.collect::<Result<Vec<_>, _>>()?))
        }
        "/HostConfig/Tmpfs" => {
            let mounts = value.as_object().into_iter().flatten().map(|(target, options)| match options.as_str() {
                None | Some("") => Ok(json!({"Type": "tmpfs", "Target": target})),
                Some(said) => Err(format!("run_args: --tmpfs {target}:{said} is refused: a service's has no options")),
            });
            of_container("Mounts", json!(mounts.collect::<Result<Vec<_>, _>>()?))
        }
        "/HostConfig/LogConfig/Type" => Ok(("/TaskTemplate/LogDriver/Name".into(), value)),
        "/HostConfig/LogConfig/Config" => Ok(("/TaskTemplate/LogDriver/Options".into(), value)),
        "/HostConfig/NetworkMode" => Ok(("/TaskTemplate/Networks".into(), json!([{"Target": value}]))),
        other => {
            let what = other.trim_start_matches('/').replace('/', ".");
            Err(format!("run_args: a service has no {what}, which one of the arguments sets"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(words: &[&str]) -> Result<Value, String> {
        let mut body = json!({
            "Labels": {"humanize": "1"},
            "TaskTemplate": {
                "ContainerSpec": {"Env": ["HOME=/tmp"], "Mounts": [{"Target": "/w"}], "CapabilityAdd": []},
                "LogDriver": {"Name": "json-file", "Options": {"a": "b"}},
            },
        });
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        put(&mut body, &words, &[Path::new("/w"), Path::new("/.hmz")])?;
        Ok(body)
    }

    #[test]
    fn what_a_container_has_a_service_has_in_its_own_place() {
        let made = with(&[
            "-eHOME=/h",
            "-lteam=a",
            "--cap-add=SYS_PTRACE",
            "-v/a:/b",
            "--tmpfs=/t",
            "--add-host=db:10.0.0.7",
            "--dns=10.0.0.1",
            "--hostname=x",
            "--network=net",
            "--log-driver=local",
            "--ulimit=nofile=9:9",
        ]);
        let made = made.unwrap();
        let container = &made["TaskTemplate"]["ContainerSpec"];
        assert_eq!(made["Labels"], json!({"humanize": "1", "team": "a"}));
        assert_eq!((&container["Env"], &container["Hostname"]), (&json!(["HOME=/h"]), &json!("x")));
        assert_eq!(container["CapabilityAdd"], json!(["CAP_SYS_PTRACE"]));
        assert_eq!(container["Mounts"].as_array().map(Vec::len), Some(3));
        assert_eq!(
            (&container["Hosts"], &container["DNSConfig"]["Nameservers"]),
            (&json!(["10.0.0.7 db"]), &json!(["10.0.0.1"]))
        );
        assert_eq!(container["Ulimits"], json!([{"Name": "nofile", "Soft": 9, "Hard": 9}]));
        assert_eq!(made["TaskTemplate"]["Networks"], json!([{"Target": "net"}]));
        assert_eq!(made["TaskTemplate"]["LogDriver"], json!({"Name": "local", "Options": {}}));
    }

    #[test]
    fn what_it_has_no_place_for_is_refused() {
        let why = |words: &[&str]| with(words).unwrap_err();
        assert_eq!(why(&["--shm-size=1k"]), "run_args: a service has no HostConfig.ShmSize, which one of the arguments sets");
        assert_eq!(why(&["--tmpfs=/t:size=1m"]), "run_args: --tmpfs /t:size=1m is refused: a service's has no options");
        assert_eq!(why(&["-v", "/a:/w/x"]), "run_args: a mount at /w/x is refused: it would be over or below /w");
        assert!(why(&["--cpus=4"]).starts_with("run_args: --cpus is refused: "));
    }
}
