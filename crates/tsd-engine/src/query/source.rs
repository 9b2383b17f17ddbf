//! Where rows come from: a scan, row keys, or the same ranges of several salt buckets at once.

use std::{collections::VecDeque, sync::Arc, vec};

use bytes::Bytes;
use futures_util::future::try_join_all;
use tsd_model::{Family, Row};
use tsd_storage::{Get, RowScanner, Storage, StorageError, Table};

/// Rows, batch by batch, those of a series in time order.
pub(crate) enum RowSource {
    /// A scan.
    Scan(Box<dyn RowScanner>),
    /// Rows by key.
    Keys(RowsByKey),
    /// Several buckets, as if there were one.
    Merged(MergedBuckets),
}

impl RowSource {
    /// The next rows; `None` after the last.
    pub(crate) async fn next_rows(&mut self) -> Result<Option<Vec<Row>>, StorageError> {
        match self {
            Self::Scan(rows) => rows.next_rows().await,
            Self::Keys(rows) => rows.next_rows().await,
            Self::Merged(rows) => rows.next_rows().await,
        }
    }
}

/// Rows whose keys are known, fetched some at a time.
pub(crate) struct RowsByKey {
    storage: Arc<dyn Storage>,
    table: Table,
    keys: vec::IntoIter<Bytes>,
    at_once: usize,
}

impl RowsByKey {
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        table: Table,
        keys: Vec<Bytes>,
        at_once: usize,
    ) -> Self {
        Self { storage, table, keys: keys.into_iter(), at_once: at_once.max(1) }
    }

    async fn next_rows(&mut self) -> Result<Option<Vec<Row>>, StorageError> {
        let get = |row| Get { row, family: Some(Family::T), qualifiers: Vec::new() };
        loop {
            let gets: Vec<Get> = self.keys.by_ref().take(self.at_once).map(get).collect();
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

/// Scans of several salt buckets merged by what follows the salt, rows of the same series and time
/// made one.
pub(crate) struct MergedBuckets {
    buckets: Vec<Bucket>,
    salt_width: usize,
    at_once: usize,
}

struct Bucket {
    rows: Box<dyn RowScanner>,
    batch: VecDeque<Row>,
    ended: bool,
}

impl MergedBuckets {
    pub(crate) fn new(
        scans: impl IntoIterator<Item = Box<dyn RowScanner>>,
        salt_width: usize,
        at_once: usize,
    ) -> Self {
        let bucket = |rows| Bucket { rows, batch: VecDeque::new(), ended: false };
        let buckets = scans.into_iter().map(bucket).collect();
        Self { buckets, salt_width, at_once: at_once.max(1) }
    }

    async fn next_rows(&mut self) -> Result<Option<Vec<Row>>, StorageError> {
        let mut merged: Vec<Row> = Vec::new();
        loop {
            try_join_all(self.buckets.iter_mut().map(Bucket::fill)).await?;
            let Some(row) = self.pop_least() else { break };
            let width = self.salt_width;
            let same = |last: &&mut Row| last.key.get(width..) == row.key.get(width..);
            if let Some(last) = merged.last_mut().filter(same) {
                last.cells.extend(row.cells);
                last.runs.extend(row.runs);
            } else if merged.len() < self.at_once {
                merged.push(row);
            } else {
                // A row is complete once another follows it.
                self.put_back(row);
                break;
            }
        }
        Ok((!merged.is_empty()).then_some(merged))
    }

    fn pop_least(&mut self) -> Option<Row> {
        let width = self.salt_width;
        let heads = self.buckets.iter().enumerate().filter_map(|(place, bucket)| {
            Some((bucket.batch.front()?.key.get(width..).unwrap_or_default(), place))
        });
        let (_, place) = heads.min()?;
        self.buckets.get_mut(place)?.batch.pop_front()
    }

    fn put_back(&mut self, row: Row) {
        // Any bucket will do: the least of all heads is looked for.
        if let Some(bucket) = self.buckets.first_mut() {
            bucket.batch.push_front(row);
        }
    }
}

impl Bucket {
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
