//! Live parts whose files were missing when the directory was last listed.

use std::time::SystemTime;

/// Live parts whose files are missing.
#[derive(Debug, Default)]
pub(super) struct MissingParts {
    /// Time of the last change of the directory when it was listed.
    pub(super) listed: Option<SystemTime>,
    /// Numbers of the parts.
    pub(super) files: Vec<u64>,
}
