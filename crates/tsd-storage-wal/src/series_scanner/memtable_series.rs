//! Memtable rows of a day, series by series.
//!
//! A memtable has them in the order of keys, hour by hour. A range of series is therefore read with a
//! cursor for each base time of each memtable; the rows of listed series are looked up.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use tsd_storage::{ReadSelection, SeriesRange, SeriesRead};

use crate::{
    memtable::{Memtable, RowRange, TableId},
    memtable_list::MemtableView,
    overlay::RowOps,
};

/// Rows that all cursors copy from their memtables at a time, about.
const COPIED_ROWS: usize = 2_048;

/// The rows of one series.
pub(super) struct MemtableSeries {
    pub(super) series: Bytes,
    /// With their base times, in order.
    pub(super) rows: Vec<(u32, RowOps)>,
}

/// The rows of a read in the memtables of a view, in the order of their series.
pub(super) struct MemtableDay {
    id: TableId,
    read: SeriesRead,
    source: Source,
    next: Option<MemtableSeries>,
}

/// Base times of rows, each with the memtables that have some, by base time, then age.
type Places = Vec<(u32, Arc<Memtable>)>;

enum Source {
    Range(Vec<BaseCursor>),
    Keys {
        /// Series that are not looked up yet.
        keys: VecDeque<Bytes>,
        /// By salt and metric.
        places: Vec<(Bytes, Places)>,
    },
}

/// The rows of one base time in one memtable.
struct BaseCursor {
    base: u32,
    memtable: Arc<Memtable>,
    /// Keys and operations of rows that were copied.
    rows: VecDeque<(Bytes, Bytes)>,
    /// First key not copied yet; `None` at the end.
    next: Option<Vec<u8>>,
    stop: Vec<u8>,
    max_rows: usize,
}

/// The least base time in a range of which a memtable has rows with the salt and metric of a read.
pub(super) fn first_base(
    view: &MemtableView,
    id: TableId,
    read: &SeriesRead,
    bases: (u32, u32),
) -> Option<u32> {
    let prefixes = read.prefixes();
    let of = |memtable: &Arc<Memtable>| {
        prefixes.iter().filter_map(|prefix| next_base(memtable, id, prefix, bases)).min()
    };
    view.memtables.iter().filter_map(of).min()
}

/// The least base time in a range of which a memtable has rows with this prefix.
fn next_base(memtable: &Memtable, id: TableId, prefix: &[u8], bases: (u32, u32)) -> Option<u32> {
    let start = [prefix, &bases.0.to_be_bytes()].concat();
    let key = memtable.first_key(id, &start)?;
    let base = key.strip_prefix(prefix)?.first_chunk::<4>()?;
    let base = u32::from_be_bytes(*base);
    (base <= bases.1).then_some(base)
}

/// Where rows with a prefix are.
fn places(view: &MemtableView, id: TableId, prefix: &[u8], bases: (u32, u32)) -> Places {
    let mut places = Vec::new();
    for memtable in &view.memtables {
        let mut first = Some(bases.0);
        while let Some(from) = first
            && let Some(base) = next_base(memtable, id, prefix, (from, bases.1))
        {
            places.push((base, Arc::clone(memtable)));
            first = base.checked_add(1);
        }
    }
    // Stable: memtables are in the order of their age.
    places.sort_by_key(|(base, _)| *base);
    places
}

impl MemtableDay {
    pub(super) fn new(view: &MemtableView, id: TableId, read: SeriesRead) -> Self {
        let source = match &read.selection {
            ReadSelection::Range(range) => {
                let places = places(view, id, &range.prefix, read.bases);
                let max_rows = (COPIED_ROWS / places.len().max(1)).max(1);
                let cursor = |(base, memtable)| BaseCursor::new(base, memtable, range, max_rows);
                Source::Range(places.into_iter().map(cursor).collect())
            }
            ReadSelection::Keys(keys) => {
                let of = |prefix: Bytes| {
                    let places = places(view, id, &prefix, read.bases);
                    (prefix, places)
                };
                Source::Keys {
                    keys: keys.clone().into(),
                    places: read.prefixes().into_iter().map(of).collect(),
                }
            }
        };
        Self { id, read, source, next: None }
    }

