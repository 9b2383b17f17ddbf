//! Waiting for a condition of another process.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How long tests wait for what must happen: a minute is not enough where a debug build has a tenth of a core.
/// Only a defect takes so long.
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
