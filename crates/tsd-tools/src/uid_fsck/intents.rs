//! Interrupted changes of names: the check reports them, and a repair finishes them first.

use tsd_model::to_hex;
use tsd_storage::StorageError;

use super::UidCheck;

impl UidCheck<'_> {
    /// Reports unfinished changes of names. The check also reports their mappings as errors.
    pub(super) async fn report_intents(&mut self) -> Result<(), StorageError> {
        let intents = self.table.intents().await?;
        for intent in intents.found {
            self.warn(&format!(
                "The {intent} was interrupted, or is in progress; the next start of the daemon, or uid fsck fix, \
                 finishes it"
            ));
        }
        for row in intents.unreadable {
            self.warn(&format!(
                "The change of a name in row {} cannot be read; the version that wrote it finishes it",
                to_hex(&row)
            ));
        }
        Ok(())
    }
}
