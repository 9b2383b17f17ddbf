//! Columns of points: single, compacted, or append columns.
//!
//! OpenTSDB has two readers of compacted columns that disagree: the one of queries ignores the tail,
//! the one of fsck requires exactly one byte. Both are implemented. Columns without the trailing byte
//! exist: OpenTSDB's batch API writes them.

use crate::{
    column_kind::ColumnKind,
    flags::Flags,
    point_value::{PointValue, ValueError},
    qualifier::Qualifier,
    row_error::ColumnError,
};

/// A point as stored in a column: qualifier and value bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredPoint<'a> {
    /// Qualifier of the point.
    pub qualifier: Qualifier,
    /// Value bytes, of the length in the qualifier, valid for the type.
    pub value: &'a [u8],
}

impl<'a> StoredPoint<'a> {
    /// Validates the length of the value against flags and type.
    fn try_new(qualifier: Qualifier, value: &'a [u8]) -> Result<Self, ValueError> {
        let flags = qualifier.flags();
        if value.len() == flags.value_len() && flags.is_valid() {
            return Ok(Self { qualifier, value });
        }
        Err(wrong_length(flags, value.len()))
    }

    /// The value.
    pub fn point_value(&self) -> Result<PointValue, ValueError> {
        PointValue::decode(self.qualifier.flags(), self.value)
    }
}

const fn wrong_length(flags: Flags, actual: usize) -> ValueError {
    if actual != flags.value_len() {
        ValueError::Length { expected: flags.value_len(), actual }
    } else if flags.is_float() {
        ValueError::FloatLength(actual)
    } else {
        ValueError::IntegerLength(actual)
    }
}

/// Reads the points of a column with an even qualifier as OpenTSDB's queries do.
///
/// Bytes after the last value are ignored. As in OpenTSDB, points without any value bytes are
/// skipped; a truncated value is an error.
#[derive(Clone, Debug)]
pub struct PointReader<'a> {
    qualifiers: &'a [u8],
    values: &'a [u8],
    single: bool,
    fixed: bool,
}

impl<'a> PointReader<'a> {
    /// Creates a reader of a column.
    pub const fn new(qualifier: &'a [u8], value: &'a [u8]) -> Result<Self, ColumnError> {
        if value.is_empty() {
            return Err(ColumnError::EmptyValue);
        }
        Ok(Self {
            qualifiers: qualifier,
            values: value,
            single: qualifier.len() == 2,
            fixed: false,
        })
    }

    /// The next point.
    pub fn next_point(&mut self) -> Result<Option<StoredPoint<'a>>, ColumnError> {
        if self.qualifiers.is_empty() || self.values.is_empty() {
            return Ok(None);
        }
        let (qualifier, rest) =
            Qualifier::split_first(self.qualifiers).ok_or(ColumnError::CutQualifier)?;
        self.qualifiers = rest;
        if self.single {
            let (point, fixed) = fix_up(qualifier, self.values)?;
            self.values = &[];
            self.fixed = fixed;
            return Ok(Some(point));
        }
        let needed = qualifier.flags().value_len();
        let (value, rest) = self
            .values
            .split_at_checked(needed)
            .ok_or(ColumnError::CutValue { needed, left: self.values.len() })?;
        self.values = rest;
        Ok(Some(StoredPoint::try_new(qualifier, value)?))
    }

    /// True if the last point needed a repair.
    #[must_use]
    pub const fn was_fixed(&self) -> bool {
        self.fixed
    }

    /// Bytes after the last value.
    #[must_use]
    pub const fn tail(&self) -> &'a [u8] {
        self.values
    }
}

