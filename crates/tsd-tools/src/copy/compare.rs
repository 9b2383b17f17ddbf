//! Compares the tables of two stores.
//!
//! Each store is read once, in its own order. Checksums of rows are added, in total and in groups by key, so memory
//! does not grow with the tables. Equal sums mean equal contents. Otherwise both stores are read again, and rows of
//! groups that differ are looked up in the other store, which finds and names the rows that differ.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::AtomicBool},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tsd_engine::EngineHandle;
use tsd_model::{Cell, Family, Row, RowKey, UID_COUNTER_ROW, Uid, UidKind, decode_latin1, to_hex};
use tsd_storage::{Delete, Get, StorageExt, Table};

use super::{
    checksum::{RowDigest, row_digest},
    error::CopyError,
    key_map::{BatchKeys, KeyMap, Untranslated},
    options::{CopiedKind, CopyObserver, CopyRun},
    range_rows::{RangeRows, ReadSide},
    ranges::{self, TableRange},
    report::{TableComparison, TableDigest},
    tables::CopiedTable,
    writer::{CopiedRow, encode},
};

/// Number of groups into which rows are divided by key.
const GROUPS: usize = 4_096;
/// Most rows of a table that are named; all differing rows are counted.
const MAX_NAMED: u64 = 1_000;

/// A comparison in progress.
pub(super) struct Comparison<'c> {
    from: &'c EngineHandle,
    to: &'c EngineHandle,
    run: &'c CopyRun,
    by_name: bool,
    observer: &'c Arc<dyn CopyObserver>,
    stop: &'c Arc<AtomicBool>,
}

/// One of the two stores.
struct ComparedSide {
    side: ReadSide,
    other: ReadSide,
    kind: CopiedKind,
    table: Table,
    other_table: Table,
    ranges: Vec<TableRange>,
    /// Maps to the keys of the other store; `None` if they are the same.
    map: Option<KeyMap>,
    stop: Arc<AtomicBool>,
}

/// Sums of rows.
struct GroupedDigest {
    total: TableDigest,
    groups: Vec<u128>,
    without_names: u64,
}

/// A row as it is compared.
struct ComparedRow {
    /// Key in its own store.
    key: Bytes,
    /// Key in the other store; `None` if the row cannot be there.
    other_key: Option<Bytes>,
    /// Group, the same in both stores.
    group: usize,
    digest: TableDigest,
}

impl GroupedDigest {
    fn new() -> Self {
        Self { total: TableDigest::default(), groups: vec![0; GROUPS], without_names: 0 }
    }

    fn add(&mut self, row: &ComparedRow) {
        self.total.add(&row.digest);
        if let Some(sum) = self.groups.get_mut(row.group) {
            *sum = sum.wrapping_add(row.digest.checksum);
        }
    }

    fn add_all(&mut self, other: &Self) {
        self.total.add(&other.total);
        self.without_names += other.without_names;
        for (sum, more) in self.groups.iter_mut().zip(&other.groups) {
            *sum = sum.wrapping_add(*more);
        }
    }
}

/// The group of a key, by FNV-1a.
fn group_of(key: &[u8]) -> usize {
    let hash = key.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    (hash >> 32) as usize % GROUPS
}

impl<'c> Comparison<'c> {
    pub(super) const fn new(
        (from, to): (&'c EngineHandle, &'c EngineHandle),
        run: &'c CopyRun,
        by_name: bool,
        observer: &'c Arc<dyn CopyObserver>,
        stop: &'c Arc<AtomicBool>,
    ) -> Self {
        Self { from, to, run, by_name, observer, stop }
    }

