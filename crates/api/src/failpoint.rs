//! Points at which a test ends the process, to see that what was begun converges without it.
//!
//! A build with debug assertions ends at the first pass of the point that the variable `HMZ_FAILPOINT` names, as if it were
//! killed: nothing is unwound, flushed or removed. Any other build has no points. The variable is read here and nowhere else.

/// Ends the process when this point is the one named.
#[inline]
pub fn pass(point: &str) {
    #[cfg(debug_assertions)]
    if armed().is_some_and(|armed| armed == point) {
        // the test sees by this line that the point is still there
        eprintln!("failpoint: {point}");
        std::process::abort();
    }
    #[cfg(not(debug_assertions))]
    let _ = point;
}

#[cfg(debug_assertions)]
fn armed() -> Option<&'static str> {
    static ARMED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    ARMED.get_or_init(|| std::env::var("HMZ_FAILPOINT").ok()).as_deref()
}
