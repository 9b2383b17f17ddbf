//! The cells of one chunk, grouped by write shard.

use bytes::Bytes;
use tsd_model::{BaseTime, ColumnKind, Family, Qualifier};
use tsd_storage::{CellBatch, CellRef};

use super::{
    chunk_log::{EntryBody, PointBody, UnresolvedPoint},
    extra_cell::{CellView, ExtraCell, WriteTargets},
    name_list::NameList,
    shared::IngestShared,
};
use crate::{
    meta_tracking::{TrackedSeries, tsuid_of},
    point_plugins::PointRecord,
    put_error::PutError,
    series_cache::LastNotifiedRow,
    uid::ResolvedSeries,
    writer::TouchedRow,
};

/// Bytes of most points in a batch: the cell, and the key of a row with two or three tags.
const POINT_BYTES: usize = 40;

/// Cells of one chunk.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    // Points: one batch per write shard, or a single one if the chunk uses a single shard.
    // Allocated with the first point, since many connections never send one.
    shards: Vec<ShardBatch>,
    // Cells of other write targets.
    extra: Vec<ExtraShardBatch>,
    // Shard of a chunk that uses a single one, otherwise the first shard.
    single_shard: usize,
    // Reused buffer of a row key.
    key: Vec<u8>,
    // Series of points and histograms, if tracking is enabled.
    tracked: TrackedSeries,
}

/// Cells of one chunk for one write shard.
#[derive(Debug, Default)]
pub(super) struct ShardBatch {
    pub(super) cells: CellBatch,
    /// Tags that identify the points in failures.
    pub(super) tags: Vec<u32>,
    pub(super) touched: Vec<TouchedRow>,
    /// The points, if a plug-in gets them.
    pub(super) records: Vec<PointRecord>,
    record_bytes: usize,
    // Key of the last row of `cells`.
    row: Vec<u8>,
    // Points and bytes of this batch in the previous chunk: memory for as many is allocated at once.
    last_size: (usize, usize),
}

/// Cells of one chunk for one write shard, with a write target other than points.
#[derive(Debug)]
struct ExtraShardBatch {
    target: usize,
    shard: usize,
    batch: ShardBatch,
}

/// A series to which cells are added.
#[derive(Clone, Copy)]
pub(super) struct CellSeries<'a> {
    /// Row key without time.
    pub(super) template: &'a [u8],
    /// Write shard.
    pub(super) shard: usize,
    /// Set if a plug-in gets the cells.
    pub(super) names: Option<&'a NameList>,
}

impl Chunk {
    /// True if nothing was ever added.
    pub(super) const fn is_unused(&self) -> bool {
        self.shards.is_empty()
    }

    /// Sends all later cells to one write shard, and reserves memory for this many points.
    pub(super) fn use_single_shard(&mut self, shard: usize, points: usize) {
        let mut batch = ShardBatch { tags: Vec::with_capacity(points), ..ShardBatch::default() };
        batch.cells.reserve(points * POINT_BYTES);
        self.shards = vec![batch];
        self.single_shard = shard;
    }

    /// Sends each later cell to the write shard of its series.
    pub(super) fn use_all_shards(&mut self) {
        self.shards = Vec::new();
        self.single_shard = 0;
    }

    /// Adds a point. `notify` reports its row to row compaction after it is stored.
    #[inline]
    pub(super) fn point(
        &mut self,
        shared: &IngestShared,
        CellSeries { template, shard, names }: CellSeries<'_>,
        notify: bool,
        body: PointBody,
    ) -> Result<(), PutError> {
        shared.check_age(template, body.time_secs())?;
        if self.shards.is_empty() {
            self.shards.resize_with(shared.shards.len(), ShardBatch::default);
        }
        if shared.tracker.is_some() {
            self.track(shared, template);
        }
        let Self { shards, key, .. } = self;
        let batch = match &mut shards[..] {
            [single] => single,
            shards => shards.get_mut(shard).ok_or(PutError::Lost)?,
        };
        row_key(shared, key, template, body.timestamp.base_time());
        batch.open_row(key)?;
        let (flags, bytes) = body.value.encode();
        let qualifier = Qualifier::new(body.timestamp, flags);
        if shared.appends {
            let mut entry = [0_u8; 12];
            let (q, v) = (qualifier.as_bytes(), &*bytes);
            if let Some((head, rest)) = entry.split_at_mut_checked(q.len()) {
                head.copy_from_slice(q);
                if let Some(tail) = rest.get_mut(..v.len()) {
                    tail.copy_from_slice(v);
                }
            }
            let value = entry.get(..q.len() + v.len()).unwrap_or_default();
            batch.push(&ColumnKind::APPEND_QUALIFIER, value, None)?;
        } else {
            let timestamp_ms = shared.use_otsdb_timestamp.then(|| body.timestamp.as_millis());
            batch.push(qualifier.as_bytes(), &bytes, timestamp_ms)?;
        }
        batch.tags.push(body.tag);
        if let Some(names) = names {
            batch.record(shared, template, names, CellView::Point(body.timestamp, body.value));
        }
        if notify {
            batch.touched.push(TouchedRow { shard, key: Bytes::copy_from_slice(key) });
        }
        Ok(())
    }

