//! Sources of rows: a scan, gets by key, a merge of scans over several salt buckets, or a read of series.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use futures_util::future::try_join_all;
use tsd_model::{Family, Row, RowKey, TableSchema};
use tsd_storage::{Get, RowScanner, SeriesBlock, SeriesScanner, Storage, StorageError, Table};

/// Number of points whose decoding takes as long as that of a row.
const POINTS_PER_ROW: usize = 256;

/// Batches of rows; the rows of a series are in time order.
pub(crate) enum RowSource {
    /// A scan.
    Scan(Box<dyn RowScanner>),
    /// Gets of rows by key.
    Keys(RowsByKey),
    /// Several buckets, merged as if there were one.
    Merged(MergedBuckets),
    /// Points by series.
    Series(Box<dyn SeriesScanner>),
    /// A source that cannot be read.
    Failed(StorageError),
}

/// One batch of a source: rows or blocks.
pub(crate) enum Batch {
    Rows(Vec<Row>),
    Blocks(Vec<SeriesBlock>),
}

impl Batch {
    /// Number of rows or blocks.
    pub(crate) const fn len(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.len(),
            Self::Blocks(blocks) => blocks.len(),
        }
    }

    /// Approximate cost of a row or block, in points.
    pub(crate) fn points(&self, index: usize) -> usize {
        match self {
            // Decoding a row takes much longer than reading the clock, so the time slice is checked after each row.
            Self::Rows(_) => usize::MAX / 2,
            Self::Blocks(blocks) => {
                let block = blocks.get(index);
                block.map_or(0, |block| block.columns.len() + POINTS_PER_ROW * block.rows.len())
            }
        }
    }

    /// Tag pairs of a row or block; `None` if its key is malformed.
    pub(crate) fn tags(&self, schema: TableSchema, index: usize) -> Option<&[u8]> {
        match self {
            Self::Rows(rows) => {
                let key = RowKey::decode(&schema, &rows.get(index)?.key).ok()?;
                Some(key.tag_bytes())
            }
            Self::Blocks(blocks) => {
                let tags = blocks.get(index)?.series.get(schema.base_time_start()..)?;
                tags.len().is_multiple_of(schema.tag_pair_width()).then_some(tags)
            }
        }
    }
}

impl RowSource {
    /// The next rows or blocks; `None` after the last.
    pub(crate) async fn next_batch(&mut self) -> Result<Option<Batch>, StorageError> {
        let rows = match self {
            Self::Scan(rows) => rows.next_rows().await?,
            Self::Keys(rows) => rows.next_rows().await?,
            Self::Merged(rows) => rows.next_rows().await?,
            Self::Series(series) => return Ok(series.next_series().await?.map(Batch::Blocks)),
            Self::Failed(error) => return Err(error.clone()),
        };
        Ok(rows.map(Batch::Rows))
    }
}

/// Rows fetched by key, a batch at a time.
pub(crate) struct RowsByKey {
    storage: Arc<dyn Storage>,
    table: Table,
    keys: Box<dyn Iterator<Item = Bytes> + Send>,
    batch_rows: usize,
    /// True if the intact data of damaged rows is enough.
    reads_past_losses: bool,
}

impl RowsByKey {
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        table: Table,
        keys: impl Iterator<Item = Bytes> + Send + 'static,
        batch_rows: usize,
        reads_past_losses: bool,
    ) -> Self {
        let (keys, batch_rows) = (Box::new(keys), batch_rows.max(1));
        Self { storage, table, keys, batch_rows, reads_past_losses }
    }

    async fn next_rows(&mut self) -> Result<Option<Vec<Row>>, StorageError> {
        let reads_past_losses = self.reads_past_losses;
        let get = |row| Get { family: Some(Family::T), reads_past_losses, ..Get::row(row) };
        loop {
            let gets: Vec<Get> = self.keys.by_ref().take(self.batch_rows).map(get).collect();
            if gets.is_empty() {
                return Ok(None);
            }
            let rows = self.storage.multi_get(&self.table, gets).await?;
            let rows: Vec<Row> = rows.into_iter().flatten().collect();
            if !rows.is_empty() {
                return Ok(Some(rows));
            }
        }
    }
}

/// Merges scans of several salt buckets, ordered by the key without its salt. Rows of the same
/// series and hour become one row.
pub(crate) struct MergedBuckets {
    buckets: Vec<BucketScan>,
    salt_width: usize,
    batch_rows: usize,
}

struct BucketScan {
    rows: Box<dyn RowScanner>,
    batch: VecDeque<Row>,
    ended: bool,
}

impl MergedBuckets {
    pub(crate) fn new(
        scans: impl IntoIterator<Item = Box<dyn RowScanner>>,
        salt_width: usize,
        batch_rows: usize,
    ) -> Self {
        let bucket = |rows| BucketScan { rows, batch: VecDeque::new(), ended: false };
        let buckets = scans.into_iter().map(bucket).collect();
        Self { buckets, salt_width, batch_rows: batch_rows.max(1) }
    }

    async fn next_rows(&mut self) -> Result<Option<Vec<Row>>, StorageError> {
        let mut merged: Vec<Row> = Vec::new();
        loop {
            try_join_all(self.buckets.iter_mut().map(BucketScan::fill)).await?;
            let Some(row) = self.pop_least() else { break };
            let width = self.salt_width;
            let same = |last: &&mut Row| last.key.get(width..) == row.key.get(width..);
            if let Some(last) = merged.last_mut().filter(same) {
                last.cells.extend(row.cells);
                last.runs.extend(row.runs);
            } else if merged.len() < self.batch_rows {
                merged.push(row);
            } else {
                // The last row is complete only once a different key follows.
                self.put_back(row);
                break;
            }
        }
        Ok((!merged.is_empty()).then_some(merged))
    }

    fn pop_least(&mut self) -> Option<Row> {
        let width = self.salt_width;
        let first_rows = self.buckets.iter().enumerate().filter_map(|(index, bucket)| {
            Some((bucket.batch.front()?.key.get(width..).unwrap_or_default(), index))
        });
        let (_, index) = first_rows.min()?;
        self.buckets.get_mut(index)?.batch.pop_front()
    }

    fn put_back(&mut self, row: Row) {
        // Any bucket works, because the key of this row is the least of all.
        if let Some(bucket) = self.buckets.first_mut() {
            bucket.batch.push_front(row);
        }
    }
}

impl BucketScan {
    async fn fill(&mut self) -> Result<(), StorageError> {
        if self.batch.is_empty() && !self.ended {
            match self.rows.next_rows().await? {
                Some(rows) => self.batch = rows.into(),
                None => self.ended = true,
            }
        }
        Ok(())
    }
}
