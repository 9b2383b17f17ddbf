//! One scan: from the rows of a key range to the series in it.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use hashbrown::HashMap;
use tsd_model::{Family, PackedRun, Row, RowKey, SeriesKey, Uid, UidKind};
use tsd_query::{KeyRange, SeriesPipeline, SubQueryPlan};
use tsd_storage::{RowFilter, RowScanner, Scan, Table};

use super::{
    QueryContext, QueryFailure, ScannerStages,
    budget::Budget,
    content::{Content, RowTaker, SeriesState},
    halt::Halt,
    source::{MergedBuckets, RowSource, RowsByKey},
};
use crate::compaction::{RowCompactor, has_work, is_due};

/// Rows met in pieces that are made known at once.
const NOTICE_ROWS: usize = 256;

/// Beside its bytes, what a row key takes that is kept.
const KEY_BYTES: usize = size_of::<Bytes>() + 16;

/// Beside its tags and its series, what an entry of the map of series takes.
const ENTRY: usize = 48;

/// What the scans of one read share.
pub(crate) struct ScanJob {
    pub(crate) context: Arc<QueryContext>,
    pub(crate) table: Table,
    pub(crate) content: Content,
    pub(crate) plan: SubQueryPlan,
    pub(crate) pipeline: SeriesPipeline,
    pub(crate) filter: Option<RowFilter>,
    pub(crate) time_range_ms: Option<(i64, i64)>,
    /// Whether notes on the series are wanted.
    pub(crate) wants_notes: bool,
    /// Whether the keys of the rows are wanted, to delete them.
    pub(crate) wants_keys: bool,
    pub(crate) budget: Arc<Budget>,
    pub(crate) halt: Halt,
}

/// Some of the rows of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) rows: PartRows,
    /// Whether an earlier part of the same series may precede it.
    pub(crate) later: bool,
    /// What it is called in statistics.
    pub(crate) id: String,
}

/// Which rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartRows {
    /// Those of a key range.
    Range(KeyRange),
    /// Those with these keys, those of a series in time order.
    Keys(Vec<Bytes>),
    /// Those of some series in several buckets, once more: they were counted before.
    Again(Vec<KeyRange>, RowFilter),
}

type TagMap<V> = HashMap<Box<[u8]>, V, foldhash::fast::RandomState>;

/// What was found in a part.
#[derive(Default)]
pub(crate) struct PartFound {
    /// Series by their tag bytes.
    pub(crate) series: TagMap<SeriesState>,
    /// Keys of the rows, where they are wanted.
    pub(crate) keys: Vec<Bytes>,
    pub(crate) stages: ScannerStages,
}

impl ScanJob {
    /// Whether rows met in pieces are handed to row compaction: those of the data table.
    fn compacts_what_it_meets(&self) -> bool {
        self.context.compacts_what_it_meets() && self.table == self.context.data_table
    }

    /// Reads a part to its end.
    pub(crate) async fn read(self: Arc<Self>, part: Part) -> Result<PartFound, QueryFailure> {
        let run = self.budget.run();
        let _open = run.open_scan().await;
        let opened = Instant::now();
        let again = matches!(part.rows, PartRows::Again(..));
        let mut rows = self.open(part.rows);
        let mut reader = PartReader {
            job: &self,
            now_secs: self.context.clock.now_secs(),
            later: part.later,
            again,
            series: TagMap::default(),
            taker: RowTaker::default(),
            met: Vec::new(),
            keys: Vec::new(),
            stages: ScannerStages { id: part.id, ..ScannerStages::default() },
            held_batch: 0,
            held: 0,
        };
        loop {
            let asked = Instant::now();
            let batch = rows.next_rows().await?;
            reader.stages.store += asked.elapsed();
            let Some(batch) = batch else { break };
            if again {
                run.check_time()?;
            } else {
                self.budget.check()?;
                reader.spend(&batch)?;
            }
            reader.meet_series(&batch).await?;
            let mut rows_left = batch.iter();
            while rows_left.len() > 0 {
                let slice = run.slice().await?;
                for row in rows_left.by_ref() {
                    reader.take(row)?;
                    if slice.is_over() {
                        break;
                    }
                }
                reader.stages.compaction += slice.end();
            }
            reader.settle()?;
            // A store that never waits would keep this thread from anything else.
            tokio::task::yield_now().await;
        }
        reader.notify();
        run.release(reader.held_batch);
        run.scan_done();
        reader.stages.total = opened.elapsed();
        reader.stages.successful = true;
        let PartReader { series, keys, stages, .. } = reader;
        let series = series.into_iter().filter_map(|(tags, series)| Some((tags, series?)));
        Ok(PartFound { series: series.collect(), keys, stages })
    }

