//! Waits for a condition of another process.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Longest wait of tests for an expected event. A debug build with a tenth of a core needs more than a minute; only a
/// defect takes longer than this.
pub const PATIENCE: Duration = Duration::from_mins(5);

/// Calls `poll` every 2 ms until it returns a value; `None` after [`PATIENCE`].
pub fn wait_for<T>(mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = poll() {
            return Some(value);
        }
        if Instant::now() > deadline {
            return None;
        }
        thread::sleep(Duration::from_millis(2));
    }
}
