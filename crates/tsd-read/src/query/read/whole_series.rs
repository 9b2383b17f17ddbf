//! Finishes each series as soon as its block is read.
//!
//! If a block has a whole series, only its points after the pipeline are kept. So a read of a million series never
//! holds their raw points or a map of their tags in memory.

use tsd_query::SeriesBuilder;
use tsd_storage::SeriesBlock;

use super::{
    block_rows::{BatchSize, FailedRow, add_pieces},
    finishing::{FinishedList, fill_bytes},
    merged_series::MergedSeries,
    name_filters::apply_name_filters,
    row_decoder::RowDecoder,
    scan_job::ScanJob,
    series_state::{SeriesState, summarized_points},
};
use crate::query::{failure::QueryFailure, stats::ScannerStats};

/// Reads blocks that contain whole series, in the order of their series.
pub(crate) struct WholeSeriesReader {
    builder: SeriesBuilder,
    finished: FinishedList,
    /// For each block of the batch, whether the filters accept its series.
    admitted: Vec<bool>,
    /// Bytes that the fill policy adds to each series.
    fill_bytes: usize,
    /// Bytes that the fill policy will add to the unfinished series of the batch.
    unfilled_bytes: usize,
    reserved_bytes: usize,
}

impl WholeSeriesReader {
    pub(crate) fn new(job: &ScanJob) -> Self {
        Self {
            builder: job.pipeline.start(),
            finished: FinishedList::default(),
            admitted: Vec::new(),
            fill_bytes: fill_bytes(job, 1),
            unfilled_bytes: 0,
            reserved_bytes: 0,
        }
    }

    /// Applies the filters to the series of a batch of this size. Counts the memory of filled points in advance, so
    /// that concurrent scans do not all use the same free memory.
    pub(crate) async fn admit(
        &mut self,
        job: &ScanJob,
        blocks: &[SeriesBlock],
        size: BatchSize,
        stats: &mut ScannerStats,
    ) -> Result<(), QueryFailure> {
        let plan = &job.plan;
        let context = job.budget.context();
        let slice = context.time_slice().await?;
        self.admitted.clear();
        self.admitted.extend(blocks.iter().map(|block| {
            let tags = job.tags_of(block);
            // Rows without tags contain global annotations.
            tags.is_some_and(|tags| !tags.is_empty() && plan.admits(tags))
        }));
        stats.compaction += slice.finish();
        let tags_of = |index: usize| blocks.get(index).and_then(|block| job.tags_of(block));
        apply_name_filters(job, stats, &mut self.admitted, tags_of).await?;
        let admitted_count = self.admitted.iter().filter(|admitted| **admitted).count();
        self.unfilled_bytes = fill_bytes(job, admitted_count);
        let size = if admitted_count == blocks.len() {
            size
        } else {
            let admitted = blocks.iter().zip(&self.admitted).filter(|(_, admitted)| **admitted);
            BatchSize::of_blocks(admitted.map(|(block, _)| block))
        };
        stats.rows_post_filter += size.rows;
        stats.cells_post_filter += size.cells;
        Ok(())
    }

    /// Finishes the series of a block of the batch, if it was admitted.
    pub(crate) fn add(
        &mut self,
        job: &ScanJob,
        decoder: &mut RowDecoder,
        (block, index): (&mut SeriesBlock, usize),
    ) -> Result<(), FailedRow> {
        if !self.admitted.get(index).is_some_and(|admitted| *admitted) {
            return Ok(());
        }
        self.unfilled_bytes = self.unfilled_bytes.saturating_sub(self.fill_bytes);
        let pipeline = &job.pipeline;
        let finished = if block.rows.is_empty() || !block.summaries.is_empty() {
            let points = summarized_points(&block.columns, &block.summaries);
            if block.summaries.is_empty() {
                self.builder.push_owned(pipeline, &mut block.columns);
            } else {
                self.builder.push_summaries(pipeline, &block.columns, &block.summaries);
            }
            let tsuid = [&*job.plan.metric, job.tags_of(block).unwrap_or_default()];
            let is_part = self.builder.finish_into(pipeline, tsuid, &mut self.finished.spans);
            is_part.map(|is_part| self.finished.count_read(if is_part { points } else { 0 }))
        } else {
            let mut series = SeriesState::new(&job.content, pipeline, false);
            add_pieces(job, decoder, block, &mut series)?;
            self.finished.add(job, job.tags_of(block).unwrap_or_default(), series)
        };
        finished.map_err(|error| (error.into(), None))
    }

    /// Growth, since the last call, of the bytes that finished series use and fills will use.
    pub(crate) const fn take_growth(&mut self) -> isize {
        let bytes = self.finished.memory_bytes() + self.unfilled_bytes;
        let growth = bytes as isize - self.reserved_bytes as isize;
        self.reserved_bytes = bytes;
        growth
    }

    pub(crate) fn into_merged(self) -> MergedSeries {
        self.finished.into_merged()
    }
}
