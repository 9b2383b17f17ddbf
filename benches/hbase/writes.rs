//! Compares bulk writes: HBase's `BufferedMutator` and ours write the same cells into the same
//! truncated table, in alternating rounds.

use std::time::Instant;

use hbase_rs::{BufferConfig, Client};
use tsd_testkit::process;

use crate::{
    Options,
    bench_cluster::BenchCluster,
    cells::{CellLoad, FAMILY, number, qualifier, row, timestamp},
    java_client::{JavaClient, JavaPrograms},
    report::{self, Measurement, median, ratio, thousands},
    table,
};

/// Mutations per submitted batch.
const BATCH_MUTATIONS: usize = 512;
/// Rounds until the Java code is compiled.
const WARM_UP: usize = 3;
/// Bytes that the Java client buffers; its default.
const JAVA_BUFFER: usize = 2 << 20;

/// Java's bulk client, warmed up, on the table of the load.
pub(crate) struct Baseline {
    program: JavaClient,
}

impl Baseline {
    /// Starts it and runs it until its code is compiled.
    pub(crate) fn start(
        cluster: &BenchCluster,
        programs: &JavaPrograms,
        options: &Options,
    ) -> Self {
        let mut program = programs.start(cluster, "BufferedMutatorLoad");
        for points_a_put in [1, 6] {
            for _ in 0..WARM_UP {
                program.run(&java_request(options.load(points_a_put)));
                cluster.block_on(table::truncate(&cluster.client, &table::name()));
            }
        }
        Self { program }
    }

    /// One round into the truncated table, read back.
    pub(crate) fn round(&mut self, cluster: &BenchCluster, load: CellLoad) -> Measurement {
        java_round(cluster, &mut self.program, load)
    }
}

/// Both clients, with one cell and with six cells per put; prints the table.
pub(crate) fn run(cluster: &BenchCluster, baseline: &mut Baseline, options: &Options) {
    report::print_head(&[
        "writes",
        "client",
        "points/s",
        "client cpu-s per M",
        "server cpu-s per M",
    ]);
    for points_a_put in [1, 6] {
        let load = options.load(points_a_put);
        let what = match points_a_put {
            1 => "one cell a put".to_owned(),
            n => format!("{n} points of a row a put"),
        };
        // The Java client is warmed up already.
        native_round(cluster, &cluster.client, load);
        let (mut java, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            java.push(baseline.round(cluster, load));
            ours.push(native_round(cluster, &cluster.client, load));
        }
        for (name, rounds) in [("BufferedMutator", &java), ("hbase-rs", &ours)] {
            report::print_row(&[
                what.clone(),
                name.to_owned(),
                thousands(median(rounds, |r| r.rate)),
                format!("{:.2}", median(rounds, |r| r.client_cpu)),
                format!("{:.2}", median(rounds, |r| r.server_cpu)),
            ]);
        }
        report::print_row(&[
            what,
            format!("ratio, median of {}", options.rounds),
            format!("**{:.2}**", ratio(&ours, &java, |r| r.rate)),
            format!("**{:.2}**", ratio(&ours, &java, |r| r.client_cpu)),
            format!("{:.2}", ratio(&ours, &java, |r| r.server_cpu)),
        ]);
    }
}

fn java_request(load: CellLoad) -> String {
    let CellLoad { series, steps, points_per_put } = load;
    format!("{} {series} 0 {steps} {points_per_put} 1 {JAVA_BUFFER}", table::NAME)
}

/// One round of Java's bulk client into the truncated table, read back.
pub(crate) fn java_round(
    cluster: &BenchCluster,
    program: &mut JavaClient,
    load: CellLoad,
) -> Measurement {
    cluster.block_on(table::truncate(&cluster.client, &table::name()));
    let server = cluster.region_server_cpu();
    let result = program.run(&java_request(load));
    let server = cluster.region_server_cpu() - server;
    check(cluster, load);
    Measurement::new(load.cells(), result.seconds, result.cpu, server)
}

/// One round of a native client into the truncated table, read back.
pub(crate) fn native_round(cluster: &BenchCluster, client: &Client, load: CellLoad) -> Measurement {
    cluster.block_on(table::truncate(&cluster.client, &table::name()));
    let server = cluster.region_server_cpu();
    let cpu = process::own_cpu_seconds();
    let seconds = cluster.block_on(write(client, load));
    let cpu = process::own_cpu_seconds() - cpu;
    let server = cluster.region_server_cpu() - server;
    check(cluster, load);
    Measurement::new(load.cells(), seconds, cpu, server)
}

fn check(cluster: &BenchCluster, load: CellLoad) {
    let total = cluster.block_on(table::read(&cluster.client));
    assert_eq!(total, load.total(), "everything was written");
}

/// Writes the load, one put for each series at a time. Returns the seconds from the first cell
/// until the last acknowledgement.
pub(crate) async fn write(client: &Client, load: CellLoad) -> f64 {
    let start = Instant::now();
    let writer = client.table(table::name()).buffered(BufferConfig::default());
    let mut receipts = Vec::new();
    let new_batch =
        || writer.batch(BATCH_MUTATIONS, BATCH_MUTATIONS * 50 * load.points_per_put as usize);
    let mut batch = new_batch();
    for step in (0..load.steps).step_by(load.points_per_put as usize) {
        for series in 0..load.series {
            let row = row(series, step);
            for step in step..step + load.points_per_put {
                let value = number(series, step).to_be_bytes();
                batch.put(&row, FAMILY, &qualifier(step), timestamp(step), &value).expect("a cell");
            }
            if batch.len() == BATCH_MUTATIONS {
                let full = std::mem::replace(&mut batch, new_batch());
                receipts.push(writer.submit(full).await.expect("memory of the buffer"));
            }
        }
    }
    receipts.push(writer.submit(batch).await.expect("memory of the buffer"));
    for receipt in receipts {
        receipt.await.expect("written");
    }
    start.elapsed().as_secs_f64()
}
