//! Many series that are ready for aggregation, in little memory.
//!
//! An aggregate of a million series has a few points of each. With its own allocations, a series
//! would take several times the memory of its points. So short series share columns, and most share
//! even their times. Long series keep their columns, which are moved.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

use bytes::Bytes;
use tsd_model::{PointColumns, ValueKinds};

use crate::error::QueryError;

/// A series that is ready for aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Metric and tag UIDs, without salt.
    pub tsuid: Bytes,
    /// Points after the pipeline. With rates the first entry is the virtual first rate.
    pub points: PointColumns,
}

/// Series that are handled between two checks of a query's limits.
pub(super) const SERIES_PER_CHECK: usize = 1_024;

/// Most points of a series that shares columns with others.
pub(super) const MAX_SHORT: usize = 64;

/// Points of a series, borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointSlices<'a> {
    pub(crate) times_ms: &'a [i64],
    pub(crate) bits: &'a [u64],
    pub(crate) kinds: SliceKinds<'a>,
}

/// Types of borrowed values, as [`ValueKinds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SliceKinds<'a> {
    AllIntegers,
    AllFloats,
    Mixed(&'a [bool]),
}

impl PointSlices<'_> {
    pub(crate) const fn len(&self) -> usize {
        self.times_ms.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.times_ms.is_empty()
    }

    pub(crate) fn is_integer(&self, i: usize) -> bool {
        match self.kinds {
            SliceKinds::AllIntegers => i < self.len(),
            SliceKinds::AllFloats => false,
            SliceKinds::Mixed(flags) => flags.get(i).copied().unwrap_or(false),
        }
    }

    /// A copy of points `from..to`.
    pub(crate) fn copy_range(&self, from: usize, to: usize) -> PointColumns {
        let kinds = match self.kinds {
            SliceKinds::AllIntegers => ValueKinds::AllIntegers,
            SliceKinds::AllFloats => ValueKinds::AllFloats,
            SliceKinds::Mixed(flags) => {
                ValueKinds::Mixed(flags.get(from..to).unwrap_or_default().to_vec())
            }
        };
        PointColumns {
            times_ms: self.times_ms.get(from..to).unwrap_or_default().to_vec(),
            bits: self.bits.get(from..to).unwrap_or_default().to_vec(),
            kinds,
        }
    }
}

impl<'a> From<&'a PointColumns> for PointSlices<'a> {
    fn from(columns: &'a PointColumns) -> Self {
        let kinds = match &columns.kinds {
            ValueKinds::AllIntegers => SliceKinds::AllIntegers,
            ValueKinds::AllFloats => SliceKinds::AllFloats,
            ValueKinds::Mixed(flags) => SliceKinds::Mixed(flags),
        };
        Self { times_ms: &columns.times_ms, bits: &columns.bits, kinds }
    }
}

/// Series of a read.
#[derive(Clone, Debug, Default)]
pub struct SpanList {
    /// TSUIDs of all series, concatenated.
    tsuids: Vec<u8>,
    entries: Vec<Entry>,
    times_ms: Vec<i64>,
    bits: Vec<u64>,
    long: Vec<PointColumns>,
    long_bytes: usize,
    is_unsorted: bool,
}

/// A series of a list.
#[derive(Clone, Copy, Debug)]
struct Entry {
    tsuid_end: usize,
    points: EntryPoints,
}

#[derive(Clone, Copy, Debug)]
enum EntryPoints {
    /// Position of the points in the shared columns.
    Short { times_at: u32, bits_at: u32, len: u8, integers: bool },
    /// Index of the columns.
    Long(u32),
    /// The series is not part of the result.
    Absent,
}

impl SpanList {
    /// Adds a series: the fragments of its TSUID, and its points, which are moved or copied.
    pub fn push(&mut self, tsuid: [&[u8]; 2], points: &mut PointColumns) {
        let points = self.push_points(points);
        self.push_entry(tsuid, points);
    }

    /// Adds a series that is part of the result only if another list also has it.
    pub fn push_absent(&mut self, tsuid: [&[u8]; 2]) {
        self.push_entry(tsuid, EntryPoints::Absent);
    }

    fn push_entry(&mut self, tsuid: [&[u8]; 2], points: EntryPoints) {
        let start = self.tsuids.len();
        for part in tsuid {
            self.tsuids.extend_from_slice(part);
        }
        if !self.is_unsorted
            && let Some(last) = self.entries.len().checked_sub(1)
        {
            let pushed = self.tsuids.get(start..).unwrap_or_default();
            self.is_unsorted = self.tsuid(last) >= pushed;
        }
        self.entries.push(Entry { tsuid_end: self.tsuids.len(), points });
    }

