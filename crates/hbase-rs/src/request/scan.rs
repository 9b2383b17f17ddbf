//! Reads of many rows.

use bytes::Bytes;
use hbase_rs_protobuf as pb;

use super::selection::{Selection, TimeRange};

/// How a server reads its files for a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReadType {
    /// Piece by piece first, as a stream when it gets long.
    #[default]
    ByLength,
    /// As a stream.
    Stream,
    /// Piece by piece: for short reads.
    Pread,
}

/// Reads the rows of a range, in order.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own, as on the wire")]
pub struct Scan {
    pub(crate) selection: Selection,
    pub(crate) start: Bytes,
    pub(crate) include_start: bool,
    pub(crate) stop: Bytes,
    pub(crate) include_stop: bool,
    pub(crate) reversed: bool,
    pub(crate) limit: Option<u32>,
    pub(crate) batch: Option<u32>,
    pub(crate) partials: bool,
    pub(crate) rows_per_call: u32,
    pub(crate) bytes_per_call: u64,
    pub(crate) read_type: ReadType,
}

impl Default for Scan {
    fn default() -> Self {
        Self {
            selection: Selection::all(),
            start: Bytes::new(),
            include_start: true,
            stop: Bytes::new(),
            include_stop: false,
            reversed: false,
            limit: None,
            batch: None,
            partials: false,
            rows_per_call: i32::MAX as u32,
            bytes_per_call: 2 << 20,
            read_type: ReadType::ByLength,
        }
    }
}

impl Scan {
    /// All rows of a table.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Rows from `start` on, up to but not with `stop`; an empty key is an open end.
    pub fn range(start: impl Into<Bytes>, stop: impl Into<Bytes>) -> Self {
        Self { start: start.into(), stop: stop.into(), ..Self::default() }
    }

    /// Rows that begin so.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start = prefix.into();
        let stop = behind_prefix(&start);
        Self { start, stop, ..Self::default() }
    }

    /// Reads those cells.
    #[must_use]
    pub fn select(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Whether the first and the last row of the range belong to it.
    #[must_use]
    pub const fn inclusive(mut self, start: bool, stop: bool) -> Self {
        self.include_start = start;
        self.include_stop = stop;
        self
    }

    /// From the larger rows down: `start` is then the larger end.
    #[must_use]
    pub const fn reversed(mut self) -> Self {
        self.reversed = true;
        self
    }

    /// Ends after so many rows.
    #[must_use]
    pub const fn limit(mut self, rows: u32) -> Self {
        self.limit = Some(rows);
        self
    }

    /// Gives long rows in pieces of at most so many cells.
    #[must_use]
    pub const fn batch(mut self, cells: u32) -> Self {
        self.batch = Some(cells);
        self
    }

    /// Gives rows in the pieces in which they arrive, instead of gathering whole ones.
    #[must_use]
    pub const fn partial_rows(mut self) -> Self {
        self.partials = true;
        self
    }

    /// How much to ask for at a time. The server stops at either bound.
    #[must_use]
    pub const fn per_call(mut self, rows: u32, bytes: u64) -> Self {
        self.rows_per_call = rows;
        self.bytes_per_call = bytes;
        self
    }

    /// How the server reads its files.
    #[must_use]
    pub const fn read_type(mut self, read_type: ReadType) -> Self {
        self.read_type = read_type;
        self
    }

    /// Deleted cells and delete markers too.
    #[must_use]
    pub fn raw(mut self) -> Self {
        self.selection = self.selection.attribute("_raw_", &[0xff][..]);
        self
    }

    /// Whether rows are given in pieces.
    pub(crate) const fn in_pieces(&self) -> bool {
        self.partials || self.batch.is_some()
    }

    /// What a server is told when its scanner is opened. Both ends are always said with whether they
    /// belong: a server that is not told reads a single row when they are equal.
    pub(crate) fn to_message(&self, start: &Bytes, include_start: bool) -> pb::Scan {
        let selection = self.selection.clone();
        pb::Scan {
            column: selection.columns,
            attribute: selection.attributes,
            start_row: Some(start.clone()),
            stop_row: Some(self.stop.clone()),
            filter: selection.filter.map(Into::into),
            time_range: selection.time_range.map(TimeRange::to_message),
            max_versions: selection.max_versions,
            cache_blocks: selection.no_block_cache.then_some(false),
            batch_size: self.batch,
            max_result_size: Some(self.bytes_per_call),
            store_limit: selection.store_limit,
            store_offset: selection.store_offset,
            reversed: self.reversed.then_some(true),
            allow_partial_results: self.partials.then_some(true),
            cf_time_range: selection.family_times,
            include_start_row: Some(include_start),
            include_stop_row: Some(self.include_stop),
            read_type: match self.read_type {
                ReadType::ByLength => None,
                ReadType::Stream => Some(pb::scan::ReadType::Stream.into()),
                ReadType::Pread => Some(pb::scan::ReadType::Pread.into()),
            },
            ..pb::Scan::default()
        }
    }
}

/// First row behind all that begin with `prefix`; empty if there is none.
fn behind_prefix(prefix: &[u8]) -> Bytes {
    let Some(last) = prefix.iter().rposition(|byte| *byte != u8::MAX) else { return Bytes::new() };
    let mut key = prefix.get(..=last).unwrap_or_default().to_vec();
    if let Some(byte) = key.last_mut() {
        *byte += 1;
    }
    key.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_behind_its_last_row() {
        for (prefix, stop) in
            [(&[1, 2][..], &[1, 3][..]), (&[1, 0xff, 0xff], &[2]), (&[0xff, 0xff], &[]), (&[], &[])]
        {
            let scan = Scan::prefix(prefix.to_vec());
            assert_eq!((&scan.start[..], &scan.stop[..]), (prefix, stop));
        }
    }

    #[test]
    fn ends_are_always_said() {
        let message = Scan::range("a", "a").to_message(&"a".into(), true);
        assert_eq!(
            (message.include_start_row, message.include_stop_row),
            (Some(true), Some(false))
        );
        assert_eq!((message.start_row, message.stop_row), (Some("a".into()), Some("a".into())));
        assert_eq!((message.reversed, message.small, message.caching), (None, None, None));
    }

    #[test]
    fn raw_scans_are_asked_for_by_attribute() {
        let message =
            Scan::all().raw().batch(5).read_type(ReadType::Pread).to_message(&Bytes::new(), true);
        assert_eq!(
            (message.attribute[0].name.as_str(), message.attribute[0].value()),
            ("_raw_", &[0xff][..])
        );
        assert_eq!(message.batch_size, Some(5));
        assert_eq!(message.read_type, Some(pb::scan::ReadType::Pread.into()));
    }
}