    pub(super) async fn table(&self, table: &CopiedTable) -> Result<TableComparison, CopyError> {
        let source = Arc::new(self.side(table, false).await?);
        let target = Arc::new(self.side(table, true).await?);
        let of_source = self.digest(&source).await?;
        let of_target = self.digest(&target).await?;
        let mut found = TableComparison {
            from: table.from.clone(),
            to: table.to.clone(),
            source: of_source.total,
            target: of_target.total,
            only_in_source: 0,
            only_in_target: 0,
            different: 0,
            without_names: of_source.without_names,
            repaired: 0,
            is_complete: !self.is_stopped(),
        };
        if found.source != found.target && found.is_complete {
            let groups = of_source.groups.iter().zip(&of_target.groups);
            let differing: Vec<bool> = groups.map(|(a, b)| a != b).collect();
            self.find_rows(&source, &differing, &mut found).await?;
            self.find_rows(&target, &differing, &mut found).await?;
            found.is_complete = !self.is_stopped();
        }
        Ok(found)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(std::sync::atomic::Ordering::Relaxed)
    }

    async fn side(&self, table: &CopiedTable, is_target: bool) -> Result<ComparedSide, CopyError> {
        let source = ReadSide { engine: self.from.clone(), is_target: false };
        let target = ReadSide { engine: self.to.clone(), is_target: true };
        let (side, other, table) = if is_target {
            let (from, to) = (table.to.clone(), table.from.clone());
            (target, source, CopiedTable { from, to, ..table.clone() })
        } else {
            (source, target, table.clone())
        };
        let selection = &self.run.selection;
        let metrics = ranges::selected_metrics(&side.engine, selection, false).await?;
        let ranges = ranges::of_table(&side.engine, &table, selection, metrics.as_ref());
        let map = self.by_name.then(|| KeyMap::new(side.engine.clone(), other.engine.clone()));
        let (kind, stop) = (table.kind, Arc::clone(self.stop));
        let (table, other_table) = (table.from, table.to);
        Ok(ComparedSide { side, other, kind, table, other_table, ranges, map, stop })
    }

    /// Reads all ranges of a side.
    async fn digest(&self, side: &Arc<ComparedSide>) -> Result<GroupedDigest, CopyError> {
        let tasks = side.ranges.clone().into_iter().map(|range| {
            let side = Arc::clone(side);
            async move { tokio::spawn(async move { side.digest_range(&range).await }).await }
        });
        let mut tasks = stream::iter(tasks).buffer_unordered(self.run.threads.max(1));
        let mut all = GroupedDigest::new();
        while let Some(ended) = tasks.next().await {
            let range = ended.map_err(|error| CopyError::Panicked(error.to_string()))??;
            all.add_all(&range);
        }
        Ok(all)
    }

    /// Finds rows in groups that differ: rows that the other side lacks, and rows of the source whose contents differ
    /// there.
    async fn find_rows(
        &self,
        side: &ComparedSide,
        differing: &[bool],
        found: &mut TableComparison,
    ) -> Result<(), CopyError> {
        for range in &side.ranges {
            let mut rows = RangeRows::new(&side.side, range, None, &Bytes::new());
            while let Some(batch) = rows.next().await? {
                if self.is_stopped() {
                    return Ok(());
                }
                let (rows, _) = side.compared_rows(batch).await?;
                let is_wanted = |row: &ComparedRow| differing.get(row.group).copied() == Some(true);
                let rows: Vec<ComparedRow> = rows.into_iter().filter(is_wanted).collect();
                self.look_up(side, rows, found).await?;
            }
        }
        Ok(())
    }

    async fn look_up(
        &self,
        side: &ComparedSide,
        rows: Vec<ComparedRow>,
        found: &mut TableComparison,
    ) -> Result<(), CopyError> {
        let keys: Vec<Bytes> = rows.iter().filter_map(|row| row.other_key.clone()).collect();
        let others = side.other_digests(&keys).await?;
        let mut others = others.into_iter();
        for row in rows {
            let other = row.other_key.as_ref().and_then(|_| others.next().flatten());
            let is_target = side.side.is_target;
            let what = match other {
                None if is_target => {
                    found.only_in_target += 1;
                    "only in the target"
                }
                None => {
                    found.only_in_source += 1;
                    "only in the source"
                }
                Some(digest) if digest != row.digest && !is_target => {
                    found.different += 1;
                    "differs"
                }
                Some(_) => continue,
            };
            if self.run.repairs {
                found.repaired += u64::from(self.repair(side, &row).await?);
            }
            if found.only_in_source + found.only_in_target + found.different <= MAX_NAMED {
                let name = side.describe(&row.key).await;
                self.observer.found(&side.table, &format!("{name}: {what}"));
            }
        }
        Ok(())
    }
}

