//! One scan: reads the rows of a scan range and builds the series in it.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use hashbrown::HashSet;
use tsd_model::{DAY_SECS, Family, Row, RowKey, SummaryUse};
use tsd_query::KeyRange;
use tsd_storage::{
    QuarantinedFile, RowFilter, RowScanner, Scan, ScanGroup, SeriesBlock, StorageError,
};

use super::{
    block_rows::{BatchSize, FailedRow, add_pieces, cell_count, failed_row},
    finishing::{check_fill, finish_chunk},
    merged_series::MergedSeries,
    name_filters::apply_name_filters,
    row_decoder::RowDecoder,
    row_source::{Batch, MergedBuckets, RowSource, RowsByKey},
    row_to_delete::row_to_delete,
    scan_job::{ENTRY_OVERHEAD_BYTES, RangeSeries, ScanJob, SeriesMap},
    scan_range::{RangeRows, ScanRange},
    series_state::SeriesState,
    whole_series::WholeSeriesReader,
};
use crate::{
    fragmented_rows::FragmentedRows,
    query::{
        delete::ReadRow,
        failure::{QueryFailure, task_failure},
        plan::row_content::RowContent,
        stats::ScannerStats,
    },
};

/// Fragmented rows reported in one message.
const REPORT_BATCH_ROWS: usize = 256;

/// Number of points between two checks of the time slice.
const POINTS_PER_CHECK: usize = 512;
/// Cost of a row or block in points, in addition to its own points.
const POINTS_PER_SERIES: usize = 32;

impl ScanJob {
    /// True if the intact data of damaged files is enough. A delete needs all data: points that it missed would come
    /// back when the file is put back.
    pub(crate) fn reads_past_losses(&self) -> bool {
        self.budget.context().query.allows_damaged && !self.with_keys
    }

    /// Notes the quarantined files from which this read may miss points.
    pub(crate) async fn note_losses(&self) -> Result<(), QueryFailure> {
        if !self.reads_past_losses() {
            return Ok(());
        }
        let Some(quarantine) = self.engine.shared.storage.maintenance().quarantine() else {
            return Ok(());
        };
        // Blocks the thread, because it reads the damaged files.
        let files = self.engine.runtime.spawn_blocking(move || quarantine.files()).await;
        let seconds = |at: i64| u64::try_from(at).unwrap_or_default();
        let window = &self.plan.window;
        let bases = (seconds(window.scan_start_secs), seconds(window.scan_end_secs));
        let files = files.map_err(task_failure)?;
        let prefix = self.plan.schema.base_time_start();
        let prefixes: Vec<_> =
            self.plan.ranges.iter().filter_map(|range| range.start.get(..prefix)).collect();
        let is_missed = |file: &QuarantinedFile| file.may_miss(&self.table, bases, &prefixes);
        let missed = files.into_iter().filter(is_missed);
        self.budget.context().note_losses(missed.map(|file| file.name));
        Ok(())
    }

    /// Gets the fragmented rows of the scan, if reads trigger row compaction. Only the data table is compacted.
    fn fragmented_rows(&self) -> Option<&dyn FragmentedRows> {
        let shared = &self.engine.shared;
        shared.fragmented.as_deref().filter(|_| self.table == shared.tables.data)
    }

