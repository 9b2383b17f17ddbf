//! `process_*` metrics under the names of Prometheus' client libraries, read when they are scraped.
//!
//! The metrics library supports only integer counters and cannot read values at scrape time, so this
//! module renders the family itself. Values that the system does not provide, as without `/proc`, are
//! omitted.

use std::{
    fmt::Write as _,
    fs,
    sync::OnceLock,
    time::{SystemTime, UNIX_EPOCH},
};

use metrics::{Unit, describe_counter, describe_gauge};
use rustix::{
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};

const CPU: (&str, &str) = ("process_cpu_seconds_total", "User and system CPU time of the process.");
const RESIDENT: (&str, &str) = ("process_resident_memory_bytes", "Memory of the process in RAM.");
const VIRTUAL: (&str, &str) = ("process_virtual_memory_bytes", "Virtual memory of the process.");
const OPEN_FDS: (&str, &str) = ("process_open_fds", "Open file descriptors.");
const MAX_FDS: (&str, &str) = ("process_max_fds", "Limit on open file descriptors.");
const START: (&str, &str) =
    ("process_start_time_seconds", "Start of the process, in seconds since 1970.");

static STARTED: OnceLock<SystemTime> = OnceLock::new();

/// Records the current time as the start of the process, unless the start is known.
pub(crate) fn note_start() {
    STARTED.get_or_init(SystemTime::now);
}

/// Describes the metrics to the current recorder.
pub(crate) fn describe() {
    describe_counter!(CPU.0, Unit::Seconds, CPU.1);
    describe_gauge!(RESIDENT.0, Unit::Bytes, RESIDENT.1);
    describe_gauge!(VIRTUAL.0, Unit::Bytes, VIRTUAL.1);
    describe_gauge!(OPEN_FDS.0, Unit::Count, OPEN_FDS.1);
    describe_gauge!(MAX_FDS.0, Unit::Count, MAX_FDS.1);
    describe_gauge!(START.0, Unit::Seconds, START.1);
}

/// Appends the metrics in the text format of Prometheus.
pub(crate) fn render(out: &mut String) {
    let mut family = |(name, help): (&str, &str), kind: &str, value: Option<f64>| {
        if let Some(value) = value {
            let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n\n");
        }
    };
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    family(CPU, "counter", Some(cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9));
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    family(RESIDENT, "gauge", bytes_of(&status, "VmRSS"));
    family(VIRTUAL, "gauge", bytes_of(&status, "VmSize"));
    // One of them is the directory being read.
    let open = fs::read_dir("/proc/self/fd").ok().map(|fds| fds.count().saturating_sub(1) as f64);
    family(OPEN_FDS, "gauge", open);
    family(MAX_FDS, "gauge", getrlimit(Resource::Nofile).current.map(|limit| limit as f64));
    let started = STARTED.get().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    family(START, "gauge", started.map(|at| at.as_secs_f64()));
}

/// Threads of the process by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadCounts {
    /// Running, or ready to run.
    pub(crate) running: u64,
    /// Waiting for a disk, or stopped.
    pub(crate) blocked: u64,
    /// Waiting for an event.
    pub(crate) waiting: u64,
    /// Ended, but not removed yet.
    pub(crate) ended: u64,
}

/// Counts the threads of the process; zero if `/proc` cannot be read.
pub(crate) fn thread_counts() -> ThreadCounts {
    let mut counts = ThreadCounts::default();
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        // A thread may end between the listing and the read.
        let Ok(stat) = fs::read_to_string(task.path().join("stat")) else { continue };
        // The name may contain any character.
        let Some((_, fields)) = stat.rsplit_once(')') else { continue };
        let count = match fields.trim_start().get(..1) {
            Some("R") => &mut counts.running,
            Some("D" | "T" | "t") => &mut counts.blocked,
            Some("Z" | "X") => &mut counts.ended,
            _ => &mut counts.waiting,
        };
        *count += 1;
    }
    counts
}

/// Returns the bytes of the process in RAM; 0 if `/proc` cannot be read.
pub(crate) fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    bytes_of(&status, "VmRSS").map_or(0, |bytes| bytes as u64)
}

/// Reads a value of `/proc/self/status`, such as `VmRSS:     1234 kB`.
fn bytes_of(status: &str, field: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kib * 1_024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_the_status_file_are_in_kib() {
        let status = "Name:\ttsdb\nVmSize:\t  812 kB\nVmRSS:\t      12 kB\nRssAnon:\t 3 kB\n";
        assert_eq!(bytes_of(status, "VmRSS"), Some(12_288.0));
        assert_eq!(bytes_of(status, "VmSize"), Some(831_488.0));
        assert_eq!(bytes_of(status, "Vm"), None);
        assert_eq!(bytes_of("", "VmRSS"), None);
    }
}
