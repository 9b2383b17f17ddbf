//! Describes the points that a query refuses to choose from.
//!
//! The error of a row has its key in bytes. To let an operator find the cells, this adds the names of the series, the
//! instant, and the conflicting cells.

use tsd_model::{KindUid, KnownKind, Row, RowError, RowKey, conflicting_points};
use tsd_query::{DataError, PointConflict, QueryError};

use crate::query::{engine::QueryEngine, failure::QueryFailure};

/// Most cells in an error. Only repeated corrections leave more than two cells for one instant.
const MAX_CELLS: usize = 4;

impl QueryEngine {
    /// Adds metric, tags, time and cells to the error of a row that has two values for one instant.
    pub(crate) async fn name_conflict(
        &self,
        failure: QueryFailure,
        row: &Row,
        time_ms: i64,
    ) -> QueryFailure {
        let QueryFailure::Rejected(QueryError::Data(DataError::Row(error))) = failure else {
            return failure;
        };
        let Ok(key) = RowKey::decode(&self.shared.schema, &row.key) else {
            return QueryError::from(DataError::Row(error)).into();
        };
        let metric = self.name_or_uid(key.metric_uid()).await;
        let mut tags = Vec::new();
        for (tagk, tagv) in key.tags() {
            let tagk = self.name_or_uid(tagk).await;
            let tagv = self.name_or_uid(tagv).await;
            tags.push((tagk, tagv));
        }
        let mut points = match &*error {
            RowError::Duplicate { offset_ms, .. } => conflicting_points(row, *offset_ms),
            _ => Vec::new(),
        };
        points.truncate(MAX_CELLS);
        let conflict = PointConflict { error: *error, metric, tags, time_ms, points };
        QueryError::from(DataError::Conflict(Box::new(conflict))).into()
    }

    /// The name of a UID, or the UID in hex if it has no name or the look-up fails.
    pub(crate) async fn name_or_uid<K: KnownKind>(&self, uid: KindUid<K>) -> String {
        let name = self.shared.names.names_of(K::KIND, &[uid.uid()]).await.ok();
        let name = name.and_then(|names| names.into_iter().next().flatten());
        name.unwrap_or_else(|| uid.to_string())
    }
}
