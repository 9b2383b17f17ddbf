//! Copies one part of a table: reads batches of rows, translates their keys, puts them, and reports how far it
//! came.
//!
//! With a time range the rows of each metric are read from its first hour: the first row of a metric that is
//! found says where they are, so a metric whose name is lost is copied too. Rows whose keys are too short
//! for a time are then left out.

use bytes::Bytes;
use tsd_model::{Cell, Row, to_hex};
use tsd_storage::{RowScanner, Scan, StorageError, Table};

use super::{
    CopiedKind, CopiedPart, CopiedRows, CopyContext, CopyError, PartProgress,
    key_map::Untranslated, names, parts::TablePart, writer::CopiedRow,
};
use crate::{EngineHandle, series_scan::prefix_end};

/// Rows that are read at once.
const BATCH_ROWS: usize = 256;

/// Copies what is left of a part, until it is complete or the copy is stopped.
pub(super) async fn copy_part(
    context: std::sync::Arc<super::CopyContext>,
    part: TablePart,
) -> Result<(), CopyError> {
    let progress = context.run.copied.get(&part.name).cloned().unwrap_or_default();
    if progress.is_complete || context.is_stopped() {
        return Ok(());
    }
    PartCopy { context: &context, part: &part, progress }.run().await
}

struct PartCopy<'c> {
    context: &'c CopyContext,
    part: &'c TablePart,
    progress: PartProgress,
}

impl PartCopy<'_> {
    async fn run(&mut self) -> Result<(), CopyError> {
        let since_ms = self.context.run.since_ms;
        let mut rows = PartRows::new(&self.context.source, self.part, since_ms, &self.progress.row);
        while let Some(batch) = rows.next().await? {
            let Some(last) = batch.last().map(|row| row.key.clone()) else { continue };
            let mut copied = self.batch(batch).await?;
            if self.part.is_repeated {
                copied = CopiedRows { rows: 0, cells: 0, bytes: 0, ..copied };
            }
            self.progress.row = last;
            self.report(&copied);
            if self.context.is_stopped() {
                return Ok(());
            }
        }
        self.progress.is_complete = true;
        self.report(&CopiedRows::default());
        Ok(())
    }

    fn report(&self, copied: &CopiedRows) {
        let part =
            CopiedPart { name: &self.part.name, table: &self.part.from, progress: &self.progress };
        let share = self.context.progress.share(part.name, part.progress);
        self.context.observer.advanced(&part, copied, share);
    }

    async fn batch(&self, rows: Vec<Row>) -> Result<CopiedRows, CopyError> {
        let mut copied = CopiedRows::default();
        let mut read = Vec::with_capacity(rows.len());
        for row in rows {
            let key = row.key.clone();
            copied.rows += 1;
            match row.into_cells() {
                Ok(cells) => {
                    copied.cells += cells.len() as u64;
                    copied.bytes += bytes_of(&key, &cells);
                    read.push(CopiedRow { key, cells });
                }
                Err(error) => self.refuse(&key, &error.to_string(), &mut copied),
            }
        }
        if self.part.kind == CopiedKind::Uid {
            names::copy(self.context, self.part, read, &mut copied).await?;
            return Ok(copied);
        }
        let rows = match &self.context.map {
            None => read,
            Some(map) => {
                let keys = read.iter().map(|row| (&row.key, &row.cells[..]));
                let keys = map.batch(self.part.kind, !self.context.run.dry_run, keys).await?;
                let translated = read.into_iter().filter_map(|row| {
                    match keys.row(self.part.kind, &row.key, row.cells) {
                        Ok(new) => {
                            for (qualifier, why) in &new.stale {
                                if self.would_be_assigned(why) {
                                    continue;
                                }
                                copied.stale_references += 1;
                                self.found_stale(&row.key, qualifier, why.text());
                            }
                            Some(CopiedRow { key: new.key, cells: new.cells })
                        }
                        Err(why) if self.would_be_assigned(&why) => None,
                        Err(why) => {
                            self.refuse(&row.key, why.text(), &mut copied);
                            None
                        }
                    }
                });
                translated.collect()
            }
        };
        self.context.put_rows(&self.part.to, rows, &mut copied).await?;
        Ok(copied)
    }

    /// True if a name is missing only because nothing is written.
    const fn would_be_assigned(&self, why: &Untranslated) -> bool {
        self.context.run.dry_run && matches!(why, Untranslated::Absent(_))
    }

    fn refuse(&self, key: &Bytes, why: &str, copied: &mut CopiedRows) {
        copied.refused_rows += 1;
        let text = format!("row {}: not copied: {why}", to_hex(key));
        self.context.observer.found(&self.part.from, &text);
    }

    fn found_stale(&self, key: &Bytes, qualifier: &Bytes, why: &str) {
        let (key, column) = (to_hex(key), to_hex(qualifier));
        let text = format!("row {key} column {column}: copied with the TSUID of the source: {why}");
        self.context.observer.found(&self.part.from, &text);
    }
}

