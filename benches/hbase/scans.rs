//! Compares HBase's Java scanner and ours in scans of a whole table, with the same settings, in
//! alternating rounds.

use std::time::{Duration, Instant};

use hbase_rs::{Client, Scan, Selection};
use tsd_testkit::process;

use crate::{
    Options,
    bench_cluster::BenchCluster,
    cells::{CellLoad, CellTotal, FAMILY},
    java_client::{JavaClient, JavaPrograms},
    report::{self, Measurement, median, ratio, thousands},
    table, writes,
};

/// Rows per call; the limit of bytes is reached first.
const ROWS_PER_CALL: u32 = 100_000;
/// Bytes per call; HBase's default.
const BYTES_PER_CALL: u64 = 2 << 20;
/// Maximum wait for the servers' flush.
const MAX_FLUSH: Duration = Duration::from_mins(1);

/// Fills the table and reads it; prints the table.
pub(crate) fn run(cluster: &BenchCluster, programs: &JavaPrograms, options: &Options) {
    let load = fill(cluster, options);
    let mut program = programs.start(cluster, "ScannerLoad");
    java_round(cluster, &mut program, load);
    native_round(cluster, &cluster.client, load);
    let (mut java, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        java.push(java_round(cluster, &mut program, load));
        ours.push(native_round(cluster, &cluster.client, load));
    }
    report::print_head(&["scan", "client", "cells/s", "client cpu-s per M", "server cpu-s per M"]);
    let what = format!("{} M cells, {} a row", load.cells() / 1_000_000, load.steps);
    for (name, rounds) in [("Java, asynchronous prefetch", &java), ("hbase-rs", &ours)] {
        report::print_row(&[
            what.clone(),
            name.to_owned(),
            thousands(median(rounds, |r| r.rate)),
            format!("{:.3}", median(rounds, |r| r.client_cpu)),
            format!("{:.3}", median(rounds, |r| r.server_cpu)),
        ]);
    }
    report::print_row(&[
        what,
        format!("ratio, median of {}", options.rounds),
        format!("**{:.2}**", ratio(&ours, &java, |r| r.rate)),
        format!("{:.2}", ratio(&ours, &java, |r| r.client_cpu)),
        format!("{:.2}", ratio(&ours, &java, |r| r.server_cpu)),
    ]);
}

/// Writes the cells that scans and gets read, and flushes them to the servers' files.
pub(crate) fn fill(cluster: &BenchCluster, options: &Options) -> CellLoad {
    let load = options.scan_load();
    cluster.block_on(async {
        table::truncate(&cluster.client, &table::name()).await;
        writes::write(&cluster.client, load).await;
        // The master forgets a region that reports its flush too early ("procedure event is null"), and then waits for
        // ever. The region is flushed nevertheless.
        let (admin, name) = (cluster.client.admin(), table::name());
        match tokio::time::timeout(MAX_FLUSH, admin.flush_table(&name)).await {
            Ok(flushed) => flushed.expect("flush"),
            Err(_) => println!("the master still waits for a flush after {MAX_FLUSH:?}"),
        }
    });
    load
}

/// One round of Java's scanner.
pub(crate) fn java_round(
    cluster: &BenchCluster,
    program: &mut JavaClient,
    load: CellLoad,
) -> Measurement {
    let server = cluster.region_server_cpu();
    let request = format!("{} {ROWS_PER_CALL} {BYTES_PER_CALL} true", table::NAME);
    let result = program.run(&request);
    let server = cluster.region_server_cpu() - server;
    let total = CellTotal { cells: result.values[1], sum: result.values[2] };
    assert_eq!(total, load.total(), "everything was read");
    Measurement::new(load.cells(), result.seconds, result.cpu, server)
}

/// One round of a native client.
pub(crate) fn native_round(cluster: &BenchCluster, client: &Client, load: CellLoad) -> Measurement {
    let server = cluster.region_server_cpu();
    let cpu = process::own_cpu_seconds();
    let start = Instant::now();
    let selection = Selection::all().family(FAMILY).without_block_cache();
    let scan = Scan::all().select(selection).per_call(ROWS_PER_CALL, BYTES_PER_CALL);
    let total = cluster.block_on(table::total(client, scan));
    let seconds = start.elapsed().as_secs_f64();
    let cpu = process::own_cpu_seconds() - cpu;
    let server = cluster.region_server_cpu() - server;
    assert_eq!(total, load.total(), "everything was read");
    Measurement::new(load.cells(), seconds, cpu, server)
}
