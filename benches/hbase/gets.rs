//! Compares HBase's Java client and ours in gets of single cells all over the table.

use std::{sync::Arc, time::Instant};

use hbase_rs::{Client, Get, Selection};
use tokio::task::JoinSet;
use tsd_testkit::process;

use crate::{
    Options,
    bench_cluster::BenchCluster,
    cells::{CellLoad, FAMILY, number, qualifier, row},
    java_client::{JavaClient, JavaPrograms},
    report::{self, percentile, thousands},
    table,
};

/// One round of one client.
struct GetTimes {
    rate: f64,
    median_us: f64,
    p99_us: f64,
    client_cpu: f64,
}

/// Reads the table of the scans; prints the table.
pub(crate) fn run(
    cluster: &BenchCluster,
    programs: &JavaPrograms,
    options: &Options,
    load: CellLoad,
) {
    let mut program = programs.start(cluster, "GetLoad");
    report::print_head(&["gets", "client", "gets/s", "p50, µs", "p99, µs", "client cpu-s per M"]);
    for concurrency in [1, 16] {
        let gets = options.gets * if concurrency == 1 { 1 } else { 3 };
        for _ in 0..2 {
            java(&mut program, load, gets, concurrency);
        }
        native(cluster, load, gets, concurrency);
        let mut java_rounds = Vec::new();
        let mut our_rounds = Vec::new();
        for _ in 0..options.rounds.min(2) {
            java_rounds.push(java(&mut program, load, gets, concurrency));
            our_rounds.push(native(cluster, load, gets, concurrency));
        }
        let what = format!("{concurrency} at once");
        for (name, rounds) in [("Java", &java_rounds), ("hbase-rs", &our_rounds)] {
            let median = |of: fn(&GetTimes) -> f64| {
                percentile(&mut rounds.iter().map(of).collect::<Vec<_>>(), 0.5)
            };
            report::print_row(&[
                what.clone(),
                name.to_owned(),
                thousands(median(|t| t.rate)),
                thousands(median(|t| t.median_us)),
                thousands(median(|t| t.p99_us)),
                format!("{:.0}", median(|t| t.client_cpu)),
            ]);
        }
    }
}

fn java(program: &mut JavaClient, load: CellLoad, gets: u32, concurrency: u32) -> GetTimes {
    let CellLoad { series, steps, .. } = load;
    let result = program.run(&format!("{} {series} {steps} {gets} {concurrency}", table::NAME));
    GetTimes {
        rate: f64::from(gets) / result.seconds,
        median_us: result.values[0] as f64,
        p99_us: result.values[1] as f64,
        client_cpu: result.cpu / f64::from(gets) * 1e6,
    }
}

fn native(cluster: &BenchCluster, load: CellLoad, gets: u32, concurrency: u32) -> GetTimes {
    let client = Arc::new(cluster.client.clone());
    let cpu = process::own_cpu_seconds();
    let start = Instant::now();
    let mut times = cluster.block_on(async {
        let mut tasks = JoinSet::new();
        for part in 0..concurrency {
            tasks.spawn(gets_of_task(Arc::clone(&client), load, gets, part, concurrency));
        }
        tasks.join_all().await.concat()
    });
    let seconds = start.elapsed().as_secs_f64();
    let cpu = process::own_cpu_seconds() - cpu;
    GetTimes {
        rate: f64::from(gets) / seconds,
        median_us: percentile(&mut times, 0.5),
        p99_us: percentile(&mut times, 0.99),
        client_cpu: cpu / f64::from(gets) * 1e6,
    }
}

/// Executes every `parts`-th get from `part` on, one after the other; returns the microseconds of
/// each.
async fn gets_of_task(
    client: Arc<Client>,
    load: CellLoad,
    gets: u32,
    part: u32,
    parts: u32,
) -> Vec<f64> {
    let table = client.table(table::name());
    let mut times = Vec::new();
    for at in (part..gets).step_by(parts as usize) {
        let series = number(at, load.series) % load.series;
        let step = number(at, load.steps) % load.steps;
        let start = Instant::now();
        let column = qualifier(step);
        let selection = Selection::all().columns(FAMILY, [column.to_vec().into()]);
        let get = Get::try_new(row(series, step).to_vec()).expect("a row").select(selection);
        let found = table.get(&get).await.expect("a response");
        let value = found.value(FAMILY, &column);
        times.push(start.elapsed().as_secs_f64() * 1e6);
        assert_eq!(value, Some(&number(series, step).to_be_bytes()[..]), "the right cell");
    }
    times
}
