//! Annotations of series and global annotations, stored as JSON cells in rows of the data table.
//!
//! An edit reads the cell, merges, and writes it back by compare-and-set against the bytes it read.
//! On a conflict it retries, so concurrent edits are all applied. Nothing is cached.
//!
//! The cell follows from the start time as sent (see `tsd_model::AnnotationPlace` for its quirk).
//! Reads take times from the JSON; a range delete takes them from the cell, as OpenTSDB does.

mod edit;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use tsd_model::{
    Annotation, AnnotationPlace, BaseTime, Cell, ColumnKind, Family, Row, RowKey, SeriesKey,
    TableSchema, Timestamp, Tsuid,
};
use tsd_storage::{
    Column, Delete, Get, Retention, RowFilter, Scan, Storage, StorageError, Table, TagCondition,
};

pub use edit::{AnnotationEdit, AnnotationEditOutcome, AnnotationError};

use crate::{
    point_plugins::PointPlugins,
    series_scan::{prefix_end, tag_pattern},
};

/// Attempts of an edit before it fails with a conflict.
const MAX_ATTEMPTS: usize = 16;

/// The annotations of a data table. Cheap to clone.
#[derive(Clone)]
pub struct Annotations {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) table: Table,
    pub(crate) schema: TableSchema,
    /// Cell timestamps are the start times of annotations.
    pub(crate) use_otsdb_timestamp: bool,
    pub(crate) retention: Option<Arc<Retention>>,
    pub(crate) plugins: PointPlugins,
}

impl Annotations {
    /// Reads an annotation.
    pub async fn get(
        &self,
        tsuid: Option<&Tsuid>,
        start_time: i64,
    ) -> Result<Option<Annotation>, AnnotationError> {
        let column = self.column(tsuid, start_time)?;
        Ok(self.read(&column).await?.map(|(annotation, _)| annotation))
    }

    /// Merges fields into an annotation, or replaces it.
    pub async fn edit(
        &self,
        edit: AnnotationEdit,
        replace: bool,
    ) -> Result<AnnotationEditOutcome, AnnotationError> {
        let column = self.column(edit.tsuid.as_ref(), edit.start_time)?;
        if edit.sets_nothing() {
            return Ok(AnnotationEditOutcome::Unchanged);
        }
        if let (Some(retention), Some(place)) =
            (&self.retention, AnnotationPlace::of(edit.start_time))
        {
            let base = place.base.as_secs();
            retention.check_put(&column.row, base).map_err(AnnotationError::Expired)?;
        }
        for _ in 0..MAX_ATTEMPTS {
            let (stored, expected) = match self.read(&column).await? {
                Some((annotation, bytes)) => (Some(annotation), Some(bytes)),
                None => (None, None),
            };
            let annotation = edit.merged(stored, replace);
            let value = Bytes::from(annotation.to_json());
            let (column, table) = (column.clone(), &self.table);
            let swapped = if self.use_otsdb_timestamp {
                let time =
                    Timestamp::try_new(annotation.start_time).map_or(0, Timestamp::as_millis);
                self.storage.compare_and_set_at(table, column, expected, value, time).await?
            } else {
                self.storage.compare_and_set(table, column, expected, value).await?
            };
            if swapped {
                self.plugins.annotation(&annotation);
                return Ok(AnnotationEditOutcome::Stored(annotation));
            }
        }
        Err(AnnotationError::Contended)
    }

    /// Deletes an annotation, if there is one.
    pub async fn delete(
        &self,
        tsuid: Option<&Tsuid>,
        start_time: i64,
    ) -> Result<(), AnnotationError> {
        let Column { row, family, qualifier } = self.column(tsuid, start_time)?;
        let delete = Delete::Columns { row, columns: vec![(family, qualifier)] };
        Ok(self.storage.delete(&self.table, delete).await?)
    }

