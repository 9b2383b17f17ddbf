//! Detects tables that are older copies. Records the progress of all tables when the log last recorded its mark:
//! numbers of manifests, and lengths of series indexes.
//!
//! The log has no rows from before its mark. So a table whose manifest has a smaller number is an older copy, which
//! lacks rows that are stored nowhere else. Copies from after the mark pass: the log has the rows that they lack. The
//! progress is in the directory of the mark, so that an older copy of both is found by its mark. An older series index
//! is built again. Directories of earlier releases and restored snapshots lack the progress until a log flushes to
//! them.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use tsd_storage::{RepairAction, StorageError, Table, VerifyFinding, VerifyRun};
use tsd_storage_lsm::{LsmTables, SealedLinesFile};
use tsd_storage_parts::{PartTables, SeriesIndexPosition};

use crate::directories::{CELLS, POINTS, PROGRESS};

const VERSION_LINE: &str = "saltern progress 1";
/// First words of lines.
const MANIFEST: &str = "manifest";
const INDEX: &str = "index";

/// Progress of the tables of a store.
#[derive(Debug, Default)]
pub(crate) struct StoreProgress {
    /// Numbers of manifests.
    manifests: BTreeMap<Table, u64>,
    indexes: BTreeMap<Table, SeriesIndexPosition>,
}

/// A table that is older than the mark of the log.
#[derive(Debug)]
struct OlderTable {
    table: Table,
    path: PathBuf,
    stored: u64,
    recorded: u64,
}

impl fmt::Display for OlderTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stored, recorded, .. } = self;
        write!(
            f,
            "it is an older copy: its manifest has number {stored}, and had {recorded} when the log was flushed"
        )
    }
}

impl StoreProgress {
    /// Reads the durable progress of open tables.
    pub(crate) fn of(points: &PartTables, cells: &LsmTables) -> Self {
        let manifests = points.manifest_numbers().chain(cells.manifest_numbers());
        Self {
            manifests: manifests.map(|(table, number)| (table.clone(), number)).collect(),
            indexes: points
                .series_index_positions()
                .map(|(table, position)| (table.clone(), position))
                .collect(),
        }
    }

    /// Reads the recorded progress of the store in a directory; `None` if it is damaged.
    fn read(dir: &Path) -> Result<Option<Self>, StorageError> {
        let Some(lines) = progress_file(dir).read()? else { return Ok(None) };
        let mut progress = Self::default();
        // A correct checksum means that the lines are intact.
        let is_intact = lines.iter().all(|line| progress.add(line).is_some());
        Ok(is_intact.then_some(progress))
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        let (number, rest) = rest.split_once(' ')?;
        let number = number.parse().ok()?;
        match kind {
            MANIFEST => drop(self.manifests.insert(Table::new(rest), number)),
            INDEX => {
                let (bytes, table) = rest.split_once(' ')?;
                let position = SeriesIndexPosition { file: number, bytes: bytes.parse().ok()? };
                self.indexes.insert(Table::new(table), position);
            }
            _ => return None,
        }
        Some(())
    }

    /// Replaces the recorded progress durably.
    pub(crate) fn record(&self, dir: &Path) -> Result<(), StorageError> {
        let manifests =
            self.manifests.iter().map(|(table, number)| format!("{MANIFEST} {number} {table}"));
        let indexes = self.indexes.iter().map(|(table, position)| {
            format!("{INDEX} {} {} {table}", position.file, position.bytes)
        });
        let lines: Vec<String> = manifests.chain(indexes).collect();
        progress_file(dir).write(lines.iter().map(String::as_str))
    }

    /// Replaces the recorded progress if it is damaged, or ahead of these tables because a table was lost and began
    /// again.
    pub(crate) fn renew(&self, dir: &Path) {
        let renewed = match Self::read(dir) {
            Ok(Some(recorded)) if !recorded.is_ahead_of(self) => Ok(()),
            Ok(_) => self.record(dir),
            Err(error) => Err(error),
        };
        // The store also opens on a full disk; the next mark of the log replaces the progress.
        if let Err(error) = renewed {
            tracing::warn!(%error, "the progress of the store was not recorded");
        }
    }

