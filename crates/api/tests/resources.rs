//! The envelope, the kinds' words, conditions, and the texts of a runtime's settings.
#![cfg(test)]

use hmz_api::kinds::{Command, Endpoint, EnvironmentRequest, Harness};
use hmz_api::{AnyResource, ConditionStatus, Conditions, Environment, Error, ErrorKind, Resource};
use jiff::Timestamp;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn a_condition_that_did_not_change_is_not_a_change() {
    let mut conditions = Conditions::default();
    assert!(conditions.set("Ready", ConditionStatus::False, "Pulling", "12%", 1, at(1)));
    assert!(!conditions.set("Ready", ConditionStatus::False, "Pulling", "12%", 1, at(2)));
    // another message is a change and no transition
    assert!(conditions.set("Ready", ConditionStatus::False, "Pulling", "13%", 1, at(3)));
    assert_eq!(conditions.get("Ready").unwrap().last_transition_time, at(1));
    assert!(conditions.set("Ready", ConditionStatus::True, "Ready", "", 2, at(4)));
    assert_eq!(conditions.get("Ready").unwrap().last_transition_time, at(4));
    assert!(conditions.is_true("Ready") && !conditions.is_false("Ready"));
    assert!(!conditions.is_true("Other") && !conditions.is_false("Other"));
    assert_eq!(conditions.0.len(), 1);
}

#[test]
fn kinds_by_the_words_people_type() {
    for (word, kind) in [
        ("env", Some("Environment")),
        ("ENVS", Some("Environment")),
        ("environments", Some("Environment")),
        ("run", Some("Run")),
        ("runs", Some("Run")),
        ("rt", Some("Runtime")),
        ("runtimes", Some("Runtime")),
        ("flow", Some("Flow")),
        ("pods", None),
        ("", None),
    ] {
        assert_eq!(AnyResource::kind_of_word(word), kind, "{word}");
    }
}

#[test]
fn the_envelope_is_checked() {
    let read = |text: &str| serde_json::from_str::<Resource<Environment>>(text).map_err(|e| e.to_string());
    let good = r#"{"apiVersion":"hmz/v1","kind":"Environment","metadata":{"name":"e"},"spec":{"runtime":"docker"}}"#;
    let environment = read(good).unwrap();
    assert_eq!(serde_json::to_string(&environment).unwrap(), good);
    for (from, to, said) in [
        ("hmz/v1", "v1", "apiVersion 'v1' is not hmz/v1"),
        ("\"Environment\"", "\"Run\"", "kind 'Run' is not Environment"),
        ("\"runtime\"", "\"runtme\"", "unknown field `runtme`"),
        ("\"spec\"", "\"specs\"", "unknown field `specs`"),
        ("\"docker\"", "\"podman\"", "'podman' is not a backend; one of local, ssh, docker, swarm, apple-container, slurm"),
    ] {
        let wrong = read(&good.replace(from, to)).unwrap_err();
        assert!(wrong.contains(said), "{wrong}");
    }
    let any = serde_json::from_str::<AnyResource>(&good.replace("\"Environment\"", "\"Pod\"")).unwrap_err().to_string();
    assert_eq!(any, "'Pod' is not a kind: Run, Environment, Runtime or Flow");
}

#[test]
fn endpoints_and_harnesses() {
    for text in ["local", "unix:///run/docker.sock", "tcp://h:1", "ssh://me@h", "ssh:gpu", "context:far"] {
        assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
    }
    for text in ["", "unix://relative", "ssh:", "tcp://", "http://h", "Local"] {
        assert_eq!(
            text.parse::<Endpoint>().unwrap_err().message,
            format!(
                "'{text}' is not a docker endpoint: local, unix:///PATH, tcp://HOST:PORT, ssh://[USER@]HOST[:PORT], ssh:<ssh host> or context:<docker context>"
            )
        );
    }
    for text in ["env", "local", "docker:spare", "ssh:gpu"] {
        assert_eq!(text.parse::<Harness>().unwrap().to_string(), text);
    }
    assert_eq!("".parse::<Harness>().unwrap(), Harness::Env);
    for text in ["here", "docker", "docker:", "podman:x"] {
        assert_eq!(
            text.parse::<Harness>().unwrap_err().message,
            format!(
                "'{text}' is not where a harness runs: env, local or <ssh|docker|swarm|apple-container|slurm>:<runtime name>"
            )
        );
    }
}

#[test]
fn a_place_and_a_command_have_two_forms() {
    let text: EnvironmentRequest = serde_json::from_str(r#""docker@here/p""#).unwrap();
    let place: EnvironmentRequest = serde_json::from_str(r#"{"runtime":"docker/here","workdir":"/p"}"#).unwrap();
    assert_eq!(text.place(), place.place());
    assert!(serde_json::from_str::<EnvironmentRequest>(r#"{"runtime":"docker","wrkdir":"/p"}"#).is_err());
    let shell: Command = serde_json::from_str(r#""echo hi""#).unwrap();
    let words: Command = serde_json::from_str(r#"["echo","hi"]"#).unwrap();
    assert_eq!((shell, words), (Command::Shell("echo hi".into()), Command::Words(vec!["echo".into(), "hi".into()])));
    for (json, empty) in [(r#""  ""#, true), ("[]", true), (r#"[""]"#, true), (r#"["x",""]"#, false)] {
        assert_eq!(serde_json::from_str::<Command>(json).unwrap().is_empty(), empty, "{json}");
    }
}

#[test]
fn the_kind_of_an_error_decides_the_exit_status() {
    for (kind, code) in [
        (ErrorKind::Refused, 2),
        (ErrorKind::Usage, 2),
        (ErrorKind::NotFound, 1),
        (ErrorKind::Conflict, 1),
        (ErrorKind::Failed, 1),
        (ErrorKind::Internal, 1),
    ] {
        let error = Error::new(kind, "m").hint("h");
        assert_eq!(error.exit_code(), code);
        assert_eq!(serde_json::from_str::<Error>(&serde_json::to_string(&error).unwrap()).unwrap(), error);
    }
}
