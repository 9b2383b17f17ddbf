//! Reads the rows of one range of a table, from either store.
//!
//! With a time range, the rows of each metric are read from its first hour on. The first row found of a metric shows
//! where its rows are, so metrics whose names are lost are read too. Rows whose keys are too short for a time are left
//! out.

use bytes::Bytes;
use tsd_engine::EngineHandle;
use tsd_model::Row;
use tsd_storage::{RowScanner, Scan, StorageError, Table, prefix_end};

use super::{error::CopyError, ranges::TableRange};

/// Rows read at once.
const BATCH_ROWS: usize = 256;

/// A store to read.
#[derive(Clone, Debug)]
pub(super) struct ReadSide {
    pub(super) engine: EngineHandle,
    pub(super) is_target: bool,
}

impl ReadSide {
    pub(super) fn failed(&self, table: &Table, source: StorageError) -> CopyError {
        if self.is_target {
            CopyError::target(table)(source)
        } else {
            CopyError::source(table)(source)
        }
    }
}

/// The rows of a range behind a given row.
pub(super) struct RangeRows<'c> {
    side: &'c ReadSide,
    range: &'c TableRange,
    since_ms: Option<i64>,
    /// Bytes of a key before its base time.
    prefix_width: usize,
    /// Where the next scan begins; `None` after the last row.
    next: Option<Bytes>,
    scanner: Option<Box<dyn RowScanner>>,
}

impl<'c> RangeRows<'c> {
    /// Those with cells that were written since then, after the row `after`.
    pub(super) fn new(
        side: &'c ReadSide,
        range: &'c TableRange,
        since_ms: Option<i64>,
        after: &Bytes,
    ) -> Self {
        let prefix_width = side.engine.config().schema.base_time_start();
        let next =
            if after.is_empty() { range.start.clone() } else { [after, &[0][..]].concat().into() };
        Self { side, range, since_ms, prefix_width, next: Some(next), scanner: None }
    }

    /// The next rows; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Row>>, CopyError> {
        loop {
            if let Some(scanner) = &mut self.scanner {
                let rows = scanner.next_rows().await;
                if let Some(rows) = rows.map_err(|error| self.failed(error))? {
                    return Ok(Some(rows));
                }
                self.scanner = None;
            }
            let Some(next) = self.next.take() else { return Ok(None) };
            let range = match self.range.bases {
                None => Some((next, self.range.stop.clone())),
                Some(bases) => self.next_metric(next, bases).await?,
            };
            if let Some((start, stop)) = range {
                self.scanner = Some(self.scan(start, stop));
            }
        }
    }

    fn failed(&self, source: StorageError) -> CopyError {
        self.side.failed(&self.range.from, source)
    }

    fn scan(&self, start: Bytes, stop: Bytes) -> Box<dyn RowScanner> {
        let scan = Scan {
            start,
            stop,
            time_range_ms: self.since_ms.map(|since_ms| (since_ms, i64::MAX)),
            batch_rows: Some(BATCH_ROWS),
            ..Scan::default()
        };
        self.side.engine.storage().scan(&self.range.from, scan)
    }

    /// The selected rows of the first metric that has rows from `next` on. Sets `next` to the begin of the following
    /// metric.
    async fn next_metric(
        &mut self,
        next: Bytes,
        (first, last): (u32, u32),
    ) -> Result<Option<(Bytes, Bytes)>, CopyError> {
        let scan = Scan {
            start: next.clone(),
            stop: self.range.stop.clone(),
            limit: Some(1),
            ..Scan::default()
        };
        let mut rows = self.side.engine.storage().scan(&self.range.from, scan);
        let found = rows.next_rows().await.map_err(|error| self.failed(error))?;
        let Some(key) = found.and_then(|rows| rows.into_iter().next()).map(|row| row.key) else {
            return Ok(None);
        };
        let Some(prefix) = key.get(..self.prefix_width) else {
            self.next = Some([&key[..], &[0]].concat().into());
            return Ok(None);
        };
        let end = prefix_end(prefix);
        let is_last = end.is_empty() || (!self.range.stop.is_empty() && end >= self.range.stop);
        self.next = (!is_last).then_some(end);
        let bound = |base: u32| Bytes::from([prefix, &base.to_be_bytes()].concat());
        let start = bound(first).max(next);
        let stop = match last.checked_add(1) {
            Some(after) => bound(after),
            None => prefix_end(prefix),
        };
        Ok((stop.is_empty() || start < stop).then_some((start, stop)))
    }
}
