//! The cells behind a duplicate instant, for error messages.

use bytes::Bytes;

use crate::{
    cell::{Family, Row},
    column_kind::ColumnKind,
    hex::to_hex,
    point_column::{AppendedPoints, PointReader, StoredPoint},
};

/// One of several stored points of an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictingPoint {
    /// Qualifier of the point.
    pub qualifier: Bytes,
    /// Value of the point.
    pub value: Bytes,
    /// Timestamp of its cell, epoch milliseconds.
    pub written_ms: i64,
    /// Number of points in its column.
    pub column_points: usize,
}

impl std::fmt::Display for ConflictingPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (qualifier, value) = (to_hex(&self.qualifier), to_hex(&self.value));
        write!(f, "{qualifier}={value} written at {}", self.written_ms)?;
        match self.column_points {
            0 | 1 => Ok(()),
            points => write!(f, " in a column of {points} points"),
        }
    }
}

/// Stored points of the instant at `offset_ms` in the row, the newest cell first. Cells that cannot be
/// decoded are skipped.
#[must_use]
pub fn conflicting_points(row: &Row, offset_ms: u32) -> Vec<ConflictingPoint> {
    let cells = row.clone().into_cells().unwrap_or_default();
    let mut found = Vec::new();
    for cell in cells.iter().filter(|cell| cell.family == Family::T) {
        let points = match ColumnKind::of(&cell.qualifier) {
            ColumnKind::Point | ColumnKind::Compacted => read(&cell.qualifier, &cell.value),
            ColumnKind::Append => AppendedPoints::decode(&cell.value)
                .map_or_else(|_| Vec::new(), |points| points.points().to_vec()),
            _ => continue,
        };
        let column_points = points.len();
        let of_instant = points.iter().filter(|p| p.qualifier.offset_ms() == offset_ms);
        found.extend(of_instant.map(|point| ConflictingPoint {
            qualifier: Bytes::copy_from_slice(point.qualifier.as_bytes()),
            value: Bytes::copy_from_slice(point.value),
            written_ms: cell.timestamp_ms,
            column_points,
        }));
    }
    found.sort_by_key(|point| (std::cmp::Reverse(point.written_ms), point.column_points));
    found
}

fn read<'a>(qualifier: &'a [u8], value: &'a [u8]) -> Vec<StoredPoint<'a>> {
    let mut points = Vec::new();
    if let Ok(mut reader) = PointReader::new(qualifier, value) {
        while let Ok(Some(point)) = reader.next_point() {
            points.push(point);
        }
    }
    points
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::{cell::Cell, hex::from_hex};

    #[test]
    fn both_cells_of_an_instant_are_named() {
        let cell = |qualifier: &str, value: &str, timestamp_ms| Cell {
            family: Family::T,
            qualifier: from_hex(qualifier.as_bytes()).unwrap().into(),
            value: from_hex(value.as_bytes()).unwrap().into(),
            timestamp_ms,
        };
        let cells = vec![
            cell("00000010", "010200", 7),
            cell("0001", "012C", 9),
            cell("0020", "05", 11),
            cell("010005", "7B7D", 12),
        ];
        let row = Row::from_cells(Bytes::from_static(b"row"), cells);
        let found: Vec<String> =
            conflicting_points(&row, 0).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["0001=012C written at 9", "0000=01 written at 7 in a column of 2 points"]
        );
    }
}
