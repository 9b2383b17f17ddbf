//! Measures how long each fault affects clients. A probe puts points of many series, and so of slots of all nodes,
//! until they are acknowledged, then queries them until they are read.

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use serde_json::{Value, json};
use tokio::task::{JoinHandle, spawn_blocking};

use super::{
    history::{FIRST_SECOND, WriteRequest, WrongPoint},
    load::{KillLoad, RETRY_PAUSE},
    plan::FaultKind,
};

const METRIC: &str = "cluster.kills.probe";
/// Points of a probe, each of a different series.
const SERIES: u64 = 64;

/// The probes whose points are acknowledged.
#[derive(Debug, Default)]
pub(super) struct Probes {
    begun: AtomicU64,
    acknowledged: Mutex<Vec<u64>>,
}

/// Probes a fault that has just begun.
pub(super) fn start(load: &Arc<KillLoad>, kind: FaultKind) -> JoinHandle<()> {
    let load = Arc::clone(load);
    let number = load.probes.begun.fetch_add(1, Ordering::SeqCst);
    let begun = Instant::now();
    spawn_blocking(move || {
        let mut random = load.random(1_000 + number);
        let point = |series: u64| {
            json!({
                "metric": METRIC,
                "timestamp": FIRST_SECOND + number,
                "value": value(number),
                "tags": {"probe": series.to_string()},
            })
        };
        let points: Vec<Value> = (0..SERIES).map(point).collect();
        let body = Some(Value::Array(points).to_string());
        let request = WriteRequest { method: "POST", uri: "/api/put".to_owned(), body };
        if !load.send(&mut random, &request, || {}) {
            return;
        }
        let acknowledged = begun.elapsed();
        load.report.record_acknowledgement(SERIES);
        while !load.is_abandoned() {
            let read = load.live.any(&mut random).and_then(|at| read(&load, at, &[number]));
            if read.is_some() {
                load.report.record_recovery(kind, acknowledged, begun.elapsed());
                break;
            }
            thread::sleep(RETRY_PAUSE);
        }
        let mut all = load.probes.acknowledged.lock();
        all.push(number);
    })
}

impl Probes {
    /// Reads the points of all probes through a node; `None` if the query fails.
    pub(super) fn read_all(&self, load: &KillLoad, address: SocketAddr) -> Option<u64> {
        let numbers = self.acknowledged.lock().clone();
        if numbers.is_empty() { Some(0) } else { read(load, address, &numbers) }
    }
}

const fn value(number: u64) -> u64 {
    number * 1_000 + 7
}

/// Reads the points of these probes through a node, and counts wrong points.
fn read(load: &KillLoad, address: SocketAddr, numbers: &[u64]) -> Option<u64> {
    let seconds = numbers.iter().map(|number| FIRST_SECOND + number);
    let (start, end) = (seconds.clone().min()?, seconds.max()? + 1);
    let uri = format!("/api/query?start={start}&end={end}&m=none:{METRIC}{{probe=*}}");
    let asked = Instant::now();
    let found: BTreeMap<String, Value> = load
        .query(address, &uri)?
        .iter()
        .filter_map(|one| Some((one["tags"]["probe"].as_str()?.to_owned(), one["dps"].clone())))
        .collect();
    let mut wrong = Vec::new();
    for number in numbers {
        for series in 0..SERIES {
            let second = (FIRST_SECOND + number).to_string();
            let read = found.get(&series.to_string()).and_then(|points| points.get(&second));
            if read.and_then(Value::as_u64) != Some(value(*number)) {
                let text = format!(
                    "{METRIC}{{probe={series}}} at {second}: read {read:?}; acknowledged {}",
                    value(*number)
                );
                wrong.push(WrongPoint { has_value: read.is_some(), second: None, text });
            }
        }
    }
    load.report.record_wrong(address, asked, &wrong);
    Some(numbers.len() as u64 * SERIES)
}
