//! Reading a whole table: HBase's own scanner and ours with the same settings, by turns.

use std::time::Instant;

use hbase_rs::{Scan, Selection};

use crate::{
    Options,
    cells::{FAMILY, Load, Total},
    figures::{self, Round, median, ratio, thousands},
    process,
    rival::{Programs, Rival},
    site::Site,
    table, writes,
};

/// Rows a call; the bytes stop it before.
const ROWS_A_CALL: u32 = 100_000;
/// Bytes a call; HBase's default.
const BYTES_A_CALL: u64 = 2 << 20;

/// Fills the table and reads it; prints the table of figures.
pub(crate) fn run(site: &Site, programs: &Programs, options: &Options) {
    let load = fill(site, options);
    let mut program = programs.start(site, "ScannerLoad");
    java_round(site, &mut program, load);
    native_round(site, load);
    let (mut java, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        java.push(java_round(site, &mut program, load));
        ours.push(native_round(site, load));
    }
    figures::head(&["scan", "client", "cells/s", "client cpu-s per M", "server cpu-s per M"]);
    let what = format!("{} M cells, {} a row", load.cells() / 1_000_000, load.steps);
    for (name, rounds) in [("Java, asynchronous prefetch", &java), ("hbase-rs", &ours)] {
        figures::row(&[
            what.clone(),
            name.to_owned(),
            thousands(median(rounds, |r| r.rate)),
            format!("{:.3}", median(rounds, |r| r.client)),
            format!("{:.3}", median(rounds, |r| r.server)),
        ]);
    }
    figures::row(&[
        what,
        format!("ratio, median of {}", options.rounds),
        format!("**{:.2}**", ratio(&ours, &java, |r| r.rate)),
        format!("{:.2}", ratio(&ours, &java, |r| r.client)),
        format!("{:.2}", ratio(&ours, &java, |r| r.server)),
    ]);
}

/// Writes the cells that scans and gets read, and brings them to the servers' files.
pub(crate) fn fill(site: &Site, options: &Options) -> Load {
    let load = options.scan_load();
    site.wait(async {
        table::truncate(&site.client, &table::name()).await;
        writes::write(&site.client, load).await;
        site.client.admin().flush_table(&table::name()).await.expect("flush");
    });
    load
}

fn java_round(site: &Site, program: &mut Rival, load: Load) -> Round {
    let server = site.server_cpu();
    let order = format!("{} {ROWS_A_CALL} {BYTES_A_CALL} true", table::NAME);
    let said = program.order(&order);
    let server = site.server_cpu() - server;
    let total = Total { cells: said.rest[1], sum: said.rest[2] };
    assert_eq!(total, load.total(), "everything was read");
    Round::of(load.cells(), said.seconds, said.cpu, server)
}

fn native_round(site: &Site, load: Load) -> Round {
    let server = site.server_cpu();
    let cpu = process::own_cpu_seconds();
    let start = Instant::now();
    let selection = Selection::all().family(FAMILY).without_block_cache();
    let scan = Scan::all().select(selection).per_call(ROWS_A_CALL, BYTES_A_CALL);
    let total = site.wait(table::total(&site.client, scan));
    let seconds = start.elapsed().as_secs_f64();
    let cpu = process::own_cpu_seconds() - cpu;
    let server = site.server_cpu() - server;
    assert_eq!(total, load.total(), "everything was read");
    Round::of(load.cells(), seconds, cpu, server)
}
