//! `/api/stats/jvm`, `threads` and `region_clients` in OpenTSDB's format.
//!
//! There is no Java process. Sizes and threads come from Linux, `pools` and `gc` are empty. If `/proc`
//! cannot be read, sizes are 0 and no threads are listed.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use tsd_engine::RegionClientStats;

use crate::server_state::ServerState;

/// Bytes per KiB, the unit of `/proc/self/status`.
const KIB: u64 = 1024;

/// Clock ticks per second in `/proc`; fixed on Linux.
const USER_HZ: i64 = 100;

/// `/api/stats/jvm`: memory, load and uptime of the process.
pub(super) fn jvm(state: &ServerState) -> Value {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bytes = |field: &str| kib_of(&status, field).saturating_mul(KIB);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(-1.0);
    let now_ms = state.engine.config().clock.now_ms();
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let up = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let uptime_ms = uptime_ms(&stat, &up).unwrap_or(0);
    let build = &state.config.build;
    json!({
        "memory": {
            "nonHeapMemoryUsage": {
                "init": 0,
                "used": bytes("RssFile:"),
                "committed": bytes("RssFile:"),
                "max": -1,
            },
            "objectsPendingFinalization": 0,
            // Memory that is not backed by files, without and with swapped pages.
            "heapMemoryUsage": {
                "init": 0,
                "used": bytes("RssAnon:"),
                "committed": bytes("RssAnon:") + bytes("VmSwap:"),
                "max": heap_max(state),
            },
        },
        "os": { "systemLoadAverage": load },
        "runtime": {
            "vmName": env!("CARGO_PKG_NAME"),
            "vmVersion": build.version,
            "startTime": now_ms.saturating_sub(uptime_ms),
            "vmVendor": "Saltern",
            "uptime": uptime_ms,
        },
        "pools": {},
        "gc": {},
    })
}

/// Returns the memory limit of the process; -1 without a limit, as in Java.
fn heap_max(state: &ServerState) -> i64 {
    let memory = state.memory();
    if memory.is_unlimited() { -1 } else { i64::try_from(memory.limit()).unwrap_or(i64::MAX) }
}

/// Computes how long a process has been running, from its `stat` line and the uptime of the machine.
fn uptime_ms(stat: &str, up: &str) -> Option<i64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let started_ticks: i64 = fields.split_whitespace().nth(19)?.parse().ok()?;
    let up_seconds: f64 = up.split(' ').next()?.parse().ok()?;
    Some((up_seconds * 1_000.0) as i64 - started_ticks * 1_000 / USER_HZ)
}

/// Reads a field of `/proc/self/status` in KiB; 0 if it is missing.
fn kib_of(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// `/api/stats/threads`: the threads of the process, by id. Stacks are not recorded.
pub(super) fn threads() -> Value {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    // A thread may end between the listing and the read.
    let mut threads: Vec<(u64, Value)> = tasks
        .filter_map(|task| thread(&fs::read_to_string(task.path().join("stat")).ok()?))
        .collect();
    threads.sort_by_key(|(id, _)| *id);
    threads.into_iter().map(|(_, thread)| thread).collect()
}

/// Parses the `stat` line of a thread: `id (name) state ... nice ...`.
fn thread(stat: &str) -> Option<(u64, Value)> {
    // The name may contain any character.
    let (head, fields) = stat.rsplit_once(')')?;
    let (id, name) = head.split_once(" (")?;
    let id: u64 = id.parse().ok()?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let nice: i64 = fields.get(16)?.parse().ok()?;
    let thread = json!({
        "threadID": id,
        "stack": [],
        "name": name,
        "state": java_state(fields.first()?),
        "interrupted": false,
        // Java's range is 1 to 10 and its normal priority 5, Linux's 19 to -20 and 0.
        "priority": (5 - nice / 4).clamp(1, 10),
    });
    Some((id, thread))
}

/// Returns Java's name for the state of a thread.
fn java_state(state: &str) -> &'static str {
    match state {
        "R" => "RUNNABLE",
        // Waiting for a disk, or stopped.
        "D" | "T" | "t" => "BLOCKED",
        "Z" | "X" => "TERMINATED",
        _ => "WAITING",
    }
}

/// `/api/stats/region_clients`: the servers of the storage. Counts that the client lacks are 0. OpenTSDB does not have
/// the last three members.
pub(super) fn region_clients(clients: &[RegionClientStats]) -> Value {
    let clients = clients.iter().map(|client| {
        json!({
            "pendingBreached": 0,
            "writesBlocked": 0,
            "inflightBreached": client.admission_waits,
            "dead": client.connections == 0,
            "rpcsInFlight": client.calls_in_flight,
            "rpcsSent": client.calls,
            "rpcResponsesUnknown": 0,
            "pendingBatchedRPCs": 0,
            "endpoint": client.endpoint,
            "rpcResponsesTimedout": 0,
            "rpcid": client.calls,
            "rpcsTimedout": 0,
            "pendingRPCs": 0,
            "rpcsFailed": client.failed,
            "latency50pctMs": millis(client.latency_p50),
            "latency99pctMs": millis(client.latency_p99),
        })
    });
    clients.collect()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "tests")]

    use super::*;

    #[test]
    fn threads_are_read_from_their_stat_lines() {
        let stat = "17 (a) (b) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 25 5 3 0 100 0 0";
        let Some((id, read)) = thread(stat) else { panic!("a thread") };
        assert_eq!((id, &read["name"], &read["state"]), (17, &json!("a) (b"), &json!("WAITING")));
        assert_eq!(read["priority"], 4);
        assert_eq!(thread("17 (a) R 1"), None);
        assert!(threads().as_array().is_some_and(|threads| !threads.is_empty()));
    }

    #[test]
    fn sizes_and_start_are_read_from_proc() {
        assert_eq!(kib_of("Name:\tx\nRssAnon:\t  1234 kB\n", "RssAnon:"), 1_234);
        assert_eq!(kib_of("", "RssAnon:"), 0);
        let stat = "17 (a) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 25 5 3 0 1500 0 0";
        assert_eq!(uptime_ms(stat, "20.25 7.00\n"), Some(5_250));
        assert_eq!(uptime_ms("", ""), None);
    }

    #[test]
    fn region_clients_have_opentsdbs_fields() {
        let client = RegionClientStats {
            endpoint: "rs1:16020".to_owned(),
            connections: 1,
            calls: 7,
            calls_in_flight: 2,
            admission_waits: 0,
            failed: 1,
            latency_p50: Duration::from_micros(512),
            latency_p99: Duration::from_millis(8),
        };
        let read = region_clients(&[client]);
        assert_eq!(read[0]["endpoint"], "rs1:16020");
        assert_eq!((&read[0]["dead"], &read[0]["rpcsInFlight"]), (&json!(false), &json!(2)));
        assert_eq!(
            (&read[0]["rpcsFailed"], &read[0]["latency50pctMs"]),
            (&json!(1), &json!(0.512))
        );
        assert_eq!(read[0]["latency99pctMs"], json!(8.0));
        assert_eq!(read[0].as_object().map(serde_json::Map::len), Some(13 + 3));
        assert_eq!(region_clients(&[]), json!([]));
    }
}
