//! Scans the rows of a snapshot in order of their keys.
//!
//! A key has the time before the tags: salt and metric, base time, tags. A part has the tags before the time. So
//! a scan collects and sorts the rows of a window of base times. The window is a span; if its rows are too large,
//! it is an hour. The rows of one base time need no collecting, since a part has them in order.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use tsd_model::{BaseTime, Row};
use tsd_storage::RowFilter;

use super::selected::RowBuilder;
use crate::{
    cursor::{after_prefix, next_series_from},
    error::PartError,
    layout::PartLayout,
    read::Sections,
    resolve::Resolver,
    series_selection::SeriesSelection,
    snapshot::Snapshot,
};

/// Maximum size of the collected rows, bytes.
pub(crate) const COLLECTED_BYTES: usize = 4 << 20;
/// Number of series without a row after which a scan pauses.
const PAUSE_SERIES: usize = 8_192;
/// Memory overhead of a row, bytes.
const ROW_BYTES: usize = 160;

/// Reads the rows of selected series in a range of base times, series by series.
#[derive(Debug)]
pub(crate) struct RowsCursor {
    sections: Sections,
    resolver: Resolver,
    builder: RowBuilder,
    bases: (u32, u32),
    layout: PartLayout,
    keys: KeyKind,
}

/// Kind of keys that a cursor reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    All,
    /// Keys with a base time.
    Timed,
    /// Keys that are series of their own.
    Whole,
}

impl RowsCursor {
    pub(crate) fn new(
        snapshot: &Arc<Snapshot>,
        selection: Arc<SeriesSelection>,
        bases: (u32, u32),
        keys: KeyKind,
    ) -> Self {
        Self {
            sections: Sections::new(snapshot, selection, bases),
            resolver: Resolver::default(),
            builder: RowBuilder::default(),
            bases,
            layout: snapshot.layout(),
            keys,
        }
    }

    /// Appends the rows of the next series of a span, which may be none; false after the last series. Fails when
    /// `cancelled` becomes true.
    pub(crate) fn next_series(
        &mut self,
        filter: Option<&RowFilter>,
        cancelled: &AtomicBool,
        rows: &mut Vec<Row>,
    ) -> Result<bool, PartError> {
        if cancelled.load(Ordering::Relaxed) {
            return Err(PartError::Stopped);
        }
        if !self.sections.advance()? {
            return Ok(false);
        }
        let series = self.sections.series();
        let is_read = match self.keys {
            KeyKind::All => true,
            KeyKind::Timed => PartLayout::has_time(series),
            KeyKind::Whole => !PartLayout::has_time(series),
        };
        if !is_read {
            return Ok(true);
        }
        if let Some(filter) = filter
            && !may_match(filter, &self.layout.join_key(series, self.bases.0))
        {
            return Ok(true);
        }
        self.sections.resolve(&mut self.resolver)?;
        let (layout, builder) = (self.layout, &mut self.builder);
        self.resolver.rows(self.bases, |row| {
            let key = layout.join_key(series, row.base);
            if filter.is_none_or(|filter| filter.matches(&key)) {
                rows.extend(builder.build(key, row));
            }
        });
        Ok(true)
    }
}

/// False if the filter rejects every row of the key's series, whatever the base time.
fn may_match(filter: &RowFilter, key: &[u8]) -> bool {
    match filter {
        RowFilter::Tags(_) | RowFilter::Series(_) => filter.matches(key),
        RowFilter::All(all) => all.iter().all(|filter| may_match(filter, key)),
        _ => true,
    }
}

/// Result of one step of a scan.
#[derive(Debug)]
pub(crate) enum ScanStep {
    Row(Row),
    /// The scan passed many series without a row.
    Paused,
    Ended,
}

/// Scans rows in order of their keys.
#[derive(Debug)]
pub(crate) struct RowScan {
    range: KeyRange,
    filter: Option<RowFilter>,
    timed: TimedRows,
    whole: WholeKeyRows,
    /// The next row of each kind of key.
    next_timed: Option<Row>,
    next_whole: Option<Row>,
}

