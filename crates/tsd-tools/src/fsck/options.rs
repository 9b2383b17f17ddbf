//! Repairs of a check, and the severity of its findings.

/// Repairs that a check makes. Without `fix` it writes nothing, unless the setting to repair append columns is on.
#[expect(clippy::struct_excessive_bools, reason = "independent options, as in OpenTSDB")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsckOptions {
    /// Write repairs. All other repairs need it.
    pub fix: bool,
    /// Write all points of a row as one column. Rows with a compacted column are always rewritten so.
    pub compact: bool,
    /// Remove all points of an instant except one.
    pub resolve_duplicates: bool,
    /// Keep the point that was written last, instead of the first.
    pub last_write_wins: bool,
    /// Delete rows with a UID that has no name.
    pub delete_orphans: bool,
    /// Delete columns that no version writes.
    pub delete_unknown_columns: bool,
    /// Delete points whose value cannot be read.
    pub delete_bad_values: bool,
    /// Delete rows with an invalid key.
    pub delete_bad_rows: bool,
    /// Delete compacted columns that cannot be split.
    pub delete_bad_compacts: bool,
}

/// Severity of a line of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FsckLevel {
    /// A report of a repair.
    Info,
    /// A finding that is not counted as an error, or that was not repaired.
    Warn,
    /// An error.
    Error,
}
