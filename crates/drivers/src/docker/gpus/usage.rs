//! What the GPUs of a box do at this moment, as NVIDIA's program in the box says it. A box may say what it likes: it is shown, and
//! nothing is decided by it.

use crate::docker::session::Session;
use hmz_api::Memory;
use hmz_api::rest::GpuUsage;
use hmz_api::way::Exec;
use std::time::Duration;

/// How long it may take. Who looks at many boxes looks at them together.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most that it may say, in bytes.
const MOST: usize = 1 << 14;
const ARGV: [&str; 3] = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits"];

/// Asks a container; `None` where it has no such program, or says nothing of use in time.
pub async fn of(session: &Session<'_>, id: &str) -> Option<GpuUsage> {
    let socket = session.api.road().socket().await.ok()?;
    let (id, what) = (id.to_owned(), Exec::of(ARGV.map(str::to_owned).into()));
    let asked = move || hmz_wire::channel::said_in(&socket, &id, &what, MOST, PATIENCE);
    let said = tokio::time::timeout(PATIENCE * 2, tokio::task::spawn_blocking(asked)).await.ok()?.ok()?.ok()?;
    read(&String::from_utf8_lossy(&said))
}

/// A line a GPU: per cent, MiB in use, MiB in all.
fn read(said: &str) -> Option<GpuUsage> {
    let mut all = Vec::new();
    for line in said.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let numbers: Option<Vec<u64>> = line.split(',').map(|field| field.trim().parse().ok()).collect();
        let [percent, used, total] = numbers?[..] else { return None };
        all.push((percent.min(100), used.checked_mul(1 << 20)?, total.checked_mul(1 << 20)?));
    }
    let sum = |of: fn(&(u64, u64, u64)) -> u64| all.iter().map(of).fold(0u64, u64::saturating_add);
    let number = u64::try_from(all.len()).ok().filter(|n| *n > 0)?;
    Some(GpuUsage {
        percent: sum(|gpu| gpu.0) / number,
        memory: Memory::from_bytes(sum(|gpu| gpu.1)),
        memory_limit: Memory::from_bytes(sum(|gpu| gpu.2)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_are_told_as_one() {
        let gib = |n: u64| Memory::from_bytes(n << 30);
        let two = GpuUsage { percent: 45, memory: gib(3), memory_limit: gib(32) };
        assert_eq!(read("80, 1024, 16384\r\n10, 2048, 16384\r\n"), Some(two));
        for nothing in ["", "No devices were found", "[N/A], 1, 2", "1, 2", "1, 2, 3, 4", "1, 2, 99999999999999999"] {
            assert_eq!(read(nothing), None, "{nothing}");
        }
    }
}