    /// Reads global annotations that begin in an inclusive range of epoch milliseconds and do not
    /// end after it. Omits invalid cells.
    pub async fn global(&self, range_ms: (i64, i64)) -> Result<Vec<Annotation>, StorageError> {
        self.global_where(range_ms, |annotation| is_within(annotation, range_ms)).await
    }

    /// As [`Self::global`] for a query, sorted by start. `None` if the hours of the range have none that
    /// could be shown: a response has an empty list if there are some, but only outside the range.
    pub async fn global_of_query(
        &self,
        range_ms: (i64, i64),
    ) -> Result<Option<Vec<Annotation>>, StorageError> {
        let from_second = range_ms.0.div_euclid(1_000) * 1_000;
        let found = self.global_where(range_ms, |annotation| {
            millis(annotation.start_time) >= from_second
                && millis(annotation.end_time) <= range_ms.1
        });
        let mut found = found.await?;
        if found.is_empty() {
            return Ok(None);
        }
        found.retain(|annotation| is_within(annotation, range_ms));
        found.sort_by_key(|annotation| annotation.start_time);
        Ok(Some(found))
    }

    /// Reads global annotations of the hours of a range.
    async fn global_where(
        &self,
        range_ms: (i64, i64),
        keep: impl Fn(&Annotation) -> bool,
    ) -> Result<Vec<Annotation>, StorageError> {
        let mut annotations = Vec::new();
        if range_ms.1 < range_ms.0 {
            return Ok(annotations);
        }
        let mut rows = self.rows(None, range_ms);
        while let Some(batch) = rows.next_rows().await? {
            for cell in batch.iter().filter(|row| self.is_global(row)).flat_map(annotation_cells) {
                match Annotation::from_json(&cell.value) {
                    Ok(annotation) if keep(&annotation) => {
                        annotations.push(annotation);
                    }
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "ignored an invalid stored annotation"),
                }
            }
        }
        Ok(annotations)
    }

    /// Deletes annotations of series, and global ones, whose cell times are in an inclusive range
    /// of epoch milliseconds. Returns their number.
    pub async fn delete_range(
        &self,
        tsuids: &[Tsuid],
        global: bool,
        range_ms: (i64, i64),
    ) -> Result<u64, AnnotationError> {
        let mut deleted = 0;
        if range_ms.1 < range_ms.0 {
            return Ok(deleted);
        }
        for series in global.then_some(None).into_iter().chain(tsuids.iter().map(Some)) {
            let mut rows = self.rows(series, range_ms);
            while let Some(batch) = rows.next_rows().await? {
                for row in batch {
                    let Ok(key) = RowKey::decode(&self.schema, &row.key) else { continue };
                    if series.map_or(!key.is_global(), |tsuid| key.tsuid() != *tsuid) {
                        continue;
                    }
                    let base = key.base_time();
                    let columns: Vec<(Family, Bytes)> = annotation_cells(&row)
                        .filter(|cell| {
                            cell_time_ms(base, &cell.qualifier)
                                .is_some_and(|at| (range_ms.0..=range_ms.1).contains(&at))
                        })
                        .map(|cell| (cell.family, cell.qualifier.clone()))
                        .collect();
                    if !columns.is_empty() {
                        deleted += columns.len() as u64;
                        let delete = Delete::Columns { row: row.key.clone(), columns };
                        self.storage.delete(&self.table, delete).await?;
                    }
                }
            }
        }
        Ok(deleted)
    }

    /// Scans the rows of a series, or of global annotations, that may have annotations of a range.
    fn rows(
        &self,
        tsuid: Option<&Tsuid>,
        range_ms: (i64, i64),
    ) -> Box<dyn tsd_storage::RowScanner> {
        let series = self.series(tsuid);
        let base =
            |ms: i64| BaseTime::containing((ms / 1_000).clamp(0, Timestamp::MAX_SECS) as u32);
        let start = series.row_key(base(range_ms.0));
        // After the last row of that hour: the next base time, or the next metric.
        let last = base(range_ms.1);
        let stop = match last.next() {
            Some(next) => prefix(self.schema, &series.row_key(next)),
            None => prefix_end(&prefix(self.schema, &series.row_key(last))),
        };
        let filter = tsuid.map(|_| exactly(self.schema, series.tag_bytes()));
        let start = prefix(self.schema, &start);
        self.storage.scan(
            &self.table,
            Scan { start, stop, family: Some(Family::T), filter, ..Scan::default() },
        )
    }

    fn series(&self, tsuid: Option<&Tsuid>) -> SeriesKey {
        tsuid.map_or_else(
            || SeriesKey::global_annotations(&self.schema),
            |tsuid| SeriesKey::from_tsuid(&self.schema, tsuid),
        )
    }

    fn column(&self, tsuid: Option<&Tsuid>, start_time: i64) -> Result<Column, AnnotationError> {
        let place = AnnotationPlace::of(start_time).ok_or(AnnotationError::NoStartTime)?;
        Ok(Column {
            row: self.series(tsuid).row_key(place.base),
            family: Family::T,
            qualifier: Bytes::copy_from_slice(&place.qualifier),
        })
    }

    async fn read(&self, column: &Column) -> Result<Option<(Annotation, Bytes)>, AnnotationError> {
        let get = Get::column(column.row.clone(), column.family, column.qualifier.clone());
        let Some(row) = self.storage.get(&self.table, get).await? else { return Ok(None) };
        let Some(cell) = row.cells.into_iter().find(|c| c.qualifier == column.qualifier) else {
            return Ok(None);
        };
        Ok(Some((Annotation::from_json(&cell.value)?, cell.value)))
    }

    fn is_global(&self, row: &Row) -> bool {
        RowKey::decode(&self.schema, &row.key).is_ok_and(|key| key.is_global())
    }
}

