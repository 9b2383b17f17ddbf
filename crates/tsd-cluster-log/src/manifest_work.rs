//! State of the work on the manifest, which `maintenance.rs` does.

use tsd_cluster::{ManifestChange, SegmentOpening};
use tsd_storage_wal::LogPosition;

/// Work on the manifest.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    /// Work in progress. Its changes may be made already, so it is finished before any other work.
    pub(crate) begun: Option<BegunWork>,
    pub(crate) next_stripe: u8,
}

#[derive(Debug)]
pub(crate) enum BegunWork {
    Open(SegmentOpening),
    Change(ManifestChange),
    /// A heartbeat, and when its first attempt began, milliseconds since boot.
    Beat(ManifestChange, u64),
}

/// Position up to which the log has to be trimmed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TrimGoal {
    /// Position in the log of this owner.
    pub(crate) watermark: u64,
    /// The last earlier owner whose rows are stored.
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
