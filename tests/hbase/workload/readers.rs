//! Readers that never stop and check all they see.

use std::{sync::Arc, time::Duration};

use hbase_rs::{Get, OperationError, Scan, Table};
use tokio::time::sleep;

use super::{
    Shared,
    ledger::{Audit, FAMILY, Verdict, key},
};

/// Rows of one look at single rows.
const ROWS: u64 = 50;

/// How a scan goes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner {
    /// From the end to the start.
    pub(crate) reversed: bool,
    /// Rests after this many rows, so that one scan meets whole faults.
    pub(crate) rest_after: Option<u64>,
}

/// Rows of one answer, so that a scan takes many.
const ROWS_PER_CALL: u32 = 2_000;
/// Bytes of one answer, where a scan rests: it takes more answers still, and wide rows come in pieces.
const BYTES_PER_CALL: u64 = 16 << 10;
const REST: Duration = Duration::from_millis(20);

/// Scans the whole table once.
pub(crate) async fn scan(
    shared: &Shared,
    table: &Table,
    manner: Manner,
) -> Result<Verdict, OperationError> {
    let mut audit = Audit::begin(&shared.rows, manner.reversed);
    let bytes = if manner.rest_after.is_some() { BYTES_PER_CALL } else { 8 * BYTES_PER_CALL };
    let scan = Scan::all().per_call(ROWS_PER_CALL, bytes);
    let mut rows = table.scan(if manner.reversed { scan.reversed() } else { scan });
    let mut count = 0_u64;
    while let Some(row) = rows.next().await {
        let row = row?.row;
        audit.row(row.key(), row.cells().map(|cell| (cell.qualifier, cell.value)));
        count += 1;
        if manner.rest_after.is_some_and(|rows| count.is_multiple_of(rows)) && !shared.is_over() {
            sleep(REST).await;
        }
    }
    Ok(audit.end(&shared.rows))
}

/// Scans the whole table over and over.
pub(crate) async fn scan_on(shared: Arc<Shared>, table: Table, manner: Manner) {
    while !shared.is_over() {
        match scan(&shared, &table, manner).await {
            Ok(verdict) => shared.scanned(&verdict),
            Err(error) => shared.read_failed("scan", &error),
        }
        sleep(shared.pause).await;
    }
}

/// Reads rows that were acknowledged a moment ago.
pub(crate) async fn get_on(shared: Arc<Shared>, table: Table) {
    let mut writer = 0;
    while !shared.is_over() {
        let acknowledged = shared.rows.acknowledged();
        writer = (writer + 1) % super::ROW_WRITERS;
        let until = acknowledged[writer];
        let wanted: Vec<String> =
            (until.saturating_sub(ROWS)..until).map(|number| key(writer, number)).collect();
        let gets = wanted.iter().map(|row| Get::try_new(row.clone()).expect("a key")).collect();
        match table.get_many(gets).await {
            Ok(rows) => {
                let wrong = wanted.iter().zip(&rows).find(|(key, row)| {
                    row.key() != key.as_bytes() || row.value(FAMILY, b"q00").is_none()
                });
                if let Some((key, _)) = wrong {
                    shared.complain(format!("get does not find {key}"));
                }
                shared.meter.read(wrong.is_none());
            }
            Err(error) => shared.read_failed("get", &error),
        }
        sleep(shared.pause).await;
    }
}