impl fmt::Debug for Annotations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Annotations").field("table", &self.table).finish_non_exhaustive()
    }
}

/// Annotation cells of a row. Packed runs contain only points.
pub(crate) fn annotation_cells(row: &Row) -> impl Iterator<Item = &Cell> {
    row.cells.iter().filter(|cell| {
        cell.family == Family::T && ColumnKind::of(&cell.qualifier) == ColumnKind::Annotation
    })
}

/// Time of an annotation, seconds or milliseconds, in milliseconds.
fn millis(time: i64) -> i64 {
    if time > Timestamp::MAX_SECS { time } else { time.saturating_mul(1_000) }
}

/// True if an annotation begins in a range of epoch milliseconds and does not end after it.
fn is_within(annotation: &Annotation, (from, to): (i64, i64)) -> bool {
    (from..=to).contains(&millis(annotation.start_time)) && millis(annotation.end_time) <= to
}

/// Time of an annotation cell, in epoch milliseconds.
fn cell_time_ms(base: BaseTime, qualifier: &[u8]) -> Option<i64> {
    let offset = match *qualifier {
        [_, a, b] => i64::from(u16::from_be_bytes([a, b])) * 1_000,
        [_, a, b, c, d] => i64::from(u32::from_be_bytes([a, b, c, d])),
        _ => return None,
    };
    Some(base.as_millis() + offset)
}

/// Salt, metric and base time of a row key.
fn prefix(schema: TableSchema, key: &Bytes) -> Bytes {
    key.slice(..schema.tags_start().min(key.len()))
}

/// Matches rows with exactly these tag pairs.
fn exactly(schema: TableSchema, tags: &[u8]) -> RowFilter {
    let conditions = tags.chunks_exact(schema.tag_pair_width()).filter_map(|pair| {
        let (tagk, tagv) = pair.split_at_checked(schema.tagk_width())?;
        let tagvs = Some(vec![Bytes::copy_from_slice(tagv)]);
        Some(TagCondition { tagk: Bytes::copy_from_slice(tagk), tagvs })
    });
    tag_pattern(schema, schema.tags_start(), conditions.collect(), true)
}

#[cfg(test)]
mod tests;
