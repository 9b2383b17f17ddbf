//! Name and format of the list of files of a snapshot.

/// Name of the list in the directory of a snapshot.
pub const SNAPSHOT_LIST: &str = "snapshot.json";
/// The format that this version writes and reads.
pub(super) const LIST_FORMAT: u64 = 1;
