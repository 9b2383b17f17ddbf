//! Tests on a real HBase, which this program starts: ZooKeeper, a master and two region servers as
//! processes of their own.
//!
//! ```text
//! tests/hbase.sh [scenario...]       all scenarios of `suite.rs` but the named ones if none is named
//! tests/hbase.sh no-faults           … but `faults` too
//! tests/differential.sh [option...]  only random requests compared with OpenTSDB (`differential.rs`)
//! tests/interop.sh [option...]       only tables shared with OpenTSDB (`interop.rs`)
//! ```
//!
//! | variable | |
//! |---|---|
//! | `HBASE_ROUNDS` | number of rounds over the faults, 1 unless set |
//! | `HBASE_FAULTS` | only faults whose names contain this text, or one of several with `\|` between them |
//! | `CLUSTER_KILLS_MINUTES` | minutes of faults of the scenario `cluster_kills`, 3 unless set |
//! | `CLUSTER_KILLS_NODES` | number of its daemons, 3 unless set |
//! | `CLUSTER_KILLS_SERVERS` | 0 leaves its region servers alone |
//! | `CLUSTER_KILLS_SEED` | seed of its faults, another one in every run unless set; it is printed |
//! | `HBASE_PAIR_ROUNDS` | rounds of each pair of nodes of the scenario `cluster_nodes`, 300 unless set |
//! | `HBASE_NEW_NAMES` | number of new names that the nodes of `cluster_forward` get at once, 3000 unless set |
//! | `HBASE_SERIES` | number of series of the scenario `series-index`, 4000 unless set |
//! | `HBASE_SERIES_HOURS` | number of hours of the day in which each of them has a point, 24 unless set |
//! | `TSDB_BINARY` | the daemons' program, a release build for example; the debug build unless set |
//! | `HBASE_TABLE` | file to which the fault table is written too |
//!
//! The scenarios share one cluster and run one after the other, so this is a program without the test
//! harness. Without Java it is skipped and succeeds.

#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::too_many_lines, reason = "tests")]

mod cluster_forward;
mod cluster_kills;
mod cluster_log;
mod cluster_nodes;
mod conformance;
mod copy;
mod corrections;
mod daemon_workload;
mod differential;
mod fault_admin;
mod fault_checks;
mod fault_limits;
mod fault_report;
mod fault_restore;
mod fault_run;
mod fault_steps;
mod faults;
mod interop;
mod live;
mod opentsdb;
mod outage;
mod regions;
mod row_history;
mod series_index;
mod suite;
mod table_set;
mod tables;
mod tsd;
mod two_daemons;
mod workload;

use std::process::ExitCode;

use cluster::Cluster;

/// Path of the binary under test.
const TSDB: &str = env!("CARGO_BIN_EXE_tsdb");

fn main() -> ExitCode {
    // `cargo test` gives no argument, or a filter.
    if std::env::args().nth(1).as_deref() != Some("run") {
        println!("hbase: left out; tests/hbase.sh runs it");
        return ExitCode::SUCCESS;
    }
    if Cluster::java().is_none() {
        println!("hbase: skipped, there is no Java 17");
        return ExitCode::SUCCESS;
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    let arguments: Vec<_> = std::env::args().skip(2).collect();
    let ended = match arguments.split_first() {
        Some((program, options)) if program == "differential" && !options.is_empty() => {
            differential::main(options, &runtime)
        }
        Some((program, options)) if program == "interop" && !options.is_empty() => {
            interop::main(options, &runtime)
        }
        _ => runtime.block_on(suite::run(&arguments)),
    };
    // A scenario that panicked has left its writers.
    runtime.shutdown_background();
    ended
}
