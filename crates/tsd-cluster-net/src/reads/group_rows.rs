//! Held rows of a read with several scans, which asks the members only once for all scans.
//!
//! The rows are taken before the first scan opens. So each scan sees all points that were acknowledged before the
//! read began. If the rows exceed `chunk_bytes`, the scans of later ranges ask the members again.

use parking_lot::Mutex;

use tsd_storage::KeyRange;

use super::fetch::TakenRows;

/// Rows taken for several scans.
pub(super) struct GroupRows(Mutex<Vec<Option<TakenRows>>>);

impl GroupRows {
    pub(super) fn new(taken: TakenRows, ranges: &[KeyRange]) -> Self {
        Self(Mutex::new(taken.divide(ranges)))
    }

    /// Returns the rows for a scan of the range with this index, or of a fraction of the range. `None` if they were
    /// not taken, or another scan already got them.
    pub(super) fn take(&self, at: usize, scanned: &KeyRange) -> Option<TakenRows> {
        let mut divided = self.0.lock();
        divided.get_mut(at)?.take()?.within(scanned)
    }
}
