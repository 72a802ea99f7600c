//! What a container uses at this moment, as its daemon's stats tell it in one look. What they do not say stays unsaid.

use super::api::encoded;
use super::gpus;
use super::session::Session;
use crate::error::DriverError;
use hmz_api::rest::Usage;
use hmz_api::{Cpus, Memory};
use serde_json::Value;

/// Looks once; the daemon takes no second sample of its own, which would take a second.
///
/// # Errors
/// It does not run, or the daemon does not answer.
pub async fn usage(session: &Session<'_>, id: &str) -> Result<Usage, DriverError> {
    let path = format!("/containers/{}/stats?stream=false&one-shot=true", encoded(id));
    let (stats, container) = tokio::join!(session.api.get(&path), session.inspect_raw(id));
    let not_running = || DriverError::Transient(format!("{}: its container does not run", session.at()));
    let container = container?.ok_or_else(not_running)?;
    let stats = match stats {
        Ok(answer) => answer.json,
        Err(fault) if matches!(fault.status(), Some(404 | 409)) => return Err(not_running()),
        Err(fault) => return Err(session.fault(fault)),
    };
    let mut usage = read(&stats, &container).ok_or_else(not_running)?;
    let has_gpus = container.pointer("/HostConfig/DeviceRequests").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
    if has_gpus {
        usage.gpus = gpus::usage::of(session, id).await;
    }
    Ok(usage)
}

/// The CPUs and the memory an inspected container is limited to; none where it is not.
pub fn limits(container: &Value) -> (Option<Cpus>, Option<Memory>) {
    let number = |at: &str| container.pointer(at).and_then(Value::as_u64).filter(|n| *n > 0);
    // a billionth of a CPU, or a quota a period
    let nano = number("/HostConfig/NanoCpus").map(|n| n / 1_000_000);
    let quota = number("/HostConfig/CpuQuota")
        .map(|quota| quota.saturating_mul(1000) / number("/HostConfig/CpuPeriod").unwrap_or(100_000));
    (nano.or(quota).map(Cpus::from_millis), number("/HostConfig/Memory").map(Memory::from_bytes))
}

/// `None`: of one that does not run a daemon tells only zeroes, of the year 1.
fn read(stats: &Value, container: &Value) -> Option<Usage> {
    let number = |at: &str| stats.pointer(at).and_then(Value::as_u64);
    let at = stats.get("read").and_then(Value::as_str).filter(|at| !at.starts_with("0001-"))?.parse().ok()?;
    // as docker's own command counts it: cgroup v1, cgroup v2
    let idle = number("/memory_stats/stats/total_inactive_file").or_else(|| number("/memory_stats/stats/inactive_file"));
    let memory = number("/memory_stats/usage").map(|used| used.checked_sub(idle.unwrap_or(0)).unwrap_or(used));
    let networks = stats.get("networks").and_then(Value::as_object).filter(|networks| !networks.is_empty());
    let bytes = |name: &str| {
        let each = networks?.values().filter_map(|network| network.get(name).and_then(Value::as_u64));
        Some(each.fold(0u64, u64::saturating_add))
    };
    let (cpu_limit, memory_limit) = limits(container);
    Some(Usage {
        at,
        cpu_nanos: number("/cpu_stats/cpu_usage/total_usage"),
        cpu_limit,
        memory: memory.map(Memory::from_bytes),
        memory_limit,
        received: bytes("rx_bytes"),
        sent: bytes("tx_bytes"),
        processes: number("/pids_stats/current"),
        gpus: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_stats_say_is_read_and_what_they_do_not_say_is_not_there() {
        let container = json!({"HostConfig": {"NanoCpus": 0, "CpuQuota": 75_000, "CpuPeriod": 100_000, "Memory": 104_857_600}});
        let whole = json!({"read": "2026-11-30T19:51:03.5Z", "pids_stats": {"current": 3},
            "cpu_stats": {"cpu_usage": {"total_usage": 47_530_331}},
            "memory_stats": {"usage": 1_359_872, "stats": {"total_inactive_file": 741_376, "inactive_file": 1}},
            "networks": {"eth0": {"rx_bytes": 286, "tx_bytes": 7}, "eth1": {"rx_bytes": 1, "tx_bytes": 0}}});
        let read_whole = read(&whole, &container).unwrap();
        assert_eq!(
            read_whole,
            Usage {
                at: "2026-11-30T19:51:03.5Z".parse().unwrap(),
                cpu_nanos: Some(47_530_331),
                cpu_limit: Some(Cpus::from_millis(750)),
                memory: Some(Memory::from_bytes(618_496)),
                memory_limit: Some(Memory::from_bytes(100 << 20)),
                received: Some(287),
                sent: Some(7),
                processes: Some(3),
                gpus: None,
            }
        );
        // one on no network, without limits, of a daemon that tells less
        let bare = read(&json!({"read": "2026-11-30T19:51:03Z", "networks": {}}), &json!({"HostConfig": {"Memory": 0}})).unwrap();
        let at = "2026-11-30T19:51:03Z".parse().unwrap();
        let nothing = Usage {
            at,
            cpu_nanos: None,
            cpu_limit: None,
            memory: None,
            memory_limit: None,
            received: None,
            sent: None,
            processes: None,
            gpus: None,
        };
        assert_eq!(bare, nothing);
        assert_eq!(
            read(&json!({"read": "0001-01-01T00:00:00Z", "cpu_stats": {"cpu_usage": {"total_usage": 0}}}), &container),
            None
        );
    }
}
