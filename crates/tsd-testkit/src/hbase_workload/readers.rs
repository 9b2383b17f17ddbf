//! Readers that run until the workload stops and check every result.

use std::{sync::Arc, time::Duration};

use hbase_rs::{Get, OperationError, Scan, Table};
use tokio::time::sleep;

use super::{
    ack_tracker::{FAMILY, key},
    scan_check::{ScanCheck, ScanReport},
    state::{ROW_WRITERS, WorkloadState},
};

/// Rows of one multi-get.
const GET_ROWS: u64 = 50;

/// How a scan reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScanOptions {
    /// From the end to the start.
    pub(super) reversed: bool,
    /// Rows between two pauses, which make one scan last through whole faults.
    pub(super) pause_after: Option<u64>,
}

/// Rows of one response, so that a scan takes many calls.
const ROWS_PER_CALL: u32 = 2_000;
/// Bytes of one response of a scan with pauses; small, so that scans take more calls and wide rows
/// become partial rows.
const BYTES_PER_CALL: u64 = 16 << 10;
const SCAN_PAUSE: Duration = Duration::from_millis(20);

/// Scans the whole table once.
pub(super) async fn scan_table(
    state: &WorkloadState,
    table: &Table,
    options: ScanOptions,
) -> Result<ScanReport, OperationError> {
    let mut check = ScanCheck::start(&state.rows, options.reversed);
    let bytes = if options.pause_after.is_some() { BYTES_PER_CALL } else { 8 * BYTES_PER_CALL };
    let scan = Scan::all().per_call(ROWS_PER_CALL, bytes);
    let mut rows = table.scan(if options.reversed { scan.reversed() } else { scan });
    let mut count = 0_u64;
    while let Some(row) = rows.next().await {
        let row = row?.row;
        check.add_row(row.key(), row.cells().map(|cell| (cell.qualifier, cell.value)));
        count += 1;
        let pause = options.pause_after.is_some_and(|rows| count.is_multiple_of(rows));
        if pause && !state.is_stopped() {
            sleep(SCAN_PAUSE).await;
        }
    }
    Ok(check.finish(&state.rows))
}

/// Scans the whole table until the workload stops.
pub(super) async fn scan_repeatedly(state: Arc<WorkloadState>, table: Table, options: ScanOptions) {
    while !state.is_stopped() {
        match scan_table(&state, &table, options).await {
            Ok(report) => state.record_scan(&report),
            Err(error) => state.record_failed_read("scan", &error),
        }
        sleep(state.pause).await;
    }
}

/// Gets the rows acknowledged last until the workload stops.
pub(super) async fn get_repeatedly(state: Arc<WorkloadState>, table: Table) {
    let mut writer = 0;
    while !state.is_stopped() {
        let acknowledged = state.rows.acknowledged();
        writer = (writer + 1) % ROW_WRITERS;
        let end = acknowledged[writer];
        let keys: Vec<String> =
            (end.saturating_sub(GET_ROWS)..end).map(|number| key(writer, number)).collect();
        let gets = keys.iter().map(|row| Get::try_new(row.clone()).expect("a key")).collect();
        match table.get_many(gets).await {
            Ok(rows) => {
                let wrong = keys.iter().zip(&rows).find(|(key, row)| {
                    row.key() != key.as_bytes() || row.value(FAMILY, b"q00").is_none()
                });
                if let Some((key, _)) = wrong {
                    state.report(format!("get does not find {key}"));
                }
                state.stats.record_read(wrong.is_none());
            }
            Err(error) => state.record_failed_read("get", &error),
        }
        sleep(state.pause).await;
    }
}
