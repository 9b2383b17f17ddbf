//! Which series a read wants. How they are found is in `cursor.rs` and `listed.rs`.

/// Which series are read. Series are row keys without the base time, see
/// [`PartLayout::split_key`](crate::PartLayout::split_key).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeriesSelection {
    /// All series.
    All,
    /// Those that begin with these bytes: salt and metric.
    Prefix(Vec<u8>),
    /// Those from the first bytes on, and before the second ones.
    Range(Vec<u8>, Option<Vec<u8>>),
    /// These, sorted and without repetition.
    Some(Vec<Vec<u8>>),
}