    pub(super) const fn read(&self) -> &SeriesRead {
        &self.read
    }

    pub(super) fn peek(&mut self) -> Option<&MemtableSeries> {
        if self.next.is_none() {
            self.next = self.find_next();
        }
        self.next.as_ref()
    }

    pub(super) fn next(&mut self) -> Option<MemtableSeries> {
        self.peek();
        self.next.take()
    }

    fn find_next(&mut self) -> Option<MemtableSeries> {
        let id = self.id;
        match &mut self.source {
            Source::Range(cursors) => {
                let ReadSelection::Range(range) = &self.read.selection else { return None };
                let tags_at = range.prefix.len() + 4;
                let tags = cursors.iter_mut().filter_map(|cursor| cursor.peek(id, range)).min()?;
                let mut ops: Vec<(u32, Bytes, i64)> = Vec::new();
                for cursor in cursors {
                    let is_next = |(key, _): &mut (Bytes, Bytes)| {
                        key.get(tags_at..).is_some_and(|other| *other == *tags)
                    };
                    if let Some((_, of_row)) = cursor.rows.pop_front_if(is_next) {
                        ops.push((cursor.base, of_row, cursor.memtable.base_ms()));
                    }
                }
                let series = [&*range.prefix, &*tags].concat().into();
                Some(MemtableSeries { series, rows: rows_of(&ops) })
            }
            Source::Keys { keys, places } => loop {
                let series = keys.pop_front()?;
                let places = places.iter().find(|(prefix, _)| series.starts_with(prefix));
                let mut ops: Vec<(u32, Bytes, i64)> = Vec::new();
                for (base, memtable) in places.map_or(&[][..], |(_, places)| places) {
                    let key = self.read.row_key(&series, *base);
                    if let Some(of_row) = memtable.row_ops(id, &key) {
                        ops.push((*base, of_row.into(), memtable.base_ms()));
                    }
                }
                if !ops.is_empty() {
                    return Some(MemtableSeries { series, rows: rows_of(&ops) });
                }
            },
        }
    }
}

/// Joins the operations on each row; those of one base time are adjacent, oldest memtable first.
fn rows_of(ops: &[(u32, Bytes, i64)]) -> Vec<(u32, RowOps)> {
    let of_row = |group: &[(u32, Bytes, i64)]| {
        let base = group.first().map_or(0, |(base, ..)| *base);
        let ops = group.iter().map(|(_, ops, base_ms)| (ops.clone(), *base_ms)).collect();
        (base, RowOps::new(ops))
    };
    ops.chunk_by(|a, b| a.0 == b.0).map(of_row).collect()
}

impl BaseCursor {
    fn new(base: u32, memtable: Arc<Memtable>, range: &SeriesRange, max_rows: usize) -> Self {
        let head = [&*range.prefix, &base.to_be_bytes()].concat();
        let stop = match (&range.to, base.checked_add(1)) {
            (Some(to), _) => [&*head, to].concat(),
            (None, Some(next)) => [&*range.prefix, &next.to_be_bytes()].concat(),
            // Rows of other keys may follow.
            (None, None) => Vec::new(),
        };
        let next = Some([&*head, &*range.from].concat());
        Self { base, memtable, rows: VecDeque::new(), next, stop, max_rows }
    }

    /// Tags of the next row.
    fn peek(&mut self, id: TableId, range: &SeriesRange) -> Option<Bytes> {
        let head_len = range.prefix.len() + 4;
        while self.rows.is_empty() {
            let start = self.next.take()?;
            let filter = range.filter.as_ref();
            let rows =
                RowRange { start: &start, stop: &self.stop, filter, max_rows: self.max_rows };
            let mut copied = self.memtable.copy_range(id, rows);
            self.next = copied.next.take();
            self.rows = copied.into_rows().into();
            let head = start.get(..head_len).unwrap_or_default();
            if self.rows.iter().any(|(key, _)| !key.starts_with(head)) {
                self.rows.retain(|(key, _)| key.starts_with(head));
                self.next = None;
            }
        }
        let (key, _) = self.rows.front()?;
        Some(key.slice(head_len.min(key.len())..))
    }
}
