//! GPUs: those a daemon lists, and those of a share as it is asked for them, by the ids that were granted and no other. Pure.

pub mod answers;
pub mod ask;
pub mod usage;

use crate::gpus::{CDI, GpuAnswers, bare, is_number};
use serde_json::{Value, json};

/// What stands for every GPU in a label and in a list.
pub const ALL: &str = "all";

/// Whether a daemon's words say that it cannot give a box the GPUs that were asked for.
pub fn cannot_give(words: &str) -> bool {
    ["could not select device driver", "unresolvable CDI devices", "unknown device"].iter().any(|said| words.contains(said))
}

/// The device requests of the ids granted. As CDI devices when the daemon lists each of them so, else by id.
pub fn requests(ids: &[String], info: &Value) -> Value {
    if ids.is_empty() {
        return json!([]);
    }
    let listed = info.get("DiscoveredDevices").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let text = |d: &Value, name: &str| d.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let names: Vec<String> = ids.iter().map(|id| if id.contains('=') { id.clone() } else { format!("{CDI}{id}") }).collect();
    if names.iter().all(|name| listed.iter().any(|d| text(d, "Source") == "cdi" && text(d, "ID") == *name)) {
        return json!([{"Driver": "cdi", "DeviceIDs": names}]);
    }
    json!([{"DeviceIDs": ids, "Capabilities": [["gpu"]]}])
}

/// What keeps an image that says it wants GPUs from being given them all by NVIDIA's OCI runtime, be it the daemon's default. One
/// that is given some by their ids is told so by the same variable, and that is the daemon's to set.
pub fn void(requests: &Value) -> Vec<String> {
    let by_id = requests.pointer("/0/Capabilities").is_some();
    if by_id { Vec::new() } else { vec!["NVIDIA_VISIBLE_DEVICES=void".to_owned()] }
}

/// Those handed out, and, where some of them are not numbers, the numbers that may be other words for one of those: what is
/// listed so, and what is held so.
pub fn number_again<'a>(ids: &[String], held: impl Iterator<Item = &'a String>, info: &Value) -> Vec<String> {
    let mut all = ids.to_vec();
    if ids.iter().all(|id| is_number(id)) {
        return all;
    }
    for number in names(info).into_iter().chain(held.cloned()).filter(|id| is_number(id)) {
        if !all.iter().any(|there| bare(there) == bare(&number)) {
            all.push(number);
        }
    }
    all
}

/// Whether one of those held is a number that may be another word for one of those handed out, and it is neither known which nor
/// was it asked.
pub fn is_unasked<'a>(
    ids: &[String],
    mut held: impl Iterator<Item = &'a String>,
    answers: &GpuAnswers,
    asked: &[String],
) -> bool {
    let is_known = |id: &String| answers.uuids.contains_key(bare(id)) || asked.iter().any(|one| bare(one) == bare(id));
    !ids.iter().all(|id| is_number(id)) && held.any(|id| is_number(id) && !is_known(id))
}

/// The GPUs a daemon lists: NVIDIA's devices of the container device interface, by number where any has one (each is listed by
/// its uuid too), in order. `None` when it lists none and has NVIDIA's OCI runtime, which knows GPUs that are not listed.
pub fn listed(info: &Value) -> Option<Vec<String>> {
    let names = names(info);
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    if !numbers.is_empty() {
        return Some(numbers.iter().map(u32::to_string).collect());
    }
    let unlisted = names.is_empty() && info.get("Runtimes").is_some_and(|runtimes| runtimes.get("nvidia").is_some());
    (!unlisted).then_some(names)
}

/// Every id a GPU is listed by.
pub fn names(info: &Value) -> Vec<String> {
    let devices = info.get("DiscoveredDevices").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_cdi = |d: &&Value| d.get("Source").and_then(Value::as_str) == Some("cdi");
    let id = |d: &Value| d.get("ID").and_then(Value::as_str)?.strip_prefix(CDI).map(str::to_owned);
    devices.iter().filter(is_cdi).filter_map(id).filter(|name| name != "all").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_granted_is_asked_for() {
        let ids = ["0".to_owned(), "GPU-1".to_owned()];
        assert_eq!(requests(&[], &json!({})), json!([]));
        let by_id = json!([{"DeviceIDs": ["0", "GPU-1"], "Capabilities": [["gpu"]]}]);
        assert_eq!(requests(&ids, &json!({})), by_id);
        let cdi = |id: &str| json!({"Source": "cdi", "ID": id});
        let one = json!({"DiscoveredDevices": [cdi("nvidia.com/gpu=0"), cdi("nvidia.com/gpu=all")]});
        assert_eq!(requests(&ids, &one), by_id);
        let both = json!({"DiscoveredDevices": [cdi("nvidia.com/gpu=0"), cdi("nvidia.com/gpu=GPU-1")]});
        assert_eq!(requests(&ids, &both), json!([{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0", "nvidia.com/gpu=GPU-1"]}]));
    }

    #[test]
    fn an_image_is_given_no_more_than_was_granted() {
        let some = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let cdi = json!({"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]});
        let void = |ids: &[&str], info: &Value| void(&requests(&some(ids), info)).len();
        assert_eq!((void(&[], &cdi), void(&["0"], &cdi), void(&["0"], &json!({}))), (1, 1, 0));
    }

    #[test]
    fn numbers_are_asked_too_where_what_is_handed_out_has_other_names() {
        let some = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let info = json!({"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}, {"Source": "cdi", "ID": "nvidia.com/gpu=GPU-a"}]});
        let held = some(&["0", "7", "GPU-c", "all"]);
        assert_eq!(number_again(&some(&["GPU-a", "GPU-b"]), held.iter(), &info), ["GPU-a", "GPU-b", "0", "7"]);
        assert_eq!(number_again(&some(&["0", "1"]), held.iter(), &info), ["0", "1"]);
        let answers = GpuAnswers { uuids: [("7".to_owned(), "GPU-b".to_owned())].into(), ..GpuAnswers::default() };
        let unasked = |ids: &[&str], asked: &[&str]| is_unasked(&some(ids), held.iter(), &answers, &some(asked));
        assert!(unasked(&["GPU-a"], &["GPU-a"]) && !unasked(&["GPU-a"], &["GPU-a", "nvidia.com/gpu=0"]));
        assert!(!unasked(&["0", "1"], &[]));
    }

    #[test]
    fn what_is_listed_has_one_id_each() {
        let cdi = |ids: &[&str]| {
            let devices: Vec<Value> = ids.iter().map(|id| json!({"Source": "cdi", "ID": id})).collect();
            json!({"DiscoveredDevices": devices})
        };
        let some = |ids: &[&str]| Some(ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>());
        let both = ["nvidia.com/gpu=10", "nvidia.com/gpu=2", "nvidia.com/gpu=GPU-4a", "nvidia.com/gpu=all", "vendor.com/net=0"];
        assert_eq!(listed(&cdi(&both)), some(&["2", "10"]));
        assert_eq!(listed(&cdi(&["nvidia.com/gpu=GPU-4a", "nvidia.com/gpu=all"])), some(&["GPU-4a"]));
        assert_eq!(listed(&json!({"DiscoveredDevices": [{"Source": "other", "ID": "nvidia.com/gpu=0"}]})), some(&[]));
        assert_eq!(listed(&json!({"Runtimes": {"runc": {}}})), some(&[]));
        assert_eq!(listed(&json!({"Runtimes": {"runc": {}, "nvidia": {}}})), None);
    }
}
