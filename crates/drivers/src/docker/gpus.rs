//! GPUs of a share as the daemon is asked for them: by the ids that were granted, and no other. Pure.

use serde_json::{Value, json};

/// The vendor and class of NVIDIA's devices in the container device interface.
const CDI: &str = "nvidia.com/gpu=";

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
}