    fn is_ahead_of(&self, other: &Self) -> bool {
        let own = |table| other.manifests.get(table);
        self.manifests.iter().any(|(table, number)| own(table).is_some_and(|own| own < number))
            || self
                .indexes
                .iter()
                .any(|(table, position)| other.indexes.get(table) < Some(position))
    }

    /// Lists tables that are older than recorded. Other checks find missing and damaged tables.
    fn older_tables(&self, dir: &Path) -> Result<Vec<OlderTable>, StorageError> {
        let (points, cells) = (dir.join(POINTS), dir.join(CELLS));
        let mut older = Vec::new();
        for (table, &recorded) in &self.manifests {
            let (path, stored) = match tsd_storage_parts::stored_manifest_number(&points, table)? {
                None => {
                    let stored = tsd_storage_lsm::stored_manifest_number(&cells, table)?;
                    (tsd_storage_lsm::table_path(&cells, table), stored)
                }
                stored => (tsd_storage_parts::table_path(&points, table), stored),
            };
            if let Some(stored) = stored.filter(|stored| *stored < recorded) {
                older.push(OlderTable { table: table.clone(), path, stored, recorded });
            }
        }
        Ok(older)
    }
}

/// The file of the store in a directory.
pub(crate) fn progress_file(dir: &Path) -> SealedLinesFile {
    SealedLinesFile::new(dir.join(CELLS).join(PROGRESS), VERSION_LINE)
}

/// Fails if a table is older than recorded.
pub(crate) fn check(dir: &Path) -> Result<(), StorageError> {
    let Some(progress) = StoreProgress::read(dir)? else { return Ok(()) };
    let Some(older) = progress.older_tables(dir)?.into_iter().next() else { return Ok(()) };
    let text = format!(
        "table {} in {}: {older}; restore the whole data directory from one copy, or go on with this one after \
         `tsdb verify --repair --yes`",
        older.table,
        older.path.display()
    );
    Err(StorageError::Damaged(text.into()))
}

/// Removes series indexes that are older than recorded, in the directory of a store that is locked and not open yet.
pub(crate) fn discard_older_indexes(dir: &Path) -> Result<(), StorageError> {
    let Some(progress) = StoreProgress::read(dir)? else { return Ok(()) };
    let points = dir.join(POINTS);
    for (table, recorded) in &progress.indexes {
        let stored = tsd_storage_parts::stored_series_index(&points, table)?;
        if stored.is_some_and(|stored| stored < *recorded) {
            tracing::error!(%table, "the series index is an older copy; it is built again");
            tsd_storage_parts::discard_series_index(&points, table)?;
        }
    }
    Ok(())
}

/// Removes the recorded progress of a table.
pub(crate) fn forget(dir: &Path, table: &Table) -> Result<(), StorageError> {
    let Some(mut progress) = StoreProgress::read(dir)? else { return Ok(()) };
    if progress.manifests.remove(table).is_none() {
        return Ok(());
    }
    progress.record(dir)
}

/// Accepts that a table is older than recorded, in the directory of a store that no process has open. The engine
/// searches for UIDs of the lost rows before it assigns others.
///
/// # Errors
///
/// An error of the disk.
pub fn accept_older_table(dir: &Path, table: &Table) -> Result<(), StorageError> {
    let cells = dir.join(CELLS);
    if tsd_storage_lsm::existing_tables(&cells)?.contains(table) {
        tsd_storage_lsm::note_loss(&cells, table)?;
    }
    forget(dir, table)
}

/// Reports older tables and damaged records. The verification of points compares series indexes.
pub(crate) fn verify(dir: &Path, run: &VerifyRun) -> Result<(), StorageError> {
    let Some(progress) = StoreProgress::read(dir)? else {
        run.report(VerifyFinding {
            file: progress_file(dir).path().display().to_string(),
            what: "its checksum is wrong".to_owned(),
            cost: "nothing: the next start makes it again".to_owned(),
            action: Some(RepairAction::Reopen),
        });
        return Ok(());
    };
    for older in progress.older_tables(dir)? {
        run.report(VerifyFinding {
            file: older.path.display().to_string(),
            what: older.to_string(),
            cost: "rows of the table that were flushed since the copy: the start is refused"
                .to_owned(),
            action: Some(RepairAction::AcceptOlderTable { table: older.table }),
        });
    }
    Ok(())
}