impl Comparison<'_> {
    /// Makes a row of the target equal to that of the source: puts its cells, and deletes columns that the source does
    /// not have. Returns false if that is not possible, because names are copied, not repaired.
    async fn repair(&self, side: &ComparedSide, row: &ComparedRow) -> Result<bool, CopyError> {
        if side.kind == CopiedKind::Uid && self.by_name {
            return Ok(false);
        }
        let storage = self.to.storage();
        if side.side.is_target {
            let deleted = storage.delete(&side.table, Delete::Row(row.key.clone())).await;
            deleted.map_err(CopyError::target(&side.table))?;
            return Ok(true);
        }
        let failed = CopyError::target(&side.other_table);
        let Some(copied) = side.row_for_other(&row.key).await? else { return Ok(false) };
        let get = Get::row(copied.key.clone());
        let stored = storage.get(&side.other_table, get).await.map_err(&failed)?;
        let stored = stored.map_or(Ok(Vec::new()), Row::into_cells);
        let stored = stored.map_err(|error| failed(error.into()))?;
        let is_extra = |cell: &Cell| {
            !copied
                .cells
                .iter()
                .any(|of| of.family == cell.family && of.qualifier == cell.qualifier)
        };
        let columns = stored.into_iter().filter(is_extra).map(|cell| (cell.family, cell.qualifier));
        let columns: Vec<_> = columns.collect();
        let row = copied.key.clone();
        let batch = encode(&[copied]).map_err(&failed)?;
        storage.put(&side.other_table, batch).await.map_err(&failed)?;
        if !columns.is_empty() {
            let delete = Delete::Columns { row, columns };
            storage.delete(&side.other_table, delete).await.map_err(&failed)?;
        }
        Ok(true)
    }
}

impl ComparedSide {
    /// A row as the other store should have it; `None` if it was deleted, or has no key there.
    async fn row_for_other(&self, key: &Bytes) -> Result<Option<CopiedRow>, CopyError> {
        let failed = |error| self.side.failed(&self.table, error);
        let get = Get::row(key.clone());
        let row = self.side.engine.storage().get(&self.table, get).await.map_err(failed)?;
        let Some(row) = row else { return Ok(None) };
        let mut cells = row.into_cells().map_err(|error| failed(error.into()))?;
        let Some(map) = &self.map else {
            if self.kind == CopiedKind::Uid && key.as_ref() == UID_COUNTER_ROW {
                cells.retain(|cell| cell.family != Family::Id);
            }
            return Ok(Some(CopiedRow { key: key.clone(), cells }));
        };
        let keys = map.batch(self.kind, false, std::iter::once((key, &cells[..]))).await?;
        let row = keys.row(self.kind, key, cells).ok();
        Ok(row.map(|row| CopiedRow { key: row.key, cells: row.cells }))
    }

    async fn digest_range(&self, range: &TableRange) -> Result<GroupedDigest, CopyError> {
        let mut digest = GroupedDigest::new();
        let mut rows = RangeRows::new(&self.side, range, None, &Bytes::new());
        while let Some(batch) = rows.next().await? {
            if self.stop.load(std::sync::atomic::Ordering::Relaxed) {
                break;
            }
            let (rows, without_names) = self.compared_rows(batch).await?;
            digest.without_names += without_names;
            for row in &rows {
                digest.add(row);
            }
        }
        Ok(digest)
    }

