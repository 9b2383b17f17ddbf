//! Errors in the cells of a data row.

use bytes::Bytes;

use crate::{java_text::java_byte_list, packed_run::PackedRunError, point_value::ValueError};

/// A row that cannot be decoded. Messages that OpenTSDB's clients see are OpenTSDB's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowError {
    /// Two points of one instant with different values.
    #[error(
        "Duplicate timestamp for key={}, ms_offset={offset_ms}, older={}, newer={}; set \
         tsd.storage.fix_duplicates=true to fix automatically or run Fsck",
        java_byte_list(key),
        java_byte_list(newest),
        java_byte_list(other)
    )]
    Duplicate {
        /// Row key.
        key: Bytes,
        /// Offset of the instant from the base time.
        offset_ms: u32,
        /// Value of the cell written last; the message calls it the older one, as OpenTSDB does.
        newest: Bytes,
        /// The other value.
        other: Bytes,
    },
    /// Two rollup values of one aggregator in one slot.
    #[error(
        "Duplicate timestamp for key={}, slot={slot}; set tsd.storage.fix_duplicates=true to fix \
         automatically",
        java_byte_list(key)
    )]
    RollupDuplicate {
        /// Row key.
        key: Bytes,
        /// Slot in the row.
        slot: u16,
    },
    /// An inconsistent column of points.
    #[error("{problem}")]
    Column {
        /// Qualifier of the column.
        qualifier: Bytes,
        /// The problem.
        problem: ColumnError,
    },
    /// A column with the prefix of an append column, but another length.
    #[error(
        "Can not parse cell, it is not  an appended cell. It has a different qualifier {}, row key {}",
        java_byte_list(qualifier),
        java_byte_list(key)
    )]
    NotAnAppend {
        /// Row key.
        key: Bytes,
        /// The qualifier.
        qualifier: Bytes,
    },
    /// A packed run that cannot be decoded.
    #[error("packed run of row {}", java_byte_list(key))]
    Run {
        /// Row key.
        key: Bytes,
        /// The problem.
        source: PackedRunError,
    },
}

/// Error in one column of points.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ColumnError {
    /// A point without a value.
    #[error("empty value")]
    EmptyValue,
    /// A single stored on eight bytes whose first four are not zero.
    #[error(
        "Corrupted floating point value: {} flags=0x{:x} -- first 4 bytes are expected to be zeros.",
        java_byte_list(value), i32::from(*flags as i8)
    )]
    CorruptFloat {
        /// The eight bytes.
        value: [u8; 8],
        /// Last byte of the qualifier.
        flags: u8,
    },
    /// A value whose length does not fit its type.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The column ends inside a qualifier.
    #[error("qualifiers end inside one")]
    CutQualifier,
    /// The column ends inside a value.
    #[error("value of {needed} bytes has {left}")]
    CutValue {
        /// Length in the qualifier, bytes.
        needed: usize,
        /// Actual length, bytes.
        left: usize,
    },
    /// Not exactly one byte after the last value.
    #[error("{0} bytes after the last value instead of one")]
    Tail(usize),
    /// An append column that ends inside an entry.
    #[error(
        "Corrupted value: couldn't break down into individual values (consumed {consumed} bytes, \
         but was expecting to consume {length})"
    )]
    CutAppend {
        /// Bytes of complete entries, and of the qualifier of the truncated one if complete.
        consumed: usize,
        /// Bytes of the column.
        length: usize,
    },
}
