//! Implements the trait of direct tables: gets, and the lock of single writes. Scans and reads of series are
//! jobs.

use parking_lot::MutexGuard;
use std::{
    cmp,
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use tsd_model::Row;
use tsd_series_index::SeriesIndex;
use tsd_storage::{
    BatchReader, Column, DirectTable, FlushRow, FlushRows, Get, ReadSelection, ReadVersion, Scan,
    SeriesBlock, SeriesRange, SeriesRead, SeriesVersion, SplitGoal, StorageError,
    direct_write::LockedTable,
};

use super::{
    row_scan::{KeyKind, RowsCursor},
    scan_job::ScanJob,
    selected::select_cells,
    series_job::SeriesJob,
    table::PartTable,
};
use crate::{
    cursor::after_prefix, layout::PartLayout, retention::LiveRows,
    series_selection::SeriesSelection, snapshot::SnapshotSection, splits::split_points,
};

/// A table whose writer lock is held.
struct LockedParts<'a> {
    table: &'a PartTable,
    _writer: MutexGuard<'a, ()>,
}

/// A series, and the index of the get that wants it.
type WantedSeries = (Vec<u8>, usize);

impl PartTable {
    fn read_row(&self, get: &Get) -> Result<Option<Row>, StorageError> {
        Ok(self.rows_of(std::slice::from_ref(get))?.pop().flatten())
    }

    /// Writes rows as one part. The series index has the rows durably before the part exists.
    fn flush(&self, rows: &mut dyn FlushRows) -> Result<(), StorageError> {
        let mut live = LiveRows::new(rows, self.store.layout(), self.store.first_kept_base());
        let Some(series) = &self.series else {
            return self.store.flush_after(&mut live, || Ok(()));
        };
        let mut rows = IndexedRows { rows: &mut live, index: &series.index };
        self.store.flush_after(&mut rows, || series.persist())
    }

    /// Reads rows with the same base time in one pass.
    fn rows_of(&self, gets: &[Get]) -> Result<Vec<Option<Row>>, StorageError> {
        let snapshot = self.snapshot(gets.iter().any(|get| get.reads_past_losses))?;
        let _reading = snapshot.resources().reading();
        let layout = self.store.layout();
        let mut wanted: BTreeMap<u32, Vec<WantedSeries>> = BTreeMap::new();
        for (index, get) in gets.iter().enumerate() {
            let mut series = Vec::new();
            let base = layout.split_key(&get.row, &mut series);
            wanted.entry(base).or_default().push((series, index));
        }
        let mut found: Vec<Option<Row>> = vec![None; gets.len()];
        for (base, mut of_base) in wanted {
            of_base.sort_unstable();
            let mut series: Vec<Vec<u8>> = of_base.iter().map(|(s, _)| s.clone()).collect();
            series.dedup();
            let selection = Arc::new(SeriesSelection::Some(series));
            let mut cursor = RowsCursor::new(&snapshot, selection, (base, base), KeyKind::All);
            let mut rows = Vec::new();
            let stays = AtomicBool::new(false);
            while cursor.next_series(None, &stays, &mut rows).map_err(|e| self.read_failed(e))? {}
            self.record_found();
            let rows: HashMap<Bytes, Row> =
                rows.into_iter().map(|row| (row.key.clone(), row)).collect();
            for (_, index) in of_base {
                let (Some(get), Some(slot)) = (gets.get(index), found.get_mut(index)) else {
                    continue;
                };
                let Some(row) = rows.get(&get.row).cloned() else { continue };
                let all = get.family.is_none();
                *slot = if all {
                    Some(row)
                } else {
                    select_cells(row, |cell| get.selects(cell.family, &cell.qualifier))?
                };
            }
        }
        Ok(found)
    }
}

impl LockedTable for LockedParts<'_> {
    fn value(&self, column: &Column) -> Result<Option<Bytes>, StorageError> {
        let get = Get::column(column.row.clone(), column.family, column.qualifier.clone());
        let row = self.table.read_row(&get)?;
        Ok(row.and_then(|row| row.cells.into_iter().next()).map(|cell| cell.value))
    }

    fn apply(&mut self, rows: &mut dyn FlushRows) -> Result<(), StorageError> {
        let result = self.table.flush(rows);
        self.table.writes.fetch_add(1, Ordering::AcqRel);
        result
    }

    fn read_version(&self) -> ReadVersion {
        DirectTable::read_version(self.table)
    }
}

impl DirectTable for PartTable {
    fn read_rows(&self, gets: &[Get]) -> Result<Vec<Option<Row>>, StorageError> {
        self.rows_of(gets)
    }

    fn scan(self: Arc<Self>, scan: Scan) -> Box<dyn BatchReader> {
        Box::new(ScanJob::new(self, scan))
    }

