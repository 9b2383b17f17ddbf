//! Translates requests of the trait to requests of the client.

use bytes::Bytes;
use hbase_rs::{Get as HBaseGet, Put, Selection, TimeRange};
use tsd_model::{Cell, Family};
use tsd_storage::{Get, StorageError};

use crate::error::invalid;

/// Returns the name of a family, without an allocation.
pub(crate) const fn family_name(family: Family) -> Bytes {
    Bytes::from_static(family.as_str().as_bytes())
}

/// The selected columns.
pub(crate) fn selection(
    family: Option<Family>,
    qualifiers: impl IntoIterator<Item = Bytes>,
) -> Selection {
    match family {
        None => Selection::all(),
        Some(family) => Selection::all().columns(family_name(family), qualifiers),
    }
}

/// Converts a half-open range of timestamps. Clamps it to the epoch, because HBase has no earlier
/// timestamps.
pub(crate) fn time_range(range: Option<(i64, i64)>) -> Result<Option<TimeRange>, StorageError> {
    let Some((from, to)) = range else { return Ok(None) };
    let (from, to) = (from.max(0).unsigned_abs(), to.max(0).unsigned_abs());
    TimeRange::try_new(from, to.max(from)).map(Some).map_err(invalid)
}

/// Returns a Get of one row; `None` if the row key is invalid.
pub(crate) fn hbase_get(get: Get, times: Option<TimeRange>) -> Option<HBaseGet> {
    let mut selection = selection(get.family, get.qualifiers);
    if let Some(times) = times {
        selection = selection.time_range(times);
    }
    Some(HBaseGet::try_new(get.row).ok()?.select(selection))
}

/// Returns a Get of all points of a row.
pub(crate) fn get_points(row: &Bytes) -> Get {
    Get { family: Some(Family::T), ..Get::row(row.clone()) }
}

/// Returns a Put of cells to one row, with their times.
pub(crate) fn put_cells<'c>(
    row: Bytes,
    cells: impl IntoIterator<Item = &'c Cell>,
) -> Result<Put, StorageError> {
    cells.into_iter().try_fold(Put::try_new(row).map_err(invalid)?, |put, cell| {
        let at = timestamp(cell.timestamp_ms)?;
        put.cell(cell.family.as_str().as_bytes(), &cell.qualifier, at, &cell.value).map_err(invalid)
    })
}

/// Converts a timestamp to HBase's type.
pub(crate) fn timestamp(timestamp_ms: i64) -> Result<u64, StorageError> {
    u64::try_from(timestamp_ms).map_err(|_| {
        StorageError::Backend(format!("cell time {timestamp_ms} is before 1970").into())
    })
}
