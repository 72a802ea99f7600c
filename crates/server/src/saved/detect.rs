//! What of a daemon's answer becomes settings. Pure.

use hmz_api::kinds::RuntimeSpec;
use hmz_api::{Backend, Memory};
use hmz_drivers::Facts;
use hmz_manifest::settings::saved::Fields;
use serde_json::{Value, json};

/// What a daemon has of CPUs, memory (in whole units, rounded down) and GPUs, where nothing was said and the backend has such a
/// field. GPUs that it does not list are left to be said, and those that do not answer are left out.
pub(super) fn fields(backend: Backend, said: &Fields, facts: &Facts) -> Fields {
    let mut found = Fields::new();
    let mut put = |field: &str, value: Option<Value>| {
        if let Some(value) = value.filter(|_| !said.contains_key(field) && RuntimeSpec::fields(backend).contains(&field)) {
            found.insert(field.to_owned(), value);
        }
    };
    put("cpus", serde_json::to_value(facts.cpus).ok());
    put("memory", serde_json::to_value(whole(facts.memory)).ok());
    let ids = |ids: &Vec<String>| ids.iter().map(|id| id.parse::<u32>().map_or_else(|_| json!(id), |n| json!(n))).collect();
    let answering = |all: &Vec<String>| all.iter().filter(|id| !facts.gpu_answers.is_silent(id)).cloned().collect::<Vec<_>>();
    put("gpus", facts.gpus.as_ref().map(answering).filter(|ids| !ids.is_empty()).as_ref().map(ids));
    found
}

fn whole(memory: Memory) -> Memory {
    let shift = [30, 20].into_iter().find(|shift| memory.bytes() >> shift > 0).unwrap_or(0);
    Memory::from_bytes(memory.bytes() >> shift << shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::Cpus;

    #[test]
    fn what_was_said_stays_and_the_rest_is_filled_in() {
        let facts = Facts {
            cpus: Cpus::whole(64),
            memory: Memory::from_bytes(2_163_589_754_883),
            gpus: Some(vec!["0".into(), "GPU-a".into()]),
            ..Facts::default()
        };
        let found = |said: Value| {
            let Value::Object(said) = said else { panic!("{said}") };
            Value::Object(fields(Backend::Docker, &said, &facts))
        };
        assert_eq!(found(json!({"harness": "local"})), json!({"cpus": 64, "memory": "2014G", "gpus": [0, "GPU-a"]}));
        assert_eq!(found(json!({"cpus": 4, "gpus": ["0"]})), json!({"memory": "2014G"}));
        let mut dead = facts.clone();
        dead.gpu_answers.silent = ["0".to_owned()].into();
        assert_eq!(fields(Backend::Docker, &Fields::new(), &dead)["gpus"], json!(["GPU-a"]));
        assert_eq!(fields(Backend::Ssh, &Fields::new(), &facts), Fields::new());
        let few = Facts { memory: Memory::from_bytes((700 << 20) + 1), gpus: None, ..facts.clone() };
        assert_eq!(Value::Object(fields(Backend::Docker, &Fields::new(), &few)), json!({"cpus": 64, "memory": "700M"}));
    }
}