#[derive(Clone, Debug)]
struct KeyRange {
    start: Bytes,
    /// Exclusive; an empty key means no end.
    stop: Bytes,
}

impl KeyRange {
    fn contains(&self, key: &[u8]) -> bool {
        *key >= *self.start && (self.stop.is_empty() || *key < *self.stop)
    }

    fn is_empty(&self) -> bool {
        !self.stop.is_empty() && self.start >= self.stop
    }
}

/// Rows of keys without a base time. Such keys are series of their own in the first span, in order.
#[derive(Debug)]
struct WholeKeyRows {
    cursor: Option<RowsCursor>,
    rows: VecDeque<Row>,
}

/// Rows of keys with a base time.
#[derive(Debug)]
struct TimedRows {
    snapshot: Arc<Snapshot>,
    layout: PartLayout,
    range: KeyRange,
    collected_bytes: usize,
    started: bool,
    /// Bytes before the base time in the keys that are read now; `None` after the last prefix.
    prefix: Option<Vec<u8>>,
    /// Base times of the prefix that are still to read. The first is greater than the last if there are no more.
    bases: (u64, u64),
    /// Length of the next window in seconds: a span, an hour, or 1.
    window_secs: u32,
    window: Window,
}

#[derive(Debug)]
enum Window {
    Closed,
    /// Rows that are being collected, and their size.
    Collect {
        cursor: Box<RowsCursor>,
        rows: Vec<Row>,
        bytes: usize,
        bases: (u32, u32),
    },
    /// Collected and sorted rows.
    Sorted(VecDeque<Row>),
    /// Rows of one base time, which arrive in order.
    Stream {
        cursor: Box<RowsCursor>,
        rows: VecDeque<Row>,
    },
}

impl RowScan {
    /// Scans rows from `start`, inclusive, to `stop`, exclusive; an empty `stop` scans to the end. Collects rows
    /// up to `collected_bytes`, usually [`COLLECTED_BYTES`].
    pub(crate) fn new(
        snapshot: &Arc<Snapshot>,
        start: Bytes,
        stop: Bytes,
        filter: Option<RowFilter>,
        collected_bytes: usize,
    ) -> Self {
        let range = KeyRange { start, stop };
        let first_span = snapshot.spans().contains_key(&0) || snapshot.lost().contains_key(&0);
        let cursor = (first_span && !range.is_empty()).then(|| {
            let all = Arc::new(SeriesSelection::All);
            RowsCursor::new(snapshot, all, (0, 0), KeyKind::Whole)
        });
        Self {
            timed: TimedRows::new(snapshot, range.clone(), collected_bytes),
            whole: WholeKeyRows { cursor, rows: VecDeque::new() },
            range,
            filter,
            next_timed: None,
            next_whole: None,
        }
    }

    /// The next row. Fails when `cancelled` becomes true.
    pub(crate) fn next(&mut self, cancelled: &AtomicBool) -> Result<ScanStep, PartError> {
        let mut passed = 0;
        if self.next_whole.is_none() {
            self.next_whole = self.whole.next(&self.range, self.filter.as_ref(), cancelled)?;
        }
        while self.next_timed.is_none() {
            match self.timed.next(self.filter.as_ref(), cancelled, &mut passed)? {
                ScanStep::Row(row) if self.range.contains(&row.key) => self.next_timed = Some(row),
                ScanStep::Row(_) => {}
                ScanStep::Paused => return Ok(ScanStep::Paused),
                ScanStep::Ended => break,
            }
        }
        let whole_first = match (&self.next_whole, &self.next_timed) {
            (Some(whole), Some(timed)) => whole.key < timed.key,
            (whole, _) => whole.is_some(),
        };
        let next = if whole_first { self.next_whole.take() } else { self.next_timed.take() };
        Ok(next.map_or(ScanStep::Ended, ScanStep::Row))
    }
}

