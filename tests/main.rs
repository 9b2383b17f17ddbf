//! Tests of the daemon as a client or operator sees it: one test binary, a module per area.
//!
//! Tests on a real HBase are in `hbase/`, a binary of their own.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use std::{io::Write, path::Path};

use tsd_testkit::DaemonBuilder;

mod all_times;
mod audit;
mod authentication;
mod cluster_balancer;
mod cluster_deletes;
mod cluster_forward;
mod cluster_links;
mod cluster_log;
mod cluster_names;
mod cluster_nodes;
mod cluster_pauses;
mod cluster_placement;
mod cluster_reads;
mod cluster_settings;
mod cluster_tls;
mod cluster_writes;
mod compatibility_doc;
mod configuration_doc;
mod conformance;
mod connections;
mod copy;
mod crash;
mod damage;
mod damaged_cells;
mod dashboards;
mod disk_full;
mod formats;
mod fsck;
mod golden;
mod graph;
mod hbase_fake;
mod hbase_series;
mod hbase_tables;
mod http;
mod http_doc;
mod imports;
mod in_process;
mod invariants;
mod logs;
mod memory;
mod meta;
mod metrics;
mod metrics_doc;
mod page_files;
mod plugins;
mod public_cases;
mod refusals;
mod removed_files;
mod retention;
mod rollups;
mod scan;
mod search;
mod seeds;
mod series_index;
mod service_manager;
mod signed_tokens;
mod snapshot;
mod start;
mod statements;
mod table_names;
mod telnet;
mod terminal;
mod tidy;
mod tls;
mod tools;
mod tree;
mod uid;
mod unknown_versions;
mod unwritten;
mod verify;

/// Path of the binary under test.
const TSDB: &str = env!("CARGO_BIN_EXE_tsdb");

/// Exit status of a daemon with a wrong configuration.
const WRONG_CONFIGURATION: i32 = 78;

/// The daemon under test on the data directory `data`.
fn tsdb(data: &Path) -> DaemonBuilder {
    DaemonBuilder::new(TSDB, data)
}

/// Writes a line to standard error past the test harness, which shows the output of failed tests
/// only.
fn report(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
