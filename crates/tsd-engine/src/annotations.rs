//! Annotations: notes on a series, or on everything, kept as JSON cells in rows of the data table.
//!
//! Edits read the cell, merge, and write it back by compare-and-set against the bytes they read; when another
//! writer was faster they begin again, so of two edits at once none is lost. Nothing is cached.
//!
//! Where a note lies follows from its start time as given (`tsd_model::AnnotationPlace`, which has an oddity);
//! what is told of its times comes from the JSON, but for a range delete, which judges by the
//! place as OpenTSDB does.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use tsd_model::{
    Annotation, AnnotationPlace, BaseTime, Cell, ColumnKind, CustomFields, Family, JsonError, Row,
    RowKey, SeriesKey, TableSchema, Timestamp, Tsuid,
};
use tsd_storage::{
    Column, Delete, Get, RowFilter, Scan, Storage, StorageError, Table, TagCondition, TagPattern,
};

/// Times an edit begins again because another writer was faster.
const MAX_ATTEMPTS: usize = 16;

/// What a client wants of one note. A field that is absent, or the default of its kind, is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnotationEdit {
    /// The series; `None` for a global note.
    pub tsuid: Option<Tsuid>,
    /// When it begins, in seconds or milliseconds: with the series it names the note.
    pub start_time: i64,
    /// When it ends.
    pub end_time: Option<i64>,
    /// One line.
    pub description: Option<String>,
    /// More.
    pub notes: Option<String>,
    /// Free fields; given, they replace all others.
    pub custom: Option<CustomFields>,
}

/// What became of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditOutcome {
    /// The note as it is stored now.
    Stored(Annotation),
    /// The edit set no field, and nothing was written.
    Unchanged,
}

/// Why a note was not read or written.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnnotationError {
    /// A start time below 1.
    #[error("The start timestamp has not been set")]
    NoStartTime,
    /// Other writers were faster every time.
    #[error("another process goes on changing the annotation")]
    Contended,
    /// The cell holds no annotation.
    #[error("a stored annotation cannot be read")]
    Unreadable(#[from] JsonError),
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// The notes of a data table. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Annotations {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) table: Table,
    pub(crate) schema: TableSchema,
    /// Cells carry the start time of their note.
    pub(crate) use_otsdb_timestamp: bool,
}

impl Annotations {
    /// One note.
    pub(crate) async fn get(
        &self,
        tsuid: Option<&Tsuid>,
        start_time: i64,
    ) -> Result<Option<Annotation>, AnnotationError> {
        let column = self.column(tsuid, start_time)?;
        Ok(self.read(&column).await?.map(|(note, _)| note))
    }

    /// Merges fields into a note, or replaces all of them.
    pub(crate) async fn edit(
        &self,
        edit: AnnotationEdit,
        replace: bool,
    ) -> Result<EditOutcome, AnnotationError> {
        let column = self.column(edit.tsuid.as_ref(), edit.start_time)?;
        if edit.sets_nothing() {
            return Ok(EditOutcome::Unchanged);
        }
        for _ in 0..MAX_ATTEMPTS {
            let (stored, expected) = match self.read(&column).await? {
                Some((note, bytes)) => (Some(note), Some(bytes)),
                None => (None, None),
            };
            let note = edit.merged(stored, replace);
            let value = Bytes::from(note.to_json());
            let (column, table) = (column.clone(), &self.table);
            let swapped = if self.use_otsdb_timestamp {
                let time = Timestamp::try_new(note.start_time).map_or(0, Timestamp::as_millis);
                self.storage.compare_and_set_at(table, column, expected, value, time).await?
            } else {
                self.storage.compare_and_set(table, column, expected, value).await?
            };
            if swapped {
                return Ok(EditOutcome::Stored(note));
            }
        }
        Err(AnnotationError::Contended)
    }

    /// Deletes a note, if there is one.
    pub(crate) async fn delete(
        &self,
        tsuid: Option<&Tsuid>,
        start_time: i64,
    ) -> Result<(), AnnotationError> {
        let Column { row, family, qualifier } = self.column(tsuid, start_time)?;
        let delete = Delete::Columns { row, columns: vec![(family, qualifier)] };
        Ok(self.storage.delete(&self.table, delete).await?)
    }