    /// The rows of a batch to compare, and the number of rows that cannot be compared. Digests use the keys of the
    /// target.
    async fn compared_rows(&self, rows: Vec<Row>) -> Result<(Vec<ComparedRow>, u64), CopyError> {
        let mut read = Vec::with_capacity(rows.len());
        let mut without_names = 0;
        for row in rows {
            let key = row.key.clone();
            match row.into_cells() {
                Ok(cells) => read.push((key, cells)),
                Err(_) => without_names += 1,
            }
        }
        let Some(map) = &self.map else {
            let rows = read.into_iter().filter_map(|(key, cells)| self.same_key(key, cells));
            return Ok((rows.collect(), without_names));
        };
        if self.kind == CopiedKind::Uid {
            return Ok((self.named_rows(map, read).await?, without_names));
        }
        let keys = read.iter().map(|(key, cells)| (key, &cells[..]));
        let keys = map.batch(self.kind, false, keys).await?;
        let mut compared = Vec::with_capacity(read.len());
        for (key, cells) in read {
            match self.translated(&keys, &key, &cells) {
                Ok(row) => compared.push(row),
                Err(()) => without_names += 1,
            }
        }
        Ok((compared, without_names))
    }

    /// A row with the same key in both stores. Counters of UIDs may be higher in the target.
    fn same_key(&self, key: Bytes, mut cells: Vec<Cell>) -> Option<ComparedRow> {
        if self.kind == CopiedKind::Uid && key.as_ref() == UID_COUNTER_ROW {
            cells.retain(|cell| cell.family != Family::Id);
        }
        if cells.is_empty() {
            return None;
        }
        let digest = row_digest(self.kind, &key, &cells);
        Some(ComparedRow { other_key: Some(key.clone()), group: group_of(&key), key, digest })
    }

    /// A row whose key differs. Fails for a row of the source that the target cannot have, because its key is damaged
    /// or has no names.
    fn translated(&self, keys: &BatchKeys, key: &Bytes, cells: &[Cell]) -> Result<ComparedRow, ()> {
        if self.side.is_target {
            let digest = row_digest(self.kind, key, cells);
            let other_key = keys.row(self.kind, key, Vec::new()).ok().map(|row| row.key);
            return Ok(ComparedRow { other_key, group: group_of(key), key: key.clone(), digest });
        }
        match keys.row(self.kind, key, cells.to_vec()) {
            Ok(row) => {
                let digest = row_digest(self.kind, &row.key, &row.cells);
                let group = group_of(&row.key);
                Ok(ComparedRow { key: key.clone(), other_key: Some(row.key), group, digest })
            }
            Err(Untranslated::Absent(_)) => {
                let digest = row_digest(self.kind, key, cells);
                Ok(ComparedRow { other_key: None, group: group_of(key), key: key.clone(), digest })
            }
            Err(Untranslated::Damaged(_) | Untranslated::Unnamed(_)) => Err(()),
        }
    }

    /// Names with their meta objects, by kind and name.
    async fn named_rows(
        &self,
        map: &KeyMap,
        rows: Vec<(Bytes, Vec<Cell>)>,
    ) -> Result<Vec<ComparedRow>, CopyError> {
        let schema = self.side.engine.config().schema;
        let mut named = Vec::new();
        for (key, cells) in &rows {
            for kind in UidKind::ALL {
                if let Ok(uid) = Uid::with_width(key, kind.width(&schema))
                    && let Some(digest) = name_digest(kind, cells)
                {
                    named.push((kind, uid, digest));
                }
            }
        }
        let wanted: BTreeSet<_> = named.iter().map(|(kind, uid, _)| (*kind, *uid)).collect();
        let found = map.look_up(wanted, false).await?;
        let row = |(kind, uid, (group, digest)): (UidKind, Uid, (usize, TableDigest))| {
            let named =
                |uid: &Uid| [kind.as_str().as_bytes(), &[0], uid.as_bytes()].concat().into();
            let other = found.get(&(kind, uid)).and_then(|found| found.as_ref().ok());
            ComparedRow { key: named(&uid), other_key: other.map(named), group, digest }
        };
        Ok(named.into_iter().map(row).collect())
    }

