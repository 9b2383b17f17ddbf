//! Everything against a real HBase that this starts itself: ZooKeeper, a master and two region
//! servers, each a process of its own.
//!
//! ```text
//! tests/hbase.sh [scenario...]       all of them without a name
//! ```
//!
//! | variable | |
//! |---|---|
//! | `HBASE_ROUNDS` | how often the faults are gone through, 1 unless set |
//! | `HBASE_FAULTS` | only faults whose names contain this |
//! | `HBASE_TABLE` | a file that gets the fault table too |
//!
//! The scenarios share one cluster and come one after the other, so this is a program and not a set
//! of tests. Without Java it says so and is content.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

mod away;
mod conformance;
#[path = "../daemon.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod daemon;
mod faults;
mod live;
mod load;
mod opentsdb;
mod points;
mod regions;
mod script;
mod several;
#[path = "../socket.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod socket;
mod suite;
mod table;
mod tsd;
mod workload;

use std::process::ExitCode;

use cluster::Cluster;

fn main() -> ExitCode {
    if Cluster::java().is_none() {
        println!("hbase: skipped, there is no Java 17");
        return ExitCode::SUCCESS;
    }
    // Names of scenarios; cargo's own options mean nothing here.
    let names: Vec<_> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(suite::run(&names))
}
