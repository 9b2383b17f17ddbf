//! What the system knows of another process, and of a directory.

use std::{fs, path::Path};

/// Ticks of /proc a second; fixed on Linux.
const USER_HZ: f64 = 100.0;

/// Processor time a process has used, its threads included.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("/proc");
    // The name of the program stands in brackets and may hold anything.
    let fields = stat.rsplit_once(')').expect("a stat line").1;
    let ticks: f64 =
        fields.split_whitespace().skip(11).take(2).map(|f| f.parse::<f64>().expect("ticks")).sum();
    ticks / USER_HZ
}

/// The most memory a process had resident.
pub(crate) fn peak_resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("/proc");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("VmHWM");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a size");
    kib << 10
}

/// Bytes of all files below a directory.
pub(crate) fn disk_bytes(directory: &Path) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        // Files come and go while the daemon works.
        let Ok(kind) = entry.metadata() else { continue };
        bytes += if kind.is_dir() { disk_bytes(&entry.path()) } else { kind.len() };
    }
    bytes
}
