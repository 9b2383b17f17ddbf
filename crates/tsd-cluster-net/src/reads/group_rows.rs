//! Held rows of a read that is divided into several scans: the members are asked once for all of them.
//!
//! They are taken before the first of the scans opens, so the others see what was acknowledged until then: more than
//! was before the read began. If there are more than a part's worth, the scans of later ranges ask for themselves.

use std::sync::{Mutex, PoisonError};

use tsd_storage::KeyRange;

use super::fetch::TakenRows;

/// Rows that were taken for several scans.
pub(super) struct GroupRows(Mutex<Vec<Option<TakenRows>>>);

impl GroupRows {
    pub(super) fn new(taken: TakenRows, ranges: &[KeyRange]) -> Self {
        Self(Mutex::new(taken.divide(ranges)))
    }

    /// The rows for a scan of the range with this index, or of a part of it. `None` if they were not taken, or another
    /// scan has got them.
    pub(super) fn take(&self, at: usize, scanned: &KeyRange) -> Option<TakenRows> {
        let mut divided = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        divided.get_mut(at)?.take()?.within(scanned)
    }
}
