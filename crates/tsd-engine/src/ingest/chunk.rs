//! The cells of one chunk, gathered for the write actors they go to.

use bytes::Bytes;
use tsd_model::{BaseTime, ColumnKind, Family, Qualifier};
use tsd_storage::{CellBatch, CellRef};

use super::{
    extra_cell::{ExtraCell, WriteTargets},
    pending::{Body, NewPoint, PointBody},
    session::{IngestShared, ResolvedSeries},
};
use crate::{
    meta_tracking::{Tracked, tsuid_of},
    put_error::PutError,
    series_cache::LastNotifiedRow,
    writer::TouchedRow,
};

/// Cells of one chunk.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    // One a write actor, or a single one where the chunk is kept together. Made with the first
    // point: many connections never send one.
    shards: Vec<ShardBatch>,
    // What does not go the way of points.
    others: Vec<ExtraShardBatch>,
    // The write actor of a chunk that is kept together.
    home: usize,
    key: Vec<u8>,
    // Series of points and histograms, where those are tracked.
    tracked: Tracked,
}

/// What one chunk has for one write actor.
#[derive(Debug, Default)]
pub(super) struct ShardBatch {
    pub(super) cells: CellBatch,
    /// What names the points in failures.
    pub(super) tags: Vec<u32>,
    pub(super) touched: Vec<TouchedRow>,
    // Key of the row that is open in `cells`.
    row: Vec<u8>,
}

/// What one chunk has for one write actor that is written in another way than points.
#[derive(Debug)]
struct ExtraShardBatch {
    target: usize,
    shard: usize,
    part: ShardBatch,
}

impl Chunk {
    /// Whether nothing was ever put into it.
    pub(super) const fn is_unused(&self) -> bool {
        self.shards.is_empty()
    }

    /// Gives everything to one write actor from now on.
    pub(super) fn keep_together(&mut self, home: usize) {
        self.shards = vec![ShardBatch::default()];
        self.home = home;
    }

    /// Takes a point.
    #[inline]
    pub(super) fn point(
        &mut self,
        shared: &IngestShared,
        template: &[u8],
        shard: usize,
        touched: bool,
        body: PointBody,
    ) -> Result<(), PutError> {
        if self.shards.is_empty() {
            self.shards.resize_with(shared.shards.len(), ShardBatch::default);
        }
        if shared.tracker.is_some() {
            self.track(shared, template);
        }
        let Self { shards, key, .. } = self;
        let part = match &mut shards[..] {
            [together] => together,
            shards => shards.get_mut(shard).ok_or(PutError::Lost)?,
        };
        row_key(shared, key, template, body.timestamp.base_time());
        part.open_row(key)?;
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
            part.push(&ColumnKind::APPEND_QUALIFIER, value, None)?;
        } else {
            let timestamp_ms = shared.use_otsdb_timestamp.then(|| body.timestamp.as_millis());
            part.push(qualifier.as_bytes(), &bytes, timestamp_ms)?;
        }
        part.tags.push(body.tag);
        if touched {
            part.touched.push(TouchedRow { shard, key: Bytes::copy_from_slice(key) });
        }
        Ok(())
    }

    /// Takes another cell.
    pub(super) fn cell(
        &mut self,
        shared: &IngestShared,
        template: &[u8],
        shard: usize,
        cell: &ExtraCell,
        tag: u32,
    ) -> Result<(), PutError> {
        if self.shards.is_empty() {
            self.shards.resize_with(shared.shards.len(), ShardBatch::default);
        }
        if shared.tracker.is_some() && cell.is_tracked {
            self.track(shared, template);
        }
        let Self { shards, others, home, key, .. } = self;
        row_key(shared, key, template, cell.base);
        let together = shards.len() == 1;
        let part = if cell.target == WriteTargets::POINTS {
            shards.get_mut(if together { 0 } else { shard }).ok_or(PutError::Lost)?
        } else {
            other_part(others, cell.target, if together { *home } else { shard })?
        };
        part.open_row(key)?;
        part.push(&cell.qualifier, &cell.value, None)?;
        part.tags.push(tag);
        Ok(())
    }

    /// Takes what waited in the log.
    pub(super) fn body(
        &mut self,
        shared: &IngestShared,
        template: &[u8],
        shard: usize,
        touched: bool,
        body: &Body,
    ) -> Result<(), PutError> {
        match body {
            Body::Point(body) => self.point(shared, template, shard, touched, *body),
            Body::Cell(cell, tag) => self.cell(shared, template, shard, cell, *tag),
        }
    }

    /// Takes what waited for the names of its series, and says which row that touched.
    pub(super) fn first_of_series(
        &mut self,
        shared: &IngestShared,
        point: &NewPoint,
        series: &ResolvedSeries,
        due_before: u32,
    ) -> Result<LastNotifiedRow, PutError> {
        let last_notified = match &point.body {
            Body::Point(body) if shared.compaction => {
                let base = body.timestamp.base_time().as_secs();
                LastNotifiedRow::NONE.next(base, due_before, || shared.round(series.shard))
            }
            _ => None,
        };
        self.body(shared, &series.template, series.shard, last_notified.is_some(), &point.body)?;
        Ok(last_notified.unwrap_or(LastNotifiedRow::NONE))
    }

    /// Notes that a series gets something.
    fn track(&mut self, shared: &IngestShared, template: &[u8]) {
        *self.tracked.entry(tsuid_of(shared.schema, template)).or_default() += 1;
    }

    /// Takes out which series got something.
    pub(super) fn take_tracked(&mut self) -> Tracked {
        std::mem::take(&mut self.tracked)
    }

    /// Tags of all that is in it.
    pub(super) fn tags(&self) -> impl Iterator<Item = u32> {
        let parts = self.shards.iter().chain(self.others.iter().map(|other| &other.part));
        parts.flat_map(|part| part.tags.iter().copied())
    }

    /// Takes out what there is for each write actor: way of writing, number of the actor, cells.
    pub(super) fn take_parts(&mut self) -> impl Iterator<Item = (usize, usize, ShardBatch)> {
        let Self { shards, others, home, .. } = self;
        let points = shards.iter_mut().zip(*home..).filter(|(part, _)| !part.tags.is_empty());
        points
            .map(|(part, shard)| (WriteTargets::POINTS, shard, std::mem::take(part)))
            .chain(others.drain(..).map(|other| (other.target, other.shard, other.part)))
    }

    /// Drops all that is in it.
    pub(super) fn clear(&mut self) {
        for part in &mut self.shards {
            part.cells.clear();
            part.tags.clear();
            part.row.clear();
            part.touched.clear();
        }
        self.others.clear();
        self.tracked.clear();
    }
}

/// Cells for a write actor that are written in another way than points.
fn other_part(
    others: &mut Vec<ExtraShardBatch>,
    target: usize,
    shard: usize,
) -> Result<&mut ShardBatch, PutError> {
    let at = others.iter().position(|other| other.target == target && other.shard == shard);
    let at = at.unwrap_or_else(|| {
        others.push(ExtraShardBatch { target, shard, part: ShardBatch::default() });
        others.len() - 1
    });
    others.get_mut(at).map(|other| &mut other.part).ok_or(PutError::Lost)
}

/// The key of a row, from the key without time.
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
    /// Goes on with the row of that key.
    #[inline]
    fn open_row(&mut self, key: &[u8]) -> Result<(), PutError> {
        if self.row != key {
            self.cells.begin_row(key).map_err(|e| PutError::Storage(e.into()))?;
            self.row.clear();
            self.row.extend_from_slice(key);
        }
        Ok(())
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
