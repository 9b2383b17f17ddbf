//! Exposes the rows in memtables to a backend that compacts rows by itself, and to readers in other processes.

use std::sync::Arc;

use tsd_storage::{
    HeldRow, HeldRowBatches, HeldRowReader, HeldRows, KeyRange, RowFilter, Scan, Table,
};

use crate::{
    memtable::{CellPrecedence, TableId},
    memtable_list::MemtableView,
    scanner::MemtableScan,
    state::WalState,
};

/// Maximum number of rows per batch.
const BATCH_ROWS: usize = 256;
/// Limit on bytes per batch, exceeded by less than one row.
const BATCH_BYTES: usize = 1 << 20;

impl HeldRows for WalState {
    fn oldest_base(&self, table: &Table) -> u32 {
        let Some(id) = self.tables.id(table) else { return u32::MAX };
        let view = self.memtables.view();
        let oldest = view.memtables.iter().map(|memtable| memtable.oldest_base(id)).min();
        oldest.unwrap_or(u32::MAX)
    }

    fn commit_unless_held(
        &self,
        table: &Table,
        before_secs: u32,
        commit: &mut dyn FnMut(),
    ) -> bool {
        let _applying = self.applying.lock();
        let is_free = self.oldest_base(table) >= before_secs;
        if is_free {
            commit();
        }
        is_free
    }
}

/// Reads the memtables of a store, even while they are written.
#[derive(Debug)]
pub(crate) struct MemtableReader {
    state: Arc<WalState>,
}

impl MemtableReader {
    pub(crate) const fn new(state: Arc<WalState>) -> Self {
        Self { state }
    }
}

impl HeldRowReader for MemtableReader {
    fn held_rows(
        &self,
        table: &Table,
        ranges: Vec<KeyRange>,
        filter: Option<RowFilter>,
    ) -> HeldRowBatches {
        // Flushed memtables stay readable as long as a view has them.
        let view = self.state.memtables.view();
        let Some(id) = self.state.tables.id(table) else { return Box::new(std::iter::empty()) };
        let ranges = ranges.into_iter();
        Box::new(HeldRowScan { view, id, ranges, filter, current: None })
    }
}

/// Yields the rows of a view, range after range.
struct HeldRowScan {
    view: Arc<MemtableView>,
    id: TableId,
    ranges: std::vec::IntoIter<KeyRange>,
    filter: Option<RowFilter>,
    /// The range that is being read, with its scan.
    current: Option<(Scan, MemtableScan)>,
}

/// Result of one search for the next row.
enum NextRow {
    Row(HeldRow),
    /// Many rows were checked without a match.
    Unknown,
    End,
}

impl HeldRowScan {
    fn next_row(&mut self) -> NextRow {
        loop {
            if let Some((scan, rows)) = &mut self.current {
                if !rows.fill(scan) {
                    return NextRow::Unknown;
                }
                if let Some(key) = rows.peek(scan) {
                    return NextRow::Row(rows.take(&key).held_row(key));
                }
                self.current = None;
            }
            let Some(KeyRange { start, stop }) = self.ranges.next() else { return NextRow::End };
            let (filter, batch_rows) = (self.filter.clone(), Some(BATCH_ROWS));
            let scan = Scan { start, stop, filter, batch_rows, ..Scan::default() };
            let precedence = CellPrecedence::CommitTime;
            let rows = MemtableScan::new(&self.view, self.id, &scan, precedence);
            self.current = Some((scan, rows));
        }
    }
}

impl Iterator for HeldRowScan {
    type Item = Vec<HeldRow>;

    fn next(&mut self) -> Option<Vec<HeldRow>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_ROWS && bytes < BATCH_BYTES {
            match self.next_row() {
                NextRow::Row(row) => {
                    bytes += row.byte_len();
                    batch.push(row);
                }
                NextRow::Unknown => return Some(batch),
                NextRow::End => return (!batch.is_empty()).then_some(batch),
            }
        }
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::path::Path;

    use bytes::Bytes;
    use tsd_model::Family;
    use tsd_storage::{
        CellBatch, CellRef, Delete, FlushTarget, HeldColumn, MemoryStorage, Storage, StorageExt,
    };

    use super::*;
    use crate::{BackendSharing, WalConfig, WalStorage, files::faulty::FaultyDisk};

