//! One table: gets, and the lock of single writes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use tsd_model::Row;
use tsd_storage::{Column, FlushRows, Get, ReadVersion, StorageError, direct_write::LockedTable};

use super::{
    row_scan::{KeyKind, RowsCursor},
    selected::select_cells,
};
use crate::{error::PartError, read::SeriesSelection, store::PartStore};

/// A table of the store.
#[derive(Debug)]
pub(crate) struct PartTable {
    store: Arc<PartStore>,
    writer: Mutex<()>,
    /// Writes since the store was opened, including failed ones.
    writes: AtomicU64,
}

/// A table and its writer.
pub(crate) struct LockedParts<'a> {
    table: &'a PartTable,
    _writer: MutexGuard<'a, ()>,
}

/// A series and the index of its get.
type WantedSeries = (Vec<u8>, usize);

impl PartTable {
    pub(crate) const fn new(store: Arc<PartStore>) -> Self {
        Self { store, writer: Mutex::new(()), writes: AtomicU64::new(0) }
    }

    pub(crate) const fn store(&self) -> &Arc<PartStore> {
        &self.store
    }

    /// Locks the table for a single write.
    // A writer that panicked did not commit its part.
    pub(crate) fn locked(&self) -> LockedParts<'_> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        LockedParts { table: self, _writer: writer }
    }

    pub(crate) fn read_version(&self) -> ReadVersion {
        ReadVersion(Some(self.writes.load(Ordering::Acquire)))
    }

    /// The error of a read; a part that it finds damaged is quarantined.
    pub(crate) fn read_failed(&self, error: PartError) -> StorageError {
        if error.is_damage()
            && let Err(failed) = self.store.quarantine(&error)
        {
            tracing::warn!(error = %failed, "a damaged part stays live");
        }
        error.into()
    }

    pub(crate) fn read_row(&self, get: &Get) -> Result<Option<Row>, StorageError> {
        Ok(self.read_rows(std::slice::from_ref(get))?.pop().flatten())
    }

    /// Reads the rows of one base time in one pass.
    pub(crate) fn read_rows(&self, gets: &[Get]) -> Result<Vec<Option<Row>>, StorageError> {
        let snapshot = self.store.snapshot();
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
        let result = self.table.store.flush(rows);
        self.table.writes.fetch_add(1, Ordering::AcqRel);
        Ok(result?)
    }

    fn read_version(&self) -> ReadVersion {
        self.table.read_version()
    }
}
