//! Makes UID assignment safe after cells of the UID table were lost.
//!
//! A lost counter would start again at an older number, and a UID whose mappings are lost would be assigned a second
//! time. The points of two metrics would then be mixed. So before the first assignment after an accepted loss, the
//! counters are raised above every UID in a mapping or a stored row. If a name has one mapping left, it restores the
//! other.

use std::collections::HashMap;

use bytes::Bytes;
use tokio::sync::Mutex;
use tsd_model::{Cell, Family, PerKind, RowKey, Uid, UidKind};
use tsd_storage::{Scan, StorageError, StorageExt, Table};

use super::UidTable;

/// Most missing mappings that are collected before they are restored.
const MAX_COLLECTED: usize = 100_000;

/// Checks the UID table after a loss.
#[derive(Debug, Default)]
pub(crate) struct LossCheck {
    /// Tables whose row keys have UIDs.
    series_tables: Vec<Table>,
    running: Mutex<()>,
}

/// Mappings without their counterpart.
#[derive(Debug, Default)]
struct HalfMappings {
    /// UIDs of names that lack the mapping from the name: the highest UID, if a crash left several.
    names: HashMap<(UidKind, Bytes), Uid>,
    /// Names of UIDs that lack the mapping from the UID.
    uids: HashMap<(UidKind, Uid), Bytes>,
    restored: u64,
}

impl LossCheck {
    pub(crate) fn new(series_tables: Vec<Table>) -> Self {
        Self { series_tables, running: Mutex::default() }
    }

    /// Checks the table if a loss of it was accepted since the last check.
    pub(crate) async fn run(&self, table: &UidTable) -> Result<(), StorageError> {
        let Some(quarantine) = table.storage.maintenance().quarantine() else { return Ok(()) };
        if !quarantine.has_unchecked_loss(&table.table) {
            return Ok(());
        }
        let _running = self.running.lock().await;
        if !quarantine.has_unchecked_loss(&table.table) {
            return Ok(());
        }
        tracing::warn!(
            "a part of the UID table was lost: UIDs in use are searched before new ones are assigned"
        );
        let mut highest = PerKind::<u64>::default();
        let restored = check_mappings(table, &mut highest).await?;
        let mut rows = 0;
        for series_table in &self.series_tables {
            rows += check_rows(table, series_table, &mut highest).await?;
        }
        for kind in UidKind::ALL {
            let used = table.used(kind).await?;
            let missing = i64::try_from(highest[kind]).unwrap_or(i64::MAX).saturating_sub(used);
            if missing > 0 {
                let counter = UidTable::counter(kind);
                table.storage.increment(&table.table, counter, missing).await?;
                tracing::warn!(%kind, from = used, to = highest[kind], "the counter of UIDs was raised");
            }
        }
        quarantine.loss_checked(&table.table)?;
        tracing::warn!(rows, restored, "UIDs are assigned again after the loss");
        Ok(())
    }
}

/// Finds the highest UIDs of the mappings, and restores missing mappings. Returns the number of restored mappings.
async fn check_mappings(table: &UidTable, highest: &mut PerKind<u64>) -> Result<u64, StorageError> {
    let mut half = HalfMappings::default();
    let mut rows = table.storage.scan(&table.table, Scan::default());
    while let Some(batch) = rows.next_rows().await? {
        let (mut forward, mut reverse) = (Vec::new(), Vec::new());
        for row in batch {
            for cell in row.cells {
                let Some((kind, uid, name)) = mapping(table, &row.key, &cell) else { continue };
                highest[kind] = highest[kind].max(uid.to_number());
                let found = if cell.family == Family::Id { &mut forward } else { &mut reverse };
                found.push((kind, uid, name));
            }
        }
        for kind in UidKind::ALL {
            let uids_of = |found: &[(UidKind, Uid, Bytes)]| -> Vec<(Uid, Bytes)> {
                let of_kind = found.iter().filter(|(k, ..)| *k == kind);
                of_kind.map(|(_, uid, name)| (*uid, name.clone())).collect()
            };
            let (forward, reverse) = (uids_of(&forward), uids_of(&reverse));
            let uids: Vec<Uid> = forward.iter().map(|(uid, _)| *uid).collect();
            for ((uid, name), found) in forward.into_iter().zip(table.names(kind, &uids).await?) {
                if found.is_none() {
                    half.uids.insert((kind, uid), name);
                }
            }
            let names: Vec<Bytes> = reverse.iter().map(|(_, name)| name.clone()).collect();
            for ((uid, name), found) in reverse.into_iter().zip(table.uids(kind, &names).await?) {
                if matches!(found, Ok(None)) {
                    let known = half.names.entry((kind, name)).or_insert(uid);
                    *known = (*known).max(uid);
                }
            }
        }
        if half.names.len() + half.uids.len() >= MAX_COLLECTED {
            half.restore(table).await?;
        }
    }
    half.restore(table).await?;
    Ok(half.restored)
}

/// Kind, UID and name of a mapping in either direction; `None` for other cells.
fn mapping(table: &UidTable, row: &Bytes, cell: &Cell) -> Option<(UidKind, Uid, Bytes)> {
    let kind = UidKind::ALL.into_iter().find(|kind| kind.as_str().as_bytes() == cell.qualifier)?;
    let (uid, name) = match cell.family {
        Family::Id => (&cell.value, row),
        _ => (row, &cell.value),
    };
    // A counter is longer than a UID, unless UIDs have eight bytes.
    if cell.family == Family::Id && *row == UidTable::counter(kind).row {
        return None;
    }
    Some((kind, Uid::with_width(uid, kind.width(&table.schema)).ok()?, name.clone()))
}

