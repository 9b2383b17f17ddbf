//! The series index that reads rely on.

use std::sync::Arc;

use tsd_model::TableSchema;
use tsd_series_index::SeriesIndex;
use tsd_storage::{Storage, Table};

use crate::config::SeriesIndexUse;

/// The series index of a table if reads can rely on it: it is complete, and its keys have this schema.
pub(crate) async fn usable_index(
    storage: &dyn Storage,
    table: &Table,
    schema: &TableSchema,
    index_use: SeriesIndexUse,
) -> Option<Arc<SeriesIndex>> {
    if index_use == SeriesIndexUse::Never {
        return None;
    }
    if storage.series().has_unregistered_series(table) {
        return None;
    }
    let index = storage.series().series_index(table)?;
    if let Err(error) = storage.series().refresh_series_index(table).await {
        tracing::debug!(%error, "the series index cannot be refreshed: reading all rows");
        return None;
    }
    (index.is_complete() && index.schema() == schema).then_some(index)
}
