//! What is seen from outside: one binary, a module an area.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use std::io::Write;

mod conformance;
mod crash;
mod crowd;
mod daemon;
mod golden;
mod hbase_fake;
mod http;
mod in_process;
mod invariants;
mod metrics;
#[path = "hbase/rehearsal.rs"]
mod rehearsal;
mod search;
mod seeds;
mod socket;
mod start;
mod telnet;
mod tidy;
#[path = "hbase/workload/mod.rs"]
mod workload;

/// Says something that is worth reading also when the test passes: past the harness, which keeps
/// what is printed to itself.
fn report(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
