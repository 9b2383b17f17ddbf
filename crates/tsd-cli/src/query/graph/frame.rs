//! Time range, time zone and options of a graph.

use jiff::tz::TimeZone;

/// Time range, time zone and options of a graph.
#[derive(Clone, Debug)]
pub(crate) struct GraphFrame<'a> {
    /// First and last millisecond.
    pub(crate) range_ms: (i64, i64),
    /// Time zone of the times.
    pub(crate) zone: TimeZone,
    /// The arguments `+name=value`.
    pub(crate) options: &'a [(String, String)],
}
