//! A matrix of daemons on secured HBase: versions, discovery, security and logins, pairwise, and faults.
//!
//! ```text
//! tests/secure.sh [--all] [text...]     rows whose names contain one of the texts
//! ```
//!
//! | rows | |
//! |---|---|
//! | clients | create tables, start a daemon, put and query points, and check the tables |
//! | nodes | two daemons that form a cluster |
//! | tests of hbase-rs | those of a real HBase |
//! | wrong settings and rights | end the start with an error that names the cause and the setting to change |
//! | faults under load | puts during killed servers, new keys, short tickets, a stopped KDC; all are read back |
//! | quick start | commands of `docs/hbase-secure.md` |
//!
//! Without `--all` only one cluster is started. Without Java the run is skipped and succeeds. `TSDB_BINARY` names another
//! program than the debug build.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

mod client;
mod failures;
mod live;
mod load;
mod load_faults;
mod matrix;
mod programs;
mod quick_start;
mod rights;
mod rows;

use std::process::ExitCode;

use cluster::Cluster;

/// Path of the binary under test.
const TSDB: &str = env!("CARGO_BIN_EXE_tsdb");

type TestResult<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    // `cargo test` gives no argument, or a filter.
    if std::env::args().nth(1).as_deref() != Some("run") {
        println!("secure: left out; tests/secure.sh runs it");
        return ExitCode::SUCCESS;
    }
    if Cluster::java().is_none() {
        println!("secure: skipped, there is no Java 17");
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<_> = std::env::args().skip(2).collect();
    let (options, texts): (Vec<_>, Vec<_>) =
        arguments.into_iter().partition(|argument| argument.starts_with("--"));
    let is_all = match &options[..] {
        [] => false,
        [option] if option == "--all" => true,
        _ => {
            eprintln!("secure: unknown option {options:?}; there is --all");
            return ExitCode::FAILURE;
        }
    };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    let failed = runtime.block_on(matrix::run(is_all, &texts));
    runtime.shutdown_background();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
