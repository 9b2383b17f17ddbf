//! Sends the same new names at once through two of our daemons and two OpenTSDBs. Every name must have one
//! UID, which all daemons use, and no UID may lack its name.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    sync::Barrier,
    thread,
};

use cluster::{Cluster, Node};
use hbase_rs::{Scan, TableName};
use serde_json::{Value, json};
use tokio::task::block_in_place;
use tsd_model::to_hex;
use tsd_testkit::try_http;

use crate::interop::{report::PartReport, run::Context};
use crate::{regions::ScenarioResult, table_set::TableSet, tsd};

/// Number of new metrics, and of new tag values.
const NAMES: usize = 60;
const SECOND: u64 = 1_600_000_000;
/// Attempts of OpenTSDB: it may answer with an error when it loses a race.
const ATTEMPTS: usize = 3;
/// OpenTSDB's message when another process was the first to assign a UID to the name. Its own UID then stays
/// unused.
const LOST_RACE: &str = "Race condition: tried to assign ID ";

/// Sends the names and looks at the UID table.
pub(crate) async fn run(context: &mut Context<'_>) -> ScenarioResult<PartReport> {
    let mut report = PartReport::default();
    for (name, theirs) in [("ours alone", 0), ("beside OpenTSDBs", 2)] {
        let set = TableSet::with_meta(&format!("names-{theirs}-{}", context.round), &[]);
        set.create(context.cluster)?;
        let ours = [context.start_ours(&set.with(&[])), context.start_ours(&set.with(&[]))];
        let mut writers: Vec<(SocketAddr, &str)> =
            ours.iter().map(|daemon| (daemon.address(), "/api/put")).collect();
        for node in [Node::OpenTsdb, Node::SecondOpenTsdb].into_iter().take(theirs) {
            let address = set.restart_theirs(context.cluster, node, &[]).await?;
            writers.push((address, "/api/put?sync"));
        }
        let lost_before = lost_races(context.cluster);
        for failure in block_in_place(|| put_all(&writers)) {
            report.difference(format!("{name}: {failure}"));
        }
        let lost = lost_races(context.cluster).into_iter().zip(lost_before);
        // Logs continue where they ended.
        let lost: BTreeSet<_> =
            lost.flat_map(|(now, before)| now.into_iter().skip(before.len())).collect();
        let uids = Uids::read(context.cluster, &set.tables()[1]).await?;
        uids.check(name, &lost, &mut report);
        for (reader, _) in &writers {
            check_points(*reader, writers.len(), &mut report)?;
        }
    }
    context.cluster.kill(Node::SecondOpenTsdb)?;
    Ok(report)
}

/// Puts a point of every name through every writer at the same time; returns the failures.
fn put_all(writers: &[(SocketAddr, &str)]) -> Vec<String> {
    let barrier = Barrier::new(writers.len());
    let put_names = |at: usize, address: SocketAddr, uri: &str| -> Vec<String> {
        let mut failures = Vec::new();
        for name in 0..NAMES {
            let body = json!([{
                "metric": format!("names.{name}"), "timestamp": SECOND + at as u64, "value": name,
                "tags": {"host": format!("h{name}"), "of": format!("d{}", name % 7)},
            }]);
            barrier.wait();
            let attempts = if uri.ends_with("sync") { ATTEMPTS } else { 1 };
            let put = || {
                let response = try_http(address, "POST", uri, Some(&body.to_string()));
                let response = response.map_err(|error| error.to_string())?;
                let is_stored = matches!(response.status, 200 | 204);
                if is_stored { Ok(()) } else { Err(format!("{response:?}")) }
            };
            let stored = (1..attempts).fold(put(), |stored, _| stored.or_else(|_| put()));
            failures
                .extend(stored.err().map(|error| format!("name {name} through {uri}: {error}")));
        }
        failures
    };
    thread::scope(|scope| {
        let threads: Vec<_> = writers
            .iter()
            .enumerate()
            .map(|(at, (address, uri))| scope.spawn(move || put_names(at, *address, uri)))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Checks that a reader resolves each name by the UID that every writer has used.
fn check_points(reader: SocketAddr, writers: usize, report: &mut PartReport) -> ScenarioResult<()> {
    for name in 0..NAMES {
        let end = SECOND + writers as u64;
        let uri = format!(
            "/api/query?start={}&end={end}&m=none:names.{name}%7Bhost=h{name}%7D",
            SECOND - 1
        );
        let found = tsd::query(reader, &uri)?;
        let points = |series: &Value| series["dps"].as_object().map_or(0, serde_json::Map::len);
        report.answers += 1;
        if found.iter().map(points).sum::<usize>() != writers {
            report.difference(format!("{uri} of {reader}: {found:?}"));
        }
    }
    Ok(())
}

/// Kind and number of the UIDs that each OpenTSDB has reported as left without a name.
fn lost_races(cluster: &Cluster) -> [Vec<(String, u64)>; 2] {
    let nodes = [Node::OpenTsdb, Node::SecondOpenTsdb];
    let logs = nodes.map(|node| fs::read_to_string(cluster.log(node)).unwrap_or_default());
    let lost = |line: &str| {
        let (number, rest) = line.split_once(LOST_RACE)?.1.split_once(" to ")?;
        Some((rest.split_once(':')?.0.to_owned(), number.parse().ok()?))
    };
    logs.map(|log| log.lines().filter_map(lost).collect())
}

/// The UID table: by kind, name to UID, and UID to name.
#[derive(Default)]
struct Uids {
    ids: BTreeMap<(String, Vec<u8>), Vec<u8>>,
    names: BTreeMap<(String, Vec<u8>), Vec<u8>>,
}

impl Uids {
    async fn read(cluster: &Cluster, table: &str) -> ScenarioResult<Self> {
        let mut uids = Self::default();
        let mut rows = cluster.client().table(table.parse::<TableName>()?).scan(Scan::all());
        while let Some(row) = rows.next().await {
            let row = row?.row;
            for cell in row.cells() {
                let kind = String::from_utf8_lossy(cell.qualifier).into_owned();
                // Counters, and meta objects.
                if row.key() == [0] || kind.ends_with("_meta") {
                    continue;
                }
                let map = if cell.family == b"id" { &mut uids.ids } else { &mut uids.names };
                map.insert((kind, row.key().to_vec()), cell.value.to_vec());
            }
        }
        Ok(uids)
    }

    /// Checks that every name has a UID that maps back to it, and that other UIDs are the ones an OpenTSDB has
    /// lost.
    fn check(&self, what: &str, lost: &BTreeSet<(String, u64)>, report: &mut PartReport) {
        for ((kind, name), uid) in &self.ids {
            report.cells += 1;
            if self.names.get(&(kind.clone(), uid.clone())) != Some(name) {
                let name = String::from_utf8_lossy(name);
                report.difference(format!("{what}: {kind} {name} has {}", to_hex(uid)));
            }
        }
        let (mut orphans, mut ours) = (0, 0);
        for ((kind, uid), name) in &self.names {
            report.cells += 1;
            if self.ids.get(&(kind.clone(), name.clone())) == Some(uid) {
                continue;
            }
            orphans += 1;
            let number = uid.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
            if !lost.contains(&(kind.clone(), number)) {
                ours += 1;
                let name = String::from_utf8_lossy(name);
                report.difference(format!("{what}: {kind} {} leads to {name}", to_hex(uid)));
            }
        }
        report.note(format!(
            "{what}: {} names; {orphans} UIDs left without a name, {ours} of them not by an OpenTSDB \
             that lost a race",
            self.ids.len()
        ));
    }
}
