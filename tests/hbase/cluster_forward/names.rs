//! Tests names that are new to all nodes at once: each takes one number and one UID, and no orphaned row remains.

use std::{
    net::SocketAddr,
    ops::Range,
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
};

use cluster::Cluster;
use serde_json::{Value, json};
use tokio::{task::block_in_place, time::Instant};
use tsd_testkit::{metric, try_http, used_uids};

use super::{RETRY_PAUSE, SETTINGS};
use crate::{
    TSDB,
    regions::{ScenarioResult, TIMEOUT},
    tsd,
};

/// Default number of names.
const NAMES: usize = 3_000;
const VARIABLE: &str = "HBASE_NEW_NAMES";
/// Names of a request.
const REQUEST_NAMES: usize = 500;
/// Clients of each node.
const CLIENTS: usize = 4;
const SECOND: u64 = 1_600_000_000;

/// Puts a point of each new series to all nodes at once.
pub(super) fn run(cluster: &Cluster, nodes: &[SocketAddr]) -> ScenarioResult<()> {
    let count = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(NAMES);
    let before = used_numbers(nodes[0])?;
    let unanswered_before = unanswered(nodes);
    let begun = Instant::now();
    let refused = block_in_place(|| put_to_all(nodes, count))?;
    let took = begun.elapsed();
    let used = used_numbers(nodes[0])? - before;
    let unanswered = unanswered(nodes) - unanswered_before;
    println!(
        "cluster_forward: {count} names that were new to three nodes at once: {:.0} names a second, {used} numbers used, \
         {unanswered} names not answered by their owners, {refused} requests refused and sent again",
        count as f64 / took.as_secs_f64()
    );
    for node in nodes {
        let uri = format!("/api/query?start={SECOND}&end={}&m=count:fleet", SECOND + 1);
        let series = tsd::query(*node, &uri)?;
        let counted = series.first().and_then(|one| one["dps"][SECOND.to_string()].as_u64());
        if counted != Some(count as u64) {
            return Err(format!("{counted:?} series of {count} names").into());
        }
    }
    if unanswered >= count as u64 {
        return Err(format!("{unanswered} names were not answered by their owners").into());
    }
    let orphans = block_in_place(|| check_names(cluster))?;
    if !orphans.is_empty() || used < count as u64 || used - count as u64 > unanswered {
        return Err(format!("{used} numbers for {count} names; fsck: {orphans}").into());
    }
    Ok(())
}

/// Returns the number of rejected and repeated requests.
fn put_to_all(nodes: &[SocketAddr], count: usize) -> ScenarioResult<u64> {
    let refused = AtomicU64::new(0);
    let part = count.div_ceil(CLIENTS);
    std::thread::scope(|scope| {
        let clients = nodes.iter().flat_map(|node| (0..CLIENTS).map(move |client| (*node, client)));
        let clients: Vec<_> = clients
            .map(|(node, client)| {
                let (hosts, refused) = (client * part..count.min((client + 1) * part), &refused);
                scope.spawn(move || put_names(node, hosts, refused))
            })
            .collect();
        clients.into_iter().try_for_each(|client| client.join().expect("a client"))
    })
    .map_err(|error: String| error)?;
    Ok(refused.load(Ordering::SeqCst))
}

fn put_names(node: SocketAddr, hosts: Range<usize>, refused: &AtomicU64) -> Result<(), String> {
    let begun = Instant::now();
    for first in hosts.clone().step_by(REQUEST_NAMES) {
        let part = first..hosts.end.min(first + REQUEST_NAMES);
        let point = |host: usize| {
            json!({
                "metric": "fleet", "timestamp": SECOND, "value": 1, "tags": {"host": format!("web{host}")},
            })
        };
        let body = Value::Array(part.map(point).collect()).to_string();
        loop {
            match try_http(node, "POST", "/api/put", Some(&body)) {
                Ok(response) if response.status == 204 => break,
                Ok(response) if begun.elapsed() > TIMEOUT => return Err(response.body),
                Err(error) if begun.elapsed() > TIMEOUT => return Err(error.to_string()),
                _ => refused.fetch_add(1, Ordering::SeqCst),
            };
            std::thread::sleep(RETRY_PAUSE);
        }
    }
    Ok(())
}

fn used_numbers(node: SocketAddr) -> ScenarioResult<u64> {
    let used = block_in_place(|| used_uids(node, "tagv"));
    Ok(used.ok_or("no statistic of UIDs")?)
}

fn unanswered(nodes: &[SocketAddr]) -> u64 {
    let of = |node: &SocketAddr| metric(*node, "tsd_cluster_uids_unanswered_total");
    block_in_place(|| nodes.iter().filter_map(of).sum::<f64>()) as u64
}

/// Findings of the check of the UID table.
fn check_names(cluster: &Cluster) -> ScenarioResult<String> {
    let mut check = Command::new(TSDB);
    check.args(["uid", "fsck"]).envs(tsd::settings(cluster, &SETTINGS));
    let output = check.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(if output.status.success() { String::new() } else { format!("{}: {text}", output.status) })
}
