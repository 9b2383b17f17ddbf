//! Scans: reads of row ranges.

use bytes::Bytes;
use hbase_rs_protobuf as pb;

use super::{
    filter::Filter,
    selection::{Selection, TimeRange},
};

/// How a server reads its store files for a scan: positional reads for a short scan, streaming reads for
/// a long one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReadType {
    /// The server begins with positional reads and changes to streaming reads.
    #[default]
    Default,
    /// Streaming reads.
    Stream,
    /// Positional reads.
    Pread,
}

impl ReadType {
    const fn to_message(self) -> pb::scan::ReadType {
        match self {
            Self::Default => pb::scan::ReadType::Default,
            Self::Stream => pb::scan::ReadType::Stream,
            Self::Pread => pb::scan::ReadType::Pread,
        }
    }
}

/// A read of the rows of a range, in order.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent options, as in the protocol")]
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
            read_type: ReadType::Default,
        }
    }
}

impl Scan {
    /// All rows of a table.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Rows from `start`, inclusive, to `stop`, exclusive; an empty key is unbounded.
    pub fn range(start: impl Into<Bytes>, stop: impl Into<Bytes>) -> Self {
        Self { start: start.into(), stop: stop.into(), ..Self::default() }
    }

    /// Rows whose keys start with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start = prefix.into();
        let stop = end_of_prefix(&start);
        Self { start, stop, ..Self::default() }
    }

    /// Sets the cells to read.
    #[must_use]
    pub fn select(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Sets whether the range includes its start and its stop row.
    #[must_use]
    pub const fn inclusive(mut self, start: bool, stop: bool) -> Self {
        self.include_start = start;
        self.include_stop = stop;
        self
    }

    /// Scans in descending order; `start` is then the upper end.
    #[must_use]
    pub const fn reversed(mut self) -> Self {
        self.reversed = true;
        self
    }

    /// Ends after this number of rows.
    #[must_use]
    pub const fn limit(mut self, rows: u32) -> Self {
        self.limit = Some(rows);
        self
    }

    /// Returns long rows in parts of at most this number of cells.
    #[must_use]
    pub const fn batch(mut self, cells: u32) -> Self {
        self.batch = Some(cells);
        self
    }

    /// Returns rows in the parts in which they arrive instead of assembling whole rows.
    #[must_use]
    pub const fn partial_rows(mut self) -> Self {
        self.partials = true;
        self
    }

    /// Sets the maximum rows and bytes per RPC. The server stops at either limit.
    #[must_use]
    pub const fn per_call(mut self, rows: u32, bytes: u64) -> Self {
        self.rows_per_call = rows;
        self.bytes_per_call = bytes;
        self
    }

    /// Sets how the server reads its store files.
    #[must_use]
    pub const fn read_type(mut self, read_type: ReadType) -> Self {
        self.read_type = read_type;
        self
    }

    /// Includes deleted cells and delete markers.
    #[must_use]
    pub fn raw(mut self) -> Self {
        self.selection = self.selection.attribute("_raw_", &[0xff][..]);
        self
    }

    /// True if rows may be returned in parts.
    pub(crate) const fn returns_partials(&self) -> bool {
        self.partials || self.batch.is_some()
    }

    /// True if a server may read many rows before it finds a matching one. The scan then asks the server
    /// for its progress.
    fn is_selective(&self) -> bool {
        let selection = &self.selection;
        selection.filter.is_some()
            || selection.time_range.is_some()
            || selection.columns.iter().any(|column| !column.qualifier.is_empty())
    }

    /// Encodes the scan for a new scanner. The inclusive flags are always set: without them a server
    /// treats equal start and stop rows as a get.
    pub(crate) fn to_message(&self, start: &Bytes, include_start: bool) -> pb::Scan {
        let selection = self.selection.clone();
        pb::Scan {
            column: selection.columns,
            attribute: selection.attributes,
            start_row: Some(start.clone()),
            stop_row: Some(self.stop.clone()),
            filter: selection.filter.map(Filter::into_message),
            time_range: selection.time_range.map(TimeRange::to_message),
            max_versions: selection.max_versions,
            cache_blocks: selection.no_block_cache.then_some(false),
            batch_size: self.batch,
            max_result_size: Some(self.bytes_per_call),
            store_limit: selection.store_limit,
            store_offset: selection.store_offset,
            reversed: self.reversed.then_some(true),
            allow_partial_results: self.partials.then_some(true),
            include_start_row: Some(include_start),
            include_stop_row: Some(self.include_stop),
            need_cursor_result: self.is_selective().then_some(true),
            read_type: (self.read_type != ReadType::Default)
                .then_some(self.read_type.to_message().into()),
            ..pb::Scan::default()
        }
    }
}

/// Returns the first row after all rows with `prefix`, or the empty row if `prefix` is empty or all 0xff.
fn end_of_prefix(prefix: &[u8]) -> Bytes {
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
    fn prefix_scan_stops_after_the_last_row_of_the_prefix() {
        for (prefix, stop) in
            [(&[1, 2][..], &[1, 3][..]), (&[1, 0xff, 0xff], &[2]), (&[0xff, 0xff], &[]), (&[], &[])]
        {
            let scan = Scan::prefix(prefix.to_vec());
            assert_eq!((&scan.start[..], &scan.stop[..]), (prefix, stop));
        }
    }

    #[test]
    fn inclusive_flags_are_always_set() {
        let message = Scan::range("a", "a").to_message(&"a".into(), true);
        assert_eq!(
            (message.include_start_row, message.include_stop_row),
            (Some(true), Some(false))
        );
        assert_eq!((message.start_row, message.stop_row), (Some("a".into()), Some("a".into())));
        assert_eq!((message.reversed, message.small, message.caching), (None, None, None));
    }

    #[test]
    fn raw_scans_set_an_attribute() {
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