    /// Global notes that begin and, where they have an end, end within a range of epoch
    /// milliseconds, both ends included. A cell that cannot be read is left out.
    pub(crate) async fn global(
        &self,
        range_ms: (i64, i64),
    ) -> Result<Vec<Annotation>, StorageError> {
        let mut notes = Vec::new();
        if range_ms.1 < range_ms.0 {
            return Ok(notes);
        }
        let mut rows = self.rows(None, range_ms);
        while let Some(batch) = rows.next_rows().await? {
            for cell in batch.iter().filter(|row| self.is_global(row)).flat_map(note_cells) {
                match Annotation::from_json(&cell.value) {
                    Ok(note) if lies_within(&note, range_ms) => notes.push(note),
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "a stored annotation cannot be read"),
                }
            }
        }
        Ok(notes)
    }

    /// Deletes the notes of some series, and global ones, whose places lie in a range of epoch
    /// milliseconds, both ends included. Returns how many there were.
    pub(crate) async fn delete_range(
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
                    let columns: Vec<(Family, Bytes)> = note_cells(&row)
                        .filter(|cell| {
                            place_ms(base, &cell.qualifier)
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

    /// The rows of a series, or those of global notes, that may hold notes of a range.
    fn rows(
        &self,
        tsuid: Option<&Tsuid>,
        range_ms: (i64, i64),
    ) -> Box<dyn tsd_storage::RowScanner> {
        let series = self.series(tsuid);
        let base =
            |ms: i64| BaseTime::containing((ms / 1_000).clamp(0, Timestamp::MAX_SECS) as u32);
        let start = series.row_key(base(range_ms.0));
        // Behind the last row of that hour: with the next base time, or with the next metric.
        let last = base(range_ms.1);
        let stop = match last.next() {
            Some(next) => prefix(self.schema, &series.row_key(next)),
            None => successor(&prefix(self.schema, &series.row_key(last))),
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

impl AnnotationEdit {
    fn sets_nothing(&self) -> bool {
        self.end_time.unwrap_or_default() == 0
            && self.description.as_ref().is_none_or(String::is_empty)
            && self.notes.as_ref().is_none_or(String::is_empty)
            && self.custom.is_none()
    }

    /// The note after the edit. Fields that are not set keep what is stored, unless all are replaced.
    /// Of two start times of one place the smaller stays.
    fn merged(&self, stored: Option<Annotation>, replace: bool) -> Annotation {
        let stored = stored.unwrap_or_default();
        let start_time = match stored.start_time {
            1.. => stored.start_time.min(self.start_time),
            _ => self.start_time,
        };
        let kept = if replace { Annotation::default() } else { stored };
        let text = |new: &Option<String>, kept: String| match new {
            Some(new) if !new.is_empty() => new.clone(),
            _ => kept,
        };
        Annotation {
            tsuid: self.tsuid.as_ref().map(ToString::to_string).unwrap_or_default(),
            start_time,
            end_time: self.end_time.filter(|end| *end != 0).unwrap_or(kept.end_time),
            description: text(&self.description, kept.description),
            notes: text(&self.notes, kept.notes),
            custom: self.custom.clone().or(kept.custom),
        }
    }
}

/// Cells of a row that hold notes. Only plain cells can: runs hold points.
fn note_cells(row: &Row) -> impl Iterator<Item = &Cell> {
    row.cells.iter().filter(|cell| {
        cell.family == Family::T && ColumnKind::of(&cell.qualifier) == ColumnKind::Annotation
    })
}

/// Whether a note begins, and ends if it does, in a range of epoch milliseconds.
fn lies_within(note: &Annotation, (from, to): (i64, i64)) -> bool {
    let millis = |time: i64| {
        if time > Timestamp::MAX_SECS { time } else { time.saturating_mul(1_000) }
    };
    (from..=to).contains(&millis(note.start_time)) && millis(note.end_time) <= to
}

/// The time that a place stands for.
fn place_ms(base: BaseTime, qualifier: &[u8]) -> Option<i64> {
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

/// The first key behind all that begin with `prefix`; empty, which is the end, where there is none.
fn successor(prefix: &[u8]) -> Bytes {
    let mut key = prefix.to_vec();
    while let Some(last) = key.pop() {
        if let Some(next) = last.checked_add(1) {
            key.push(next);
            break;
        }
    }
    key.into()
}

/// Rows with these tag pairs and no others.
fn exactly(schema: TableSchema, tags: &[u8]) -> RowFilter {
    let wanted = tags.chunks_exact(schema.tag_pair_width()).filter_map(|pair| {
        let (tagk, tagv) = pair.split_at_checked(schema.tagk_width())?;
        let tagvs = Some(vec![Bytes::copy_from_slice(tagv)]);
        Some(TagCondition { tagk: Bytes::copy_from_slice(tagk), tagvs })
    });
    RowFilter::Tags(Arc::new(TagPattern {
        tags_start: schema.tags_start(),
        tagk_width: schema.tagk_width(),
        tagv_width: schema.tagv_width(),
        wanted: wanted.collect(),
        explicit: true,
    }))
}

#[cfg(test)]
mod tests;
