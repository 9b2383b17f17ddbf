//! Options of the check of the UID table, and the receiver of its lines.

use crate::fsck::FsckLevel;

/// Options of a check of the UID table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UidFsckOptions {
    /// Write repairs.
    pub fix: bool,
    /// With `fix`: delete columns that no version of OpenTSDB writes.
    pub delete_unknown: bool,
}

/// Receives the lines of the check.
pub trait UidFsckObserver: Send {
    /// A finding or a repair, with its severity.
    fn found(&mut self, level: FsckLevel, text: &str);

    /// Reports the number of rows that were read so far, in several scans. The check ends early if it returns false.
    fn continues(&mut self, rows: u64) -> bool {
        let _ = rows;
        true
    }
}

impl<F: FnMut(FsckLevel, &str) + Send> UidFsckObserver for F {
    fn found(&mut self, level: FsckLevel, text: &str) {
        self(level, text);
    }
}
