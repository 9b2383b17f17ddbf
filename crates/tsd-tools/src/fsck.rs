//! The check of the data table (`tsdb fsck`): finds the same errors as OpenTSDB's, in its words, and makes the repairs
//! that the options allow.
//!
//! The table is read in ranges, one per salt bucket, several concurrently. Each row is checked by itself ([`row`]).
//! Repairs depend on the cells that were read, so a daemon may write to the table meanwhile; a row that it changes is
//! read again. The caller gets findings one by one, and a range holds one batch of rows, so memory does not grow with
//! the damage. An interrupted check can be run again, because every repair leaves a row that reads the same. The UID
//! table has a check of its own.

mod options;
mod report;
mod row;

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::time::sleep_until;
use tsd_engine::EngineHandle;
use tsd_meta::UidError;
use tsd_model::{
    BaseTime, Cell, MetricUid, Row, RowKey, SaltBucket, TableSchema, UidKind, java_byte_list,
    to_hex,
};
use tsd_storage::{
    CellBatch, CellRef, Column, Delete, Get, NewValue, ReadVersion, RowFilter, RowRewrite, Scan,
    Storage, StorageError, StorageExt, Table, TagUids, prefix_range, tags_filter,
};

pub use options::{FsckLevel, FsckOptions};
pub use report::FsckReport;
pub(crate) use row::show_cell;
use row::{RowCheck, RowRepairs};

/// Rows read at once.
const BATCH_ROWS: usize = 1_000;
/// Most attempts to repair a row to which others write.
const MAX_ATTEMPTS: usize = 5;

/// Options of one run of the check.
#[derive(Clone, Debug)]
pub struct FsckRun {
    /// The repairs to make.
    pub options: FsckOptions,
    /// The rows to check; all rows if empty.
    pub selections: Vec<FsckSelection>,
    /// Ranges that are read concurrently.
    pub threads: usize,
    /// Most rows per second; `None` means no limit.
    pub max_rows_per_sec: Option<f64>,
    /// Progress of earlier runs: the row keys up to which ranges were checked.
    pub checked: BTreeMap<usize, Bytes>,
}

/// Rows of one metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsckSelection {
    /// Name of the metric.
    pub metric: String,
    /// Tags with their values; an empty list of values allows all.
    pub tags: Vec<(String, Vec<String>)>,
    /// First and last second; whole hours are checked.
    pub seconds: (u32, u32),
}

/// Receives the reports of a running check.
pub trait FsckObserver: Send + Sync {
    /// A finding.
    fn found(&self, level: FsckLevel, text: &str);

    /// A range was checked up to a row. `rows` counts rows since the last call; `checked` has the findings and repairs
    /// in them.
    fn advanced(&self, range: usize, row: &Bytes, rows: u64, checked: &FsckReport);
}

/// Cause why a check ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FsckError {
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A name of the selection has no UID, or a UID could not be looked up.
    #[error(transparent)]
    Uid(#[from] UidError),
    /// A task of the check panicked.
    #[error("the check failed: {0}")]
    Panicked(String),
}

/// Report on a row whose repair failed too often.
const BUSY: &str = "The row was written to at the same time; run fsck again";

impl fmt::Display for FsckLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        })
    }
}

impl FsckOptions {
    /// All repairs, like `--fix-all`.
    #[must_use]
    pub const fn fix_all() -> Self {
        Self {
            fix: true,
            compact: true,
            resolve_duplicates: true,
            last_write_wins: false,
            delete_orphans: true,
            delete_unknown_columns: true,
            delete_bad_values: true,
            delete_bad_rows: true,
            delete_bad_compacts: true,
        }
    }
}

/// A range of rows.
#[derive(Clone, Debug)]
struct TableRange {
    number: usize,
    start: Bytes,
    stop: Bytes,
    filter: Option<RowFilter>,
}

/// State that all ranges share.
struct FsckContext {
    engine: EngineHandle,
    storage: Arc<dyn Storage>,
    table: Table,
    schema: TableSchema,
    options: FsckOptions,
    repair_appends: bool,
    observer: Arc<dyn FsckObserver>,
    stop: Arc<AtomicBool>,
    /// Minimum time per row of a range, for the rate limit.
    row_time: Duration,
    report: Mutex<FsckReport>,
}