impl HalfMappings {
    async fn restore(&mut self, table: &UidTable) -> Result<(), StorageError> {
        let names = self.names.drain().map(|((kind, name), uid)| {
            (UidTable::forward(kind, &name), Bytes::copy_from_slice(uid.as_bytes()))
        });
        let uids =
            self.uids.drain().map(|((kind, uid), name)| (UidTable::reverse(kind, uid), name));
        for (column, value) in names.chain(uids) {
            let put = table.storage.compare_and_set(&table.table, column, None, value).await?;
            self.restored += u64::from(put);
        }
        Ok(())
    }
}

/// Finds the highest UIDs in the row keys of a table. Returns the number of rows.
async fn check_rows(
    table: &UidTable,
    series_table: &Table,
    highest: &mut PerKind<u64>,
) -> Result<u64, StorageError> {
    let mut count = 0;
    let mut rows = table.storage.scan(series_table, Scan::default());
    let mut raise = |kind, uid: Uid| highest[kind] = highest[kind].max(uid.to_number());
    while let Some(batch) = rows.next_rows().await? {
        count += batch.len() as u64;
        for row in batch {
            let Ok(key) = RowKey::decode(&table.schema, &row.key) else { continue };
            raise(UidKind::Metric, key.metric_uid().uid());
            for (tagk, tagv) in key.tags() {
                raise(UidKind::Tagk, tagk.uid());
                raise(UidKind::Tagv, tagv.uid());
            }
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::{path::Path, sync::Arc, time::Duration};

    use tsd_storage::{Delete, Storage};
    use tsd_storage_embedded::{EmbeddedConfig, EmbeddedStorage, EmbeddedTable};

    use super::*;
    use crate::{
        Engine, EngineConfig, EngineHandle,
        testing::{config, put_one},
    };

    fn open(dir: &Path) -> (Arc<EmbeddedStorage>, EngineHandle) {
        let tables = EngineConfig::default().tables;
        let names = [tables.uid, tables.meta, tables.tree];
        let mut specs = vec![EmbeddedTable::data(tables.data)];
        specs.extend(names.map(EmbeddedTable::cells));
        let mut config = config();
        let store = EmbeddedConfig::new(dir, config.schema, specs);
        let storage = Arc::new(EmbeddedStorage::open(&store).unwrap());
        let shared: Arc<dyn Storage> = Arc::<EmbeddedStorage>::clone(&storage);
        config.uids.auto_create_tagks = true;
        (storage, Engine::start(config, shared).unwrap())
    }

    async fn uid(engine: &EngineHandle, kind: UidKind, name: &str) -> u64 {
        let column = UidTable::forward(kind, name.as_bytes());
        let table = &engine.uids().table;
        table.uid(kind, &column.row).await.unwrap().unwrap().to_number()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_uid_is_assigned_twice_after_names_were_lost() {
        let dir = tempfile::tempdir().unwrap();
        let (storage, engine) = open(dir.path());
        for (metric, tags) in [("a", "host=x"), ("b", "host=y"), ("c", "zone=z")] {
            put_one(&engine, metric, tags, 1_600_000_000, 1).await.unwrap();
        }
        assert!(engine.shutdown(Duration::from_mins(1)).await);
        // The newest cells of the UID table are lost: the counters, both mappings of the last names, and one mapping
        // of others.
        let table = EngineConfig::default().tables.uid;
        let delete = async |column: tsd_storage::Column| {
            let columns = vec![(column.family, column.qualifier)];
            storage.delete(&table, Delete::Columns { row: column.row, columns }).await.unwrap();
        };
        for kind in UidKind::ALL {
            delete(UidTable::counter(kind)).await;
        }
        let reverse = |kind, number| UidTable::reverse(kind, Uid::from_number(number, 3).unwrap());
        for (kind, name, number) in
            [(UidKind::Metric, "c", 3), (UidKind::Tagk, "zone", 2), (UidKind::Tagv, "z", 3)]
        {
            delete(UidTable::forward(kind, name.as_bytes())).await;
            delete(reverse(kind, number)).await;
        }
        delete(UidTable::forward(UidKind::Metric, b"b")).await;
        delete(reverse(UidKind::Tagv, 2)).await;
        storage.maintenance().quarantine().unwrap().note_loss().unwrap();
        storage.close().await.unwrap();
        drop((storage, engine));

        let (storage, engine) = open(dir.path());
        put_one(&engine, "new", "rack=r", 1_600_000_000, 2).await.unwrap();
        // Above the UIDs of the rows, whose names are lost.
        assert_eq!(uid(&engine, UidKind::Metric, "new").await, 4);
        assert_eq!(uid(&engine, UidKind::Tagk, "rack").await, 3);
        assert_eq!(uid(&engine, UidKind::Tagv, "r").await, 4);
        // A name that had one mapping left has both again.
        assert_eq!(uid(&engine, UidKind::Metric, "b").await, 2);
        let y = [Uid::from_number(2, 3).unwrap()];
        let names = engine.uids().names_of(UidKind::Tagv, &y).await.unwrap();
        assert_eq!(names, [Some("y".to_owned())]);
        // The check has ended, also for the next start.
        assert!(!storage.maintenance().quarantine().unwrap().has_unchecked_loss(&table));
        put_one(&engine, "newer", "rack=r", 1_600_000_000, 2).await.unwrap();
        assert_eq!(uid(&engine, UidKind::Metric, "newer").await, 5);
    }
}
