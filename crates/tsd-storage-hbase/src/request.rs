//! Requests of the trait as requests of the client.

use bytes::Bytes;
use hbase_rs::{Get as HBaseGet, Selection, TimeRange};
use tsd_model::Family;
use tsd_storage::{Get, StorageError};

use crate::error::refused;

/// Name of a family as a slice that costs nothing.
pub(crate) const fn family_name(family: Family) -> Bytes {
    Bytes::from_static(family.as_str().as_bytes())
}

/// Which columns are wanted.
pub(crate) fn selection(
    family: Option<Family>,
    qualifiers: impl IntoIterator<Item = Bytes>,
) -> Selection {
    match family {
        None => Selection::all(),
        Some(family) => Selection::all().columns(family_name(family), qualifiers),
    }
}

/// Times from the first up to but not with the second; what is before the epoch is not stored.
pub(crate) fn time_range(range: Option<(i64, i64)>) -> Result<Option<TimeRange>, StorageError> {
    let Some((from, to)) = range else { return Ok(None) };
    let (from, to) = (from.max(0).unsigned_abs(), to.max(0).unsigned_abs());
    TimeRange::try_new(from, to.max(from)).map(Some).map_err(|error| refused(&error))
}

/// A read of one row; `None` where no row can have that key.
pub(crate) fn hbase_get(get: Get, times: Option<TimeRange>) -> Option<HBaseGet> {
    let mut selection = selection(get.family, get.qualifiers);
    if let Some(times) = times {
        selection = selection.time_range(times);
    }
    Some(HBaseGet::try_new(get.row).ok()?.select(selection))
}

/// A timestamp as HBase takes it.
pub(crate) fn timestamp(timestamp_ms: i64) -> Result<u64, StorageError> {
    u64::try_from(timestamp_ms).map_err(|_| {
        StorageError::Backend(format!("cell time {timestamp_ms} is before 1970").into())
    })
}
