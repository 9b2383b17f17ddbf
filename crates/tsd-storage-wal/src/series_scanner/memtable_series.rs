//! Reads the memtable rows of some days, series by series.
//!
//! A memtable has rows in key order, hour by hour. If there are few rows, they are copied at once. Otherwise, one
//! day is read at a time. A range of series then has a cursor for each base time of each memtable; listed series
//! are looked up row by row.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use tsd_model::{DAY_SECS, SumBucket, SummaryFold};
use tsd_storage::{ReadSelection, SeriesRange, SeriesRead};

use crate::{
    memtable::{
        CopiedRow, MAX_COPIED_BYTES, Memtable, RowRange, SharedRows, SummarizedRow, TableId,
    },
    memtable_list::MemtableView,
    overlay::RowOps,
};

/// Approximate number of rows that all cursors together copy at a time.
const COPIED_ROWS: usize = 2_048;

/// Maximum number of copies from each memtable that count as few rows.
const MAX_COPIES: usize = 4;

/// Number of rows of a memtable that certainly need more copies than [`MAX_COPIES`].
const MAX_COPIED_ROWS: u64 = (MAX_COPIES * COPIED_ROWS) as u64;

/// Maximum number of rows of listed series that are looked up at once.
const MAX_LOOKED_UP: usize = MAX_COPIES * COPIED_ROWS;

/// Maximum number of bytes of operations that are looked up at once.
const MAX_LOOKED_UP_BYTES: usize = MAX_COPIES * MAX_COPIED_BYTES;

/// Number of copied rows below which twice as many days are read next.
const SMALL_ROWS: usize = COPIED_ROWS / 2;

/// The rows of one series.
pub(super) struct MemtableSeries {
    pub(super) series: Bytes,
    /// In order of their base times.
    pub(super) rows: VecDeque<MemtableRow>,
}

/// A row in the memtables.
#[derive(Debug)]
pub(super) struct MemtableRow {
    pub(super) base: u32,
    pub(super) ops: RowOps,
    pub(super) form: RowForm,
}

/// What the operations of a [`MemtableRow`] are.
#[derive(Debug)]
pub(super) enum RowForm {
    /// All operations of the row.
    Whole,
    /// The operations of the only memtable with the row, after those in its summary.
    Summarized(Arc<Memtable>, Box<SummarizedRow>),
    /// Incomplete: the row is in several memtables, some of which have a summary.
    Incomplete,
}

/// The rows of a read in the memtables of a view, in order of their series.
pub(super) struct MemtableDays {
    id: TableId,
    view: Arc<MemtableView>,
    read: SeriesRead,
    source: Source,
    next: Option<MemtableSeries>,
}

/// Base times of rows, each with a memtable that has such rows, ordered by base time, then age.
type Places = Vec<(u32, Arc<Memtable>)>;

enum Source {
    /// All rows, if there are few.
    Copied(VecDeque<MemtableSeries>),
    Range(Vec<BaseCursor>),
    Keys {
        /// Series that are not looked up yet.
        keys: VecDeque<Bytes>,
        /// Keyed by salt and metric.
        places: Vec<(Bytes, Places)>,
    },
}

/// The rows of one base time in one memtable.
struct BaseCursor {
    base: u32,
    memtable: Arc<Memtable>,
    /// Copied rows.
    rows: SharedRows,
    /// First key that is not copied yet; `None` at the end.
    next: Option<Vec<u8>>,
    stop: Vec<u8>,
    max_rows: usize,
    with_summaries: bool,
}

/// The lowest base time in a range for which a memtable has rows with the salt and metric of a read.
pub(super) fn first_base(
    view: &MemtableView,
    id: TableId,
    read: &SeriesRead,
    bases: (u32, u32),
) -> Option<u32> {
    let prefixes = read.prefixes();
    let of = |memtable: &Arc<Memtable>| {
        prefixes.iter().filter_map(|prefix| memtable.first_base(id, prefix, bases)).min()
    };
    view.memtables.iter().filter_map(of).min()
}

