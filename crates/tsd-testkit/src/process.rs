//! Measures CPU time, memory and disk usage of this and other processes, as Linux reports them.

use std::{fs, path::Path, thread, time::Duration};

use rustix::time::{ClockId, clock_gettime};

/// Clock ticks per second in `/proc`; fixed on Linux.
const USER_HZ: f64 = 100.0;

/// CPU seconds of a process including its ended threads, with a resolution of 10 ms.
#[must_use]
pub fn cpu_seconds(pid: u32) -> f64 {
    try_cpu_seconds(pid).expect("a running process")
}

/// As [`cpu_seconds`]; `None` if the process has ended.
#[must_use]
pub fn try_cpu_seconds(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is in parentheses and may contain any character.
    let fields = stat.rsplit_once(')').expect("a stat line").1;
    let mut fields = fields.split_whitespace();
    if fields.next() == Some("Z") {
        return None;
    }
    let ticks: f64 = fields.skip(10).take(2).map(|f| f.parse::<f64>().expect("ticks")).sum();
    Some(ticks / USER_HZ)
}

/// CPU seconds of the living threads of a process, with a resolution of nanoseconds.
#[must_use]
pub fn thread_cpu_seconds(pid: u32) -> f64 {
    let mut nanoseconds = 0_u64;
    for task in fs::read_dir(format!("/proc/{pid}/task")).expect("/proc").flatten() {
        // A thread may end between the listing and the read.
        let Ok(text) = fs::read_to_string(task.path().join("schedstat")) else { continue };
        nanoseconds += text.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    }
    nanoseconds as f64 / 1e9
}

/// CPU seconds of this process.
#[must_use]
pub fn own_cpu_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// Waits until a process has used almost no CPU for a second, so that its background work is done.
pub fn wait_until_idle(pid: u32) {
    let mut before = thread_cpu_seconds(pid);
    let mut idle = 0;
    while idle < 4 {
        thread::sleep(Duration::from_millis(250));
        let now = thread_cpu_seconds(pid);
        idle = if now - before < 0.01 { idle + 1 } else { 0 };
        before = now;
    }
}

/// Resident memory of a process.
#[must_use]
pub fn resident_bytes(pid: u32) -> u64 {
    status_bytes(pid, "VmRSS:")
}

/// Peak of the resident memory since the process started, or since [`reset_peak`].
#[must_use]
pub fn peak_resident_bytes(pid: u32) -> u64 {
    status_bytes(pid, "VmHWM:")
}

/// Resets the peak of the resident memory to the current size.
pub fn reset_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("clear_refs");
}

/// A size of `/proc/PID/status`; 0 if the process has ended.
#[must_use]
pub fn status_bytes_or_zero(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    kib.unwrap_or(0_u64) << 10
}

fn status_bytes(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("/proc");
    let line = status.lines().find(|line| line.starts_with(field)).expect("memory in /proc");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a size");
    kib << 10
}

/// Bytes that a process has written to the disk.
#[must_use]
pub fn written_bytes(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).expect("/proc/PID/io");
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.expect("write_bytes").parse().expect("a number")
}

/// Number of all files below a directory.
#[must_use]
pub fn count_files(directory: &Path) -> u64 {
    let mut files = 0;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        files += if is_directory { count_files(&entry.path()) } else { 1 };
    }
    files
}

/// Total length of all files below a directory. Files that vanish meanwhile are not counted.
#[must_use]
pub fn directory_bytes(directory: &Path) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(kind) = entry.metadata() else { continue };
        bytes += if kind.is_dir() { directory_bytes(&entry.path()) } else { kind.len() };
    }
    bytes
}
