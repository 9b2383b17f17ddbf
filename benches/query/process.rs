//! What the system knows of the daemon while it works.

use std::{fs, thread, time::Duration};

/// Processor time a process has used, its threads included, to the nanosecond.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let mut nanoseconds = 0_u64;
    for task in fs::read_dir(format!("/proc/{pid}/task")).expect("/proc").flatten() {
        // A thread may end while it is looked at; the daemon's long-lived ones do not.
        let Ok(text) = fs::read_to_string(task.path().join("schedstat")) else { continue };
        nanoseconds += text.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    }
    nanoseconds as f64 / 1e9
}

/// The most memory the process had resident since the last [`forget_peak`].
pub(crate) fn peak_resident_bytes(pid: u32) -> u64 {
    resident(pid, "VmHWM:")
}

/// Memory the process has resident now.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    resident(pid, "VmRSS:")
}

fn resident(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("/proc");
    let line = status.lines().find(|line| line.starts_with(field)).expect("memory in /proc");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a size");
    kib << 10
}

/// Starts the peak of resident memory afresh.
pub(crate) fn forget_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("clear_refs");
}

/// Waits until the process has been idle for a second: row and LSM compaction are done.
pub(crate) fn wait_until_idle(pid: u32) {
    let mut before = cpu_seconds(pid);
    let mut idle = 0;
    while idle < 4 {
        thread::sleep(Duration::from_millis(250));
        let now = cpu_seconds(pid);
        idle = if now - before < 0.01 { idle + 1 } else { 0 };
        before = now;
    }
}
