//! The check of the counter of UIDs of a kind of names.

use tsd_engine::UidTable;
use tsd_model::UidKind;
use tsd_storage::{StorageError, StorageExt};

use super::{KindCounts, UidCheck};
use crate::fsck::FsckLevel;

impl UidCheck<'_> {
    /// Checks that the counter of a kind is not below its highest UID.
    pub(super) async fn check_counter(&mut self, kind: UidKind) -> Result<(), StorageError> {
        let KindCounts { counter, names, uids, highest, .. } = self.kinds[kind];
        let entries = i64::try_from(names.max(uids)).unwrap_or(i64::MAX);
        let highest = i64::try_from(highest).unwrap_or(i64::MAX);
        if counter > entries {
            let deleted = counter - entries;
            self.warn(&format!(
                "Max ID for {kind} is {counter} but only {entries} entries were found.  Maybe {deleted} IDs \
                 were deleted?"
            ));
        }
        if counter >= highest {
            return Ok(());
        }
        let text = format!(
            "We found an ID of {highest} for {kind} but the max ID is only {counter}!  Future IDs may be \
             double-assigned!"
        );
        self.error(kind, &text);
        if !self.options.fix {
            return Ok(());
        }
        if highest == i64::MAX {
            let text = format!("Ran out of UIDs for {kind}. Unable to fix max ID");
            self.report.has_failed_repair = true;
            self.say(FsckLevel::Error, &text);
            return Ok(());
        }
        // A concurrent assignment leaves some numbers unused, which is harmless.
        let (storage, table) = (&self.table.storage, &self.table.table);
        let missing = highest.saturating_sub(counter);
        match storage.increment(table, UidTable::counter(kind), missing).await {
            Ok(now) => self.repaired(&format!("Updated max ID for {kind} to {now}")),
            Err(StorageError::NotACounter { length }) => {
                self.report.has_failed_repair = true;
                let text =
                    format!("The max ID of {kind} is on {length} bytes and cannot be raised");
                self.say(FsckLevel::Error, &text);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
