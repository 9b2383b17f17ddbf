//! Shared tools of the workspace's tests and benches: daemon processes, sockets and HTTP, process
//! meters, command lines of benches, and loads with known results.
//!
//! Development dependency only; a failure panics. Fakes of HBase are in the crate `hbase-fake`.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a broken test fails by panicking"
)]

mod arguments;
mod daemon;
pub mod day_load;
pub mod hbase_workload;
mod http;
mod metric;
mod network;
mod poll;
pub mod process;
mod process_clock;
mod process_disk;
pub mod put_load;
mod random;
mod socket;
pub mod timed_http;
mod victoria_metrics;

pub use arguments::Arguments;
pub use daemon::{Daemon, DaemonBuilder, bench_binary};
pub use http::{BinaryResponse, HttpResponse, http, http_binary, is_whole_response, try_http};
pub use metric::{metric, used_uids};
pub use network::Network;
pub use poll::{PATIENCE, wait_for};
pub use process_clock::ProcessClock;
pub use process_disk::ProcessDisk;
pub use random::{SplitMix64, Xorshift64};
pub use socket::{close_and_drain, connect, exchange};
pub use victoria_metrics::{VictoriaMetrics, encoded};
