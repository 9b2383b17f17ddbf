//! Bulk loads: HBase's own BufferedMutator and ours, the same cells into the same emptied table, by
//! turns.

use std::time::Instant;

use hbase_rs::{BufferConfig, Client};

use crate::{
    Options,
    cells::{FAMILY, Load, number, qualifier, row, timestamp},
    figures::{self, Round, median, ratio, thousands},
    process,
    rival::{Programs, Rival},
    site::Site,
    table,
};

/// Mutations that are handed over at a time.
const TOGETHER: usize = 512;
/// Orders to the Java program before its code counts as compiled.
const WARM_UP: usize = 3;
/// What it buffers; its default.
const JAVA_BUFFER: usize = 2 << 20;

/// Java's bulk client, warm, on the table of the load.
pub(crate) struct Baseline {
    program: Rival,
}

impl Baseline {
    /// Starts it and lets it write until its code is compiled.
    pub(crate) fn start(site: &Site, programs: &Programs, options: &Options) -> Self {
        let mut program = programs.start(site, "BufferedMutatorLoad");
        for points_a_put in [1, 6] {
            for _ in 0..WARM_UP {
                program.order(&order(options.load(points_a_put)));
                site.wait(table::truncate(&site.client, &table::name()));
            }
        }
        Self { program }
    }

    /// One round into the emptied table, read back.
    pub(crate) fn round(&mut self, site: &Site, load: Load) -> Round {
        site.wait(table::truncate(&site.client, &table::name()));
        let server = site.server_cpu();
        let said = self.program.order(&order(load));
        let server = site.server_cpu() - server;
        check(site, load);
        Round::of(load.cells(), said.seconds, said.cpu, server)
    }
}

/// Both clients, both shapes; prints the table.
pub(crate) fn run(site: &Site, baseline: &mut Baseline, options: &Options) {
    figures::head(&["writes", "client", "points/s", "client cpu-s per M", "server cpu-s per M"]);
    for points_a_put in [1, 6] {
        let load = options.load(points_a_put);
        let what = match points_a_put {
            1 => "one cell a put".to_owned(),
            n => format!("{n} points of a row a put"),
        };
        // Warm in this shape; the other side is warm already.
        native_round(site, load);
        let (mut java, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            java.push(baseline.round(site, load));
            ours.push(native_round(site, load));
        }
        for (name, rounds) in [("BufferedMutator", &java), ("hbase-rs", &ours)] {
            figures::row(&[
                what.clone(),
                name.to_owned(),
                thousands(median(rounds, |r| r.rate)),
                format!("{:.2}", median(rounds, |r| r.client)),
                format!("{:.2}", median(rounds, |r| r.server)),
            ]);
        }
        figures::row(&[
            what,
            format!("ratio, median of {}", options.rounds),
            format!("**{:.2}**", ratio(&ours, &java, |r| r.rate)),
            format!("**{:.2}**", ratio(&ours, &java, |r| r.client)),
            format!("{:.2}", ratio(&ours, &java, |r| r.server)),
        ]);
    }
}

fn order(load: Load) -> String {
    let Load { series, steps, together } = load;
    format!("{} {series} 0 {steps} {together} 1 {JAVA_BUFFER}", table::NAME)
}

fn native_round(site: &Site, load: Load) -> Round {
    site.wait(table::truncate(&site.client, &table::name()));
    let server = site.server_cpu();
    let cpu = process::own_cpu_seconds();
    let seconds = site.wait(write(&site.client, load));
    let cpu = process::own_cpu_seconds() - cpu;
    let server = site.server_cpu() - server;
    check(site, load);
    Round::of(load.cells(), seconds, cpu, server)
}

fn check(site: &Site, load: Load) {
    let total = site.wait(table::read(&site.client));
    assert_eq!(total, load.total(), "what was written is there");
}

/// Writes the load, a step (or several) of all series before the next; returns the seconds from the
/// first cell until the last one is acknowledged.
pub(crate) async fn write(client: &Client, load: Load) -> f64 {
    let start = Instant::now();
    let writer = client.table(table::name()).buffered(BufferConfig::default());
    let mut receipts = Vec::new();
    let new_batch = || writer.batch(TOGETHER, TOGETHER * 50 * load.together as usize);
    let mut batch = new_batch();
    for step in (0..load.steps).step_by(load.together as usize) {
        for series in 0..load.series {
            let row = row(series, step);
            for step in step..step + load.together {
                let value = number(series, step).to_be_bytes();
                batch.put(&row, FAMILY, &qualifier(step), timestamp(step), &value).expect("a cell");
            }
            if batch.len() == TOGETHER {
                let full = std::mem::replace(&mut batch, new_batch());
                receipts.push(writer.submit(full).await.expect("room"));
            }
        }
    }
    receipts.push(writer.submit(batch).await.expect("room"));
    for receipt in receipts {
        receipt.await.expect("written");
    }
    start.elapsed().as_secs_f64()
}