    fn push_points(&mut self, points: &mut PointColumns) -> EntryPoints {
        let len = points.len();
        let integers = match points.kinds {
            ValueKinds::AllIntegers => Some(true),
            ValueKinds::AllFloats => Some(false),
            ValueKinds::Mixed(_) => None,
        };
        let places = (u32::try_from(self.times_ms.len()), u32::try_from(self.bits.len()));
        if len <= MAX_SHORT
            && let (Some(integers), (Ok(mut times_at), Ok(bits_at))) = (integers, places)
        {
            if self.times_ms.ends_with(&points.times_ms) {
                times_at -= len as u32;
            } else {
                self.times_ms.extend_from_slice(&points.times_ms);
            }
            self.bits.extend_from_slice(&points.bits);
            return EntryPoints::Short { times_at, bits_at, len: len as u8, integers };
        }
        self.long_bytes += size_of::<PointColumns>() + points.memory_bytes();
        self.long.push(std::mem::take(points));
        EntryPoints::Long(self.long.len() as u32 - 1)
    }

    /// Adds a series.
    pub fn push_span(&mut self, mut span: Span) {
        self.push([&span.tsuid, &[]], &mut span.points);
    }

    /// Number of series.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without series.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Allocated size, bytes.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.tsuids.capacity()
            + self.entries.capacity() * size_of::<Entry>()
            + (self.times_ms.capacity() + self.bits.capacity()) * 8
            + self.long_bytes
    }

    fn tsuid_range(&self, index: usize) -> std::ops::Range<usize> {
        let end_of = |index: usize| self.entries.get(index).map_or(0, |entry| entry.tsuid_end);
        index.checked_sub(1).map_or(0, end_of)..end_of(index)
    }

    fn tsuid(&self, index: usize) -> &[u8] {
        self.tsuids.get(self.tsuid_range(index)).unwrap_or_default()
    }
}

/// All series of a read in aggregation order: by metric and tag UIDs.
///
/// OpenTSDB sorts by whole row keys, including the salt, so its results depend on salting.
#[derive(Debug, Default)]
pub struct OrderedSpans {
    pub(super) spans: SharedSpans,
    pub(super) ids: Vec<SpanId>,
}

/// The series behind [`SpanId`]s, shared by all groups.
#[derive(Debug, Default)]
pub(super) struct SharedSpans {
    lists: Vec<(SpanList, Bytes)>,
}

/// A series of [`SharedSpans`].
#[derive(Clone, Copy, Debug)]
pub(super) struct SpanId {
    list: u32,
    index: u32,
}

/// The next series of a list in a merge: the beginning of its TSUID after the common prefix, the
/// whole TSUID, and its id. The first series in order is the greatest.
type MergeHead<'a> = Reverse<(u64, &'a [u8], u32, u32)>;

impl OrderedSpans {
    /// Orders the series of all lists. Series in several lists are left out and returned by their
    /// TSUIDs. `check` is called about every thousand series and may end the merge.
    pub fn new(
        lists: Vec<SpanList>,
        check: &mut dyn FnMut() -> Result<(), QueryError>,
    ) -> Result<(Self, Vec<Bytes>), QueryError> {
        let count = lists.iter().map(SpanList::len).sum();
        let mut spans = SharedSpans { lists: Vec::with_capacity(lists.len()) };
        for mut list in lists.into_iter().filter(|list| !list.is_empty()) {
            let tsuids = Bytes::from(std::mem::take(&mut list.tsuids));
            spans.lists.push((list, tsuids));
        }
        let mut merged = Merged { ids: Vec::with_capacity(count), ..Merged::default() };
        let orders: Vec<Vec<u32>> = (0..spans.lists.len() as u32).map(|l| spans.order(l)).collect();
        let skipped = spans.common_prefix(&orders);
        let head = |list: u32, at: usize| -> Option<MergeHead<'_>> {
            let index = *orders.get(list as usize)?.get(at)?;
            let tsuid = spans.tsuid(SpanId { list, index });
            let mut beginning = [0; 8];
            for (to, from) in beginning.iter_mut().zip(tsuid.iter().skip(skipped)) {
                *to = *from;
            }
            Some(Reverse((u64::from_be_bytes(beginning), tsuid, list, index)))
        };
        let mut heads: BinaryHeap<MergeHead<'_>> =
            (0..spans.lists.len() as u32).filter_map(|list| head(list, 0)).collect();
        let mut passed = vec![0_usize; spans.lists.len()];
        while let Some(mut first) = heads.peek_mut() {
            let Reverse((_, tsuid, list, index)) = *first;
            merged.push(&spans, tsuid, SpanId { list, index });
            if merged.pushed.is_multiple_of(SERIES_PER_CHECK) {
                check()?;
            }
            let Some(at) = passed.get_mut(list as usize) else { break };
            *at += 1;
            match head(list, *at) {
                Some(next) => *first = next,
                None => drop(PeekMut::pop(first)),
            }
        }
        let Merged { ids, several, .. } = merged;
        Ok((Self { spans, ids }, several))
    }
}

