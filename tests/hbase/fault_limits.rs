//! HBase slows its clients down: quotas, full memstores, and memstore pressure that it reports with its responses.
//!
//! Two daemons, one for each acknowledgement, write to tables with a small memstore; a quota of the table limits them
//! for a while. No acknowledged point may be lost, and `/api/status` must say what HBase does. Then the client alone
//! fills the memstores of two tables, of which one reports its load.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use cluster::Cluster;
use hbase_rs::{
    BufferConfig, Client, ClientConfig, Scan, TableName,
    admin::{FamilyDescriptor, TableDescriptor},
    buffer::MutationBatch,
    errors::ExceptionClass,
    stats::RetryReason,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tsd_testkit::{Daemon, metric};

use crate::{
    daemon_workload::DaemonWorkload,
    fault_admin::administer,
    fault_report::{FaultLine, render},
    regions::{ScenarioResult, wait_until},
    tsd,
    workload::Workload,
};

const DATA_TABLE: &str = "limits";
const TABLES: [(&str, &str); 4] = [
    ("tsd.storage.hbase.data_table", DATA_TABLE),
    ("tsd.storage.hbase.uid_table", "limits-uid"),
    ("tsd.storage.hbase.tree_table", "limits-tree"),
    ("tsd.storage.hbase.meta_table", "limits-meta"),
];
const LOG_SETTINGS: [(&str, &str); 2] =
    [("tsd.storage.ack", "log"), ("tsd.storage.hold_seconds", "2")];
/// Pause between the requests of a writer.
const PAUSE: Duration = Duration::from_millis(60);
/// The quota, requests a second: fewer than each call of the daemons has.
const WRITES: &str = "12";
const READS: &str = "6";
/// How long the quota stays after it has been noticed.
const THROTTLED: Duration = Duration::from_secs(6);
/// Size at which a memstore is flushed, and at which it rejects writes.
const FLUSH_SIZE: &str = "262144";
/// Points of a request that fill a memstore, and number of requests.
const POINTS: u64 = 3_000;
const REQUESTS: u64 = 10;
const FIRST_SECOND: u64 = 1_600_000_000;
/// Rows that fill memstores without a daemon, and the length of their values.
const ROWS: u64 = 1_000;
const VALUE: [u8; 4_000] = [7; 4_000];

/// A quota, full memstores, and reported load.
pub(crate) async fn run(cluster: &mut Cluster) -> ScenarioResult<()> {
    let client = cluster.client();
    create_small(&client, DATA_TABLE, b"t", false).await?;
    tsd::create_tables(cluster, &TABLES)?;
    let directory = tempfile::tempdir()?;
    let mut daemons = Vec::new();
    let mut workloads: Vec<Arc<DaemonWorkload>> = Vec::new();
    for (ack, settings) in [("storage", &[][..]), ("log", &LOG_SETTINGS)] {
        let settings = [&TABLES[..], settings].concat();
        let daemon = tsd::start(cluster, &directory.path().join(ack), &settings);
        let (name, prefix) = (format!("tsdb, ack = {ack}"), format!("limits.{ack}"));
        workloads.push(Arc::new(DaemonWorkload::start(&name, &prefix, daemon.address(), PAUSE)));
        daemons.push(daemon);
    }
    for workload in &workloads {
        workload.wait_for_recovery().await?;
    }
    let lines = quota(cluster, &daemons, &workloads).await?;
    for workload in &workloads {
        let errors = workload.finish().await?;
        if !errors.is_empty() || workload.counts().wrong_reads > 0 {
            let problems = workload.problems().join("\n");
            return Err(format!("{}: {errors:?}\n{problems}", workload.name()).into());
        }
    }
    print!("{}", render(&lines));
    if let Some(wrong) = lines.iter().find(|line| !line.is_correct()) {
        return Err(format!("points were lost under a quota: {wrong:?}").into());
    }
    for (daemon, ack) in daemons.iter().zip(["storage", "log"]) {
        full_memstore(daemon, ack).await?;
    }
    reported_load(cluster).await
}

/// Creates a table whose memstore is flushed at [`FLUSH_SIZE`], and rejects writes until that is done.
async fn create_small(
    client: &Client,
    name: &str,
    family: &'static [u8],
    reports_load: bool,
) -> ScenarioResult<TableName> {
    let name: TableName = name.parse()?;
    let table = TableDescriptor::new(name.clone())
        .family(FamilyDescriptor::new(family))
        .attribute("MEMSTORE_FLUSHSIZE", FLUSH_SIZE)
        .attribute("hbase.hregion.memstore.block.multiplier", "1")
        .attribute("hbase.client.backpressure.enabled", reports_load.to_string())
        // Flushes would wait for compactions.
        .attribute("hbase.hstore.blockingStoreFiles", "1000")
        // They reject so small a memstore.
        .attribute("hbase.table.sanity.checks", "false");
    client.admin().create_table(&table, []).await?;
    Ok(name)
}

/// Sets a quota and removes it. Returns the lines of the fault table.
async fn quota(
    cluster: &Cluster,
    daemons: &[Daemon],
    workloads: &[Arc<DaemonWorkload>],
) -> ScenarioResult<Vec<FaultLine>> {
    let before: Vec<_> = workloads.iter().map(|workload| workload.counts()).collect();
    for workload in workloads {
        workload.take_longest_wait();
    }
    administer(cluster, &["throttle", DATA_TABLE, WRITES, READS]).await?;
    for daemon in daemons {
        let address = daemon.address();
        wait_until("the daemon says that a quota throttles it", async || {
            Ok(throttled(address) > 0.0 && status(address)?.contains("RpcThrottlingException"))
        })
        .await?;
    }
    sleep(THROTTLED).await;
    let end = Instant::now();
    administer(cluster, &["unthrottle", DATA_TABLE]).await?;
    let mut lines = Vec::new();
    for (workload, before) in workloads.iter().zip(before) {
        workload.wait_for_recovery().await?;
        let recovery = end.elapsed();
        let lost = workload.count_lost().await?;
        workload.wait_for_progress().await?;
        lines.push(FaultLine {
            fault: format!("a quota of {WRITES} writes and {READS} reads a second"),
            workload: workload.name(),
            before,
            after: workload.counts(),
            lost,
            longest_wait: workload.take_longest_wait(),
            recovery,
        });
    }
    let counts = daemons.iter().map(|daemon| throttled(daemon.address()).to_string());
    println!("limits: throttled calls: {}", counts.collect::<Vec<_>>().join(", "));
    Ok(lines)
}

fn throttled(address: SocketAddr) -> f64 {
    retries(address, "Throttling")
}

/// Retries of a daemon for this reason.
fn retries(address: SocketAddr, reason: &str) -> f64 {
    let page = tsd::request(address, "GET", "/metrics", None).map(|page| page.body);
    let sample = format!("tsd_hbase_retries_total{{reason=\"{reason}\"}} ");
    let count = page
        .ok()
        .and_then(|page| page.lines().find_map(|line| line.strip_prefix(&sample)?.parse().ok()));
    count.unwrap_or_default()
}

fn status(address: SocketAddr) -> ScenarioResult<String> {
    Ok(tsd::request(address, "GET", "/api/status", None)?.body)
}

/// Puts points faster than the memstore is flushed.
async fn full_memstore(daemon: &Daemon, ack: &str) -> ScenarioResult<()> {
    let address = daemon.address();
    let begun = Instant::now();
    let name = format!("limits.full.{ack}");
    let mut refused = 0;
    for request in 0..REQUESTS {
        let point = |at| {
            let number = request * POINTS + at;
            json!({
                "metric": name,
                "timestamp": FIRST_SECOND + number,
                "value": number,
                "tags": {"host": format!("h{}", number % 4)},
            })
        };
        let body = json!((0..POINTS).map(point).collect::<Vec<_>>()).to_string();
        while tsd::request(address, "POST", "/api/put", Some(&body))?.status != 204 {
            refused += 1;
        }
    }
    let written = begun.elapsed();
    wait_until("the daemon says that a memstore is full", async || {
        Ok(retries(address, "RegionTooBusy") > 0.0
            && status(address)?.contains("RegionTooBusyException"))
    })
    .await?;
    let end = FIRST_SECOND + REQUESTS * POINTS;
    let uri = format!("/api/query?start={FIRST_SECOND}&end={end}&m=zimsum:{name}");
    let found = tsd::query(address, &uri)?;
    let points = found.first().and_then(|series| series["dps"].as_object());
    let is_right = |number: &u64| {
        let value = points.and_then(|dps| dps.get(&(FIRST_SECOND + number).to_string()));
        value.and_then(Value::as_f64) == Some(*number as f64)
    };
    let right = (0..REQUESTS * POINTS).filter(is_right).count() as u64;
    println!(
        "limits: ack = {ack}: {right} of {} points of full memstores are right, acknowledged in {written:.1?}, {refused} \
         puts refused, rejected by HBase {} times",
        REQUESTS * POINTS,
        retries(address, "RegionTooBusy"),
    );
    let pauses = metric(address, "tsd_hbase_pressure_pause_seconds_total");
    if right != REQUESTS * POINTS || pauses != Some(0.0) {
        return Err(format!("points of a full memstore are missing, or pauses: {pauses:?}").into());
    }
    Ok(())
}

/// Fills the memstores of a table that reports its load, and of one that does not.
async fn reported_load(cluster: &Cluster) -> ScenarioResult<()> {
    let mut rejections = Vec::new();
    for reports_load in [false, true] {
        let name = if reports_load { "limits-reported" } else { "limits-unreported" };
        let name = create_small(&cluster.client(), name, b"f", reports_load).await?;
        let client = cluster.client_with(ClientConfig::new("limits"));
        let table = client.table(name);
        let mut config = BufferConfig::default();
        // Several calls for each memstore, so that the load of one decides about the next.
        config.batch_bytes = 32_000;
        let writer = table.buffered(config);
        let begun = Instant::now();
        let mut batch = MutationBatch::default();
        for row in 0..ROWS {
            batch.put(&row.to_be_bytes(), b"f", b"q", 1, &VALUE)?;
        }
        writer.write(batch).await?;
        let written = begun.elapsed();
        let mut rows = table.scan(Scan::all());
        let mut found = 0;
        while let Some(row) = rows.next().await {
            let row = row?.row;
            found += u64::from(row.value(b"f", b"q").is_some_and(|value| value == VALUE));
        }
        let stats = client.stats();
        let busy = RetryReason::Exception(ExceptionClass::RegionTooBusy);
        let busy: u64 = stats.retries.iter().filter(|(of, _)| *of == busy).map(|(_, n)| n).sum();
        let paused = stats.buffers.pressure_pauses;
        println!(
            "limits: load reported: {reports_load}; {found} of {ROWS} rows in {written:.1?}, RegionTooBusyException \
             {busy} times, paused for {paused:.1?}"
        );
        if found != ROWS || paused.is_zero() == reports_load {
            return Err(format!("{found} rows, paused for {paused:?}").into());
        }
        rejections.push(busy);
    }
    match rejections[..] {
        [without, with] if without > with => Ok(()),
        _ => Err(format!("RegionTooBusyException without and with load: {rejections:?}").into()),
    }
}
