//! `tsdb uid metapurge`: deletes all UIDMeta, TSMeta and counters of series.
//!
//! OpenTSDB stops at the highest UID of a metric, so it leaves the UIDMeta of later tag keys and values. Here both
//! tables are read completely. Names and points stay. To continue an interrupted run, repeat it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tsd_model::{Family, Row, TS_COUNTER_QUALIFIER, TS_META_QUALIFIER, UidKind};
use tsd_storage::{Delete, Scan, StorageError, StorageExt, Table};

use crate::EngineHandle;

/// Rows per batch of a scan.
const BATCH_ROWS: usize = 1_024;
/// Concurrent deletes.
const CONCURRENT_DELETES: usize = 64;

/// Counters of a run, which also show its progress.
#[derive(Debug, Default)]
pub struct MetaPurgeProgress {
    /// Rows of both tables that were read.
    pub rows: AtomicU64,
    /// Deleted UIDMeta.
    pub uid_metas: AtomicU64,
    /// Deleted TSMeta and counters.
    pub series_cells: AtomicU64,
}

impl EngineHandle {
    /// Deletes the meta objects of all names and series, and the counters of series.
    ///
    /// # Errors
    ///
    /// An error of the storage. Deletes made before the error stay.
    pub async fn purge_meta(&self, progress: Arc<MetaPurgeProgress>) -> Result<(), StorageError> {
        let tables = &self.config().tables;
        let of_uids = UidKind::ALL.map(UidKind::meta_qualifier);
        self.purge(&tables.uid, &of_uids, &progress.rows, &progress.uid_metas).await?;
        let of_series = [TS_META_QUALIFIER, TS_COUNTER_QUALIFIER];
        self.purge(&tables.meta, &of_series, &progress.rows, &progress.series_cells).await
    }

    /// Deletes columns of all rows of a table.
    async fn purge(
        &self,
        table: &Table,
        qualifiers: &[&str],
        read: &AtomicU64,
        deleted: &AtomicU64,
    ) -> Result<(), StorageError> {
        let scan =
            Scan { family: Some(Family::Name), batch_rows: Some(BATCH_ROWS), ..Scan::default() };
        let mut rows = self.storage().scan(table, scan);
        while let Some(batch) = rows.next_rows().await? {
            read.fetch_add(batch.len() as u64, Ordering::Relaxed);
            let deletes = batch.into_iter().filter_map(|row| delete_of(row, qualifiers));
            let done = stream::iter(deletes)
                .map(async |(delete, columns)| {
                    self.storage().delete(table, delete).await?;
                    deleted.fetch_add(columns, Ordering::Relaxed);
                    Ok(())
                })
                .buffer_unordered(CONCURRENT_DELETES);
            let all = async |all: Result<(), StorageError>, one| all.and(one);
            done.fold(Ok(()), all).await?;
        }
        Ok(())
    }
}

/// The delete of the columns that a row has, and their number.
fn delete_of(row: Row, qualifiers: &[&str]) -> Option<(Delete, u64)> {
    let columns: Vec<(Family, Bytes)> = row
        .cells
        .into_iter()
        .filter(|cell| qualifiers.iter().any(|of| of.as_bytes() == cell.qualifier))
        .map(|cell| (cell.family, cell.qualifier))
        .collect();
    let count = columns.len() as u64;
    (count > 0).then_some((Delete::Columns { row: row.key, columns }, count))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::{
        EngineConfig, MetaTracking,
        testing::{config, dump, put_one, start, store},
    };

    #[tokio::test]
    async fn all_meta_objects_and_counters_are_deleted_and_nothing_else() {
        let store = store();
        let mut settings = config();
        settings.meta_tracking = MetaTracking::Count;
        settings.uids.realtime_meta = true;
        let engine = start(settings, &store);
        for host in ["a", "b", "c"] {
            put_one(&engine, "m", &format!("host={host}"), 1_356_998_400, 1).await.unwrap();
        }
        engine.drain_tracking().await;
        let tables = EngineConfig::default().tables;
        let mut names = dump(&store, &tables.uid).await;
        let points = dump(&store, &tables.data).await;
        names.retain(|cell| !cell.contains("_meta "));
        let progress = Arc::new(MetaPurgeProgress::default());
        engine.purge_meta(Arc::clone(&progress)).await.unwrap();
        assert_eq!(dump(&store, &tables.uid).await, names);
        assert_eq!(dump(&store, &tables.data).await, points);
        assert_eq!(dump(&store, &tables.meta).await, Vec::<String>::new());
        let deleted = [&progress.uid_metas, &progress.series_cells];
        assert_eq!(deleted.map(|count| count.load(Ordering::Relaxed)), [5, 6]);
    }
}