impl WholeKeyRows {
    fn next(
        &mut self,
        range: &KeyRange,
        filter: Option<&RowFilter>,
        cancelled: &AtomicBool,
    ) -> Result<Option<Row>, PartError> {
        loop {
            if let Some(row) = self.rows.pop_front() {
                return Ok(Some(row));
            }
            let Some(cursor) = &mut self.cursor else { return Ok(None) };
            let mut rows = Vec::new();
            if !cursor.next_series(filter, cancelled, &mut rows)? {
                self.cursor = None;
                return Ok(None);
            }
            self.rows.extend(rows.into_iter().filter(|row| range.contains(&row.key)));
        }
    }
}

impl TimedRows {
    fn new(snapshot: &Arc<Snapshot>, range: KeyRange, collected_bytes: usize) -> Self {
        let layout = snapshot.layout();
        Self {
            snapshot: Arc::clone(snapshot),
            layout,
            collected_bytes,
            started: false,
            prefix: (!range.is_empty()).then(Vec::new),
            range,
            bases: (1, 0),
            window_secs: layout.span_secs(),
            window: Window::Closed,
        }
    }

    fn next(
        &mut self,
        filter: Option<&RowFilter>,
        cancelled: &AtomicBool,
        passed: &mut usize,
    ) -> Result<ScanStep, PartError> {
        loop {
            *passed += 1;
            if *passed > PAUSE_SERIES {
                return Ok(ScanStep::Paused);
            }
            match &mut self.window {
                Window::Sorted(rows) => match rows.pop_front() {
                    Some(row) => return Ok(ScanStep::Row(row)),
                    None => self.window = Window::Closed,
                },
                Window::Stream { cursor, rows } => {
                    if let Some(row) = rows.pop_front() {
                        return Ok(ScanStep::Row(row));
                    }
                    let mut more = Vec::new();
                    if cursor.next_series(filter, cancelled, &mut more)? {
                        rows.extend(more);
                    } else {
                        self.window = Window::Closed;
                    }
                }
                Window::Collect { cursor, rows, bytes, bases } => {
                    let before = rows.len();
                    if cursor.next_series(filter, cancelled, rows)? {
                        *bytes += rows.iter().skip(before).map(row_bytes).sum::<usize>();
                        if *bytes > self.collected_bytes && bases.0 < bases.1 {
                            let bases = *bases;
                            self.divide(bases, filter);
                        }
                    } else {
                        rows.sort_by(|a, b| a.key.cmp(&b.key));
                        self.window = Window::Sorted(std::mem::take(rows).into());
                    }
                }
                Window::Closed => {
                    if !self.open_window(filter)? {
                        return Ok(ScanStep::Ended);
                    }
                }
            }
        }
    }

    /// Replaces a window whose rows are too large by a shorter one.
    fn divide(&mut self, bases: (u32, u32), filter: Option<&RowFilter>) {
        let is_hour = bases.1 - bases.0 < BaseTime::SPAN_SECONDS;
        self.window_secs = if is_hour { 1 } else { BaseTime::SPAN_SECONDS };
        if is_hour {
            self.stream(bases.0, filter);
        } else {
            self.window = Window::Closed;
            self.bases.0 = u64::from(bases.0);
        }
    }

    /// Starts to read the rows of one base time in order.
    fn stream(&mut self, base: u32, filter: Option<&RowFilter>) {
        let cursor = Box::new(self.cursor((base, base), filter));
        self.window = Window::Stream { cursor, rows: VecDeque::new() };
        self.bases.0 = u64::from(base) + 1;
    }

    fn cursor(&self, bases: (u32, u32), filter: Option<&RowFilter>) -> RowsCursor {
        let prefix = self.prefix.as_deref().unwrap_or_default();
        let selection = self.selection(prefix, filter);
        RowsCursor::new(&self.snapshot, selection, bases, KeyKind::Timed)
    }

