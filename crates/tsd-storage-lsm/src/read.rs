//! Reads rows from a tree: decodes keys, selects cells.

use std::ops::Bound;

use bytes::Bytes;
use lsm_tree::{AbstractTree, AnyTree, Guard, IterGuardImpl, SeqNo, UserKey};
use tsd_files::{ReadVia, read_repeatedly};
use tsd_model::{Cell, Family, Row};
use tsd_storage::{Get, Scan, StorageError, decode_family};

use crate::{
    entry,
    error::{damaged, describe},
    key_encoding::{self, MAX_TREE_KEY},
    repair::{forget, is_damage, reread},
    table::TableStore,
};

/// The requested cells of a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CellSelection<'a> {
    family: Option<Family>,
    /// Qualifiers of `family`; empty selects all.
    qualifiers: &'a [Bytes],
    time_range_ms: Option<(i64, i64)>,
}

impl<'a> CellSelection<'a> {
    pub(crate) fn of_get(get: &'a Get) -> Self {
        let qualifiers = if get.family.is_some() { get.qualifiers.as_slice() } else { &[] };
        Self { family: get.family, qualifiers, time_range_ms: None }
    }

    pub(crate) fn of_scan(scan: &'a Scan) -> Self {
        let qualifiers = match (&scan.family, &scan.qualifier) {
            (Some(_), Some(qualifier)) => std::slice::from_ref(qualifier),
            _ => &[],
        };
        Self { family: scan.family, qualifiers, time_range_ms: scan.time_range_ms }
    }

    fn selects_column(&self, family: Family, qualifier: &[u8]) -> bool {
        self.family.is_none_or(|f| {
            f == family
                && (self.qualifiers.is_empty() || self.qualifiers.iter().any(|q| q == qualifier))
        })
    }

    fn selects(&self, cell: &Cell) -> bool {
        self.selects_column(cell.family, &cell.qualifier)
            && self.time_range_ms.is_none_or(|(from, to)| (from..to).contains(&cell.timestamp_ms))
    }
}

/// The entries of one row in key order.
#[derive(Debug)]
pub(crate) struct RowEntries {
    pub(crate) key: Bytes,
    pub(crate) entries: Vec<TreeEntry>,
    /// Length of the encoded row key, the prefix of every entry's key.
    pub(crate) prefix_len: usize,
}

/// Key and value of an entry of the tree.
pub(crate) type TreeEntry = (Bytes, Bytes);

type TreeIter = Box<dyn DoubleEndedIterator<Item = IterGuardImpl> + Send + 'static>;

/// Most entries to read of a file, to find out whether this file failed a read.
const PROBED_ENTRIES: usize = 10_000;

/// Iterates over the rows of a range in one version of the tree.
pub(crate) struct RowCursor {
    /// The tree with its iterator; `None` if the range is empty.
    entries: Option<(AnyTree, TreeIter)>,
    /// The first entry of the next row.
    pending: Option<TreeEntry>,
    /// The last key read, or the start of the range.
    position: Bytes,
    has_read: bool,
    /// End of the range, exclusive.
    end: Option<Vec<u8>>,
}

impl RowCursor {
    /// Rows from `start`, inclusive, to `stop`, exclusive; an empty `stop` reads to the end. Fails if
    /// rows of the range were lost with a damaged file.
    pub(crate) fn open(
        table: &TableStore,
        start: &[u8],
        stop: &[u8],
    ) -> Result<Self, StorageError> {
        if !stop.is_empty() && start >= stop {
            let position = Bytes::new();
            return Ok(Self { entries: None, pending: None, position, has_read: false, end: None });
        }
        let lower = if start.is_empty() { Vec::new() } else { key_encoding::encoded_bound(start) };
        let end = (!stop.is_empty()).then(|| key_encoding::encoded_bound(stop));
        // The tree is read first, since a repair records its losses before it replaces the tree.
        let tree = table.tree();
        table.check_losses(&lower, end.as_deref())?;
        let upper = end.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let range = (Bound::Included(lower.clone()), upper);
        let entries = tree.range::<Vec<u8>, _>(range, SeqNo::MAX, None);
        let (entries, position) = (Some((tree, entries)), lower.into());
        Ok(Self { entries, pending: None, position, has_read: false, end })
    }