    /// Adds a cell other than a point.
    pub(super) fn cell(
        &mut self,
        shared: &IngestShared,
        CellSeries { template, shard, names }: CellSeries<'_>,
        cell: &ExtraCell<'_>,
        tag: u32,
    ) -> Result<(), PutError> {
        shared.check_age(template, cell.time_secs())?;
        if self.shards.is_empty() {
            self.shards.resize_with(shared.shards.len(), ShardBatch::default);
        }
        if shared.tracker.is_some() && cell.value.is_tracked() {
            self.track(shared, template);
        }
        let Self { shards, extra, single_shard, key, .. } = self;
        row_key(shared, key, template, cell.base);
        let is_single = shards.len() == 1;
        let batch = if cell.target == WriteTargets::POINTS {
            shards.get_mut(if is_single { 0 } else { shard }).ok_or(PutError::Lost)?
        } else {
            extra_batch(extra, cell.target, if is_single { *single_shard } else { shard })?
        };
        batch.open_row(key)?;
        batch.push(&cell.qualifier, cell.value.bytes(), None)?;
        batch.tags.push(tag);
        if let Some(names) = names {
            batch.record(shared, template, names, cell.view());
        }
        Ok(())
    }

    /// Adds an entry of the log.
    pub(super) fn body(
        &mut self,
        shared: &IngestShared,
        series: CellSeries<'_>,
        notify: bool,
        body: &EntryBody,
    ) -> Result<(), PutError> {
        match body {
            EntryBody::Point(body) => self.point(shared, series, notify, *body),
            EntryBody::Cell(cell, tag) => self.cell(shared, series, cell, *tag),
        }
    }

    /// Adds an entry whose series was just resolved. Returns the row that it reports to row compaction.
    pub(super) fn first_of_series(
        &mut self,
        shared: &IngestShared,
        point: &UnresolvedPoint,
        series: &ResolvedSeries,
        due_before: u32,
    ) -> Result<LastNotifiedRow, PutError> {
        let last_notified = match &point.body {
            EntryBody::Point(body) if shared.compaction => {
                let base = body.timestamp.base_time().as_secs();
                LastNotifiedRow::NONE.next(base, due_before, || shared.round(series.shard))
            }
            _ => None,
        };
        let names = shared.plugins.are_on().then_some(&point.names);
        let series = CellSeries { template: &series.template, shard: series.shard, names };
        self.body(shared, series, last_notified.is_some(), &point.body)?;
        Ok(last_notified.unwrap_or(LastNotifiedRow::NONE))
    }

    /// Counts a point of a series for meta tracking.
    fn track(&mut self, shared: &IngestShared, template: &[u8]) {
        *self.tracked.entry(tsuid_of(shared.schema, template)).or_default() += 1;
    }

    /// Takes the series that got points.
    pub(super) fn take_tracked(&mut self) -> TrackedSeries {
        std::mem::take(&mut self.tracked)
    }

    /// Tags of all points.
    pub(super) fn tags(&self) -> impl Iterator<Item = u32> {
        let batches = self.shards.iter().chain(self.extra.iter().map(|extra| &extra.batch));
        batches.flat_map(|batch| batch.tags.iter().copied())
    }

    /// Takes the points in the form that plug-ins get.
    pub(super) fn take_records(&mut self) -> Vec<PointRecord> {
        let batches = self.shards.iter_mut().chain(self.extra.iter_mut().map(|e| &mut e.batch));
        batches.flat_map(ShardBatch::take_records).collect()
    }