/// The days in a range of base times for which memtables have rows with the salts and metrics of a read, in
/// order.
pub(super) fn changed_days(
    view: &MemtableView,
    id: TableId,
    read: &SeriesRead,
    bases: (u32, u32),
) -> Vec<u32> {
    let mut days: Vec<u32> = Vec::new();
    for prefix in read.prefixes() {
        for memtable in &view.memtables {
            let found = memtable.bases(id, &prefix, bases).into_iter();
            days.extend(found.map(|base| base - base % DAY_SECS));
            days.dedup();
        }
    }
    days.sort_unstable();
    days.dedup();
    days
}

/// Base times and memtables with rows of a prefix.
fn places(view: &MemtableView, id: TableId, prefix: &[u8], bases: (u32, u32)) -> Places {
    let of = |memtable: &Arc<Memtable>| {
        let memtable = Arc::clone(memtable);
        let bases = memtable.bases(id, prefix, bases);
        bases.into_iter().map(move |base| (base, Arc::clone(&memtable)))
    };
    let mut places: Places = view.memtables.iter().flat_map(of).collect();
    // The sort is stable, so memtables stay in order of age.
    places.sort_by_key(|(base, _)| *base);
    places
}

impl MemtableDays {
    /// Copies the rows; `None` if there are many, or if a filter skips many.
    pub(super) fn try_copied(
        view: &Arc<MemtableView>,
        id: TableId,
        read: &SeriesRead,
    ) -> Option<Self> {
        let copied = match &read.selection {
            ReadSelection::Range(range) => copy_range(view, id, read, range),
            ReadSelection::Keys(keys) => look_up(view, id, read, keys),
        };
        let source = Source::Copied(copied?);
        Some(Self { id, view: Arc::clone(view), read: read.clone(), source, next: None })
    }

    /// The rows of one day, which may be many.
    pub(super) fn of_day(view: &Arc<MemtableView>, id: TableId, read: SeriesRead) -> Self {
        let source = match &read.selection {
            ReadSelection::Range(range) => Source::Range(cursors(view, id, &read, range)),
            ReadSelection::Keys(keys) => Source::Keys {
                keys: keys.clone().into(),
                places: places_by_prefix(view, id, &read),
            },
        };
        Self { id, view: Arc::clone(view), read, source, next: None }
    }