    fn next_entry(&mut self, table: &TableStore) -> Result<Option<TreeEntry>, StorageError> {
        let Some((tree, entries)) = &mut self.entries else { return Ok(None) };
        let (position, end) = (&self.position, self.end.as_deref());
        let from = if self.has_read { Bound::Excluded } else { Bound::Included };
        let read = |via| {
            if via == ReadVia::Disk {
                // After an error the iterator has skipped the unreadable entries.
                let upper = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.to_vec()));
                *entries =
                    tree.range::<Vec<u8>, _>((from(position.to_vec()), upper), SeqNo::MAX, None);
            }
            entries.next().map(Guard::into_inner).transpose()
        };
        match table.read_repeatedly(tree, position, end, read)? {
            None => Ok(None),
            Some((key, value)) => {
                let key = Bytes::from(key);
                self.position = key.clone();
                self.has_read = true;
                Ok(Some((key, value.into())))
            }
        }
    }

    /// Returns the next row whose key `keep` accepts.
    pub(crate) fn next_row(
        &mut self,
        table: &TableStore,
        keep: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<RowEntries>, StorageError> {
        loop {
            let first = match self.pending.take() {
                Some(entry) => Some(entry),
                None => self.next_entry(table)?,
            };
            let Some(first) = first else { return Ok(None) };
            let (key, prefix_len) = key_encoding::decode(&first.0)
                .ok_or_else(|| damaged(&table.name, "a key that is not a row key"))?;
            let keep_row = keep(&key);
            let mut row = RowEntries { key: key.into(), entries: Vec::new(), prefix_len };
            let prefix = first.0.slice(..prefix_len);
            row.entries.push(first);
            while let Some(entry) = self.next_entry(table)? {
                if !entry.0.starts_with(&prefix) {
                    self.pending = Some(entry);
                    break;
                }
                if keep_row {
                    row.entries.push(entry);
                }
            }
            if keep_row {
                return Ok(Some(row));
            }
        }
    }
}

impl TableStore {
    /// Returns all remaining entries of a row, by its encoded key, also if other entries were lost.
    pub(crate) fn row_entries(&self, row_key: &[u8]) -> Result<Vec<TreeEntry>, StorageError> {
        self.read_latest(|tree| self.entries_of(tree, row_key))
    }

    fn entries_of(&self, tree: &AnyTree, row_key: &[u8]) -> Result<Vec<TreeEntry>, StorageError> {
        let end = row_end(row_key);
        let range = || (Bound::Included(row_key.to_vec()), Bound::Excluded(end.clone()));
        let read = |_| {
            tree.range::<Vec<u8>, _>(range(), SeqNo::MAX, None)
                .map(|guard| guard.into_inner().map(|(key, value)| (key.into(), value.into())))
                .collect()
        };
        self.read_repeatedly(tree, row_key, Some(&end), read)
    }

    /// Reads from `start` to `end` of a tree. Repeats the read past the page cache if the disk
    /// failed or a file looks damaged.
    fn read_repeatedly<T>(
        &self,
        tree: &AnyTree,
        start: &[u8],
        end: Option<&[u8]>,
        mut read: impl FnMut(ReadVia) -> lsm_tree::Result<T>,
    ) -> Result<T, StorageError> {
        let read = |via| {
            if via == ReadVia::Disk {
                for file in tree.current_version().iter_tables() {
                    forget(&self.dir().file_path(file.id()));
                }
            }
            read(via)
        };
        read_repeatedly(self.name.as_str(), read, reread)
            .map_err(|error| self.read_error(tree, start, end, error))
    }

    /// Reads from the tree, and repeats the read if the tree was replaced meanwhile.
    fn read_latest<T>(
        &self,
        read: impl Fn(&AnyTree) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let tree = self.tree();
        let result = read(&tree);
        let latest = self.tree();
        if result.is_err() && latest.id() != tree.id() { read(&latest) } else { result }
    }

