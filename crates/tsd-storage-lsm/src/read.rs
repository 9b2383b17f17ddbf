//! Rows out of a tree.

use std::ops::Bound;

use bytes::Bytes;
use lsm_tree::{AbstractTree, Guard, IterGuardImpl, SeqNo};
use tsd_model::{Cell, Family, Row};
use tsd_storage::{Get, Scan, StorageError};

use crate::{
    TableLayout, entry,
    error::{damaged, damaged_run},
    merge::{self, Parts},
    row_code,
    table::TableStore,
};

/// Which cells of a row are asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted<'a> {
    family: Option<Family>,
    /// Of that family; empty takes all.
    qualifiers: &'a [Bytes],
    time_range_ms: Option<(i64, i64)>,
}

impl<'a> Wanted<'a> {
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

    fn column(&self, family: Family, qualifier: &[u8]) -> bool {
        self.family.is_none_or(|f| {
            f == family
                && (self.qualifiers.is_empty() || self.qualifiers.iter().any(|q| q == qualifier))
        })
    }

    fn cell(&self, cell: &Cell) -> bool {
        self.column(cell.family, &cell.qualifier)
            && self.time_range_ms.is_none_or(|(from, to)| (from..to).contains(&cell.timestamp_ms))
    }

    fn all(&self) -> bool {
        self.family.is_none() && self.time_range_ms.is_none()
    }
}

/// The entries of one row, in key order: for points, oldest first.
#[derive(Debug)]
pub(crate) struct RawRow {
    pub(crate) key: Bytes,
    pub(crate) entries: Vec<RawEntry>,
    /// Bytes of the row's code, the head of every entry's key.
    pub(crate) code_len: usize,
}

/// Key and value as the tree holds them.
pub(crate) type RawEntry = (Bytes, Bytes);

type TreeIter = Box<dyn DoubleEndedIterator<Item = IterGuardImpl> + Send + 'static>;

/// Rows of a range, of one version of the tree.
pub(crate) struct RowCursor {
    entries: Option<TreeIter>,
    /// First entry of the next row.
    pending: Option<RawEntry>,
}

impl RowCursor {
    /// Rows from `start` on; before `stop`, where that is not empty.
    pub(crate) fn open(table: &TableStore, start: &[u8], stop: &[u8]) -> Self {
        if !stop.is_empty() && start >= stop {
            return Self { entries: None, pending: None };
        }
        let lower = if start.is_empty() {
            Bound::Unbounded
        } else {
            Bound::Included(row_code::encoded(start))
        };
        let upper = if stop.is_empty() {
            Bound::Unbounded
        } else {
            Bound::Excluded(row_code::encoded(stop))
        };
        let entries = table.tree.range::<Vec<u8>, _>((lower, upper), SeqNo::MAX, None);
        Self { entries: Some(entries), pending: None }
    }

    fn next_entry(&mut self, table: &TableStore) -> Result<Option<RawEntry>, StorageError> {
        let Some(entries) = &mut self.entries else { return Ok(None) };
        match entries.next() {
            None => Ok(None),
            Some(guard) => {
                let (key, value) = guard.into_inner().map_err(table.failed("reading"))?;
                Ok(Some((key.into(), value.into())))
            }
        }
    }

    /// The next row that `keep` takes.
    pub(crate) fn next_row(
        &mut self,
        table: &TableStore,
        keep: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<RawRow>, StorageError> {
        loop {
            let first = match self.pending.take() {
                Some(entry) => entry,
                None => match self.next_entry(table)? {
                    Some(entry) => entry,
                    None => return Ok(None),
                },
            };
            let (key, code_len) = row_code::decode(&first.0)
                .ok_or_else(|| damaged(&table.name, "a key without a row"))?;
            let kept = keep(&key);
            let mut row = RawRow { key: key.into(), entries: Vec::new(), code_len };
            let code = first.0.slice(..code_len);
            row.entries.push(first);
            while let Some(entry) = self.next_entry(table)? {
                if !entry.0.starts_with(&code) {
                    self.pending = Some(entry);
                    break;
                }
                if kept {
                    row.entries.push(entry);
                }
            }
            if kept {
                return Ok(Some(row));
            }
        }
    }
}

impl TableStore {
    /// All entries of a row.
    pub(crate) fn raw_row(&self, code: &[u8]) -> Result<Vec<RawEntry>, StorageError> {
        // No other code starts with this one, and none goes on with FF at its end.
        let upper = [code, &[0xFF]].concat();
        let range = (Bound::Included(code.to_vec()), Bound::Excluded(upper));
        self.tree
            .range::<Vec<u8>, _>(range, SeqNo::MAX, None)
            .map(|guard| {
                let (key, value) = guard.into_inner().map_err(self.failed("reading"))?;
                Ok((key.into(), value.into()))
            })
            .collect()
    }

