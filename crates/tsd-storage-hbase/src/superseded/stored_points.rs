//! Points of stored columns, without the times of their writes, which columns do not have.

use std::iter;

use tsd_model::{Cell, ColumnKind, Family, PointReader, Qualifier, StoredPoint};

/// True if a column has points.
fn is_of_points(qualifier: &[u8]) -> bool {
    matches!(ColumnKind::of(qualifier), ColumnKind::Point | ColumnKind::Compacted)
}

/// True if a column has a point at an offset in the hour that satisfies `is_instant`.
pub(super) fn has_instant(qualifier: &[u8], is_instant: impl Fn(u32) -> bool) -> bool {
    let mut rest = qualifier;
    while is_of_points(qualifier)
        && let Some((first, others)) = Qualifier::split_first(rest)
    {
        if is_instant(first.offset_ms()) {
            return true;
        }
        rest = others;
    }
    false
}

/// Iterates over the points of a stored cell. If a point is damaged, returns the points before it;
/// reads of the row report the damage.
pub(super) fn points_of(cell: &Cell) -> impl Iterator<Item = StoredPoint<'_>> {
    let of_points = cell.family == Family::T && is_of_points(&cell.qualifier);
    let reader = of_points.then(|| PointReader::new(&cell.qualifier, &cell.value).ok()).flatten();
    reader.into_iter().flat_map(|mut reader| iter::from_fn(move || reader.next_point().ok()?))
}

/// Returns the qualifier of a cell that is a single valid point.
pub(crate) fn point_qualifier(family: Family, qualifier: &[u8], value: &[u8]) -> Option<Qualifier> {
    if family != Family::T || ColumnKind::of(qualifier) != ColumnKind::Point {
        return None;
    }
    let qualifier = Qualifier::decode(qualifier)?;
    let flags = qualifier.flags();
    (flags.is_valid() && flags.value_len() == value.len()).then_some(qualifier)
}
