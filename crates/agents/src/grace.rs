//! How long an agent may take to end, a step at a time. What does not end in its time is told more plainly, and last it is
//! killed: a budget's end is no wish.

use std::time::Duration;

/// The time of each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// From a turn's interruption until the agent has let go of it, and has ended when its session is over.
    pub interruption: Duration,
    /// From the end of its input to its own end, when no turn was interrupted.
    pub input: Duration,
    /// From SIGTERM to its end; then it is killed.
    pub term: Duration,
}

impl Default for Grace {
    /// claude lets go in a fraction of a second, and in two when a command ignores signals.
    fn default() -> Self {
        Self { interruption: Duration::from_secs(3), input: Duration::from_secs(5), term: Duration::from_secs(2) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_not_overrun_by_more_than_a_few_seconds() {
        let grace = Grace::default();
        // one that heeds nothing is told at the end of the first that it has the second
        assert!(grace.interruption + grace.term <= Duration::from_secs(5), "{grace:?}");
    }
}
