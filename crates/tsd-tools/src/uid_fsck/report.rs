//! Result of the check of the UID table.

/// Result of a check of the UID table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UidFsckReport {
    /// Cells of the table.
    pub cells: u64,
    /// Errors, as OpenTSDB counts them.
    pub errors: u64,
    /// Findings that are not errors.
    pub warnings: u64,
    /// Repairs that were written.
    pub repairs: u64,
    /// True if a repair is not possible.
    pub has_failed_repair: bool,
    /// True if the observer ended the check early.
    pub is_stopped: bool,
}