/// Checks the data table, and makes the repairs that the options allow, until the whole table is read or `stop` is
/// set.
///
/// # Errors
///
/// If the store fails, or a selected name has no UID. Repairs made before the failure stay.
pub async fn fsck(
    engine: &EngineHandle,
    run: FsckRun,
    observer: Arc<dyn FsckObserver>,
    stop: Arc<AtomicBool>,
) -> Result<FsckReport, FsckError> {
    let config = engine.config();
    let threads = run.threads.max(1);
    let row_secs = run.max_rows_per_sec.map_or(0.0, |rows| threads as f64 / rows.max(0.001));
    let context = Arc::new(FsckContext {
        engine: engine.clone(),
        storage: Arc::clone(engine.storage()),
        table: config.tables.data.clone(),
        schema: config.schema,
        options: run.options,
        repair_appends: config.rows.repair_appends,
        observer,
        stop,
        row_time: Duration::from_secs_f64(row_secs),
        report: Mutex::default(),
    });
    let mut ranges = Vec::new();
    if run.selections.is_empty() {
        ranges.extend(key_prefixes(config.schema).map(|salt| (prefix_range(&salt), None)));
    }
    for selection in &run.selections {
        ranges.extend(selected_ranges(engine, selection).await?);
    }
    let ranges = ranges.into_iter().enumerate().map(|(number, ((start, stop), filter))| {
        let checked = run.checked.get(&number).map(|row| [row, &[0][..]].concat().into());
        let range = TableRange { number, start: checked.unwrap_or(start), stop, filter };
        let context = Arc::clone(&context);
        tokio::spawn(async move { context.check_range(range).await })
    });
    // A task starts when it is first polled, so this limits the running tasks.
    let mut tasks = stream::iter(ranges).buffer_unordered(threads);
    while let Some(ended) = tasks.next().await {
        ended.map_err(|error| FsckError::Panicked(error.to_string()))??;
    }
    drop(tasks);
    Ok(*context.report.lock())
}

/// The salt of each bucket; a single empty prefix without salting.
fn key_prefixes(schema: TableSchema) -> impl Iterator<Item = Vec<u8>> {
    let buckets = if schema.salt_width() == 0 { 1 } else { schema.salt_buckets() };
    (0..buckets)
        .map(move |bucket| SaltBucket::from_index(bucket).salt(schema.salt_width()).to_vec())
}

type SelectedRange = ((Bytes, Bytes), Option<RowFilter>);

/// The key ranges of a selection, one per salt bucket.
async fn selected_ranges(
    engine: &EngineHandle,
    selection: &FsckSelection,
) -> Result<Vec<SelectedRange>, FsckError> {
    let schema = engine.config().schema;
    let metric: MetricUid = engine.uids().uid(&selection.metric).await?;
    let mut tags = TagUids::new();
    for (tagk, tagvs) in &selection.tags {
        let tagk = engine.uids().uid(tagk).await?;
        let mut uids = BTreeSet::new();
        for tagv in tagvs {
            uids.insert(engine.uids().uid(tagv).await?);
        }
        tags.insert(tagk, (!uids.is_empty()).then_some(uids));
    }
    let (first, last) = selection.seconds;
    let first = BaseTime::containing(first).to_bytes();
    let after = BaseTime::containing(last).next();
    let ranges = key_prefixes(schema).map(|salt| {
        let prefix = [&salt[..], metric.as_bytes()].concat();
        let start = [&prefix[..], &first].concat().into();
        let stop = match after {
            Some(after) => [&prefix[..], &after.to_bytes()].concat().into(),
            None => prefix_range(&prefix).1,
        };
        ((start, stop), tags_filter(schema, schema.tags_start(), &tags))
    });
    Ok(ranges.collect())
}

impl FsckContext {
    async fn check_range(&self, range: TableRange) -> Result<(), FsckError> {
        let started = Instant::now();
        let mut checked_rows = 0_u32;
        let read = self.storage.read_version(&self.table);
        let TableRange { number, start, stop, filter } = range;
        let batch_rows = Some(BATCH_ROWS);
        let scan = Scan { start, stop, filter, batch_rows, ..Scan::default() };
        let mut scanner = self.storage.scan(&self.table, scan);
        // As in OpenTSDB, a row is counted when another one follows, or if it has points.
        let mut is_counted = true;
        while let Some(rows) = scanner.next_rows().await? {
            let mut report = FsckReport::default();
            let (mut last, mut count) = (Bytes::new(), 0);
            for row in rows {
                if self.stop.load(Ordering::Relaxed) {
                    break;
                }
                last = row.key.clone();
                if !is_counted {
                    report.rows += 1;
                }
                is_counted = self.check_row(row.key.clone(), row, read, &mut report).await?;
                report.rows += u64::from(is_counted);
                checked_rows = checked_rows.saturating_add(1);
                count += 1;
            }
            if !last.is_empty() {
                self.report.lock().add(&report);
                self.observer.advanced(number, &last, count, &report);
            }
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            if !self.row_time.is_zero() {
                sleep_until((started + self.row_time * checked_rows).into()).await;
            }
        }
        Ok(())
    }

