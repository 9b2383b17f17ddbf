//! Waiting for a condition of another process.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Calls `poll` every 2 ms until it returns a value; `None` after `timeout`.
pub fn wait_for<T>(timeout: Duration, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + timeout;
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
