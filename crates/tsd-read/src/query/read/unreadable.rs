//! Names the rows that a query needs and that are in a damaged block.

use bytes::Bytes;
use jiff::Timestamp;
use tsd_model::RowKey;
use tsd_query::SubQueryPlan;
use tsd_storage::{StorageError, UnreadableRows};

use crate::query::{engine::QueryEngine, failure::QueryFailure};

/// Most series in an error.
const NAMED_SERIES: usize = 5;

impl QueryEngine {
    /// Adds metrics, tags and hours of unreadable rows to their error. It names the rows that the plan reads first.
    pub(crate) async fn name_unreadable(
        &self,
        failure: QueryFailure,
        plan: &SubQueryPlan,
    ) -> QueryFailure {
        let QueryFailure::Storage(StorageError::Unreadable(rows)) = &failure else {
            return failure;
        };
        let text = rows.describe(&self.rows_in_words(rows, plan).await);
        tracing::warn!(error = text, "a query needs rows of a damaged block");
        QueryFailure::Storage(StorageError::Damaged(text.into()))
    }

    async fn rows_in_words(&self, rows: &UnreadableRows, plan: &SubQueryPlan) -> String {
        let prefix = self.shared.schema.base_time_start();
        let is_read = |key: &&Bytes| {
            plan.ranges.iter().any(|range| key.get(..prefix) == range.start.get(..prefix))
        };
        let (mut keys, others): (Vec<&Bytes>, Vec<&Bytes>) = rows.series.iter().partition(is_read);
        keys.extend(others);
        keys.truncate(NAMED_SERIES);
        let mut series = Vec::new();
        for key in keys {
            let Ok(key) = RowKey::decode(&self.shared.schema, key) else { continue };
            let metric = self.name_or_uid(key.metric_uid()).await;
            let mut tags = Vec::new();
            for (tagk, tagv) in key.tags() {
                let tagk = self.name_or_uid(tagk).await;
                let tagv = self.name_or_uid(tagv).await;
                tags.push(format!("{tagk}={tagv}"));
            }
            series.push(format!("{metric}{{{}}}", tags.join(",")));
        }
        let others = rows.more_series + (rows.series.len() - series.len()) as u64;
        let named = match (series.is_empty(), others) {
            (true, others) => format!("{others} series"),
            (false, 0) => series.join(", "),
            (false, others) => format!("{} and up to {others} other series", series.join(", ")),
        };
        let time = |secs: u64| {
            let time = Timestamp::from_second(i64::try_from(secs).unwrap_or_default());
            time.unwrap_or_default().to_string()
        };
        let (from, to) = rows.time_secs;
        format!("points of {named} from {} to {}", time(from), time(to))
    }
}
