//! What a check repairs, and how severe its findings are.

/// What a check repairs. Without `fix` nothing is written, except by the setting that repairs append
/// columns.
#[expect(clippy::struct_excessive_bools, reason = "independent options, as in OpenTSDB")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsckOptions {
    /// Write repairs; all others need it.
    pub fix: bool,
    /// Write all points of a row as one column. Rows that have a compacted column are in any case.
    pub compact: bool,
    /// Remove all points of an instant but one.
    pub resolve_duplicates: bool,
    /// Keep the point that was written last, not the first one.
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
    /// About a repair.
    Info,
    /// Something that is not counted as an error, or was left as it is.
    Warn,
    /// An error.
    Error,
}