    /// The digests of rows of the other store.
    async fn other_digests(&self, keys: &[Bytes]) -> Result<Vec<Option<TableDigest>>, CopyError> {
        let by_name = self.kind == CopiedKind::Uid && self.map.is_some();
        let row_of = |key: &Bytes| if by_name { split_name_key(key).1 } else { key.clone() };
        let gets = keys.iter().map(|key| Get::row(row_of(key))).collect();
        let rows = self.other.engine.storage().multi_get(&self.other_table, gets).await;
        let rows = rows.map_err(|error| self.other.failed(&self.other_table, error))?;
        let digest = |(key, row): (&Bytes, Option<Row>)| {
            let cells = row?.into_cells().ok()?;
            if by_name {
                return Some(name_digest(split_name_key(key).0?, &cells)?.1);
            }
            // Of the source, only the existence of the row matters.
            Some(row_digest(self.kind, key, &cells))
        };
        Ok(keys.iter().zip(rows).map(digest).collect())
    }

    /// Describes a row for the operator.
    async fn describe(&self, key: &Bytes) -> String {
        let uids = self.side.engine.uids();
        let name = async |kind, uid: Uid| {
            uids.name_of(kind, uid).await.unwrap_or_else(|_| uid.to_string())
        };
        if self.kind == CopiedKind::Uid {
            return match split_name_key(key) {
                (Some(kind), uid) if self.map.is_some() => {
                    let name = match Uid::try_new(&uid) {
                        Ok(uid) => name(kind, uid).await,
                        Err(_) => to_hex(&uid),
                    };
                    format!("{kind} name {name}")
                }
                _ => format!("row {} ({})", to_hex(key), decode_latin1(key)),
            };
        }
        let decoded = RowKey::decode(&self.side.engine.config().schema, key);
        let Some(decoded) = decoded.ok().filter(|_| self.kind.has_row_keys()) else {
            return format!("row {}", to_hex(key));
        };
        let mut text = name(UidKind::Metric, decoded.metric_uid().uid()).await;
        for (tagk, tagv) in decoded.tags() {
            let k = name(UidKind::Tagk, tagk.uid()).await;
            let v = name(UidKind::Tagv, tagv.uid()).await;
            text.extend([" ", &k, "=", &v]);
        }
        format!("row {} ({text} at {})", to_hex(key), decoded.base_time().as_secs())
    }
}

/// The group and digest of a name and its meta object in a row of the UID table; `None` if the row has no name of
/// the kind.
fn name_digest(kind: UidKind, cells: &[Cell]) -> Option<(usize, TableDigest)> {
    let column = |qualifier: &str| {
        let is_column =
            |cell: &&Cell| cell.family == Family::Name && cell.qualifier == qualifier.as_bytes();
        cells.iter().find(is_column)
    };
    let name = column(kind.as_str())?;
    let key = [kind.as_str().as_bytes(), &[0], &name.value].concat();
    let mut digest = RowDigest::new(&key);
    digest.add(b"name", b"", &name.value);
    if let Some(meta) = column(kind.meta_qualifier()) {
        digest.add(b"meta", b"", &meta.value);
    }
    Some((group_of(&key), digest.end()))
}

/// Kind and UID of a key that [`ComparedSide::named_rows`] has made.
fn split_name_key(key: &Bytes) -> (Option<UidKind>, Bytes) {
    let kind = UidKind::ALL.into_iter().find(|kind| {
        key.strip_prefix(kind.as_str().as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    });
    let uid = kind.map_or(0, |kind| kind.as_str().len() + 1);
    (kind, key.slice(uid.min(key.len())..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_names_are_split() {
        let (kind, uid) = split_name_key(&Bytes::from_static(b"tagk\0\0\0\x01"));
        assert_eq!((kind, &uid[..]), (Some(UidKind::Tagk), &[0, 0, 1][..]));
        let (kind, uid) = split_name_key(&Bytes::from_static(b"x"));
        assert_eq!((kind, &uid[..]), (None, &b"x"[..]));
    }
}