    /// Number of non-empty batches, and their bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        let batches = self.shards.iter().chain(self.extra.iter().map(|extra| &extra.batch));
        let batches = batches.filter(|batch| !batch.tags.is_empty());
        batches.fold((0, 0), |(n, bytes), batch| (n + 1, bytes + batch.byte_len()))
    }

    /// Takes the non-empty batches: index of the write target, index of the shard, cells.
    pub(super) fn take_batches(&mut self) -> impl Iterator<Item = (usize, usize, ShardBatch)> {
        let Self { shards, extra, single_shard, .. } = self;
        let points =
            shards.iter_mut().zip(*single_shard..).filter(|(batch, _)| !batch.tags.is_empty());
        points
            .map(|(batch, shard)| (WriteTargets::POINTS, shard, batch.take()))
            .chain(extra.drain(..).map(|extra| (extra.target, extra.shard, extra.batch)))
    }

    /// Drops all cells.
    pub(super) fn clear(&mut self) {
        for batch in &mut self.shards {
            batch.cells.clear();
            batch.tags.clear();
            batch.row.clear();
            batch.touched.clear();
            batch.records.clear();
            batch.record_bytes = 0;
        }
        self.extra.clear();
        self.tracked.clear();
    }
}

/// The batch of a target and shard, created if it is missing.
fn extra_batch(
    extra: &mut Vec<ExtraShardBatch>,
    target: usize,
    shard: usize,
) -> Result<&mut ShardBatch, PutError> {
    let at = extra.iter().position(|batch| batch.target == target && batch.shard == shard);
    let at = at.unwrap_or_else(|| {
        extra.push(ExtraShardBatch { target, shard, batch: ShardBatch::default() });
        extra.len() - 1
    });
    extra.get_mut(at).map(|extra| &mut extra.batch).ok_or(PutError::Lost)
}

/// Writes the row key of a base time into `key`.
#[inline]
fn row_key(shared: &IngestShared, key: &mut Vec<u8>, template: &[u8], base: BaseTime) {
    let base_at = shared.schema.base_time_start();
    key.clear();
    key.extend_from_slice(template);
    if let Some(gap) = key.get_mut(base_at..base_at + 4) {
        gap.copy_from_slice(&base.to_bytes());
    }
}

impl ShardBatch {
    /// Takes the batch, and leaves an empty one for the next chunk.
    fn take(&mut self) -> Self {
        let mut row = std::mem::take(&mut self.row);
        row.clear();
        let last_size = (self.tags.len(), self.cells.byte_len());
        std::mem::replace(self, Self { row, last_size, ..Self::default() })
    }

    /// Starts a row, unless the last row has this key.
    #[inline]
    fn open_row(&mut self, key: &[u8]) -> Result<(), PutError> {
        if self.row != key {
            if self.tags.is_empty() {
                let (points, bytes) = self.last_size;
                self.tags.reserve(points);
                self.cells.reserve(bytes);
            }
            self.cells.begin_row(key).map_err(|e| PutError::Storage(e.into()))?;
            self.row.clear();
            self.row.extend_from_slice(key);
        }
        Ok(())
    }

    /// Records a value for the plug-ins.
    fn record(
        &mut self,
        shared: &IngestShared,
        template: &[u8],
        names: &NameList,
        cell: CellView<'_>,
    ) {
        let record = PointRecord::new(names, tsuid_of(shared.schema, template), cell);
        self.record_bytes += record.byte_len();
        self.records.push(record);
    }

    fn take_records(&mut self) -> Vec<PointRecord> {
        self.record_bytes = 0;
        std::mem::take(&mut self.records)
    }

    /// Bytes of the cells, and of the records for plug-ins.
    pub(super) fn byte_len(&self) -> usize {
        self.cells.byte_len() + self.record_bytes
    }

    #[inline]
    fn push(
        &mut self,
        qualifier: &[u8],
        value: &[u8],
        timestamp_ms: Option<i64>,
    ) -> Result<(), PutError> {
        self.cells
            .push(CellRef { family: Family::T, qualifier, value, timestamp_ms })
            .map_err(|e| PutError::Storage(e.into()))
    }
}
