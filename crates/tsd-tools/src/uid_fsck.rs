//! The check of the UID table (`tsdb uid fsck`): finds the same errors as OpenTSDB's, in its words, and repairs them.
//!
//! OpenTSDB holds every name in memory. Here one scan adds up fingerprints of the mappings in both directions
//! ([`sums`]). Two more scans of each kind re-read only the mappings whose sums differ. Memory does not grow with the
//! number of names: it holds the sums (1 MiB), one batch of rows, and the names of UIDs that several names share, for
//! at most [`MAX_SHARED`] UIDs at a time.
//!
//! Every repair depends on the values that were read just before, so daemons may assign and rename meanwhile. In a
//! store with other writers, a mapping written within the last minute is reported and not repaired: it may be half of
//! an assignment or a rename.

mod counter;
mod intents;
mod options;
mod report;
mod shared;
mod sums;

use std::{collections::BTreeSet, fmt, sync::Arc};

use bytes::Bytes;
use tsd_engine::{EngineConfig, EngineHandle, Intent, NamePeers, Rollups, UidTable};
use tsd_meta::UidError;
use tsd_model::{
    Cell, Family, PerKind, Row, TS_COUNTER_QUALIFIER, TS_META_QUALIFIER, UID_COUNTER_ROW, Uid,
    UidKind, decode_counter, decode_latin1, to_hex,
};
use tsd_storage::{Column, Delete, Get, Scan, StorageError, StorageExt, Table};

use self::sums::MappingSums;
pub use self::{
    options::{UidFsckObserver, UidFsckOptions},
    report::UidFsckReport,
};
use crate::fsck::{FsckLevel, show_cell};

/// Rows read at once.
const BATCH_ROWS: usize = 1_000;
/// Most UIDs of several names that are collected before their names are searched.
const MAX_SHARED: usize = 10_000;
/// Most repaired mappings that are collected before the other nodes of a cluster forget them.
const MAX_REPAIRED: usize = 1_000;
/// Age from which a mapping cannot belong to an assignment or a rename in progress.
const SETTLED_MS: i64 = 60_000;

/// Checks the UID table, and makes the repairs that the options allow.
///
/// # Errors
///
/// If the store fails. Repairs made before the failure stay.
pub async fn uid_fsck(
    engine: &EngineHandle,
    options: UidFsckOptions,
    observer: &mut dyn UidFsckObserver,
) -> Result<UidFsckReport, StorageError> {
    let finished = if options.fix { finish_interrupted(engine).await? } else { Vec::new() };
    let table = engine.uids().table().clone();
    let has_other_writers = table.storage.read_version(&table.table).0.is_none();
    let settled_before_ms = if has_other_writers {
        engine.config().clock.now_ms().saturating_sub(SETTLED_MS)
    } else {
        i64::MAX
    };
    let mut check = UidCheck {
        table,
        options,
        observer,
        settled_before_ms,
        sums: MappingSums::new(),
        report: UidFsckReport::default(),
        rows: 0,
        kinds: PerKind::default(),
        shared: BTreeSet::new(),
        peers: engine.config().name_peers.clone(),
        repaired: Vec::new(),
        series_tables: series_tables(engine),
    };
    for change in finished {
        check.repaired(&format!("Finished the {change}, which was interrupted"));
    }
    let checked = check.run().await;
    let report = check.report;
    if report.repairs > 0 {
        engine.drop_caches();
    }
    checked.map(|()| report)
}

/// Finishes interrupted changes of names.
async fn finish_interrupted(engine: &EngineHandle) -> Result<Vec<Intent>, StorageError> {
    engine.finish_name_changes().await.map_err(|error| match error {
        UidError::Storage(error) => error,
        other => StorageError::Backend(other.to_string().into()),
    })
}

/// The tables whose row keys have UIDs.
fn series_tables(engine: &EngineHandle) -> Vec<Table> {
    let EngineConfig { tables, rollups, .. } = engine.config();
    let rollups = rollups.iter().flat_map(Rollups::tables);
    std::iter::once(tables.data.clone()).chain(rollups).collect()
}