/// Repairs defects of old writers in single two-byte cells: a single on eight bytes with four leading
/// zeros, and length bits that differ from the length of the value. Returns true if it did.
pub fn fix_up(qualifier: Qualifier, value: &[u8]) -> Result<(StoredPoint<'_>, bool), ColumnError> {
    let flags = qualifier.flags();
    let mut repaired = value;
    if flags == Flags::SINGLE
        && let Ok(eight) = <[u8; 8]>::try_from(value)
    {
        let Some(four) = value.strip_prefix(&[0; 4]) else {
            let byte = qualifier.as_bytes().last().copied().unwrap_or_default();
            return Err(ColumnError::CorruptFloat { value: eight, flags: byte });
        };
        repaired = four;
    }
    if repaired.is_empty() {
        return Err(ColumnError::EmptyValue);
    }
    let right = flags.with_len(repaired.len()).ok_or(if flags.is_float() {
        ValueError::FloatLength(repaired.len())
    } else {
        ValueError::IntegerLength(repaired.len())
    })?;
    let point = StoredPoint { qualifier: qualifier.with_flags(right), value: repaired };
    Ok((point, right != flags || repaired.len() != value.len()))
}

/// Reads all points of a column with an even qualifier by the rules of fsck: every qualifier has its
/// value, and exactly one byte follows the last of several points.
pub fn read_points_strictly<'a>(
    qualifier: &'a [u8],
    value: &'a [u8],
) -> Result<Vec<StoredPoint<'a>>, ColumnError> {
    if let Some(single) = Qualifier::decode(qualifier) {
        return Ok(vec![StoredPoint::try_new(single, value)?]);
    }
    let (mut qualifiers, mut values) = (qualifier, value);
    let mut points = Vec::new();
    while !qualifiers.is_empty() {
        let (first, rest) = Qualifier::split_first(qualifiers).ok_or(ColumnError::CutQualifier)?;
        let needed = first.flags().value_len();
        let (bytes, left) = values
            .split_at_checked(needed)
            .ok_or(ColumnError::CutValue { needed, left: values.len() })?;
        points.push(StoredPoint::try_new(first, bytes)?);
        (qualifiers, values) = (rest, left);
    }
    if values.len() == 1 { Ok(points) } else { Err(ColumnError::Tail(values.len())) }
}

/// Encodes points as one column, in the given order: qualifiers, and values with the trailing byte,
/// which is 1 if seconds and milliseconds are mixed. A single point is an ordinary cell.
#[must_use]
pub fn encode_column(points: &[StoredPoint<'_>]) -> (Vec<u8>, Vec<u8>) {
    let mut qualifiers = Vec::with_capacity(points.len() * 4);
    let mut values = Vec::with_capacity(points.len() * 8 + 1);
    let (mut seconds, mut millis) = (false, false);
    for point in points {
        qualifiers.extend_from_slice(point.qualifier.as_bytes());
        values.extend_from_slice(point.value);
        millis |= point.qualifier.is_millis();
        seconds |= !point.qualifier.is_millis();
    }
    if points.len() > 1 {
        values.push(u8::from(seconds && millis));
    }
    (qualifiers, values)
}

/// The points of an append column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendedPoints<'a> {
    points: Vec<StoredPoint<'a>>,
    needs_repair: bool,
}

impl<'a> AppendedPoints<'a> {
    /// Decodes the value of an append column: qualifier, value, qualifier, value, in append order. A
    /// later entry replaces an earlier one of the same instant.
    pub fn decode(value: &'a [u8]) -> Result<Self, ColumnError> {
        let mut points: Vec<StoredPoint<'a>> = Vec::new();
        let mut needs_repair = false;
        let mut rest = value;
        while !rest.is_empty() {
            let cut = |rest: &[u8]| ColumnError::CutAppend {
                consumed: value.len() - rest.len(),
                length: value.len(),
            };
            let (qualifier, after) = Qualifier::split_first(rest).ok_or_else(|| cut(rest))?;
            let (bytes, after) =
                after.split_at_checked(qualifier.flags().value_len()).ok_or_else(|| cut(after))?;
            needs_repair |=
                points.last().is_some_and(|p| p.qualifier.offset_ms() >= qualifier.offset_ms());
            points.push(StoredPoint::try_new(qualifier, bytes)?);
            rest = after;
        }
        if needs_repair {
            points.reverse();
            points.sort_by_key(|p| p.qualifier.offset_ms());
            points.dedup_by_key(|p| p.qualifier.offset_ms());
        }
        Ok(Self { points, needs_repair })
    }

    /// The points in time order, one per instant.
    #[must_use]
    pub fn points(&self) -> &[StoredPoint<'a>] {
        &self.points
    }