fn bytes_of(key: &Bytes, cells: &[Cell]) -> u64 {
    let cells = cells.iter().map(|cell| key.len() + cell.qualifier.len() + cell.value.len());
    cells.sum::<usize>() as u64
}

/// A store that is read.
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

/// The rows of a part after a row.
pub(super) struct PartRows<'c> {
    side: &'c ReadSide,
    part: &'c TablePart,
    since_ms: Option<i64>,
    /// Bytes of a key before its base time.
    prefix_width: usize,
    /// Where the next scan begins; `None`: all was read.
    next: Option<Bytes>,
    scanner: Option<Box<dyn RowScanner>>,
}

impl<'c> PartRows<'c> {
    /// Those with cells that were written since then, after the row `after`.
    pub(super) fn new(
        side: &'c ReadSide,
        part: &'c TablePart,
        since_ms: Option<i64>,
        after: &Bytes,
    ) -> Self {
        let prefix_width = side.engine.config().schema.base_time_start();
        let next =
            if after.is_empty() { part.start.clone() } else { [after, &[0][..]].concat().into() };
        Self { side, part, since_ms, prefix_width, next: Some(next), scanner: None }
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
            let range = match self.part.bases {
                None => Some((next, self.part.stop.clone())),
                Some(bases) => self.next_metric(next, bases).await?,
            };
            if let Some((start, stop)) = range {
                self.scanner = Some(self.scan(start, stop));
            }
        }
    }

    fn failed(&self, source: StorageError) -> CopyError {
        self.side.failed(&self.part.from, source)
    }

    fn scan(&self, start: Bytes, stop: Bytes) -> Box<dyn RowScanner> {
        let scan = Scan {
            start,
            stop,
            time_range_ms: self.since_ms.map(|since_ms| (since_ms, i64::MAX)),
            batch_rows: Some(BATCH_ROWS),
            ..Scan::default()
        };
        self.side.engine.storage().scan(&self.part.from, scan)
    }

    /// The selected rows of the first metric that has rows from `next` on, and sets where the metric after it
    /// begins.
    async fn next_metric(
        &mut self,
        next: Bytes,
        (first, last): (u32, u32),
    ) -> Result<Option<(Bytes, Bytes)>, CopyError> {
        let scan = Scan {
            start: next.clone(),
            stop: self.part.stop.clone(),
            limit: Some(1),
            ..Scan::default()
        };
        let mut rows = self.side.engine.storage().scan(&self.part.from, scan);
        let found = rows.next_rows().await.map_err(|error| self.failed(error))?;
        let Some(key) = found.and_then(|rows| rows.into_iter().next()).map(|row| row.key) else {
            return Ok(None);
        };
        let Some(prefix) = key.get(..self.prefix_width) else {
            self.next = Some([&key[..], &[0]].concat().into());
            return Ok(None);
        };
        let end = prefix_end(prefix);
        let is_last = end.is_empty() || (!self.part.stop.is_empty() && end >= self.part.stop);
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