/// Counts of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct KindCounts {
    errors: u64,
    /// The counter; 0 if it cannot be read.
    counter: i64,
    /// Mappings from names.
    names: u64,
    /// Mappings from UIDs.
    uids: u64,
    /// The highest UID of a name.
    highest: u64,
}

/// A check in progress.
struct UidCheck<'o> {
    table: UidTable,
    options: UidFsckOptions,
    observer: &'o mut dyn UidFsckObserver,
    /// Mappings with an earlier timestamp cannot belong to a change in progress.
    settled_before_ms: i64,
    sums: MappingSums,
    report: UidFsckReport,
    /// Rows that were read, in all scans.
    rows: u64,
    kinds: PerKind<KindCounts>,
    /// UIDs of the current kind that more than one name may have.
    shared: BTreeSet<Bytes>,
    /// The other nodes of the cluster, whose caches must be invalidated too.
    peers: Option<Arc<dyn NamePeers>>,
    /// Mappings of the current kind as they were before repairs; other nodes may still use them.
    repaired: Vec<Mapping>,
    /// Tables whose row keys have UIDs.
    series_tables: Vec<Table>,
}

/// A mapping as stored, in either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    name: Bytes,
    uid: Bytes,
}

/// Bytes of a name as text.
struct Name<'a>(&'a [u8]);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&decode_latin1(self.0))
    }
}