    /// One row; nothing where no wanted cell exists.
    pub(crate) fn read_row(
        &self,
        key: &Bytes,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Row>, StorageError> {
        let code = row_code::encoded(key);
        let entries = match (self.layout, wanted.family, wanted.qualifiers) {
            // One column of a small table is one key: filters and blocks of the tree work for it.
            (TableLayout::Cells, Some(family), [qualifier]) => {
                let column = column_key(&code, family, qualifier);
                let value = self.tree.get(&column, SeqNo::MAX).map_err(self.failed("reading"))?;
                value.map(|v| (column.into(), v.into())).into_iter().collect()
            }
            _ => self.raw_row(&code)?,
        };
        if entries.is_empty() {
            return Ok(None);
        }
        let raw = RawRow { key: key.clone(), entries, code_len: code.len() };
        self.assemble(raw, wanted)
    }

    /// What a reader sees of a row.
    pub(crate) fn assemble(
        &self,
        raw: RawRow,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Row>, StorageError> {
        self.metrics.read_rows.increment(1);
        let mut parts = self.parts(&raw)?;
        if !wanted.all() {
            self.restrict(&mut parts, wanted)?;
        }
        let Parts { cells, runs } = parts;
        Ok((!cells.is_empty() || !runs.is_empty()).then_some(Row { key: raw.key, cells, runs }))
    }

    /// Everything in a row.
    pub(crate) fn parts(&self, raw: &RawRow) -> Result<Parts, StorageError> {
        match self.layout {
            TableLayout::Points => merge::merge(raw.entries.iter().map(|(_, value)| value))
                .map_err(damaged_run(&self.name)),
            TableLayout::Cells => {
                let cells = raw
                    .entries
                    .iter()
                    .map(|(key, value)| single_cell(key, raw.code_len, value))
                    .collect::<Option<_>>()
                    .ok_or_else(|| damaged(&self.name, "not a cell"))?;
                Ok(Parts { cells, runs: Vec::new() })
            }
        }
    }

    /// Drops what is not asked for; takes runs apart only where they hold part of it.
    fn restrict(&self, parts: &mut Parts, wanted: &Wanted<'_>) -> Result<(), StorageError> {
        if wanted.family.is_some_and(|f| f != Family::T) {
            parts.runs.clear();
        } else if !wanted.qualifiers.is_empty() {
            parts.runs.retain(|r| wanted.qualifiers.iter().any(|q| r.may_contain_column(q)));
        }
        if !wanted.qualifiers.is_empty() || wanted.time_range_ms.is_some() {
            parts.expand().map_err(damaged_run(&self.name))?;
        }
        parts.cells.retain(|cell| wanted.cell(cell));
        Ok(())
    }
}

/// Key of a cell's entry in a small table.
pub(crate) fn column_key(code: &[u8], family: Family, qualifier: &[u8]) -> Vec<u8> {
    [code, &[family as u8], qualifier].concat()
}

fn single_cell(key: &Bytes, code_len: usize, value: &Bytes) -> Option<Cell> {
    let family = entry::family(*key.get(code_len)?)?;
    let (timestamp_ms, value) = entry::decode_single(value)?;
    Some(Cell { family, qualifier: key.slice(code_len + 1..), value, timestamp_ms })
}
