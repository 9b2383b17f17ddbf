//! Annotations of series and global annotations, stored as JSON cells in rows of the data table.
//!
//! An edit reads the cell, merges, and writes the cell back by compare-and-set against the bytes it read. After a
//! conflict it retries, so that all concurrent edits are applied. Nothing is cached.
//!
//! The start time, as the client sent it, determines the cell (see `tsd_model::AnnotationKey` for its quirk). Reads
//! use the times in the JSON; a range delete uses the time of the cell, as OpenTSDB does.

mod edit;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use tsd_model::{
    Annotation, AnnotationKey, BaseTime, Cell, ColumnKind, Family, Row, RowKey, SeriesKey,
    TableSchema, TagkUid, TagvUid, Timestamp, Tsuid, millis_of,
};
use tsd_storage::{
    Column, Delete, Get, NewValue, Retention, RowFilter, Scan, Storage, StorageError, StorageExt,
    Table, TagCondition, prefix_end, tag_pattern,
};

pub use edit::{AnnotationEdit, AnnotationEditOutcome, AnnotationError};

/// Most bytes of a stored annotation. A query reads all global annotations of its time range.
const MAX_ANNOTATION_BYTES: usize = 1 << 20;
/// Attempts of an edit before it fails with a conflict.
const MAX_ATTEMPTS: usize = 16;

/// Gets each annotation that was stored.
pub trait AnnotationObserver: Send + Sync {
    /// An annotation was stored.
    fn stored(&self, annotation: &Annotation);
}

/// The annotations of a data table. Cheap to clone.
#[derive(Clone)]
pub struct Annotations {
    /// The storage.
    pub storage: Arc<dyn Storage>,
    /// The data table.
    pub table: Table,
    /// Layout of its row keys.
    pub schema: TableSchema,
    /// True if cell timestamps are the start times of annotations.
    pub use_otsdb_timestamp: bool,
    /// Rejects annotations of expired hours; `None` keeps everything.
    pub retention: Option<Arc<Retention>>,
    /// Gets each annotation that was stored.
    pub observer: Arc<dyn AnnotationObserver>,
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
        if let Some(end_time @ 1..) = edit.end_time {
            Timestamp::try_new(end_time)?;
        }
        if edit.sets_nothing() {
            return Ok(AnnotationEditOutcome::Unchanged);
        }
        if let (Some(retention), Ok(place)) = (&self.retention, AnnotationKey::of(edit.start_time))
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
            if value.len() > MAX_ANNOTATION_BYTES {
                let (bytes, limit) = (value.len(), MAX_ANNOTATION_BYTES);
                return Err(AnnotationError::TooLarge { bytes, limit });
            }
            let (column, table) = (column.clone(), &self.table);
            let swapped = if self.use_otsdb_timestamp {
                let time =
                    Timestamp::try_new(annotation.start_time).map_or(0, Timestamp::as_millis);
                self.storage
                    .compare_and_set_at(table, column, expected, NewValue::at(value, time))
                    .await?
            } else {
                self.storage.compare_and_set(table, column, expected, value).await?
            };
            if swapped {
                self.observer.stored(&annotation);
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

    /// Reads global annotations that begin in an inclusive range of epoch milliseconds and do not end after it. Omits
    /// invalid cells. `reserve` gets the memory of each annotation ([`memory_of`]).
    pub async fn global<E: From<StorageError>>(
        &self,
        range_ms: (i64, i64),
        reserve: impl Fn(usize) -> Result<(), E>,
    ) -> Result<Vec<Annotation>, E> {
        self.global_where(range_ms, |annotation| is_within(annotation, range_ms), reserve).await
    }

    /// Like [`Self::global`] for a query, sorted by start time. `None` if the hours of the range have no annotations
    /// to show. If there are some, but only outside the range, the result is an empty list, as in the response.
    pub async fn global_of_query<E: From<StorageError>>(
        &self,
        range_ms: (i64, i64),
        reserve: impl Fn(usize) -> Result<(), E>,
    ) -> Result<Option<Vec<Annotation>>, E> {
        let from_second = range_ms.0.div_euclid(1_000) * 1_000;
        let keep = |annotation: &Annotation| {
            millis_of(annotation.start_time) >= from_second
                && millis_of(annotation.end_time) <= range_ms.1
        };
        let mut found = self.global_where(range_ms, keep, reserve).await?;
        if found.is_empty() {
            return Ok(None);
        }
        found.retain(|annotation| is_within(annotation, range_ms));
        found.sort_by_key(|annotation| annotation.start_time);
        Ok(Some(found))
    }

    /// Reads global annotations of the hours of a range.
    async fn global_where<E: From<StorageError>>(
        &self,
        range_ms: (i64, i64),
        keep: impl Fn(&Annotation) -> bool,
        reserve: impl Fn(usize) -> Result<(), E>,
    ) -> Result<Vec<Annotation>, E> {
        let mut annotations = Vec::new();
        if range_ms.1 < range_ms.0 {
            return Ok(annotations);
        }
        let mut rows = self.rows(None, range_ms);
        while let Some(batch) = rows.next_rows().await? {
            for cell in batch.iter().filter(|row| self.is_global(row)).flat_map(annotation_cells) {
                match Annotation::from_json(&cell.value) {
                    Ok(annotation) if keep(&annotation) => {
                        reserve(memory_of(cell.value.len()))?;
                        annotations.push(annotation);
                    }
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "ignored an invalid stored annotation"),
                }
            }
        }
        Ok(annotations)
    }

    /// Deletes annotations of series and global annotations whose cell times are in an inclusive range of epoch
    /// milliseconds. Returns their number.
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
        // The key after the last row of that hour: the next base time, or the next metric.
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
        if start_time < 1 {
            return Err(AnnotationError::NoStartTime);
        }
        let place = AnnotationKey::of(start_time)?;
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

/// Bytes of memory of a global annotation whose JSON has `json_bytes`: its texts, and twice that in the response
/// buffer, which grows by doubling.
#[must_use]
pub const fn memory_of(json_bytes: usize) -> usize {
    size_of::<Annotation>() + 3 * json_bytes
}

/// Annotation cells of a row. Packed runs contain only points.
pub fn annotation_cells(row: &Row) -> impl Iterator<Item = &Cell> {
    row.cells.iter().filter(|cell| {
        cell.family == Family::T && ColumnKind::of(&cell.qualifier) == ColumnKind::Annotation
    })
}

/// True if an annotation begins in a range of epoch milliseconds and does not end after it.
fn is_within(annotation: &Annotation, (from, to): (i64, i64)) -> bool {
    (from..=to).contains(&millis_of(annotation.start_time)) && millis_of(annotation.end_time) <= to
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
        let tagvs = Some(vec![TagvUid::try_new(tagv).ok()?]);
        Some(TagCondition { tagk: TagkUid::try_new(tagk).ok()?, tagvs })
    });
    tag_pattern(schema, schema.tags_start(), conditions.collect(), true)
}