impl UidCheck<'_> {
    async fn run(&mut self) -> Result<(), StorageError> {
        self.report_intents().await?;
        self.sum_up().await?;
        for kind in UidKind::ALL {
            if self.sums.differ() && !self.report.is_stopped {
                let checked = self.check_mappings(kind).await;
                self.forget_repaired(kind).await;
                checked?;
            }
            if !self.report.is_stopped {
                self.check_counter(kind).await?;
            }
            let errors = self.kinds[kind].errors;
            if errors > 0 {
                self.say(FsckLevel::Error, &format!("{kind}: Found {errors} errors."));
                self.report.errors += errors;
            }
        }
        match self.report.errors {
            _ if self.report.is_stopped => {}
            0 => self.say(FsckLevel::Info, "No errors found."),
            errors => self.say(FsckLevel::Warn, &format!("{errors} errors found.")),
        }
        Ok(())
    }

    async fn check_mappings(&mut self, kind: UidKind) -> Result<(), StorageError> {
        self.check_direction(kind, Family::Id).await?;
        self.separate_names(kind).await?;
        self.check_direction(kind, Family::Name).await
    }

    /// Makes the other nodes of the cluster forget repaired mappings. A node with an old mapping would still write to
    /// the UID that a name had before.
    async fn forget_repaired(&mut self, kind: UidKind) {
        let repaired = std::mem::take(&mut self.repaired);
        let Some(peers) = self.peers.clone().filter(|_| !repaired.is_empty()) else { return };
        let uids = repaired.iter().filter_map(|mapping| Uid::try_new(&mapping.uid).ok()).collect();
        let names = repaired.into_iter().map(|mapping| mapping.name).collect();
        if let Err(reason) = peers.forget(kind, names, uids).await {
            self.report.has_failed_repair = true;
            let text = format!(
                "Other nodes may use {kind} names as they were before the repairs: {reason}; drop their caches \
                 (/api/dropcaches)"
            );
            self.say(FsckLevel::Error, &text);
        }
    }

    /// Counts rows that were read. True if the check ends before it handles them.
    fn stops_after(&mut self, rows: usize) -> bool {
        self.rows += rows as u64;
        self.report.is_stopped |= !self.observer.continues(self.rows);
        self.report.is_stopped
    }

    fn say(&mut self, level: FsckLevel, text: &str) {
        self.observer.found(level, text);
    }

    fn error(&mut self, kind: UidKind, text: &str) {
        self.kinds[kind].errors += 1;
        self.say(FsckLevel::Error, text);
    }

    fn warn(&mut self, text: &str) {
        self.report.warnings += 1;
        self.say(FsckLevel::Warn, text);
    }

    fn repaired(&mut self, text: &str) {
        self.report.repairs += 1;
        self.say(FsckLevel::Info, &format!("FIX: {text}"));
    }

    fn repaired_mapping(&mut self, name: &Bytes, uid: &Bytes, text: &str) {
        self.repaired.push(Mapping { name: name.clone(), uid: uid.clone() });
        self.repaired(text);
    }

    fn changed(&mut self, what: &str) {
        self.warn(&format!("{what} was changed at the same time; run uid fsck again"));
    }

    /// Reads the whole table: unknown columns, counters, and the sums of the mappings.
    async fn sum_up(&mut self) -> Result<(), StorageError> {
        let scan = Scan { batch_rows: Some(BATCH_ROWS), ..Scan::default() };
        let mut rows = self.table.storage.scan(&self.table.table, scan);
        while let Some(batch) = rows.next_rows().await? {
            if self.stops_after(batch.len()) {
                break;
            }
            for Row { key, cells, .. } in batch {
                for cell in cells {
                    self.report.cells += 1;
                    if is_meta(&cell.qualifier) {
                        continue;
                    }
                    match UidKind::of_column(&cell.qualifier) {
                        Some(kind) => self.sum_up_cell(kind, &key, &cell),
                        None => self.unknown_column(&key, cell).await?,
                    }
                }
            }
        }
        Ok(())
    }

    async fn unknown_column(&mut self, key: &Bytes, cell: Cell) -> Result<(), StorageError> {
        let what = format!("qualifier {} in row {}", to_hex(&cell.qualifier), to_hex(key));
        self.warn(&format!("Unknown {what}"));
        if self.options.fix && self.options.delete_unknown {
            let Cell { family, qualifier, value, .. } = cell;
            let column = Column { row: key.clone(), family, qualifier };
            let (storage, table) = (&self.table.storage, &self.table.table);
            if storage.compare_and_delete(table, column, value).await? {
                self.repaired(&format!("Removed unknown {what}"));
            }
        }
        Ok(())
    }

    fn sum_up_cell(&mut self, kind: UidKind, key: &Bytes, cell: &Cell) {
        let is_forward = cell.family == Family::Id;
        if is_forward && key.as_ref() == UID_COUNTER_ROW {
            match decode_counter(&cell.value) {
                Some(counter) => {
                    self.kinds[kind].counter = counter;
                    self.say(FsckLevel::Info, &format!("Maximum ID for {kind}: {counter}"));
                }
                None => self.error(
                    kind,
                    &format!(
                        "Invalid maximum ID for {kind}: should be on 8 bytes: .  kv={}",
                        show_cell(key, cell)
                    ),
                ),
            }
            return;
        }
        let (name, uid) = if is_forward { (key, &cell.value) } else { (&cell.value, key) };
        let width = kind.width(&self.table.schema);
        if uid.len() != width {
            let text = format!(
                "Invalid {kind} ID of length {} (expected: {width}).  kv={}",
                uid.len(),
                show_cell(key, cell)
            );
            return self.error(kind, &text);
        }
        let counts = &mut self.kinds[kind];
        if is_forward {
            counts.names += 1;
            counts.highest = counts.highest.max(Uid::number_of(uid));
            self.sums.add(kind, name, uid);
        } else {
            counts.uids += 1;
            self.sums.subtract(kind, name, uid);
        }
    }

    /// Checks the mappings of one direction whose sums differ.
    async fn check_direction(&mut self, kind: UidKind, family: Family) -> Result<(), StorageError> {
        let mut rows = self.scan(kind, family);
        while let Some(batch) = rows.next_rows().await? {
            if self.stops_after(batch.len()) {
                break;
            }
            let suspects: Vec<Mapping> = batch
                .into_iter()
                .filter_map(|row| self.mapping(kind, family, row))
                .map(|(mapping, _)| mapping)
                .filter(|found| self.sums.differ_at(kind, &found.name, &found.uid))
                .collect();
            for mapping in self.without_counterpart(kind, family, suspects).await? {
                if family == Family::Id {
                    self.check_name(kind, &mapping).await?;
                } else {
                    self.check_uid(kind, &mapping).await?;
                }
            }
            if self.shared.len() >= MAX_SHARED {
                self.separate_names(kind).await?;
            }
            if self.repaired.len() >= MAX_REPAIRED {
                self.forget_repaired(kind).await;
            }
        }
        Ok(())
    }

    fn scan(&self, kind: UidKind, family: Family) -> Box<dyn tsd_storage::RowScanner> {
        let scan = Scan {
            family: Some(family),
            qualifier: Some(Bytes::from_static(kind.as_str().as_bytes())),
            batch_rows: Some(BATCH_ROWS),
            ..Scan::default()
        };
        self.table.storage.scan(&self.table.table, scan)
    }

    /// The mapping of a row and the time of its cell; `None` for a counter and a UID of another width.
    fn mapping(&self, kind: UidKind, family: Family, row: Row) -> Option<(Mapping, i64)> {
        let Row { key, cells, .. } = row;
        let cell = cells.into_iter().next()?;
        let (name, uid) = match family {
            Family::Id if key.as_ref() == UID_COUNTER_ROW => return None,
            Family::Id => (key, cell.value),
            _ => (cell.value, key),
        };
        let has_width = uid.len() == kind.width(&self.table.schema);
        has_width.then_some((Mapping { name, uid }, cell.timestamp_ms))
    }

    /// The mappings that have no counterpart in the other direction.
    async fn without_counterpart(
        &self,
        kind: UidKind,
        family: Family,
        mappings: Vec<Mapping>,
    ) -> Result<Vec<Mapping>, StorageError> {
        let other = |mapping: &Mapping| {
            let column = if family == Family::Id {
                reverse(kind, &mapping.uid)
            } else {
                UidTable::forward(kind, &mapping.name)
            };
            Get::column(column.row, column.family, column.qualifier)
        };
        let gets = mappings.iter().map(other).collect();
        let found = self.table.storage.multi_get(&self.table.table, gets).await?;
        let is_missing = |(mapping, row): &(Mapping, Option<Row>)| {
            let value = row.as_ref().and_then(|row| row.cells.first()).map(|cell| &cell.value);
            value != Some(if family == Family::Id { &mapping.name } else { &mapping.uid })
        };
        Ok(mappings.into_iter().zip(found).filter(is_missing).map(|(mapping, _)| mapping).collect())
    }

    async fn read(&self, column: Column) -> Result<Option<Cell>, StorageError> {
        let get = Get::column(column.row, column.family, column.qualifier);
        let row = self.table.storage.get(&self.table.table, get).await?;
        Ok(row.and_then(|row| row.cells.into_iter().next()))
    }

    async fn uid_of(&self, kind: UidKind, name: &[u8]) -> Result<Option<Bytes>, StorageError> {
        Ok(self.read(UidTable::forward(kind, name)).await?.map(|cell| cell.value))
    }

    async fn name_cell(&self, kind: UidKind, uid: &Bytes) -> Result<Option<Cell>, StorageError> {
        self.read(reverse(kind, uid)).await
    }

    const fn is_settled(&self, at_ms: i64) -> bool {
        at_ms < self.settled_before_ms
    }

    fn left_unsettled(&mut self, kind: UidKind, uid: &[u8]) {
        let uid = to_hex(uid);
        self.warn(&format!(
            "The {kind} mapping of {uid} was written within the last minute and is left as it is, since \
             an assignment or a rename may be in progress; run uid fsck again"
        ));
    }

    /// Checks that the UID of a name is mapped to that name.
    async fn check_name(&mut self, kind: UidKind, mapping: &Mapping) -> Result<(), StorageError> {
        let Mapping { name, uid } = mapping;
        if self.uid_of(kind, name).await?.as_ref() != Some(uid) {
            // Changed since the scan.
            return Ok(());
        }
        let (shown, id) = (Name(name), to_hex(uid));
        let Some(found) = self.name_cell(kind, uid).await? else {
            let text =
                format!("Forward {kind} mapping is missing reverse mapping: {shown} -> {id}");
            self.error(kind, &text);
            if self.options.fix {
                self.restore_name(kind, mapping, None).await?;
            }
            return Ok(());
        };
        if found.value == *name {
            return Ok(());
        }
        let other = Name(&found.value);
        let text = format!(
            "Forward {kind} mapping {shown} -> {id} is different than reverse mapping: {id} -> {other}"
        );
        self.error(kind, &text);
        if let Some(other_uid) = self.uid_of(kind, &found.value).await? {
            let other_id = to_hex(&other_uid);
            let text = format!(
                "Inconsistent forward {kind} mapping {shown} -> {id} vs {shown} -> {other} / {other} -> \
                 {other_id}"
            );
            self.error(kind, &text);
            if self.options.fix {
                self.shared.insert(uid.clone());
            }
            return Ok(());
        }
        let text = format!("Duplicate forward {kind} mapping {shown} -> {id} and null -> {other}");
        self.error(kind, &text);
        if self.options.fix {
            if self.is_settled(found.timestamp_ms) {
                self.restore_name(kind, mapping, Some(found.value)).await?;
            } else {
                self.left_unsettled(kind, uid);
            }
        }
        Ok(())
    }

    /// Maps a UID to its name, if it is still mapped to `before`.
    async fn restore_name(
        &mut self,
        kind: UidKind,
        mapping: &Mapping,
        before: Option<Bytes>,
    ) -> Result<(), StorageError> {
        let Mapping { name, uid } = mapping;
        let what = format!("{kind} reverse mapping: {} -> {}", to_hex(uid), Name(name));
        let (storage, table) = (&self.table.storage, &self.table.table);
        let former = before.clone();
        if storage.compare_and_set(table, reverse(kind, uid), before, name.clone()).await? {
            self.kinds[kind].uids += u64::from(former.is_none());
            self.repaired_mapping(
                former.as_ref().unwrap_or(name),
                uid,
                &format!("Restoring {what}"),
            );
        } else {
            self.changed(&what);
        }
        Ok(())
    }

    /// Checks that the name of a UID is mapped to that UID.
    async fn check_uid(&mut self, kind: UidKind, mapping: &Mapping) -> Result<(), StorageError> {
        let Mapping { name, uid } = mapping;
        let Some(cell) = self.name_cell(kind, uid).await?.filter(|cell| cell.value == *name) else {
            return Ok(());
        };
        let (shown, id) = (Name(name), to_hex(uid));
        match self.uid_of(kind, name).await? {
            Some(found) if found == *uid => return Ok(()),
            None => {
                let text = "mapping is missing forward mapping";
                self.warn(&format!("Reverse {kind} {text}: {shown} -> {id}"));
            }
            Some(found) => {
                let (other, found_id) = (self.name_cell(kind, &found).await?, to_hex(&found));
                let text = match other {
                    Some(other) => format!(
                        "Inconsistent reverse {kind} mapping {id} -> {shown} vs {found_id} -> {shown} / {} \
                         -> {found_id}",
                        Name(&other.value)
                    ),
                    None => format!(
                        "Duplicate reverse {kind} mapping {id} -> {shown} and {found_id} -> null"
                    ),
                };
                self.error(kind, &text);
            }
        }
        if !self.options.fix {
            return Ok(());
        }
        if !self.is_settled(cell.timestamp_ms) {
            self.left_unsettled(kind, uid);
            return Ok(());
        }
        let what = format!("{kind} reverse mapping: {id} -> {shown}");
        let (storage, table) = (&self.table.storage, &self.table.table);
        if storage.compare_and_delete(table, reverse(kind, uid), name.clone()).await? {
            // The mapping, if it was written again, and the UIDMeta.
            let columns = [kind.as_str(), kind.meta_qualifier()]
                .map(|qualifier| (Family::Name, Bytes::from_static(qualifier.as_bytes())));
            let delete = Delete::Columns { row: uid.clone(), columns: columns.into() };
            storage.delete(table, delete).await?;
            self.repaired_mapping(name, uid, &format!("Removed {what}"));
        } else {
            self.changed(&what);
        }
        Ok(())
    }
}

/// Column of the mapping from a UID of any width.
fn reverse(kind: UidKind, uid: &Bytes) -> Column {
    Column {
        row: uid.clone(),
        family: Family::Name,
        qualifier: Bytes::from_static(kind.as_str().as_bytes()),
    }
}

/// True for a column of meta data, which the check skips.
fn is_meta(qualifier: &[u8]) -> bool {
    UidKind::ALL.iter().any(|kind| kind.meta_qualifier().as_bytes() == qualifier)
        || [TS_META_QUALIFIER, TS_COUNTER_QUALIFIER].iter().any(|meta| meta.as_bytes() == qualifier)
}

#[cfg(test)]
mod tests;
