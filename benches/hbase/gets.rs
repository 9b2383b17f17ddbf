//! Single cells of rows all over the table: HBase's own client and ours.

use std::{sync::Arc, time::Instant};

use hbase_rs::{Client, Get, Selection};
use tokio::task::JoinSet;

use crate::{
    Options,
    cells::{FAMILY, Load, number, qualifier, row},
    figures::{self, percentile, thousands},
    process,
    rival::{Programs, Rival},
    site::Site,
    table,
};

/// One round of one client.
struct Times {
    rate: f64,
    median_us: f64,
    p99_us: f64,
    client: f64,
}

/// Reads from the table that the scans read; prints the table of figures.
pub(crate) fn run(site: &Site, programs: &Programs, options: &Options, load: Load) {
    let mut program = programs.start(site, "GetLoad");
    figures::head(&["gets", "client", "gets/s", "p50, µs", "p99, µs", "client cpu-s per M"]);
    for at_once in [1, 16] {
        let gets = options.gets * if at_once == 1 { 1 } else { 3 };
        for _ in 0..2 {
            java(&mut program, load, gets, at_once);
        }
        native(site, load, gets, at_once);
        let mut java_rounds = Vec::new();
        let mut our_rounds = Vec::new();
        for _ in 0..options.rounds.min(2) {
            java_rounds.push(java(&mut program, load, gets, at_once));
            our_rounds.push(native(site, load, gets, at_once));
        }
        let what = format!("{at_once} at once");
        for (name, rounds) in [("Java", &java_rounds), ("hbase-rs", &our_rounds)] {
            let median = |of: fn(&Times) -> f64| {
                percentile(&mut rounds.iter().map(of).collect::<Vec<_>>(), 0.5)
            };
            figures::row(&[
                what.clone(),
                name.to_owned(),
                thousands(median(|t| t.rate)),
                thousands(median(|t| t.median_us)),
                thousands(median(|t| t.p99_us)),
                format!("{:.0}", median(|t| t.client)),
            ]);
        }
    }
}

fn java(program: &mut Rival, load: Load, gets: u32, at_once: u32) -> Times {
    let Load { series, steps, .. } = load;
    let said = program.order(&format!("{} {series} {steps} {gets} {at_once}", table::NAME));
    Times {
        rate: f64::from(gets) / said.seconds,
        median_us: said.rest[0] as f64,
        p99_us: said.rest[1] as f64,
        client: said.cpu / f64::from(gets) * 1e6,
    }
}

fn native(site: &Site, load: Load, gets: u32, at_once: u32) -> Times {
    let client = Arc::new(site.client.clone());
    let cpu = process::own_cpu_seconds();
    let start = Instant::now();
    let mut times = site.wait(async {
        let mut tasks = JoinSet::new();
        for part in 0..at_once {
            tasks.spawn(share(Arc::clone(&client), load, gets, part, at_once));
        }
        tasks.join_all().await.concat()
    });
    let seconds = start.elapsed().as_secs_f64();
    let cpu = process::own_cpu_seconds() - cpu;
    Times {
        rate: f64::from(gets) / seconds,
        median_us: percentile(&mut times, 0.5),
        p99_us: percentile(&mut times, 0.99),
        client: cpu / f64::from(gets) * 1e6,
    }
}

/// Every so many-th get, one after the other; returns the microseconds of each.
async fn share(client: Arc<Client>, load: Load, gets: u32, part: u32, parts: u32) -> Vec<f64> {
    let table = client.table(table::name());
    let mut times = Vec::new();
    for at in (part..gets).step_by(parts as usize) {
        let series = number(at, load.series) % load.series;
        let step = number(at, load.steps) % load.steps;
        let start = Instant::now();
        let column = qualifier(step);
        let selection = Selection::all().columns(FAMILY, [column.to_vec().into()]);
        let get = Get::try_new(row(series, step).to_vec()).expect("a row").select(selection);
        let found = table.get(&get).await.expect("an answer");
        let value = found.value(FAMILY, &column);
        times.push(start.elapsed().as_secs_f64() * 1e6);
        assert_eq!(value, Some(&number(series, step).to_be_bytes()[..]), "the right cell");
    }
    times
}
