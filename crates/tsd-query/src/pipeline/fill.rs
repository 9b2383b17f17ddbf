//! Fill policies, which produce a point for every interval of a grid, with or without data.
//!
//! The grid is derived from the range of the scan, not from the data. Data in calendar intervals
//! that are not aligned with it is dropped, and the calendar grid lacks the interval that contains
//! the end of the scan. Both match OpenTSDB.

use tsd_model::{PointColumns, Value};

use super::calendar::Calendar;
use crate::{
    error::{DataError, LimitError, QueryError},
    request::FillPolicy,
};

/// Times that are filled.
#[derive(Clone, Debug)]
pub(super) enum FillGrid {
    /// Multiples of an interval.
    Fixed(i64),
    /// A chain of calendar intervals.
    Calendar(Calendar),
}

impl FillGrid {
    /// First time, inclusive, and end, exclusive.
    fn range(&self, (scan_start_ms, scan_end_ms): (i64, i64)) -> (i64, i64) {
        match self {
            Self::Fixed(interval) => (
                scan_start_ms - scan_start_ms.rem_euclid(*interval),
                scan_end_ms - scan_end_ms.rem_euclid(*interval),
            ),
            Self::Calendar(calendar) => {
                let first = calendar.anchor(scan_start_ms);
                let end = calendar.anchor(scan_end_ms);
                // Even the shortest range has one interval.
                (first, end.max(first.saturating_add(1)))
            }
        }
    }

    /// Upper estimate of the number of times.
    pub(super) fn len(&self, scan: (i64, i64)) -> u64 {
        let shortest = match self {
            Self::Fixed(interval) => *interval,
            Self::Calendar(calendar) => calendar.shortest_ms(),
        };
        let (first, end) = self.range(scan);
        (end.saturating_sub(first) / shortest.max(1)).max(0) as u64
    }
}

/// Aligns points to the grid of a scan and fills the gaps. Fails above `max_points`. The first time
/// may be before the scan; a rate needs it, but the result does not include it.
pub(super) fn fill(
    points: &PointColumns,
    grid: &FillGrid,
    policy: FillPolicy,
    scan: (i64, i64),
    max_points: usize,
) -> Result<PointColumns, QueryError> {
    let absent = match policy {
        FillPolicy::Zero => Some(0.0),
        FillPolicy::Nan | FillPolicy::Null => Some(f64::NAN),
        FillPolicy::None | FillPolicy::Scalar => None,
    };
    let (first, end) = grid.range(scan);
    let expected = grid.len(scan);
    if expected > max_points as u64 {
        return Err(LimitError::DataPoints { limit: max_points as u64 }.into());
    }
    let mut filled = PointColumns::default();
    // The query reserved memory for `expected` points; a vector that grows may take twice that.
    filled.times_ms.reserve_exact(expected as usize);
    filled.bits.reserve_exact(expected as usize);
    let mut next_point = 0;
    let mut at = first;
    while at < end {
        while points.times_ms.get(next_point).is_some_and(|time| *time < at) {
            next_point += 1;
        }
        let value = match points.times_ms.get(next_point) {
            Some(time) if *time == at => points.value(next_point),
            _ => match absent {
                Some(value) => Some(Value::Float(value)),
                None => return Err(DataError::NoFillValue.into()),
            },
        };
        if let Some(value) = value {
            filled.push(at, value);
        }
        let following = match grid {
            FillGrid::Fixed(interval) => at.saturating_add(*interval),
            FillGrid::Calendar(calendar) => calendar.next(at),
        };
        if following <= at {
            break;
        }
        at = following;
    }
    Ok(filled)
}
