//! Removes series from the index whose rows a retention has dropped.

use std::{ops::Range, sync::atomic::Ordering};

use tsd_storage::StorageError;

use super::TableSeries;

impl TableSeries {
    /// Removes the days in a range of times (epoch seconds) whose spans were dropped, and series without days. It
    /// waits until a quarter of the series of a metric can go, so that each series is copied only a few times.
    /// Queries and writers continue. `checkpoint` is called between two steps and stops the run by returning
    /// false.
    pub(crate) fn reclaim(
        &self,
        dropped: Range<u32>,
        checkpoint: &mut dyn FnMut() -> bool,
    ) -> Result<(), StorageError> {
        // A running build adds no row of these days.
        self.index.remove_days(dropped);
        let mut removed = 0;
        for metric in self.index.metrics() {
            let Some(live) = self.index.copy_live(metric, checkpoint) else { continue };
            // The lock prevents appends to the file until it is marked as renumbered.
            let mut file = self.file();
            file.is_renumbered = true;
            removed += self.index.install(live);
        }
        self.reclaimed.fetch_add(removed, Ordering::Relaxed);
        // If this write fails, the next flush writes the index. After a kill, the file has a superset.
        let mut file = self.file();
        if file.is_renumbered && self.index.is_complete() {
            self.write(&mut file, true)?;
            tracing::info!(table = %self.table, removed, "series without rows left the series index");
        }
        Ok(())
    }
}
