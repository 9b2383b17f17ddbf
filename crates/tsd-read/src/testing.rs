//! Access to the admission and the threads of queries, for the tests of other crates (feature `testing`).

#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "tests")]

use std::{sync::Arc, time::Duration};

use tokio::runtime;

use crate::{
    Lookup, LookupResult, QueryClass, QueryControl, QueryFailure, QueryGuard, Reads, ScannerStats,
    query::{Grant, QueryContext, QueryEngine, RowContent, Scheduler},
    read_subject::ReadSubject,
    series_lookup,
};

/// Memory of queries that a test has taken. Dropping it releases the memory.
#[derive(Debug)]
pub struct TakenMemory(#[expect(dead_code, reason = "held")] Grant);

/// Lets the estimates of all queries assume this many points per row.
pub fn learn_points_per_row(reads: &Reads, points: u64) {
    let scan = ScannerStats { rows: 1_000, cells: 1_000 * points, ..ScannerStats::default() };
    for _ in 0..200 {
        let known = &reads.runner().engine.points_per_row;
        known.learn(&RowContent::Points, std::slice::from_ref(&scan));
    }
}

/// Numbers of the queries of a class that run, and that wait.
#[must_use]
pub fn admitted(reads: &Reads, class: QueryClass) -> (usize, usize) {
    reads.runner().admission.count(class)
}

/// Bytes granted to queries.
#[must_use]
pub fn granted_bytes(reads: &Reads) -> u64 {
    reads.runner().admission.granted()
}

/// Takes all memory of wide queries.
pub async fn take_all_memory(reads: &Reads) -> TakenMemory {
    let admission = &reads.runner().admission;
    TakenMemory(admission.admit(0, admission.claim(admission.most())).await.unwrap())
}

/// Runs work that needs this much CPU time, and returns the class that it then has.
pub async fn class_after(reads: &Reads, cpu: Duration) -> Result<QueryClass, QueryFailure> {
    let work = move |_: Arc<QueryEngine>, context: Arc<QueryContext>| async move {
        while context.query.scheduler.cpu_time() < cpu {
            let slice = context.time_slice().await?;
            while !slice.is_expired() {}
        }
        drop(context.time_slice().await?);
        Ok(context.query.memory.class())
    };
    let (class, _guard) =
        reads.run_limited(QueryControl::default(), ReadSubject::NoMetric, work).await?;
    Ok(class)
}

/// Looks up series and fails after this many rows.
pub async fn lookup_of_rows(
    reads: &Reads,
    lookup: Lookup,
    max_rows: u64,
) -> Result<(LookupResult, QueryGuard), QueryFailure> {
    let work = move |engine: Arc<QueryEngine>, context: Arc<QueryContext>| {
        let lookup = lookup.clone();
        async move { series_lookup::find(&engine.shared, &context, lookup, max_rows).await }
    };
    reads.run_limited(QueryControl::default(), ReadSubject::NoMetric, work).await
}

/// The runtime of the query threads, and their number.
#[must_use]
pub fn query_threads(reads: &Reads) -> (runtime::Handle, usize) {
    let QueryEngine { runtime, threads, .. } = &*reads.runner().engine;
    (runtime.clone(), Scheduler::max_slices(*threads) + 1)
}
