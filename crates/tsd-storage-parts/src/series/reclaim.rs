//! Removes series from the index whose rows a retention has dropped.

use std::{ops::Range, sync::atomic::Ordering};

use tsd_storage::StorageError;

use super::TableSeries;

impl TableSeries {
    /// Removes the days in a range of times, epoch seconds, whose spans were dropped, and series that have no
    /// day left; a quarter of the series of a metric at a time, so that each is copied a few times in its life.
    /// Queries and writers go on. `checkpoint`, called between two steps, ends it by returning false.
    pub(crate) fn reclaim(
        &self,
        dropped: Range<u32>,
        checkpoint: &mut dyn FnMut() -> bool,
    ) -> Result<(), StorageError> {
        // A build that runs adds no row of these days.
        self.index.remove_days(dropped);
        let mut removed = 0;
        for metric in self.index.metrics() {
            let Some(live) = self.index.copy_live(&metric, checkpoint) else { continue };
            // Nothing is appended to the file between the change of the numbers and the note of it.
            let mut file = self.file();
            file.is_renumbered = true;
            removed += self.index.install(live);
        }
        self.reclaimed.fetch_add(removed, Ordering::Relaxed);
        // What cannot be written now is written by the next flush, or is a superset after a kill.
        let mut file = self.file();
        if file.is_renumbered && self.index.is_complete() {
            self.write(&mut file, true)?;
            tracing::info!(table = %self.table, removed, "series without rows left the series index");
        }
        Ok(())
    }
}
