//! The points of stored columns. When they were written, their columns do not tell.

use std::iter;

use tsd_model::{Cell, ColumnKind, Family, PointReader, Qualifier, StoredPoint};

/// True if a column has points.
fn is_of_points(qualifier: &[u8]) -> bool {
    matches!(ColumnKind::of(qualifier), ColumnKind::Point | ColumnKind::Compacted)
}

/// True if a column has points, one of them at such an offset in the hour.
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

/// The points of a stored cell. Those before a damaged one are returned as well; reads of the row
/// report the damage.
pub(super) fn points_of(cell: &Cell) -> impl Iterator<Item = StoredPoint<'_>> {
    let of_points = cell.family == Family::T && is_of_points(&cell.qualifier);
    let reader = of_points.then(|| PointReader::new(&cell.qualifier, &cell.value).ok()).flatten();
    reader.into_iter().flat_map(|mut reader| iter::from_fn(move || reader.next_point().ok()?))
}

/// The qualifier of a cell that is one valid point.
pub(crate) fn point_qualifier(family: Family, qualifier: &[u8], value: &[u8]) -> Option<Qualifier> {
    if family != Family::T || ColumnKind::of(qualifier) != ColumnKind::Point {
        return None;
    }
    let qualifier = Qualifier::decode(qualifier)?;
    let flags = qualifier.flags();
    (flags.is_valid() && flags.value_len() == value.len()).then_some(qualifier)
}
