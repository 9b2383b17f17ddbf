//! CPU, bytes and memory of the process; timed queries.

use std::{fs, time::Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::{
    design::Design,
    load::Load,
    queries::{Query, expected},
};

pub(crate) fn cpu() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// CPU seconds of the threads of this name.
pub(crate) fn thread_cpu(name: &str) -> f64 {
    let mut ticks = 0;
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let comm = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if comm.trim() == name {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            let fields: Vec<&str> =
                stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
            ticks += fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        }
    }
    ticks as f64 / 100.0
}

/// Bytes passed to write calls by this process.
pub(crate) fn written() -> f64 {
    let io = fs::read_to_string("/proc/self/io").unwrap();
    let line = io.lines().find_map(|l| l.strip_prefix("wchar: ")).unwrap();
    line.parse().unwrap()
}

pub(crate) fn peak_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1_024.0
}

pub(crate) fn run_queries(
    design: &Design,
    load: &Load,
    queries: &[Query],
    state: &str,
    check: bool,
) {
    for query in queries {
        let answer = design.ask(query);
        if check {
            assert_eq!(answer.points, expected(load, query).points, "{}", query.name);
            let off = (answer.sum - expected(load, query).sum).abs();
            assert!(off <= 1 + answer.points as i64 / 1_000, "{}: sum off by {off}", query.name);
        }
        let (mut wall, mut used) = (Vec::new(), Vec::new());
        for _ in 0..query.repeats {
            let (started, before) = (Instant::now(), cpu());
            assert_eq!(design.ask(query).points, answer.points);
            wall.push(started.elapsed().as_secs_f64() * 1e3);
            used.push((cpu() - before) * 1e3);
        }
        wall.sort_by(f64::total_cmp);
        used.sort_by(f64::total_cmp);
        println!(
            "{state:>10} | {:<28} | {:>10} points | {:>10.3} ms | {:>10.3} cpu-ms | sum {}",
            query.name,
            answer.points,
            wall[wall.len() / 2],
            used[used.len() / 2],
            answer.sum
        );
    }
}