    /// Checks and repairs a row. Returns whether it has points.
    async fn check_row(
        &self,
        key: Bytes,
        row: Row,
        read: ReadVersion,
        report: &mut FsckReport,
    ) -> Result<bool, FsckError> {
        let decoded = RowKey::decode(&self.schema, &key);
        if decoded.is_ok_and(|key| key.is_global() && key.metric().iter().all(|byte| *byte == 0)) {
            // A row of global annotations, which belong to no series.
            return Ok(false);
        }
        let Some(decoded) = decoded.ok().filter(|key| !key.is_global()) else {
            report.bad_keys += 1;
            let text = format!("Invalid row key.\n\tKey: {}", to_hex(&key));
            self.observer.found(FsckLevel::Error, &text);
            let is_deleted = self.options.fix && self.options.delete_bad_rows;
            report.bad_keys_deleted += self.delete_row_if(is_deleted, &key).await?;
            return Ok(false);
        };
        if let Some(unresolved) = self.unresolved(&decoded).await? {
            report.orphans += 1;
            self.observer.found(FsckLevel::Error, &unresolved);
            let is_deleted = self.options.fix && self.options.delete_orphans;
            report.orphans_deleted += self.delete_row_if(is_deleted, &key).await?;
            return Ok(false);
        }
        let base = decoded.base_time();
        let cells = match row.into_cells() {
            Ok(cells) => cells,
            Err(error) => {
                let text = format!("The row cannot be read: {error}\n\tKey: {}", to_hex(&key));
                self.observer.found(FsckLevel::Error, &text);
                report.bad_columns += 1;
                return Ok(false);
            }
        };
        let run =
            |cells: &[Cell]| RowCheck::run(&self.options, self.repair_appends, &key, base, cells);
        let (found, findings, repairs, has_points) = run(&cells);
        for (level, text) in &findings {
            self.observer.found(*level, text);
        }
        report.add(&found);
        let mut repair = (repairs, read);
        for _ in 0..MAX_ATTEMPTS {
            match self.repair(&key, repair.0, repair.1).await {
                Ok(()) => return Ok(has_points),
                Err(StorageError::Changed) => {}
                Err(error) => return Err(error.into()),
            }
            let read = self.storage.read_version(&self.table);
            let row = self.storage.get(&self.table, Get::row(key.clone())).await?;
            let Some(Ok(cells)) = row.map(Row::into_cells) else {
                return Ok(has_points);
            };
            repair = (run(&cells).2, read);
        }
        let text = format!("{BUSY}\n\tKey: {}", to_hex(&key));
        self.observer.found(FsckLevel::Warn, &text);
        Ok(has_points)
    }

    async fn delete_row_if(&self, is_deleted: bool, key: &Bytes) -> Result<u64, FsckError> {
        if is_deleted {
            self.storage.delete(&self.table, Delete::Row(key.clone())).await?;
        }
        Ok(u64::from(is_deleted))
    }

    /// The text about a UID of the key that has no name.
    async fn unresolved(&self, key: &RowKey<'_>) -> Result<Option<String>, FsckError> {
        let metric = [(UidKind::Metric, key.metric_uid().uid())];
        let tags =
            key.tags().flat_map(|(k, v)| [(UidKind::Tagk, k.uid()), (UidKind::Tagv, v.uid())]);
        for (kind, uid) in metric.into_iter().chain(tags) {
            match self.engine.uids().name_of(kind, uid).await {
                Ok(_) => {}
                Err(UidError::NoSuchUid { .. }) => {
                    let is_metric = kind == UidKind::Metric;
                    let what = if is_metric { "the metric" } else { "the a tagk or tagv" };
                    let kind = kind.as_str();
                    let (row, uid) = (hex_key(key), java_byte_list(uid.as_bytes()));
                    return Ok(Some(format!(
                        "Unable to resolve {what} from the row key.\n\tKey: {row}\n\tNo such unique ID for \
                         '{kind}': {uid}"
                    )));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Writes the repairs of a row. New cells come first, so that a concurrent reader misses nothing.
    async fn repair(
        &self,
        key: &Bytes,
        repairs: RowRepairs,
        read: ReadVersion,
    ) -> Result<(), StorageError> {
        if repairs.is_nothing() {
            return Ok(());
        }
        for (old, value) in repairs.replace {
            let column = Column { row: key.clone(), family: old.family, qualifier: old.qualifier };
            let (old_value, at) = (Some(old.value), old.timestamp_ms);
            // A cell that was changed meanwhile stays unchanged.
            self.storage
                .compare_and_set_at(&self.table, column, old_value, NewValue::at(value, at))
                .await?;
        }
        if !repairs.put.is_empty() {
            let mut batch = CellBatch::new();
            batch.begin_row(key)?;
            for cell in &repairs.put {
                let timestamp_ms = Some(cell.timestamp_ms);
                let (family, qualifier, value) =
                    (cell.family, &cell.qualifier[..], &cell.value[..]);
                batch.push(CellRef { family, qualifier, value, timestamp_ms })?;
            }
            self.storage.put(&self.table, batch).await?;
        }
        let RowRepairs { put, compacted, superseded_ms, delete, .. } = repairs;
        if compacted.is_none() && delete.is_empty() {
            return Ok(());
        }
        // The put above changed the row, so its read version is new.
        let read = if put.is_empty() { read } else { self.storage.read_version(&self.table) };
        let rewrite = RowRewrite {
            row: key.clone(),
            put: compacted,
            superseded_ms,
            delete,
            read,
            whole_row: false,
        };
        self.storage.rewrite_row(&self.table, rewrite).await
    }
}

fn hex_key(key: &RowKey<'_>) -> String {
    let base = key.base_time().to_bytes();
    to_hex(&[key.salt(), key.metric(), &base, key.tag_bytes()].concat())
}

#[cfg(test)]
mod tests;