    fn read_series(
        self: Arc<Self>,
        read: &SeriesRead,
    ) -> Option<Box<dyn BatchReader<SeriesBlock>>> {
        Some(Box::new(SeriesJob::try_new(self, read)?))
    }

    fn series_version(&self, read: &SeriesRead) -> Option<SeriesVersion> {
        let snapshot = self.store.snapshot();
        let span_of = |base| self.store.layout().span_of(base);
        let (first, last) = (span_of(read.bases.0), span_of(read.bases.1));
        // Reads of lost spans fail every time, so they have no version.
        snapshot.check_losses(first, last).ok()?;
        let mut spans = snapshot.spans().range(first..=last.max(first));
        if spans.any(|(span, _)| snapshot.has_damage(*span)) {
            return None;
        }
        let sections = snapshot.spans().range(first..=last.max(first)).flat_map(|(_, all)| all);
        let unit = |section: &SnapshotSection| (section.part.number(), section.section as u64);
        Some(SeriesVersion::of_units(sections.map(unit)))
    }

    fn stored_bases(&self, read: &SeriesRead) -> Option<Vec<(u32, u32)>> {
        let layout = self.store.layout();
        if !SeriesJob::is_answered(layout, read) {
            return None;
        }
        let snapshot = self.store.snapshot();
        let first = layout.span_of(read.bases.0);
        let spans = first..=read.bases.1.max(first);
        // Includes lost spans. A read of them fails, or returns their intact rows.
        let lost = snapshot.lost().range(spans.clone()).map(|(span, _)| *span);
        let mut spans: Vec<u32> = snapshot.spans().range(spans).map(|(span, _)| *span).collect();
        spans.extend(lost);
        spans.sort_unstable();
        let end = |span: u32| span.saturating_add(layout.span_secs() - 1);
        let runs = spans.chunk_by(|a, b| *b <= end(*a).saturating_add(1));
        Some(runs.filter_map(|run| Some((*run.first()?, end(*run.last()?)))).collect())
    }

    fn series_splits(
        &self,
        read: &SeriesRead,
        goal: SplitGoal,
    ) -> Result<Vec<Bytes>, StorageError> {
        let ReadSelection::Range(SeriesRange { prefix, from, to, .. }) = &read.selection else {
            return Ok(Vec::new());
        };
        let first = [&**prefix, from].concat();
        let end = to.as_ref().map(|to| [&**prefix, to].concat()).or_else(|| after_prefix(prefix));
        let snapshot = self.store.snapshot();
        let series = (first.as_slice(), end.as_deref());
        let splits = split_points(&snapshot, series, read.bases, (goal.ranges, goal.min_bytes));
        let splits = match splits {
            // The read itself fails if it needs the damaged block.
            Err(error) if error.is_damage() => return Ok(Vec::new()),
            splits => splits.map_err(|error| self.read_failed(error))?,
        };
        // Keys that are too short for a base time are series, too, but no points to split at.
        let tags = |series: Vec<u8>| {
            let key = series.split_last().filter(|_| PartLayout::has_time(&series))?.1;
            Some(Bytes::copy_from_slice(key.get(prefix.len()..)?))
        };
        Ok(splits.into_iter().filter_map(tags).collect())
    }

    // A writer that panicked did not commit its part.
    fn lock(&self) -> Box<dyn LockedTable + '_> {
        let writer = self.writer.lock();
        Box::new(LockedParts { table: self, _writer: writer })
    }

    fn read_version(&self) -> ReadVersion {
        ReadVersion(Some(self.writes.load(Ordering::Acquire)))
    }

    fn series_index(&self) -> Option<Arc<SeriesIndex>> {
        self.series.as_ref().map(|series| Arc::clone(&series.index))
    }

    fn compacts_rows(&self) -> bool {
        self.store.compacts_rows()
    }

    fn base_time_at(&self) -> Option<usize> {
        Some(self.store.layout().prefix_len())
    }
}

/// Adds the rows of a flush to the series index. Rows that came through a log are in it already.
struct IndexedRows<'a> {
    rows: &'a mut dyn FlushRows,
    index: &'a SeriesIndex,
}

impl FlushRows for IndexedRows<'_> {
    fn next_row(&mut self) -> Option<FlushRow<'_>> {
        let row = self.rows.next_row()?;
        if !row.cells.is_empty() {
            self.index.add_rows([row.key]);
        }
        Some(row)
    }

    fn sort_by(&mut self, compare: &dyn Fn(&[u8], &[u8]) -> cmp::Ordering) {
        self.rows.sort_by(compare);
    }

    fn frees_space(&self) -> bool {
        self.rows.frees_space()
    }
}
