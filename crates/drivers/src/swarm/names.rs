//! Names of services: a pure function of the box and its runtime, and what a swarm takes whatever those are called.
//!
//! A swarm takes 63 letters, digits, dashes and underscores, of which the first and the last are a letter or a digit. A hold has
//! the name of its box: it is the service that becomes the box.

use crate::docker::names::tag;
use crate::types::BoxKey;

/// The admission lock of a swarm: whoever has made the service of this name is in the critical section.
pub const LOCK: &str = "hmz-admission-lock";

/// Longest name.
const MAX: usize = 63;
/// What stands at the end of each: a dash and 8 hexadecimal digits.
const TAIL: usize = 9;
/// Most that is taken of a runtime's name, so that something is left for the role.
const PROVIDER: usize = 26;

/// What the names of a runtime's boxes begin with: its `name_prefix`, else `humanize-<runtime>`.
pub fn prefix(provider: &str, name_prefix: Option<&str>) -> String {
    match name_prefix.map(|prefix| part(prefix, MAX - TAIL)).filter(|prefix| !prefix.is_empty()) {
        Some(prefix) => prefix,
        None => joined("humanize", &part(provider, PROVIDER)),
    }
}

/// The name of a box: `<prefix>-<role>-<8 hex>`; of a role that is too long, as much as there is room for.
pub fn of_box(prefix: &str, key: &BoxKey) -> String {
    let room = (MAX - TAIL).saturating_sub(prefix.len() + 1);
    format!("{}-{}", joined(prefix, &part(&key.role, room)), tag(key))
}

fn joined(a: &str, b: &str) -> String {
    if b.is_empty() { a.to_owned() } else { format!("{a}-{b}") }
}

/// At most so much of a text, in what a swarm takes.
fn part(text: &str, most: usize) -> String {
    let ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let clean: String = text.chars().map(|c| if ok(c) { c } else { '-' }).collect();
    let clean = clean.trim_start_matches(['-', '_']);
    clean.get(..most.min(clean.len())).unwrap_or_default().trim_end_matches(['-', '_']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn key(role: &str) -> BoxKey {
        BoxKey { instance: "abc".into(), uid: Uuid::from_u128(7), incarnation: 1, role: role.into() }
    }

    fn is_taken_by_a_swarm(name: &str) -> bool {
        let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        let ends = [name.bytes().next(), name.bytes().last()];
        name.len() <= MAX && name.bytes().all(ok) && ends.iter().all(|b| b.is_some_and(|b| b.is_ascii_alphanumeric()))
    }

    #[test]
    fn a_name_says_whose_it_is() {
        let name = of_box(&prefix("cluster", None), &key("box"));
        assert!(name.starts_with("humanize-cluster-box-") && name.len() == "humanize-cluster-box-".len() + 8, "{name}");
        assert!(of_box(&prefix("cluster", Some("team-a")), &key("box")).starts_with("team-a-box-"));
        assert!(of_box(&prefix("a.b", None), &key("the box")).starts_with("humanize-a-b-the-box-"));
        // of a prefix that leaves no room, the prefix stays
        let long = "p".repeat(54);
        let name = of_box(&prefix("x", Some(&long)), &key("box"));
        assert_eq!(name, format!("{long}-{}", tag(&key("box"))));
        let name = of_box(&prefix(&"r".repeat(200), None), &key(&"q".repeat(200)));
        assert_eq!(name.len(), MAX, "{name}");
        assert!(name.contains("rr-qq"), "{name}");
    }

    proptest! {
        #[test]
        fn a_swarm_takes_every_name(provider in ".{0,80}", role in ".{0,80}", named in proptest::option::of("[A-Za-z0-9]([A-Za-z0-9_-]{0,52}[A-Za-z0-9])?")) {
            let name = of_box(&prefix(&provider, named.as_deref()), &key(&role));
            prop_assert!(is_taken_by_a_swarm(&name), "{}", name);
        }
    }
}