impl OrderedSpans {
    /// Number of series.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ids.len()
    }

    /// True without series.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Adds series that are not in any list yet.
    pub fn add(&mut self, lists: Vec<SpanList>) {
        for mut list in lists {
            let number = self.spans.lists.len() as u32;
            let tsuids = Bytes::from(std::mem::take(&mut list.tsuids));
            let ids = (0..list.len() as u32).map(|index| SpanId { list: number, index });
            let ids: Vec<SpanId> = ids.collect();
            self.spans.lists.push((list, tsuids));
            self.ids.extend(ids.into_iter().filter(|id| !self.spans.is_absent(*id)));
        }
        self.ids.sort_by(|a, b| self.spans.tsuid(*a).cmp(self.spans.tsuid(*b)));
    }
}

/// Merged series, in order.
#[derive(Default)]
struct Merged<'a> {
    ids: Vec<SpanId>,
    last: Option<&'a [u8]>,
    /// True if the last series is in `ids`.
    has_last: bool,
    several: Vec<Bytes>,
    pushed: usize,
}

impl<'a> Merged<'a> {
    fn push(&mut self, spans: &'a SharedSpans, tsuid: &'a [u8], id: SpanId) {
        self.pushed += 1;
        if self.last == Some(tsuid) {
            if self.has_last {
                self.ids.pop();
                self.has_last = false;
            }
            if self.several.last().is_none_or(|last| last != tsuid) {
                self.several.push(Bytes::copy_from_slice(tsuid));
            }
            return;
        }
        self.last = Some(tsuid);
        self.has_last = !spans.is_absent(id);
        if self.has_last {
            self.ids.push(id);
        }
    }
}

impl SharedSpans {
    /// Indexes of the series of a list in order.
    fn order(&self, list: u32) -> Vec<u32> {
        let Some((series, _)) = self.lists.get(list as usize) else { return Vec::new() };
        let mut order: Vec<u32> = (0..series.len() as u32).collect();
        if series.is_unsorted {
            order.sort_by(|a, b| {
                let tsuid = |index: &u32| self.tsuid(SpanId { list, index: *index });
                tsuid(a).cmp(tsuid(b))
            });
        }
        order
    }

    /// Length of the common prefix of all TSUIDs, which the first and the last TSUID of each list
    /// determine.
    fn common_prefix(&self, orders: &[Vec<u32>]) -> usize {
        let mut ends = orders.iter().zip(0..).flat_map(|(order, list)| {
            let ends = [order.first(), order.last()].into_iter().flatten();
            ends.map(move |index| self.tsuid(SpanId { list, index: *index }))
        });
        let Some(first) = ends.next() else { return 0 };
        let common = |other: &[u8]| first.iter().zip(other).take_while(|(a, b)| a == b).count();
        ends.map(common).min().unwrap_or(0)
    }

    fn is_absent(&self, id: SpanId) -> bool {
        let entry = self
            .lists
            .get(id.list as usize)
            .and_then(|(list, _)| list.entries.get(id.index as usize));
        entry.is_none_or(|entry| matches!(entry.points, EntryPoints::Absent))
    }

    pub(super) fn tsuid(&self, id: SpanId) -> &[u8] {
        let list = self.lists.get(id.list as usize);
        list.and_then(|(list, tsuids)| tsuids.get(list.tsuid_range(id.index as usize)))
            .unwrap_or_default()
    }

    /// The TSUID as a slice of the shared memory.
    pub(super) fn shared_tsuid(&self, id: SpanId) -> Bytes {
        let list = self.lists.get(id.list as usize);
        list.map_or_else(Bytes::new, |(list, tsuids)| {
            tsuids.slice(list.tsuid_range(id.index as usize))
        })
    }

    /// Takes the columns of a long series.
    pub(super) fn take_long(&mut self, id: SpanId) -> Option<PointColumns> {
        let (list, _) = self.lists.get_mut(id.list as usize)?;
        match list.entries.get(id.index as usize)?.points {
            EntryPoints::Long(at) => list.long.get_mut(at as usize).map(std::mem::take),
            EntryPoints::Short { .. } | EntryPoints::Absent => None,
        }
    }

    /// The points of a short series; `None` for a long series.
    pub(super) fn short(&self, id: SpanId) -> Option<PointSlices<'_>> {
        let (list, _) = self.lists.get(id.list as usize)?;
        match list.entries.get(id.index as usize)?.points {
            EntryPoints::Short { times_at, bits_at, len, integers } => {
                let range = |at: u32| at as usize..at as usize + usize::from(len);
                Some(PointSlices {
                    times_ms: list.times_ms.get(range(times_at))?,
                    bits: list.bits.get(range(bits_at))?,
                    kinds: if integers { SliceKinds::AllIntegers } else { SliceKinds::AllFloats },
                })
            }
            EntryPoints::Long(_) | EntryPoints::Absent => None,
        }
    }
}

/// Series that are aggregated, in order.
pub(crate) trait SeriesPoints {
    fn count(&self) -> usize;

    fn points(&self) -> impl Iterator<Item = PointSlices<'_>>;
}

impl SeriesPoints for [&PointColumns] {
    fn count(&self) -> usize {
        self.len()
    }

    fn points(&self) -> impl Iterator<Item = PointSlices<'_>> {
        self.iter().map(|columns| PointSlices::from(*columns))
    }
}
