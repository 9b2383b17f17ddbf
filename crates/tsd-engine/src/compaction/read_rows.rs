//! Reports fragmented rows that queries read to the compactors of their buckets.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use tsd_model::{Row, SeriesKey};
use tsd_read::FragmentedRows;
use tsd_runtime::ActorRef;

use super::{
    CompactionMessage, CompactionStats, RowCompactor,
    row::{RowRules, is_due, needs_compaction},
};

/// Gets the fragmented rows that queries read, and sends them to the compactors.
#[derive(Debug)]
pub(crate) struct ReadRows {
    pub(crate) rules: RowRules,
    /// One per bucket; never empty.
    pub(crate) compactors: Vec<ActorRef<CompactionMessage>>,
    pub(crate) stats: Arc<CompactionStats>,
}

impl FragmentedRows for ReadRows {
    fn is_fragmented(&self, row: &Row, now_secs: i64) -> bool {
        let RowRules { schema, repair_appends, .. } = self.rules;
        is_due(schema, &row.key, now_secs) && needs_compaction(row, repair_appends)
    }

    fn report(&self, keys: Vec<Bytes>) {
        let mut by_compactor: HashMap<usize, Vec<Bytes>, foldhash::fast::RandomState> =
            HashMap::default();
        for key in keys {
            if let Ok(series) = SeriesKey::from_row_key(&self.rules.schema, &key) {
                let index = series.bucket().index() as usize % self.compactors.len().max(1);
                by_compactor.entry(index).or_default().push(key);
            }
        }
        for (index, rows) in by_compactor {
            if let Some(compactor) = self.compactors.get(index) {
                let message = CompactionMessage::FragmentedRows(rows);
                RowCompactor::notify(compactor, &self.stats, message);
            }
        }
    }
}