    fn table() -> Table {
        Table::new("tsdb")
    }

    async fn put(store: &impl Storage, row: &[u8], qualifier: &[u8], value: &[u8]) {
        let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: None };
        store.put(&table(), CellBatch::single(row, cell).unwrap()).await.unwrap();
    }

    fn read<B: FlushTarget>(store: &WalStorage<B>, ranges: &[(&[u8], &[u8])]) -> Vec<HeldRow> {
        let copy = Bytes::copy_from_slice;
        let ranges =
            ranges.iter().map(|(start, stop)| KeyRange { start: copy(start), stop: copy(stop) });
        store.held_row_reader().held_rows(&table(), ranges.collect(), None).flatten().collect()
    }

    async fn store() -> WalStorage<MemoryStorage> {
        let config = WalConfig {
            backend: BackendSharing::MultiWriter,
            clock: || 1_000,
            ..WalConfig::new(Path::new(""))
        };
        let backend = Arc::new(MemoryStorage::new([table()]));
        WalStorage::open_in(config, Arc::new(FaultyDisk::new(1)), backend).await.unwrap().0
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rows_of_all_ranges_are_read_with_their_deletes() {
        let store = store().await;
        for row in [b"a", b"b", b"c", b"d"] {
            put(&store, row, b"q", b"old").await;
        }
        put(&store, b"b", b"q", b"new").await;
        let row = Bytes::from_static(b"c");
        let column = (Family::T, Bytes::from_static(b"q"));
        let delete = Delete::Columns { row, columns: vec![column] };
        store.delete(&table(), delete).await.unwrap();
        store.delete(&table(), Delete::Row(Bytes::from_static(b"d"))).await.unwrap();
        put(&store, b"d", b"r", b"1").await;

        let found = read(&store, &[(b"b", b"c"), (b"c", b"")]);
        let [b, c, d] = &found[..] else { panic!("{found:?}") };
        let values = |row: &HeldRow| {
            let value = |column: &HeldColumn| (column.qualifier.clone(), column.value.clone());
            row.columns.iter().map(value).collect::<Vec<_>>()
        };
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        assert_eq!(values(b), [(bytes("q"), Some(bytes("new")))]);
        assert_eq!((values(c), c.delete_row_ms), (vec![(bytes("q"), None)], None));
        assert_eq!(values(d), [(bytes("r"), Some(bytes("1")))]);
        let deleted = d.delete_row_ms.unwrap();
        assert!(d.columns.iter().all(|column| column.timestamp_ms > deleted));
        store.flush().await.unwrap();
        assert_eq!(read(&store, &[(b"", b"")]), []);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rows_that_do_not_match_are_passed_over_part_by_part() {
        let store = store().await;
        let mut rows = CellBatch::new();
        for row in 0..10_000_u16 {
            let (qualifier, value) = (b"q", b"1");
            rows.begin_row(&row.to_be_bytes()).unwrap();
            rows.push(CellRef { family: Family::T, qualifier, value, timestamp_ms: None }).unwrap();
        }
        store.put(&table(), rows).await.unwrap();
        let wanted = [7_u16, 9_000].map(|row| Bytes::copy_from_slice(&row.to_be_bytes()));
        let filter = Some(RowFilter::Keys(Arc::new(wanted.to_vec())));
        let reader = store.held_row_reader();
        let batches = reader.held_rows(&table(), vec![KeyRange::default()], filter);
        let batches: Vec<Vec<HeldRow>> = batches.collect();
        assert!(batches.len() > 2, "{} batches", batches.len());
        let found: Vec<Bytes> = batches.into_iter().flatten().map(|row| row.key).collect();
        assert_eq!(found, wanted);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_snapshot_outlasts_the_flush() {
        let store = store().await;
        for row in 0..1_000_u16 {
            put(&store, &row.to_be_bytes(), b"q", b"1").await;
        }
        let reader = store.held_row_reader();
        let mut batches = reader.held_rows(&table(), vec![KeyRange::default()], None);
        assert_eq!(batches.next().unwrap().len(), BATCH_ROWS);
        store.flush().await.unwrap();
        assert_eq!(batches.map(|batch| batch.len()).sum::<usize>(), 1_000 - BATCH_ROWS);
    }
}
