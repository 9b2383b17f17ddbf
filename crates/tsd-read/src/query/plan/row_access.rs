//! How the rows of a read are found: by a scan, by row keys, or by the keys of series.

use bytes::Bytes;
use tsd_query::SubQueryPlan;
use tsd_storage::{ReadSelection, SeriesRead, Table};

use super::{
    row_content::RowContent,
    row_keys::{row_keys, series_keys},
    series_rows::SeriesRows,
    series_selection::IndexCounts,
};
use crate::query::{engine::QueryEngine, failure::QueryFailure, run::context::QueryContext};

/// A read whose rows are to be found.
#[derive(Clone, Copy)]
pub(crate) struct PlannedRead<'a> {
    pub(crate) table: &'a Table,
    pub(crate) content: &'a RowContent,
    pub(crate) plan: &'a SubQueryPlan,
    /// The read returns row keys, to delete the rows.
    pub(crate) with_keys: bool,
    /// The read selects cells by their timestamps, which gets cannot do.
    pub(crate) has_time_range: bool,
}

/// How the rows of a read are found.
pub(crate) struct RowAccess {
    pub(crate) rows: FoundRows,
    /// Points are read by series, not row by row.
    pub(crate) by_series: bool,
    /// Counts of the series index; `None` if it was not asked or does not know.
    pub(crate) counts: Option<IndexCounts>,
}

/// Location of the rows of a read.
pub(crate) enum FoundRows {
    /// In the key ranges of the plan.
    Scan,
    /// At these row keys.
    Keys(Vec<Bytes>),
    /// In these series, by keys without base times.
    Listed(Vec<Bytes>),
    /// In series that the index selected; the number is an estimate of their rows.
    Series(SeriesRows, u64),
}

impl QueryEngine {
    /// Decides how the rows of a read are found.
    pub(crate) async fn row_access(
        &self,
        read: PlannedRead<'_>,
        context: Option<&QueryContext>,
    ) -> Result<RowAccess, QueryFailure> {
        let PlannedRead { table, content, plan, has_time_range, .. } = read;
        let by_series = self.reads_series(read);
        let mut access = RowAccess { rows: FoundRows::Scan, by_series, counts: None };
        if !self.reads_by_key(content) {
            return Ok(access);
        }
        if !has_time_range
            && let Some(indexed) = self.indexed_read(table, plan, by_series, context).await?
        {
            access.counts = Some(indexed.counts);
            if let Some(rows) = indexed.by_key {
                access.rows = FoundRows::Series(rows, indexed.counts.rows);
            }
            return Ok(access);
        }
        let keys = if by_series {
            series_keys(plan).map(FoundRows::Listed)
        } else {
            row_keys(plan).map(FoundRows::Keys)
        };
        access.rows = keys.unwrap_or(FoundRows::Scan);
        Ok(access)
    }

    /// True if rows may be fetched by key: every series is in one salt bucket, and rows start every hour.
    fn reads_by_key(&self, content: &RowContent) -> bool {
        (self.shared.config.series_keep_bucket || self.shared.schema.salt_width() == 0)
            && !matches!(content, RowContent::Rollup { .. })
    }

    /// True if the store reads the points of a table by series. Such reads return no row keys.
    fn reads_series(&self, read: PlannedRead<'_>) -> bool {
        let probe = || SeriesRead {
            prefix_len: self.shared.schema.base_time_start(),
            selection: ReadSelection::Keys(Vec::new()),
            bases: (0, 0),
            summaries: None,
            reads_past_losses: false,
        };
        self.shared.config.series_reads
            && *read.content == RowContent::Points
            && !read.with_keys
            && !read.has_time_range
            && self.shared.storage.series().read_series(read.table, &probe()).is_some()
    }
}