    /// True if entries were out of order or repeated.
    #[must_use]
    pub const fn needs_repair(&self) -> bool {
        self.needs_repair
    }

    /// The repaired value of the column: each point once, in order.
    #[must_use]
    pub fn repaired_value(&self) -> Vec<u8> {
        let mut value = Vec::new();
        for point in &self.points {
            append_entry(point.qualifier, point.value, &mut value);
        }
        value
    }
}

/// Appends the entry of one point to `out`.
pub fn append_entry(qualifier: Qualifier, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(qualifier.as_bytes());
    out.extend_from_slice(value);
}

/// Appends all points of a column to `out`. Points of an append column are sorted by time, other
/// points keep the stored order. Columns of other kinds add no points.
pub fn read_column<'a>(
    qualifier: &'a [u8],
    value: &'a [u8],
    out: &mut Vec<StoredPoint<'a>>,
) -> Result<(), ColumnError> {
    match ColumnKind::of(qualifier) {
        ColumnKind::Point | ColumnKind::Compacted => {
            let mut reader = PointReader::new(qualifier, value)?;
            while let Some(point) = reader.next_point()? {
                out.push(point);
            }
        }
        ColumnKind::Append => out.extend_from_slice(AppendedPoints::decode(value)?.points()),
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        crate::hex::from_hex(hex.as_bytes()).unwrap()
    }

    #[track_caller]
    fn tolerant(qualifier: &str, value: &str) -> Result<Vec<String>, ColumnError> {
        let (qualifier, value) = (bytes(qualifier), bytes(value));
        let mut points = Vec::new();
        read_column(&qualifier, &value, &mut points)?;
        Ok(points.iter().map(show).collect())
    }

    fn show(point: &StoredPoint<'_>) -> String {
        let hex = crate::hex::to_hex;
        format!("{}={}", hex(point.qualifier.as_bytes()), hex(point.value))
    }

    #[test]
    fn the_tolerant_reader_ignores_the_tail() {
        for value in ["0405", "040500", "040507", "04050099"] {
            assert_eq!(tolerant("00000010", value).unwrap(), ["0000=04", "0010=05"]);
        }
    }

    #[test]
    fn points_without_value_bytes_do_not_exist() {
        assert_eq!(tolerant("07000000", "01").unwrap(), ["0700=01"]);
    }

    #[test]
    fn truncated_values_and_qualifiers_are_errors() {
        assert_eq!(
            tolerant("00030013", "0000000100"),
            Err(ColumnError::CutValue { needed: 4, left: 1 })
        );
        assert_eq!(tolerant("0000F000", "0102"), Err(ColumnError::CutQualifier));
        assert_eq!(tolerant("00000010", ""), Err(ColumnError::EmptyValue));
        assert_eq!(
            tolerant("00020010", "01020305"),
            Err(ColumnError::Value(ValueError::IntegerLength(3)))
        );
    }

    #[test]
    fn the_strict_reader_requires_one_byte_after_the_last_value() {
        let strict = |q: &str, v: &str| {
            read_points_strictly(&bytes(q), &bytes(v)).map(|points| points.len())
        };
        assert_eq!(strict("00000010", "040500"), Ok(2));
        assert_eq!(strict("00000010", "0405"), Err(ColumnError::Tail(0)));
        assert_eq!(strict("00000010", "04050000"), Err(ColumnError::Tail(2)));
        assert_eq!(strict("0000", "04"), Ok(1));
        assert_eq!(strict("050B051B", "422A0000422A000000"), Ok(2));
    }

    #[test]
    fn only_single_two_byte_cells_are_repaired() {
        assert_eq!(tolerant("001B", "0000000040866666").unwrap(), ["001B=40866666"]);
        assert_eq!(tolerant("000F", "00000001").unwrap(), ["000B=00000001"]);
        assert_eq!(tolerant("0003", "000000000000002A").unwrap(), ["0007=000000000000002A"]);
        assert_eq!(tolerant("F0000003", "000000000000002A").unwrap(), ["F0000003=00000000"]);
        assert_eq!(
            tolerant("0002", "010203"),
            Err(ColumnError::Value(ValueError::IntegerLength(3)))
        );
        assert_eq!(tolerant("0000", ""), Err(ColumnError::EmptyValue));
    }

    #[test]
    fn corrupt_floats_have_opentsdbs_message() {
        let error = tolerant("000B", "000000014228CCCD").unwrap_err();
        assert_eq!(
            error.to_string(),
            "Corrupted floating point value: [0, 0, 0, 1, 66, 40, -52, -51] flags=0xb -- first 4 \
             bytes are expected to be zeros."
        );
        let error = tolerant("0ABB", "000000014228CCCD").unwrap_err();
        assert!(error.to_string().contains("flags=0xffffffbb"));
    }

    #[test]
    fn a_later_entry_replaces_an_earlier_one() {
        let value = bytes("00002AF000000001F0007D0002");
        let appended = AppendedPoints::decode(&value).unwrap();
        assert!(appended.needs_repair());
        assert_eq!(appended.repaired_value(), bytes("F000000001F0007D0002"));
    }

    #[test]
    fn a_truncated_append_column_is_an_error() {
        let error = tolerant("050000", "00002A01E0").unwrap_err();
        assert_eq!(error, ColumnError::CutAppend { consumed: 5, length: 5 });
        assert_eq!(
            tolerant("050000", "00002A01"),
            Err(ColumnError::CutAppend { consumed: 3, length: 4 })
        );
        assert_eq!(tolerant("050000", "").unwrap(), Vec::<String>::new());
    }

    fn point() -> impl Strategy<Value = (Qualifier, Vec<u8>)> {
        let value = prop_oneof![
            (any::<i64>(), 0..64_u32).prop_map(|(v, s)| PointValue::Integer(v >> s)),
            any::<f32>().prop_map(PointValue::Single),
            any::<f64>().prop_map(PointValue::Double),
        ];
        (value, 0..3_600_000_u32, any::<bool>()).prop_map(|(value, offset, millis)| {
            let (flags, bytes) = value.encode();
            let qualifier = if millis {
                Qualifier::at_millis(offset, flags)
            } else {
                Qualifier::at_seconds(offset / 1_000, flags)
            };
            (qualifier.unwrap(), bytes.to_vec())
        })
    }

    proptest! {
        #[test]
        fn both_readers_invert_encode(points in prop::collection::vec(point(), 1..40)) {
            let points: Vec<_> = points
                .iter()
                .map(|(qualifier, value)| StoredPoint { qualifier: *qualifier, value })
                .collect();
            let (qualifier, value) = encode_column(&points);
            let mut read = Vec::new();
            read_column(&qualifier, &value, &mut read).unwrap();
            prop_assert_eq!(&read, &points);
            prop_assert_eq!(&read_points_strictly(&qualifier, &value).unwrap(), &points);
        }

        #[test]
        fn appended_entries_are_returned_in_order(points in prop::collection::vec(point(), 0..40)) {
            let mut value = Vec::new();
            for (qualifier, bytes) in &points {
                append_entry(*qualifier, bytes, &mut value);
            }
            let appended = AppendedPoints::decode(&value).unwrap();
            let offsets: Vec<_> =
                appended.points().iter().map(|p| p.qualifier.offset_ms()).collect();
            prop_assert!(offsets.is_sorted_by(|a, b| a < b));
            for (qualifier, _) in &points {
                let last = points
                    .iter()
                    .rfind(|(q, _)| q.offset_ms() == qualifier.offset_ms())
                    .map(|(q, b)| StoredPoint { qualifier: *q, value: b });
                prop_assert!(appended.points().contains(&last.unwrap()));
            }
            let repaired = appended.repaired_value();
            let again = AppendedPoints::decode(&repaired).unwrap();
            prop_assert!(!again.needs_repair());
            prop_assert_eq!(again.points(), appended.points());
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(
            qualifier in prop::collection::vec(any::<u8>(), 0..16),
            value in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut points = Vec::new();
            let _ = read_column(&qualifier, &value, &mut points);
            let _ = read_points_strictly(&qualifier, &value);
            let _ = AppendedPoints::decode(&value);
            for point in points {
                prop_assert!(point.point_value().is_ok());
            }
        }
    }
}
