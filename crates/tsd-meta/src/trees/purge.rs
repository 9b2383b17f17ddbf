//! Deletes the content of a tree, and its definition if requested.
//!
//! The row of the definition is deleted last. Until then the tree exists, so an interrupted deletion can be repeated.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tsd_model::{Family, Row, TreeColumn, TreeId};
use tsd_storage::{Delete, Scan, StorageExt, prefix_range};

use super::{TreeError, Trees};

/// Rows that are deleted concurrently.
const CONCURRENT_DELETES: usize = 32;
/// Rows per batch of the scan.
const BATCH_ROWS: usize = 256;

impl Trees {
    /// Deletes branches, leaves, collisions and misses of a tree; with `definition` also the definition and the rules.
    /// Returns the number of rows that had any of these.
    pub async fn delete(&self, id: TreeId, definition: bool) -> Result<u64, TreeError> {
        let _exclusive = self.deletion.write().await;
        let deleted = self.delete_rows(id, definition).await;
        // After an error some of the tree may be deleted.
        self.definitions.invalidate();
        deleted
    }

    async fn delete_rows(&self, id: TreeId, definition: bool) -> Result<u64, TreeError> {
        let (start, stop) = prefix_range(&id.row());
        let scan = Scan {
            start,
            stop,
            family: Some(Family::T),
            batch_rows: Some(BATCH_ROWS),
            ..Scan::default()
        };
        let mut rows = self.storage().scan(&self.table, scan);
        let (mut root, mut deleted) = (None, 0);
        while let Some(batch) = rows.next_rows().await? {
            let deletes = batch.iter().filter_map(|row| {
                let delete = delete_of(row, definition)?;
                if row.key.len() == id.row().len() {
                    root = Some(delete);
                    return None;
                }
                Some(delete)
            });
            let deletes: Vec<Delete> = deletes.collect();
            deleted += deletes.len() as u64;
            let mut results = stream::iter(deletes)
                .map(|delete| self.storage().delete(&self.table, delete))
                .buffer_unordered(CONCURRENT_DELETES);
            while let Some(result) = results.next().await {
                result?;
            }
        }
        if let Some(root) = root {
            self.storage().delete(&self.table, root).await?;
            deleted += 1;
        }
        Ok(deleted)
    }
}

/// Deletes the columns of a row that belong to the tree, and keeps others.
fn delete_of(row: &Row, definition: bool) -> Option<Delete> {
    let columns: Vec<(Family, Bytes)> = row
        .cells
        .iter()
        .filter(|cell| match TreeColumn::decode(&cell.qualifier) {
            Some(TreeColumn::Definition | TreeColumn::Rule { .. }) => definition,
            Some(_) => true,
            None => false,
        })
        .map(|cell| (cell.family, cell.qualifier.clone()))
        .collect();
    (!columns.is_empty()).then(|| Delete::Columns { row: row.key.clone(), columns })
}