    /// True if there are few rows, so that twice as many days may be copied, too.
    pub(super) fn is_small(&self) -> bool {
        match &self.source {
            Source::Copied(series) => {
                series.iter().map(|series| series.rows.len()).sum::<usize>() < SMALL_ROWS
            }
            Source::Range(_) | Source::Keys { .. } => false,
        }
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

    /// Takes the copied rows of a series up to a base time, so that they no longer come next.
    pub(super) fn take_until(&mut self, series: &[u8], last: u32) -> VecDeque<MemtableRow> {
        let Source::Copied(copied) = &mut self.source else { return VecDeque::new() };
        let found = copied.binary_search_by(|other| (*other.series).cmp(series)).ok();
        let Some(of_series) = found.and_then(|at| copied.get_mut(at)) else {
            return VecDeque::new();
        };
        let count = of_series.rows.partition_point(|row| row.base <= last);
        of_series.rows.drain(..count).collect()
    }

    /// All operations of a row. They may be newer than those that were read with it.
    pub(super) fn whole_ops(&self, series: &[u8], base: u32) -> RowOps {
        RowOps::new(self.view.row_ops(self.id, &self.read.row_key(series, base)))
    }

    /// Number of the table.
    pub(super) const fn table(&self) -> TableId {
        self.id
    }

    fn find_next(&mut self) -> Option<MemtableSeries> {
        let id = self.id;
        match &mut self.source {
            Source::Copied(copied) => loop {
                let series = copied.pop_front()?;
                if !series.rows.is_empty() {
                    return Some(series);
                }
            },
            Source::Range(cursors) => {
                let ReadSelection::Range(range) = &self.read.selection else { return None };
                let tags_at = range.prefix.len() + 4;
                for cursor in cursors.iter_mut() {
                    cursor.fill(id, range);
                }
                let next = cursors.iter().filter_map(|cursor| cursor.tags(tags_at)).min()?;
                let series: Bytes = [&*range.prefix, next].concat().into();
                let next = series.get(range.prefix.len()..);
                let mut rows = VecDeque::with_capacity(cursors.len());
                for cursor in cursors {
                    if cursor.tags(tags_at) == next
                        && let Some(copied) = cursor.rows.take()
                    {
                        add_row(&mut rows, cursor.base, copied, &cursor.memtable);
                    }
                }
                Some(MemtableSeries { series, rows })
            }
            Source::Keys { keys, places } => loop {
                let series = keys.pop_front()?;
                let rows = rows_of_key(id, &self.read, &series, places);
                if !rows.is_empty() {
                    return Some(MemtableSeries { series, rows });
                }
            },
        }
    }
}

/// Base times and memtables with rows of a read, by salt and metric.
fn places_by_prefix(view: &MemtableView, id: TableId, read: &SeriesRead) -> Vec<(Bytes, Places)> {
    let of = |prefix: Bytes| {
        let places = places(view, id, &prefix, read.bases);
        (prefix, places)
    };
    read.prefixes().into_iter().map(of).collect()
}

/// All rows of listed series; `None` if there are many.
fn look_up(
    view: &MemtableView,
    id: TableId,
    read: &SeriesRead,
    keys: &[Bytes],
) -> Option<VecDeque<MemtableSeries>> {
    let places = places_by_prefix(view, id, read);
    let most = places.iter().map(|(_, places)| places.len()).max().unwrap_or(0);
    if keys.len().saturating_mul(most) > MAX_LOOKED_UP {
        return None;
    }
    let mut found = VecDeque::new();
    let mut bytes = 0;
    for series in keys {
        let rows = rows_of_key(id, read, series, &places);
        bytes += rows.iter().map(|row| row.ops.byte_len()).sum::<usize>();
        if bytes > MAX_LOOKED_UP_BYTES {
            return None;
        }
        if !rows.is_empty() {
            found.push_back(MemtableSeries { series: series.clone(), rows });
        }
    }
    Some(found)
}

/// The rows of a listed series.
fn rows_of_key(
    id: TableId,
    read: &SeriesRead,
    series: &Bytes,
    places: &[(Bytes, Places)],
) -> VecDeque<MemtableRow> {
    let places = places.iter().find(|(prefix, _)| series.starts_with(prefix));
    let mut rows = VecDeque::new();
    for (base, memtable) in places.map_or(&[][..], |(_, places)| places) {
        let key = read.row_key(series, *base);
        if let Some(copied) = memtable.copied_row(id, &key, hours_ms(read).is_some()) {
            add_row(&mut rows, *base, copied, memtable);
        }
    }
    rows
}

/// Creates a cursor for each base time and memtable with rows of a range.
fn cursors(
    view: &MemtableView,
    id: TableId,
    read: &SeriesRead,
    range: &SeriesRange,
) -> Vec<BaseCursor> {
    let places = places(view, id, &range.prefix, read.bases);
    let with_summaries = hours_ms(read).is_some();
    let max_rows = (COPIED_ROWS / places.len().max(1)).max(1);
    let cursor = |(base, memtable)| BaseCursor {
        with_summaries,
        ..BaseCursor::new(base, memtable, range, max_rows)
    };
    places.into_iter().map(cursor).collect()
}

/// All rows of a range of series and base times, series by series; `None` if there are many, or if a filter skips
/// many.
fn copy_range(
    view: &MemtableView,
    id: TableId,
    read: &SeriesRead,
    range: &SeriesRange,
) -> Option<VecDeque<MemtableSeries>> {
    let ((first, last), with_summaries) = (read.bases, hours_ms(read).is_some());
    let bound = |base: u32| [&*range.prefix, &base.to_be_bytes()].concat();
    let stop = bound(last.checked_add(1)?);
    let is_large = |memtable: &Arc<Memtable>| {
        let size = memtable.estimated_size(id, &bound(first), &stop);
        // Half of the bytes of a row may be unused.
        size.rows > MAX_COPIED_ROWS
            || (size.bytes > 2 * MAX_LOOKED_UP_BYTES as u64 && !with_summaries)
    };
    if view.memtables.iter().any(is_large) {
        return None;
    }
    let mut copied: Vec<(Bytes, u32, CopiedRow, &Arc<Memtable>)> = Vec::new();
    for memtable in &view.memtables {
        let mut next = Some(bound(first));
        for _ in 0..MAX_COPIES {
            let Some(start) = next.take() else { break };
            let filter = range.filter.as_ref();
            let max_rows = COPIED_ROWS;
            let rows = RowRange { start: &start, stop: &stop, filter, max_rows, with_summaries };
            let mut of_memtable = memtable.copy_range(id, rows);
            next = of_memtable.next.take();
            let mut of_memtable = of_memtable.into_shared();
            while let Some((key, row)) = of_memtable.take_with_key() {
                let split = key.get(range.prefix.len()..).and_then(<[u8]>::split_first_chunk::<4>);
                let Some((base, tags)) = split else { continue };
                if *tags >= *range.from && range.to.as_ref().is_none_or(|to| *tags < **to) {
                    let base = u32::from_be_bytes(*base);
                    copied.push((key.slice_ref(tags), base, row, memtable));
                }
            }
        }
        if next.is_some() {
            return None;
        }
    }
    // The sort is stable, so memtables stay in order of age.
    copied.sort_by(|(tags, base, ..), (other, other_base, ..)| {
        tags.cmp(other).then(base.cmp(other_base))
    });
    let mut found: VecDeque<MemtableSeries> = VecDeque::new();
    for (tags, base, row, memtable) in copied {
        let is_last = |last: &MemtableSeries| last.series.get(range.prefix.len()..) == Some(&*tags);
        if !found.back().is_some_and(is_last) {
            let series = [&*range.prefix, &*tags].concat().into();
            found.push_back(MemtableSeries { series, rows: VecDeque::new() });
        }
        if let Some(last) = found.back_mut() {
            add_row(&mut last.rows, base, row, memtable);
        }
    }
    Some(found)
}

/// Time range whose hours a read may get as summaries of their rows: start inclusive, end exclusive, epoch
/// milliseconds. `None` if the read needs points, or sums of longer times.
pub(super) fn hours_ms(read: &SeriesRead) -> Option<(i64, i64)> {
    let summaries = read.summaries.filter(|summaries| !summaries.with_points)?;
    let is_by_hour = match summaries.fold {
        SummaryFold::Extremes | SummaryFold::Ends | SummaryFold::Sums(SumBucket::Hour) => true,
        SummaryFold::Sums(SumBucket::Day | SumBucket::Longer) => false,
    };
    is_by_hour.then_some(summaries.range_ms)
}

/// Adds a row of a memtable to the rows of a series. Rows come in the order of their base times, and then of the age
/// of their memtables.
fn add_row(
    rows: &mut VecDeque<MemtableRow>,
    base: u32,
    copied: CopiedRow,
    memtable: &Arc<Memtable>,
) {
    let CopiedRow { ops, summarized } = copied;
    let has_summary = summarized.as_ref().is_some_and(|row| row.summary.is_some());
    match rows.back_mut() {
        Some(last) if last.base == base => {
            last.ops.add(ops, memtable.base_ms());
            let is_whole = match &last.form {
                RowForm::Whole => true,
                RowForm::Summarized(_, row) => row.summary.is_none(),
                RowForm::Incomplete => false,
            };
            let is_whole = is_whole && !has_summary;
            last.form = if is_whole { RowForm::Whole } else { RowForm::Incomplete };
        }
        _ => {
            let form = summarized
                .map_or(RowForm::Whole, |row| RowForm::Summarized(Arc::clone(memtable), row));
            let ops = RowOps::new([(ops, memtable.base_ms())]);
            rows.push_back(MemtableRow { base, ops, form });
        }
    }
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
        let (rows, with_summaries) = (SharedRows::default(), false);
        Self { base, memtable, rows, next, stop, max_rows, with_summaries }
    }

