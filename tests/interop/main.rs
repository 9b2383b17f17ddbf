//! Our daemon and a real OpenTSDB 2.4.1 on the same HBase: tables of their own that must be equal, and one set
//! of tables for both.
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
//! The last lines are a report: what each part has compared, and how many differences it has found. A
//! difference fails the run. The parts share one HBase and run one after the other, so this is a program without
//! the test harness. Without Java it is skipped and succeeds.

#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::too_many_lines, reason = "tests")]

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
mod table_set;

// Requests, points and the comparison of responses are those of the differential test; daemons, regions and
// faults those of the tests on HBase.
#[path = "../differential"]
#[expect(dead_code, reason = "the differential test uses the rest")]
mod differential {
    pub(crate) mod compare;
    pub(crate) mod data;
    pub(crate) mod json;
    pub(crate) mod known;
    pub(crate) mod random;
    pub(crate) mod request;
    pub(crate) mod requests;
    pub(crate) mod servers;
}
#[path = "../hbase"]
#[expect(dead_code, reason = "the tests on HBase use the rest")]
mod hbase {
    pub(crate) mod fault_report;
    pub(crate) mod fault_run;
    pub(crate) mod fault_steps;
    pub(crate) mod regions;
    pub(crate) mod row_history;
    pub(crate) mod tsd;
    pub(crate) mod workload;
}
use self::{
    differential::{compare, data, json, known, random, request, requests, servers},
    hbase::{fault_report, fault_run, fault_steps, regions, row_history, tsd, workload},
};

use std::process::ExitCode;

use cluster::Cluster;
use tsd_testkit::Arguments;

/// Path of the binary under test.
const TSDB: &str = env!("CARGO_BIN_EXE_tsdb");

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
    fn parse() -> Self {
        let mut options = Self {
            only: Vec::new(),
            rounds: 1,
            seconds: 20,
            seed: 1,
            hours: 10,
            pause_ms: 2_500,
            hold: "1".to_owned(),
        };
        let mut arguments = Arguments::of_process();
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

fn main() -> ExitCode {
    let options = Options::parse();
    if Cluster::java().is_none() {
        println!("interop: skipped, there is no Java 17");
        return ExitCode::SUCCESS;
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(run::run(&options))
}
