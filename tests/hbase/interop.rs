//! Tests our daemon and a real OpenTSDB 2.4.1 on the same HBase: with separate tables, which must be equal, and with
//! shared tables.
//!
//! ```text
//! tests/interop.sh [option...]
//! ```
//!
//! | option | |
//! |---|---|
//! | `--only PART` | only parts whose names contain this text, as the report lists them; several times for several |
//! | `--rounds N` | N rounds of all parts, each with other points, 1 unless given; more than 1 inject every fault |
//! | `--seconds N` | both write the same rows for N seconds with each pair of daemons, 20 unless given |
//! | `--seed N` | seed of the first round, 1 unless given |
//! | `--hours N` | both write rows of N hours of each series, 10 unless given; fewer make more of a race |
//! | `--pause N` | milliseconds between two writes of these rows, 2500 unless given |
//! | `--hold S` | seconds for which logs hold points of these rows, 1 unless given |
//!
//! The last lines are a report: the comparisons of each part, and the number of differences. A difference fails the
//! run. The parts share one HBase and run one after the other, so this is a program without the test harness.
//! Without Java it is skipped and succeeds.

mod answers;
mod both_write;
mod cells;
mod fault_load;
mod half_compacted;
mod names;
mod report;
mod row_load;
mod run;
mod stored_cells;

use std::process::ExitCode;

use cluster::Cluster;
use tokio::runtime::Runtime;
use tsd_testkit::Arguments;

use crate::regions::ScenarioResult;

/// Options of the command line.
struct Options {
    only: Vec<String>,
    rounds: u64,
    seconds: u64,
    seed: u64,
    hours: u64,
    pause_ms: u64,
    hold: String,
}

impl Options {
    fn parse(arguments: &[String]) -> Self {
        let mut options = Self {
            only: Vec::new(),
            rounds: 1,
            seconds: 20,
            seed: 1,
            hours: 10,
            pause_ms: 2_500,
            hold: "1".to_owned(),
        };
        let mut arguments = Arguments::new(arguments.iter().cloned());
        while let Some(option) = arguments.next_option() {
            match option.as_str() {
                "--only" => options.only.push(arguments.text()),
                "--rounds" => options.rounds = arguments.number(),
                "--seconds" => options.seconds = arguments.number(),
                "--seed" => options.seed = arguments.number(),
                "--hours" => options.hours = arguments.number(),
                "--pause" => options.pause_ms = arguments.number(),
                "--hold" => options.hold = arguments.text(),
                _ => arguments.unknown(),
            }
        }
        options
    }
}

/// Compares cells on the cluster of all scenarios; the other parts, with kills and races, take ten minutes.
pub(crate) async fn scenario(cluster: &mut Cluster) -> ScenarioResult<()> {
    run::run(cluster, &Options::parse(&["--only".to_owned(), "cells".to_owned()])).await
}

/// Runs with these options on a new cluster.
pub(crate) fn main(arguments: &[String], runtime: &Runtime) -> ExitCode {
    match runtime.block_on(run::run_on_cluster(&Options::parse(arguments))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("interop: {error}");
            ExitCode::FAILURE
        }
    }
}
