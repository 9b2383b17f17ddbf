//! Selects the series of a read. `cursor.rs` and `listed.rs` find them.

/// The series to read. A series is a row key without its base time, see
/// [`PartLayout::split_key`](crate::PartLayout::split_key).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeriesSelection {
    /// All series.
    All,
    /// Series that begin with these bytes (salt and metric).
    Prefix(Vec<u8>),
    /// Series from the first bytes up to the second, exclusive.
    Range(Vec<u8>, Option<Vec<u8>>),
    /// Listed series, sorted and without repetition.
    Some(Vec<Vec<u8>>),
}
