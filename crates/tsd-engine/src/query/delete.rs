//! Delete by query: deletes the rows that were read.
//!
//! Rows cover whole hours, so points outside the query range are deleted too; and always in the
//! data table, whichever table was read, as in OpenTSDB. Deletion starts once the result is
//! complete, so that a failed query deletes nothing.

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tsd_storage::{Delete, StorageError};

use super::engine::QueryEngine;

/// Most concurrent deletes; stores with group commit sync several of them at once.
const MAX_CONCURRENT_DELETES: usize = 64;

impl QueryEngine {
    /// Deletes rows of the data table. After an error any of them may have been deleted.
    pub(crate) async fn delete_rows(&self, mut keys: Vec<Bytes>) -> Result<(), StorageError> {
        keys.sort_unstable();
        keys.dedup();
        let deletes =
            keys.into_iter().map(|key| self.storage.delete(&self.data_table, Delete::Row(key)));
        stream::iter(deletes).buffer_unordered(MAX_CONCURRENT_DELETES).try_collect::<()>().await
    }
}