    /// The series with a prefix that the filter may accept.
    fn selection(&self, prefix: &[u8], filter: Option<&RowFilter>) -> Arc<SeriesSelection> {
        if let Some(RowFilter::Series(set)) = filter
            && set.tags_start == self.layout.prefix_len() + 4
        {
            let key = |tags: &Bytes| [prefix, &[0; 4], tags].concat();
            let series = |tags: &Bytes| {
                let mut series = Vec::new();
                self.layout.split_key(&key(tags), &mut series);
                series
            };
            return Arc::new(SeriesSelection::Some(set.tags.iter().map(series).collect()));
        }
        Arc::new(SeriesSelection::Prefix(prefix.to_vec()))
    }

    /// Opens the next window; false after the last.
    fn open_window(&mut self, filter: Option<&RowFilter>) -> Result<bool, PartError> {
        loop {
            let (first, last) = self.bases;
            let Ok(first) = u32::try_from(first) else {
                if !self.next_prefix()? {
                    return Ok(false);
                }
                continue;
            };
            let last = last as u32;
            let from = self.layout.span_of(first);
            let spans = (self.bases.0 <= self.bases.1).then(|| from..=last.max(from));
            let span = spans.and_then(|spans| self.snapshot.spans().range(spans).next());
            let Some(span) = span.map(|(span, _)| *span).filter(|span| *span <= last) else {
                if !self.next_prefix()? {
                    return Ok(false);
                }
                continue;
            };
            let first = first.max(span);
            let end = span.saturating_add(self.layout.span_secs() - 1).min(last);
            if self.window_secs == 1 && first.is_multiple_of(BaseTime::SPAN_SECONDS) {
                self.stream(first, filter);
                return Ok(true);
            }
            let secs = self.window_secs.max(BaseTime::SPAN_SECONDS);
            let end = (first - first % secs).saturating_add(secs - 1).min(end);
            self.bases.0 = u64::from(end) + 1;
            let bases = (first, end);
            let cursor = Box::new(self.cursor(bases, filter));
            self.window = Window::Collect { cursor, rows: Vec::new(), bytes: 0, bases };
            return Ok(true);
        }
    }

    /// Moves to the next prefix with rows in the range; false after the last.
    fn next_prefix(&mut self) -> Result<bool, PartError> {
        let len = self.layout.prefix_len();
        let Some(before) = self.prefix.take() else { return Ok(false) };
        let start = &self.range.start;
        let prefix = match start.get(..len) {
            // No search, because most scans are of one metric.
            Some(prefix) if !self.started => prefix.to_vec(),
            _ => {
                let from = if self.started {
                    let Some(from) = after_prefix(&before) else { return Ok(false) };
                    from
                } else {
                    start.to_vec()
                };
                if !self.range.stop.is_empty() && *from >= *self.range.stop {
                    return Ok(false);
                }
                let series = next_series_from(&self.snapshot, &from)?;
                let Some(series) = series else { return Ok(false) };
                series.get(..len).unwrap_or_default().to_vec()
            }
        };
        self.started = true;
        let head = |key: &Bytes| key.get(..len).unwrap_or(key).to_vec();
        if !self.range.stop.is_empty() && prefix > head(&self.range.stop) {
            return Ok(false);
        }
        let first = if prefix == head(&self.range.start) {
            self.layout.base_of(&self.range.start)
        } else {
            0
        };
        let last = if !self.range.stop.is_empty() && prefix == head(&self.range.stop) {
            self.layout.base_of(&self.range.stop)
        } else {
            u32::MAX
        };
        self.bases = (u64::from(first), u64::from(last));
        self.prefix = Some(prefix);
        // A lost span may have no live section, so no cursor would check it.
        self.snapshot.check_losses(self.layout.span_of(first), last)?;
        Ok(true)
    }
}

fn row_bytes(row: &Row) -> usize {
    let cells: usize = row.cells.iter().map(|c| c.qualifier.len() + c.value.len() + 96).sum();
    let runs: usize = row.runs.iter().map(|run| run.as_bytes().len() + 96).sum();
    ROW_BYTES + row.key.len() + cells + runs
}