    fn open(&self, rows: PartRows) -> RowSource {
        let at_once = self.context.config.scan_batch_rows;
        match rows {
            PartRows::Range(range) => RowSource::Scan(self.scan(range, self.filter.clone())),
            PartRows::Keys(keys) => {
                let storage = Arc::clone(&self.context.storage);
                RowSource::Keys(RowsByKey::new(storage, self.table.clone(), keys, at_once))
            }
            PartRows::Again(ranges, filter) => {
                let scans = ranges.into_iter().map(|range| self.scan(range, Some(filter.clone())));
                RowSource::Merged(MergedBuckets::new(scans, self.plan.schema.salt_width(), at_once))
            }
        }
    }

    fn scan(&self, range: KeyRange, filter: Option<RowFilter>) -> Box<dyn RowScanner> {
        let scan = Scan {
            start: range.start,
            stop: range.stop,
            family: Some(Family::T),
            filter,
            time_range_ms: self.time_range_ms,
            batch_rows: Some(self.context.config.scan_batch_rows),
            ..Scan::default()
        };
        self.context.storage.scan(&self.table, scan)
    }
}

/// Cells of a row; a packed run counts its points.
fn cells_of(row: &Row) -> u64 {
    (row.cells.len() + row.runs.iter().map(PackedRun::point_count).sum::<usize>()) as u64
}

struct PartReader<'a> {
    job: &'a ScanJob,
    now_secs: i64,
    later: bool,
    /// Whether the rows were read and counted before.
    again: bool,
    /// `None` where a filter keeps the series out.
    series: TagMap<Option<SeriesState>>,
    taker: RowTaker,
    met: Vec<Bytes>,
    keys: Vec<Bytes>,
    stages: ScannerStages,
    /// Memory entered for batches: the one that is worked on, and the one the store reads ahead.
    held_batch: usize,
    /// Change of the memory of series that is not entered yet.
    held: isize,
}

