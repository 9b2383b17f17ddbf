//! Copies one range of a table: reads batches of rows, translates their keys, puts the rows, and reports progress.

use bytes::Bytes;
use tsd_model::{Cell, Row, to_hex};

use super::{
    context::CopyContext,
    error::CopyError,
    key_map::Untranslated,
    names,
    options::{CopiedKind, CopiedRange, RangeProgress},
    range_rows::RangeRows,
    ranges::TableRange,
    report::CopiedRows,
    writer::CopiedRow,
};

/// Copies the rest of a range, until it is complete or the copy is stopped.
pub(super) async fn copy_range(
    context: std::sync::Arc<CopyContext>,
    range: TableRange,
) -> Result<(), CopyError> {
    let progress = context.run.copied.get(&range.name).cloned().unwrap_or_default();
    if progress.is_complete || context.is_stopped() {
        return Ok(());
    }
    RangeCopy { context: &context, range: &range, progress }.run().await
}

struct RangeCopy<'c> {
    context: &'c CopyContext,
    range: &'c TableRange,
    progress: RangeProgress,
}

impl RangeCopy<'_> {
    async fn run(&mut self) -> Result<(), CopyError> {
        let since_ms = self.context.run.since_ms;
        let mut rows =
            RangeRows::new(&self.context.source, self.range, since_ms, &self.progress.row);
        while let Some(batch) = rows.next().await? {
            let Some(last) = batch.last().map(|row| row.key.clone()) else { continue };
            let mut copied = self.batch(batch).await?;
            if self.range.is_repeated {
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
        let range = CopiedRange {
            name: &self.range.name,
            table: &self.range.from,
            progress: &self.progress,
        };
        let share = self.context.progress.share(range.name, range.progress);
        self.context.observer.advanced(&range, copied, share);
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
        if self.range.kind == CopiedKind::Uid {
            names::copy(self.context, self.range, read, &mut copied).await?;
            return Ok(copied);
        }
        let rows = match &self.context.map {
            None => read,
            Some(map) => {
                let keys = read.iter().map(|row| (&row.key, &row.cells[..]));
                let keys = map.batch(self.range.kind, !self.context.run.dry_run, keys).await?;
                let translated = read.into_iter().filter_map(|row| {
                    match keys.row(self.range.kind, &row.key, row.cells) {
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
        self.context.put_rows(&self.range.to, rows, &mut copied).await?;
        Ok(copied)
    }

    /// True if a name is missing only because a dry run assigns no names.
    const fn would_be_assigned(&self, why: &Untranslated) -> bool {
        self.context.run.dry_run && matches!(why, Untranslated::Absent(_))
    }

    fn refuse(&self, key: &Bytes, why: &str, copied: &mut CopiedRows) {
        copied.refused_rows += 1;
        let text = format!("row {}: not copied: {why}", to_hex(key));
        self.context.observer.found(&self.range.from, &text);
    }

    fn found_stale(&self, key: &Bytes, qualifier: &Bytes, why: &str) {
        let (key, column) = (to_hex(key), to_hex(qualifier));
        let text = format!("row {key} column {column}: copied with the TSUID of the source: {why}");
        self.context.observer.found(&self.range.from, &text);
    }
}

fn bytes_of(key: &Bytes, cells: &[Cell]) -> u64 {
    let cells = cells.iter().map(|cell| key.len() + cell.qualifier.len() + cell.value.len());
    cells.sum::<usize>() as u64
}
