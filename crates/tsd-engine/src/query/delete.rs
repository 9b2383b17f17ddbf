//! Delete by query: the rows that were read go, whole.
//!
//! Rows of hours, so points outside the query range go with them; and rows of the data table
//! whatever table was read, as in OpenTSDB. Nothing is deleted before the whole answer is there, so
//! that a query that fails deletes nothing.

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tsd_storage::{Delete, StorageError};

use super::QueryContext;

/// Deletes under way at once; stores that sync each commit take several in one.
const DELETES_AT_ONCE: usize = 64;

impl QueryContext {
    /// Deletes rows of the data table. After an error any of them may be gone.
    pub(crate) async fn delete_rows(&self, mut keys: Vec<Bytes>) -> Result<(), StorageError> {
        keys.sort_unstable();
        keys.dedup();
        let deletes =
            keys.into_iter().map(|key| self.storage.delete(&self.data_table, Delete::Row(key)));
        stream::iter(deletes).buffer_unordered(DELETES_AT_ONCE).try_collect::<()>().await
    }
}