    /// Reads all rows of a scan range.
    pub(crate) async fn read(
        self: Arc<Self>,
        scan_range: ScanRange,
    ) -> Result<RangeSeries, QueryFailure> {
        let context = self.budget.context();
        let _open = context.acquire_scan_permit().await;
        // Reserve before reading, because many queries may start at the same time.
        let first_batch = self.engine.shared.config.sizes.first_batch_bytes;
        context.reserve(2 * first_batch)?;
        let opened = Instant::now();
        let is_reread = matches!(scan_range.rows, RangeRows::Reread(..));
        let has_whole_blocks = scan_range.is_whole && is_of_one_day(&scan_range.rows);
        let mut rows = self.open(scan_range.rows);
        let mut reader = RangeReader {
            job: &self,
            now_secs: self.engine.shared.clock.now_secs(),
            is_continuation: scan_range.is_continuation,
            is_reread,
            series: SeriesMap::default(),
            rejected: HashSet::default(),
            whole: has_whole_blocks.then(|| WholeSeriesReader::new(&self)),
            decoder: RowDecoder::default(),
            fragmented: Vec::new(),
            read_rows: Vec::new(),
            stats: ScannerStats { id: scan_range.id, ..ScannerStats::default() },
            batch_bytes: 2 * first_batch,
            series_change: 0,
        };
        loop {
            let requested = Instant::now();
            let batch = rows.next_batch().await?;
            reader.stats.store += requested.elapsed();
            let Some(mut batch) = batch else { break };
            let mut size = BatchSize::default();
            if is_reread {
                context.check_time()?;
            } else {
                self.budget.check()?;
                size = reader.record_batch(&batch)?;
            }
            match (&mut reader.whole, &batch) {
                (Some(whole), Batch::Blocks(blocks)) => {
                    whole.admit(&self, blocks, size, &mut reader.stats).await?;
                }
                _ => reader.admit_series(&batch).await?,
            }
            reader.settle_memory()?;
            reader.add_batch(&mut batch).await?;
            reader.settle_memory()?;
            // A store whose futures are always ready would otherwise monopolize this thread.
            tokio::task::yield_now().await;
        }
        reader.report_fragmented();
        context.release(reader.batch_bytes);
        context.finish_scan();
        reader.stats.total = opened.elapsed();
        reader.stats.successful = true;
        let RangeReader { mut series, whole, read_rows, stats, .. } = reader;
        let mut finished = MergedSeries::default();
        if let Some(whole) = whole {
            finished = whole.into_merged();
        } else if scan_range.is_whole {
            let mut in_order: Vec<_> = series.drain().collect();
            in_order.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            check_fill(&self, in_order.len())?;
            finished = finish_chunk(&self, in_order).await?;
        }
        Ok(RangeSeries { series, finished, read_rows, stats })
    }

    fn open(&self, rows: RangeRows) -> RowSource {
        let batch_rows = self.engine.shared.config.scan_batch_rows;
        let past = self.reads_past_losses();
        match rows {
            RangeRows::Range(range) => {
                let group = self.scans.get().cloned();
                RowSource::Scan(self.scan(range, self.filter.clone(), group))
            }
            RangeRows::Keys(keys) => {
                let storage = Arc::clone(&self.engine.shared.storage);
                let keys = keys.into_iter();
                RowSource::Keys(RowsByKey::new(storage, self.table.clone(), keys, batch_rows, past))
            }
            RangeRows::Series(rows) => {
                let storage = Arc::clone(&self.engine.shared.storage);
                let (table, keys) = (self.table.clone(), rows.into_keys());
                RowSource::Keys(RowsByKey::new(storage, table, keys, batch_rows, past))
            }
            RangeRows::Points(read) => {
                let mut read = Arc::unwrap_or_clone(read);
                read.summaries = self.summary_use();
                read.reads_past_losses = past;
                match self.engine.shared.storage.series().read_series(&self.table, &read) {
                    Some(series) => RowSource::Series(series),
                    None => RowSource::Failed(StorageError::Backend(
                        "the store no longer reads series".into(),
                    )),
                }
            }
            RangeRows::Reread(ranges, filter) => {
                let scan = |range| self.scan(range, Some(filter.clone()), None);
                let scans = ranges.into_iter().map(scan);
                RowSource::Merged(MergedBuckets::new(
                    scans,
                    self.plan.schema.salt_width(),
                    batch_rows,
                ))
            }
        }
    }

    /// Decides which points the store may return as summaries.
    fn summary_use(&self) -> Option<SummaryUse> {
        let reads_points =
            self.content == RowContent::Points && self.engine.shared.config.summaries;
        self.pipeline.summary_use().ok().filter(|_| reads_points)
    }

    fn scan(
        &self,
        range: KeyRange,
        filter: Option<RowFilter>,
        group: Option<Arc<ScanGroup>>,
    ) -> Box<dyn RowScanner> {
        let scan = Scan {
            start: range.start,
            stop: range.stop,
            family: Some(Family::T),
            filter,
            time_range_ms: self.time_range_ms,
            batch_rows: Some(self.engine.shared.config.scan_batch_rows),
            reads_past_losses: self.reads_past_losses(),
            group,
            ..Scan::default()
        };
        self.engine.shared.storage.scan(&self.table, scan)
    }
}