    /// Tags of the next copied row.
    fn tags(&self, tags_at: usize) -> Option<&[u8]> {
        self.rows.key()?.get(tags_at..)
    }

    /// Copies more rows once all copied rows were taken.
    fn fill(&mut self, id: TableId, range: &SeriesRange) {
        while self.rows.key().is_none()
            && let Some(start) = self.next.take()
        {
            let rows = RowRange {
                start: &start,
                stop: &self.stop,
                filter: range.filter.as_ref(),
                max_rows: self.max_rows,
                with_summaries: self.with_summaries,
            };
            let mut copied = self.memtable.copy_range(id, rows);
            self.next = copied.next.take();
            self.rows = copied.into_shared();
        }
        if self.stop.is_empty() {
            // Rows of other metrics follow.
            let head = [&*range.prefix, &self.base.to_be_bytes()].concat();
            if !self.rows.key().is_some_and(|key| key.starts_with(&head)) {
                (self.rows, self.next) = (SharedRows::default(), None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;
    use tsd_model::{Family, Value};
    use tsd_storage::{CellBatch, CellRef};

    use super::*;
    use crate::{change::Change, memtable::BufferPool, memtable_list::MemtableList};

    const ID: TableId = TableId(0);
    const HOUR: u32 = 3_600;

    /// Creates a view of row keys by memtable: two bytes of metric, a base time and one byte of tags.
    fn view_of(memtables: &[Vec<(u8, u32, u8)>]) -> Arc<MemtableView> {
        let pool = Arc::new(BufferPool::new(0));
        let memtable = |(number, rows): (usize, &Vec<(u8, u32, u8)>)| {
            let memtable = Memtable::new(number as u64, 0, Arc::clone(&pool));
            for (sequence, (metric, hour, tags)) in rows.iter().enumerate() {
                let key = [&[0, *metric], &(hour * HOUR).to_be_bytes()[..], &[*tags]].concat();
                let cell = CellRef {
                    family: Family::T,
                    qualifier: &[0, 0],
                    value: &[16 * number as u8 + (sequence % 16) as u8],
                    timestamp_ms: None,
                };
                let batch = CellBatch::single(&key, cell).unwrap();
                memtable.apply(ID, &Change::Put(batch), 1, sequence as u64);
            }
            Arc::new(memtable)
        };
        MemtableList::new(memtables.iter().enumerate().map(memtable).collect()).view()
    }

    /// Base time, bytes and points of a row; no points if its operations overlap.
    type ReadRow = (u32, usize, Option<Vec<(i64, Value)>>);

    fn drain(day: &mut MemtableDays) -> Vec<(Bytes, Vec<ReadRow>)> {
        let row = |row: MemtableRow| (row.base, row.ops.byte_len(), row.ops.points(row.base));
        let of = |of: MemtableSeries| (of.series, of.rows.into_iter().map(row).collect());
        std::iter::from_fn(|| day.next()).map(of).collect()
    }

    proptest! {
        #[test]
        fn copied_rows_are_those_of_cursors(
            memtables in prop::collection::vec(
                prop::collection::vec((1..4_u8, 10..40_u32, any::<u8>()), 0..200),
                1..4,
            ),
            (first, length) in (8..40_u32, 0..30_u32),
            (from, to) in (any::<u8>(), any::<Option<u8>>()),
        ) {
            let view = view_of(&memtables);
            let to = to.map(|to| Bytes::copy_from_slice(&[to]));
            let from = Bytes::copy_from_slice(&[from]);
            let range = SeriesRange { prefix: Bytes::from_static(&[0, 2]), from, to, filter: None };
            let bases = (first * HOUR, (first + length) * HOUR);
            let read = SeriesRead {
                prefix_len: 2,
                selection: ReadSelection::Range(range.clone()),
                bases,
                summaries: None,
                reads_past_losses: false,
            };
            let mut copied = MemtableDays::try_copied(&view, ID, &read).unwrap();
            let source = Source::Range(cursors(&view, ID, &read, &range));
            let mut by_cursors = MemtableDays { id: ID, view, read, source, next: None };
            prop_assert_eq!(drain(&mut copied), drain(&mut by_cursors));
        }
    }

    #[test]
    fn a_large_day_is_read_with_cursors() {
        let rows = (0..20).flat_map(|hour| (0..=255).map(move |tags| (2, 10 + hour, tags)));
        let view = view_of(&[rows.collect()]);
        let selection = ReadSelection::Range(SeriesRange {
            prefix: Bytes::from_static(&[0, 2]),
            from: Bytes::new(),
            to: None,
            filter: None,
        });
        let bases = (0, 40 * HOUR);
        let read = SeriesRead {
            prefix_len: 2,
            selection,
            bases,
            summaries: None,
            reads_past_losses: false,
        };
        assert!(MemtableDays::try_copied(&view, ID, &read).is_none());
        let mut day = MemtableDays::of_day(&view, ID, read);
        let series = drain(&mut day);
        assert_eq!(series.len(), 256);
        assert!(series.iter().all(|(_, rows)| rows.len() == 20));
    }
}
