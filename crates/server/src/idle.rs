//! When a daemon that a verb started may end: nobody is connected, and nothing runs or is to be healed.

use crate::counted::Count;
use hmz_controllers::Running;
use std::time::Duration;

/// Returns when there has been nothing to do for `limit`.
pub async fn wait(controllers: &Running, connections: Count, limit: Duration) {
    let step = (limit / 10).max(Duration::from_millis(100));
    let mut quiet = Duration::ZERO;
    while quiet < limit {
        tokio::time::sleep(step).await;
        let busy = connections.now() > 0 || controllers.is_busy();
        quiet = if busy { Duration::ZERO } else { quiet + step };
    }
}
