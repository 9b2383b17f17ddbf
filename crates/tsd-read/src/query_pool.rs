//! The threads that queries run on.

use std::{io, thread};

use tokio::runtime::{self, Runtime};

use crate::query::Scheduler;

/// Niceness of query threads, relative to the process.
const QUERY_NICE: i32 = 5;

/// The query threads. They run until [`Self::shutdown`].
#[derive(Debug)]
pub struct QueryPool {
    runtime: Runtime,
    threads: usize,
}

impl QueryPool {
    /// Starts the threads for this many concurrent time slices; 0 means the number of cores.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started.
    pub fn start(threads: usize) -> io::Result<Self> {
        let cores = || thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = if threads == 0 { cores() } else { threads };
        // Read the niceness on this thread, because a thread that a query thread starts inherits the query thread's
        // niceness. The process may have a niceness of its own.
        let nice = rustix::process::getpriority_process(None).unwrap_or(0) + QUERY_NICE;
        let runtime = runtime::Builder::new_multi_thread()
            // One per concurrent time slice, plus one for short steps between slices.
            .worker_threads(Scheduler::max_slices(threads) + 1)
            .thread_name("tsd-query")
            .on_thread_start(move || lower_priority(nice))
            .enable_time()
            .enable_io()
            .build()?;
        Ok(Self { runtime, threads })
    }

    pub(crate) fn handle(&self) -> runtime::Handle {
        self.runtime.handle().clone()
    }

    /// Number of concurrent time slices.
    pub(crate) const fn threads(&self) -> usize {
        self.threads
    }

    /// Stops the threads. Does not wait for scans, which may never complete.
    pub fn shutdown(self) {
        self.runtime.shutdown_background();
    }
}

/// Lowers the priority of a query thread, so that queries do not delay writes. If both are CPU-bound on one core, the
/// query thread gets about a quarter of it.
fn lower_priority(nice: i32) {
    if let Err(error) = rustix::process::setpriority_process(None, nice) {
        tracing::warn!(%error, "query threads keep the default priority");
    }
}