impl PartReader<'_> {
    fn spend(&mut self, batch: &[Row]) -> Result<(), QueryFailure> {
        let (rows, mut bytes) = (batch.len() as u64, 0);
        for row in batch {
            for cell in &row.cells {
                bytes += row.key.len() + cell.qualifier.len() + cell.value.len();
            }
            for run in &row.runs {
                bytes += row.key.len() + run.as_bytes().len();
            }
        }
        let held = std::mem::replace(&mut self.held_batch, 2 * bytes);
        self.job.budget.run().hold_change(held, self.held_batch)?;
        let (cells, bytes) = (batch.iter().map(cells_of).sum(), bytes as u64);
        self.job.budget.spend(rows, cells, bytes);
        let stages = &mut self.stages;
        stages.rows += rows;
        stages.cells += cells;
        stages.bytes += bytes;
        stages.rows_pre_filter += rows;
        stages.cells_pre_filter += cells;
        Ok(())
    }

    /// Enters what the series of this scan came to take.
    fn settle(&mut self) -> Result<(), QueryFailure> {
        self.job.budget.hold_for_series(std::mem::take(&mut self.held))
    }

    /// Decides on the series of a batch that were not seen before.
    async fn meet_series(&mut self, batch: &[Row]) -> Result<(), QueryFailure> {
        let plan = &self.job.plan;
        let mut unsettled: Vec<Box<[u8]>> = Vec::new();
        for row in batch {
            let Ok(key) = RowKey::decode(&plan.schema, &row.key) else { continue };
            let tags = key.tag_bytes();
            if self.series.contains_key(tags) {
                continue;
            }
            let admitted = !key.is_global() && plan.admits(tags);
            if admitted && !plan.post_filters.is_empty() {
                unsettled.push(tags.into());
            }
            let job = self.job;
            let new = || SeriesState::new(&job.content, &job.pipeline, self.later);
            let series = admitted.then(new);
            let size = series.as_ref().map_or(0, SeriesState::memory_bytes);
            self.held += (size + tags.len() + ENTRY) as isize;
            self.series.insert(tags.into(), series);
        }
        if unsettled.is_empty() {
            return Ok(());
        }
        let mut uids: Vec<Uid> = unsettled
            .iter()
            .flat_map(|tags| plan.values_to_name(tags))
            .filter_map(|uid| Uid::try_new(uid).ok())
            .collect();
        uids.sort_unstable();
        uids.dedup();
        let asked = Instant::now();
        let names = self.job.context.uids.names_of(UidKind::Tagv, &uids).await?;
        self.stages.uid_to_string += asked.elapsed();
        self.stages.uid_pairs_resolved += uids.len() as u64;
        let name_of = |uid: &[u8]| {
            let at = uids.binary_search_by(|known| known.as_bytes().cmp(uid)).ok()?;
            names.get(at)?.as_deref()
        };
        for tags in unsettled {
            if !plan.accepts(&tags, name_of) {
                self.series.insert(tags, None);
            }
        }
        Ok(())
    }

    /// Takes what a row holds.
    fn take(&mut self, row: &Row) -> Result<(), QueryFailure> {
        let job = self.job;
        job.halt.check()?;
        let Ok(key) = RowKey::decode(&job.plan.schema, &row.key) else { return Ok(()) };
        let Some(Some(series)) = self.series.get_mut(key.tag_bytes()) else { return Ok(()) };
        self.stages.rows_post_filter += 1;
        self.stages.cells_post_filter += cells_of(row);
        let before = series.memory_bytes();
        self.taker.take(
            &job.context,
            (&job.content, job.wants_notes),
            &job.pipeline,
            (row, key.base_time()),
            series,
        )?;
        self.held += series.memory_bytes() as isize - before as isize;
        if self.again {
            return Ok(());
        }
        if job.wants_keys {
            self.held += (row.key.len() + KEY_BYTES) as isize;
            self.keys.push(Bytes::copy_from_slice(&row.key));
        } else if job.compacts_what_it_meets()
            && is_due(job.plan.schema, &row.key, self.now_secs)
            && has_work(row, job.context.rows.repair_appends)
        {
            // A slice would keep its whole batch alive while it waits.
            self.met.push(Bytes::copy_from_slice(&row.key));
            if self.met.len() >= NOTICE_ROWS {
                self.notify();
            }
        }
        Ok(())
    }

    /// Makes known which rows were met in pieces.
    fn notify(&mut self) {
        let context = &self.job.context;
        let mut by_shard: HashMap<usize, Vec<Bytes>, foldhash::fast::RandomState> =
            HashMap::default();
        for key in self.met.drain(..) {
            if let Ok(series) = SeriesKey::from_row_key(&self.job.plan.schema, &key) {
                let shard = series.bucket().index() as usize % context.compactors.len().max(1);
                by_shard.entry(shard).or_default().push(key);
            }
        }
        for (shard, rows) in by_shard {
            if let Some(compactor) = context.compactors.get(shard) {
                RowCompactor::fragmented_rows_read(compactor, &context.compaction_stats, rows);
            }
        }
    }
}
