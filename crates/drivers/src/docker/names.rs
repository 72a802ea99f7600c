//! Names of containers: a pure function of the box and its runtime, so that creating one again finds the first.

use crate::types::BoxKey;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// The admission lock of a daemon: whoever has made the container of this name is in the critical section.
pub const LOCK: &str = "hmz-admission-lock";

/// The empty image that locks and holds are made from.
pub const EMPTY_IMAGE: &str = "hmz-empty";

/// Its tag.
pub const EMPTY_TAG: &str = "1";

/// Longest part taken of a role or of a runtime's name, in characters.
const PART: usize = 63;

/// What the names of a runtime's boxes begin with: its `name_prefix`, else `humanize-<provider>`.
pub fn prefix(provider: &str, name_prefix: Option<&str>) -> String {
    name_prefix.map_or_else(|| format!("humanize-{}", part(provider)), part)
}

/// What tells a box's name from every other's: 8 hexadecimal digits.
pub fn tag(key: &BoxKey) -> String {
    let digest = Sha256::new()
        .chain_update(key.instance.as_bytes())
        .chain_update([0])
        .chain_update(key.uid.as_bytes())
        .chain_update(key.incarnation.to_be_bytes())
        .finalize();
    let mut hex = String::new();
    for byte in digest.iter().take(4) {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// The name of a box: `<prefix>-<role>-<8 hex>`.
pub fn of_box(prefix: &str, key: &BoxKey) -> String {
    format!("{prefix}-{}-{}", part(&key.role), tag(key))
}

/// The name of the hold of a box; generations tell a hold from the one that replaces it.
pub fn of_hold(prefix: &str, key: &BoxKey, generation: u64) -> String {
    format!("{}-hold-{generation}", of_box(prefix, key))
}

/// The generation of a hold by its name; `None` when the name is not one of this box's holds.
pub fn generation(name: &str, prefix: &str, key: &BoxKey) -> Option<u64> {
    let digits = name.strip_prefix(&of_box(prefix, key))?.strip_prefix("-hold-")?;
    digits.parse().ok().filter(|n: &u64| n.to_string() == digits)
}

/// What the names of containers that ask GPUs begin with.
const PROBE: &str = "humanize-gpus-";

/// The name of one more container that asks a GPU.
pub fn of_probe() -> String {
    format!("{PROBE}{}", &uuid::Uuid::new_v4().simple().to_string()[..16])
}

/// Whether a name is one of those.
pub fn is_probe(name: &str) -> bool {
    name.starts_with(PROBE)
}

/// The SHA-256 of some bytes, in hex.
pub fn hex_digest(bytes: &[u8]) -> String {
    let mut hex = String::new();
    for byte in Sha256::digest(bytes) {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// What docker takes in a name.
fn part(text: &str) -> String {
    let ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    text.chars().take(PART).map(|c| if ok(c) { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn key(incarnation: u64) -> BoxKey {
        BoxKey { instance: "abc".into(), uid: Uuid::from_u128(7), incarnation, role: "box".into() }
    }

    #[test]
    fn a_name_is_a_function_of_the_box() {
        let name = of_box("humanize-here", &key(1));
        assert_eq!(name, of_box("humanize-here", &key(1)));
        assert!(name.starts_with("humanize-here-box-") && name.len() == "humanize-here-box-".len() + 8, "{name}");
        assert_ne!(name, of_box("humanize-here", &key(2)));
        assert_ne!(name, of_box("humanize-here", &BoxKey { instance: "abd".into(), ..key(1) }));
        assert_ne!(name, of_box("humanize-here", &BoxKey { uid: Uuid::from_u128(8), ..key(1) }));
    }

    #[test]
    fn a_prefix_that_is_saved_stands_for_ours() {
        assert!(of_box(&prefix("here", Some("team-a")), &key(1)).starts_with("team-a-box-"));
        assert!(of_box(&prefix("h b", None), &key(1)).starts_with("humanize-h-b-box-"));
    }

    #[test]
    fn what_docker_does_not_take_is_replaced() {
        let odd = BoxKey { role: "bö x/..".into(), ..key(1) };
        assert!(of_box(&prefix("local", None), &odd).starts_with("humanize-local-b--x-..-"));
    }

    #[test]
    fn a_holds_name_gives_its_generation_back() {
        assert_eq!(generation(&of_hold("humanize-here", &key(1), 12), "humanize-here", &key(1)), Some(12));
        assert_eq!(generation(&of_hold("humanize-here", &key(1), 12), "humanize-here", &key(2)), None);
        let name = of_hold("humanize-here", &key(1), 1);
        assert_eq!(generation(&name.replace("-hold-1", "-hold-01"), "humanize-here", &key(1)), None);
        assert_eq!(generation(&of_box("humanize-here", &key(1)), "humanize-here", &key(1)), None);
    }
}
