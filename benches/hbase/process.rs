//! Processor time, as the system counts it.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

/// Ticks of /proc a second; fixed on Linux.
const USER_HZ: f64 = 100.0;

/// Processor time a process has used, its threads included.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    cpu_seconds_of_running(pid).expect("a running process")
}

/// The same, or nothing when it has ended.
pub(crate) fn cpu_seconds_of_running(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in brackets and may hold anything.
    let fields = stat.rsplit_once(')').expect("a stat line").1;
    let mut fields = fields.split_whitespace();
    if fields.next() == Some("Z") {
        return None;
    }
    let ticks: f64 = fields.skip(10).take(2).map(|f| f.parse::<f64>().expect("ticks")).sum();
    Some(ticks / USER_HZ)
}

/// Processor time of this process.
pub(crate) fn own_cpu_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}