    /// The error of a read from `start` to `end`. Names a damaged file and requests its repair.
    fn read_error(
        &self,
        tree: &AnyTree,
        start: &[u8],
        end: Option<&[u8]>,
        error: lsm_tree::Error,
    ) -> StorageError {
        if !is_damage(&error) {
            return self.failed("reading")(error);
        }
        if tree.id() != self.tree().id() {
            let text = format!("table {} was repaired during the read", self.name);
            return StorageError::Unavailable(text.into());
        }
        let version = tree.current_version();
        let overlaps = |table: &&lsm_tree::Table| {
            let range = &table.metadata.key_range;
            end.is_none_or(|end| range.min().as_ref() < end) && start <= range.max().as_ref()
        };
        // Reads fail at the next block of a file; more entries are read only if these blocks are
        // all intact.
        for entries in [1, PROBED_ENTRIES] {
            for table in version.iter_tables().filter(overlaps) {
                if let Err(error) = probe(table, start, end, entries) {
                    return self.report_damage(table.id(), &describe(&error));
                }
            }
        }
        self.failed("reading")(error)
    }

    /// Reads one row; `None` if it has no selected cell.
    pub(crate) fn read_row(
        &self,
        key: &Bytes,
        selection: &CellSelection<'_>,
    ) -> Result<Option<Row>, StorageError> {
        let row_key = key_encoding::encoded(key);
        if longest_key(&row_key, selection) > MAX_TREE_KEY {
            // No such row or column is stored.
            return Ok(None);
        }
        let entries = match (selection.family, selection.qualifiers) {
            // A column is one key, so the get uses bloom filters.
            (Some(family), [qualifier]) => {
                let column = column_key(&row_key, family, qualifier);
                let end = [column.as_slice(), &[0]].concat();
                let value = self.read_latest(|tree| {
                    self.check_losses(&column, Some(&end))?;
                    let read = |_| tree.get(&column, SeqNo::MAX);
                    self.read_repeatedly(tree, &column, Some(&end), read)
                })?;
                value.map(|v| (column.into(), v.into())).into_iter().collect()
            }
            _ => self.read_latest(|tree| {
                self.check_losses(&row_key, Some(&row_end(&row_key)))?;
                self.entries_of(tree, &row_key)
            })?,
        };
        if entries.is_empty() {
            return Ok(None);
        }
        let row = RowEntries { key: key.clone(), entries, prefix_len: row_key.len() };
        self.select(row, selection)
    }

    /// Selects cells of a row; `None` without a selected cell.
    pub(crate) fn select(
        &self,
        row: RowEntries,
        selection: &CellSelection<'_>,
    ) -> Result<Option<Row>, StorageError> {
        let mut cells = Vec::with_capacity(row.entries.len());
        for (key, value) in &row.entries {
            let cell = cell(key, row.prefix_len, value);
            cells.push(cell.ok_or_else(|| damaged(&self.name, "not a cell"))?);
        }
        cells.retain(|cell| selection.selects(cell));
        Ok((!cells.is_empty()).then(|| Row::from_cells(row.key, cells)))
    }
}

/// Bytes of the longest key that a read of a row needs.
fn longest_key(row_key: &[u8], selection: &CellSelection<'_>) -> usize {
    let qualifier = match selection.qualifiers {
        // One more byte for the end of the column.
        [qualifier] => qualifier.len() + 1,
        _ => 0,
    };
    row_key.len() + size_of::<u8>() + qualifier
}

/// The end of the keys of a row: no other encoded row key starts with this key, and the next byte
/// is never FF.
fn row_end(row_key: &[u8]) -> Vec<u8> {
    [row_key, &[0xFF]].concat()
}

/// Reads some entries of a file, like a read of the range.
fn probe(
    table: &lsm_tree::Table,
    start: &[u8],
    end: Option<&[u8]>,
    entries: usize,
) -> lsm_tree::Result<()> {
    // Reads the filter, whatever the hash.
    table.get(start, SeqNo::MAX, 0)?;
    let lower = UserKey::from(start);
    let upper = end.map_or(Bound::Unbounded, |end| Bound::Excluded(UserKey::from(end)));
    table.range((Bound::Included(lower), upper)).take(entries + 1).try_for_each(|e| e.map(|_| ()))
}

/// Key of the entry of a cell.
pub(crate) fn column_key(row_key: &[u8], family: Family, qualifier: &[u8]) -> Vec<u8> {
    [row_key, &[family as u8], qualifier].concat()
}

fn cell(key: &Bytes, prefix_len: usize, value: &Bytes) -> Option<Cell> {
    let family = decode_family(*key.get(prefix_len)?)?;
    let (timestamp_ms, value) = entry::decode(value)?;
    Some(Cell { family, qualifier: key.slice(prefix_len + 1..), value, timestamp_ms })
}