/// True if the read returns only blocks of one UTC day, which come in the order of their series.
fn is_of_one_day(rows: &RangeRows) -> bool {
    match rows {
        RangeRows::Points(read) => read.bases.0 / DAY_SECS == read.bases.1 / DAY_SECS,
        _ => false,
    }
}

struct RangeReader<'a> {
    job: &'a ScanJob,
    now_secs: i64,
    is_continuation: bool,
    /// True if an earlier scan read and counted the rows already.
    is_reread: bool,
    /// Series that the filters accept.
    series: SeriesMap,
    /// Tags of the series that the filters reject.
    rejected: HashSet<Box<[u8]>, foldhash::fast::RandomState>,
    /// Set if each block has a whole series; then `series` and `rejected` stay empty.
    whole: Option<WholeSeriesReader>,
    decoder: RowDecoder,
    /// Keys of fragmented rows that are not reported yet.
    fragmented: Vec<Bytes>,
    read_rows: Vec<ReadRow>,
    stats: ScannerStats,
    /// Bytes reserved for batches: the current batch and the one that the store prefetches.
    batch_bytes: usize,
    /// Change of series memory that is not reserved yet, in bytes.
    series_change: isize,
}

impl RangeReader<'_> {
    /// Adds the rows or blocks of a batch, in time slices.
    async fn add_batch(&mut self, batch: &mut Batch) -> Result<(), QueryFailure> {
        let mut next = 0;
        let mut failed = None;
        let filled = self.job.pipeline.points_to_fill().filter(|_| self.whole.is_some());
        let points_per_series = POINTS_PER_SERIES.saturating_add(filled.unwrap_or(0) as usize);
        while next < batch.len() && failed.is_none() {
            let context = self.job.budget.context();
            context.check_time()?;
            let slice = context.time_slice().await?;
            let mut points = 0_usize;
            while next < batch.len() {
                // Count first: adding a block may move its points out.
                let of_block = batch.points(next).saturating_add(points_per_series);
                points = points.saturating_add(of_block);
                if let Err(failure) = self.add(batch, next) {
                    failed = Some(failure);
                    break;
                }
                next += 1;
                // For a series of few points, reading the clock takes as long as adding the points.
                if points >= POINTS_PER_CHECK {
                    points = 0;
                    if slice.is_expired() {
                        break;
                    }
                }
            }
            self.stats.compaction += slice.finish();
        }
        let Some((failure, row)) = failed else { return Ok(()) };
        Err(match (self.decoder.take_conflict(), row) {
            (Some(time_ms), Some(row)) => {
                self.job.engine.name_conflict(failure, &row, time_ms).await
            }
            _ => failure,
        })
    }

    /// Counts a batch and reserves memory for it.
    fn record_batch(&mut self, batch: &Batch) -> Result<BatchSize, QueryFailure> {
        let size = match batch {
            Batch::Rows(rows) => BatchSize::of_rows(rows),
            Batch::Blocks(blocks) => BatchSize::of_blocks(blocks),
        };
        // The store reads the next batch while this one is processed.
        let least = self.job.engine.shared.config.sizes.first_batch_bytes;
        let after = 2 * (size.memory + size.bytes).max(least);
        self.job.budget.context().adjust_reservation(self.batch_bytes, after)?;
        self.batch_bytes = after;
        let (rows, cells, bytes) = (size.rows, size.cells, size.bytes as u64);
        self.job.budget.record_read(rows, cells, bytes);
        let stats = &mut self.stats;
        stats.rows += rows;
        stats.cells += cells;
        stats.summaries += size.summaries;
        stats.bytes += bytes;
        stats.rows_pre_filter += rows;
        stats.cells_pre_filter += cells;
        Ok(size)
    }

    /// Reserves the memory by which the series of this scan have grown.
    fn settle_memory(&mut self) -> Result<(), QueryFailure> {
        let finished = self.whole.as_mut().map_or(0, WholeSeriesReader::take_growth);
        let change = std::mem::take(&mut self.series_change) + finished;
        self.job.budget.adjust_series_memory(change)
    }

    /// Applies the filters to the series that this scan meets for the first time.
    async fn admit_series(&mut self, batch: &Batch) -> Result<(), QueryFailure> {
        let plan = &self.job.plan;
        let mut unresolved: Vec<Box<[u8]>> = Vec::new();
        for index in 0..batch.len() {
            let Some(tags) = batch.tags(plan.schema, index) else { continue };
            if self.series.contains_key(tags) || self.rejected.contains(tags) {
                continue;
            }
            // Rows without tags contain global annotations.
            let admitted = !tags.is_empty() && plan.admits(tags);
            if admitted && !plan.post_filters.is_empty() {
                unresolved.push(tags.into());
            }
            self.series_change += (tags.len() + ENTRY_OVERHEAD_BYTES) as isize;
            if !admitted {
                self.rejected.insert(tags.into());
                continue;
            }
            let job = self.job;
            let series = SeriesState::new(&job.content, &job.pipeline, self.is_continuation);
            self.series_change += series.memory_bytes() as isize;
            self.series.insert(tags.into(), Box::new(series));
        }
        if unresolved.is_empty() {
            return Ok(());
        }
        let mut admitted = vec![true; unresolved.len()];
        let tags_of = |index: usize| unresolved.get(index).map(|tags| &**tags);
        apply_name_filters(self.job, &mut self.stats, &mut admitted, tags_of).await?;
        for (tags, admitted) in unresolved.into_iter().zip(admitted) {
            if !admitted && let Some(series) = self.series.remove(&tags) {
                self.series_change -= series.memory_bytes() as isize;
                self.rejected.insert(tags);
            }
        }
        Ok(())
    }

    /// Adds a row or a block to its series. A failure comes with the row that caused it.
    fn add(&mut self, batch: &mut Batch, index: usize) -> Result<(), FailedRow> {
        match batch {
            Batch::Rows(rows) => match rows.get(index) {
                Some(row) => self.add_row(row).map_err(|failure| failed_row(failure, row)),
                None => Ok(()),
            },
            Batch::Blocks(blocks) => match blocks.get_mut(index) {
                Some(block) => self.add_block(block, index),
                None => Ok(()),
            },
        }
    }

    /// Adds a block to its series.
    fn add_block(&mut self, block: &mut SeriesBlock, index: usize) -> Result<(), FailedRow> {
        let job = self.job;
        job.budget.context().check_ended().map_err(|failure| (failure.into(), None))?;
        if let Some(whole) = &mut self.whole {
            return whole.add(job, &mut self.decoder, (block, index));
        }
        let tags = job.tags_of(block).unwrap_or_default();
        let Some(series) = self.series.get_mut(tags) else { return Ok(()) };
        let size = BatchSize::of_blocks([&*block]);
        self.stats.rows_post_filter += size.rows;
        self.stats.cells_post_filter += size.cells;
        let before = series.memory_bytes();
        add_pieces(job, &mut self.decoder, block, series)?;
        self.series_change += series.memory_bytes() as isize - before as isize;
        Ok(())
    }

    /// Adds the cells of a row to its series.
    fn add_row(&mut self, row: &Row) -> Result<(), QueryFailure> {
        let job = self.job;
        job.budget.context().check_ended()?;
        let Ok(key) = RowKey::decode(&job.plan.schema, &row.key) else { return Ok(()) };
        let Some(series) = self.series.get_mut(key.tag_bytes()) else { return Ok(()) };
        self.stats.rows_post_filter += 1;
        self.stats.cells_post_filter += cell_count(row);
        let before = series.memory_bytes();
        self.decoder.add_row(job, (row, key.base_time()), series)?;
        self.series_change += series.memory_bytes() as isize - before as isize;
        if self.is_reread {
            return Ok(());
        }
        if job.with_keys {
            let read = row_to_delete(job, row, key.base_time(), self.decoder.points());
            self.series_change += read.as_ref().map_or(0, ReadRow::memory_bytes) as isize;
            self.read_rows.extend(read);
        } else if let Some(rows) = job.fragmented_rows()
            && rows.is_fragmented(row, self.now_secs)
        {
            // Copied, because a slice of the key would keep the memory of its whole batch alive.
            self.fragmented.push(Bytes::copy_from_slice(&row.key));
            if self.fragmented.len() >= REPORT_BATCH_ROWS {
                self.report_fragmented();
            }
        }
        Ok(())
    }

    /// Reports the fragmented rows that are not reported yet.
    fn report_fragmented(&mut self) {
        let keys = std::mem::take(&mut self.fragmented);
        if let Some(rows) = self.job.fragmented_rows().filter(|_| !keys.is_empty()) {
            rows.report(keys);
        }
    }
}
