//! Work on the manifest that was begun or is wanted. It is done in `maintenance.rs`.

use tsd_cluster::{ManifestChange, SegmentOpening};
use tsd_storage_wal::LogPosition;

/// Work on the manifest.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    /// What was begun. Its changes may be made already, so it is finished before anything else.
    pub(crate) begun: Option<BegunWork>,
    pub(crate) next_stripe: u8,
}

#[derive(Debug)]
pub(crate) enum BegunWork {
    Open(SegmentOpening),
    Change(ManifestChange),
}

/// Up to where the log is to be trimmed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TrimGoal {
    /// Position in the log of this owner.
    pub(crate) watermark: u64,
    /// The last of the earlier owners whose rows are stored.
    pub(crate) former: u64,
    pub(crate) last_commit_ms: i64,
    pub(crate) is_open: bool,
}

impl TrimGoal {
    pub(crate) fn raise(&mut self, to: LogPosition, last_commit_ms: i64) {
        if to.sequence == u64::MAX {
            self.former = self.former.max(to.incarnation);
        } else {
            self.watermark = self.watermark.max(to.sequence);
        }
        self.last_commit_ms = last_commit_ms;
        self.is_open = true;
    }
}
