//! Kind of a column of a data row, from its qualifier.
//!
//! The parity of the length decides first, the prefix second. A point at 16 s of the hour has the
//! same first byte as an annotation, and a point at 80 s the same as an append column. OpenTSDB's
//! fsck misses this and deletes valid points.

/// Kind of a column in family `t` of the data table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnKind {
    /// One point.
    Point,
    /// Several points in one column.
    Compacted,
    /// An annotation.
    Annotation,
    /// An append column.
    Append,
    /// Five bytes with the prefix of an append column. No program writes such columns; queries fail
    /// on them.
    BadAppend,
    /// A histogram.
    Histogram,
    /// Anything else; readers skip it.
    Unknown,
}

/// First byte of annotation qualifiers.
pub(crate) const ANNOTATION_PREFIX: u8 = 1;
/// First byte of append columns.
pub(crate) const APPEND_PREFIX: u8 = 5;
/// First byte of histogram qualifiers.
pub(crate) const HISTOGRAM_PREFIX: u8 = 6;

impl ColumnKind {
    /// Qualifier of written append columns; readers accept any last two bytes.
    pub const APPEND_QUALIFIER: [u8; 3] = [APPEND_PREFIX, 0, 0];

    /// Returns the kind of a column.
    #[must_use]
    #[inline]
    pub const fn of(qualifier: &[u8]) -> Self {
        match *qualifier {
            [first, _] if first < 0xF0 => Self::Point,
            [first, _, _, _] if first >= 0xF0 => Self::Point,
            [] | [_, _] => Self::Unknown,
            _ if qualifier.len().is_multiple_of(2) => Self::Compacted,
            [ANNOTATION_PREFIX, _, _] | [ANNOTATION_PREFIX, _, _, _, _] => Self::Annotation,
            [APPEND_PREFIX, _, _] => Self::Append,
            [APPEND_PREFIX, _, _, _, _] => Self::BadAppend,
            [HISTOGRAM_PREFIX, _, _] | [HISTOGRAM_PREFIX, _, _, _, _] => Self::Histogram,
            _ => Self::Unknown,
        }
    }

    /// True for columns of points under their own qualifiers.
    #[must_use]
    #[inline]
    pub const fn is_points(self) -> bool {
        matches!(self, Self::Point | Self::Compacted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(qualifier: &[u8], expected: ColumnKind) {
        assert_eq!(ColumnKind::of(qualifier), expected, "{qualifier:02X?}");
    }

    #[test]
    fn parity_decides_before_the_prefix() {
        check(&[0x05, 0x50], ColumnKind::Point);
        check(&[0x01, 0x00], ColumnKind::Point);
        check(&[0x06, 0x40], ColumnKind::Point);
        check(&[0x05, 0x0B, 0x05, 0x1B], ColumnKind::Compacted);
        check(&[0xF0, 0, 0, 0], ColumnKind::Point);
        check(&[0, 0, 0, 0x10], ColumnKind::Compacted);
        check(&[0; 6], ColumnKind::Compacted);
    }

    #[test]
    fn prefix_decides_for_odd_lengths() {
        check(&[1, 0, 0], ColumnKind::Annotation);
        check(&[1, 0, 0, 0, 0], ColumnKind::Annotation);
        check(&[5, 0, 0], ColumnKind::Append);
        check(&[5, 7, 9], ColumnKind::Append);
        check(&[5, 0, 0, 0, 0], ColumnKind::BadAppend);
        check(&[6, 0, 0], ColumnKind::Histogram);
        check(&[6, 0, 0, 0, 0], ColumnKind::Histogram);
        check(&[7, 0, 0], ColumnKind::Unknown);
        check(&[0], ColumnKind::Unknown);
        check(&[1; 7], ColumnKind::Unknown);
        check(&[], ColumnKind::Unknown);
        check(&[0xF0, 0], ColumnKind::Unknown);
    }
}
