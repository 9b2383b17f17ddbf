//! Explains a query: what it would read, and how, without reading it.
//!
//! The texts are part of the response to clients.

mod summaries;

use std::fmt::Write;

use tsd_model::{KindUid, KnownKind, TagkKind, TagkUid, TagvKind, TagvUid, to_hex};
use tsd_query::{
    Query, ReadAttempt, ResolvedSubQuery, RollupCells, SeriesPipeline, SeriesSelection, SubQuery,
    SubQueryPlan, TagSelection,
};

pub use self::summaries::ExplainedSummaries;
use self::summaries::PointSource;
use super::{
    engine::QueryEngine,
    failure::QueryFailure,
    plan::{
        attempts::read_attempts,
        memory_estimate::{MemoryEstimate, named_series, rows_of_series},
        names::NameMap,
        row_access::{FoundRows, PlannedRead},
        row_content::RowContent,
        series_selection::IndexCounts,
    },
};

/// What one sub query reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExplainedSubQuery {
    /// Its index in the request.
    pub index: usize,
    /// True if the result joins all reads (rollups, then raw data). Otherwise the result is the first read that finds
    /// a series.
    pub split: bool,
    /// The reads, in the order in which they are tried.
    pub reads: Vec<ExplainedRead>,
}

/// One read of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExplainedRead {
    /// The table.
    pub table: String,
    /// Cells read from its rows: `points`, `histograms`, `sum of 10m`.
    pub cells: String,
    /// First and last millisecond of the result.
    pub range_ms: (i64, i64),
    /// Base time of the first row (inclusive) and of the last (exclusive), in epoch seconds.
    pub rows_secs: (i64, i64),
    /// Row keys, by salt bucket.
    pub ranges: Vec<ExplainedRange>,
    /// Conditions that the store checks by row key.
    pub pushed_down: Vec<String>,
    /// Conditions that the query checks by name after the scan.
    pub checked_afterwards: Vec<String>,
    /// Tag keys to group by.
    pub group_by: Vec<String>,
    /// True if rows are fetched by key instead of scanned, or if points of listed series are read.
    pub by_key: bool,
    /// True if points are read by series instead of rows.
    pub by_series: bool,
    /// Whether hours and days are read as summaries.
    pub summaries: ExplainedSummaries,
    /// Estimated number of rows.
    pub estimated_rows: u64,
    /// Basis of the estimate.
    pub estimated_from: String,
    /// Estimated memory in bytes.
    pub estimated_bytes: u64,
    /// The whole explanation as text.
    pub text: String,
}

/// A range of row keys, in hex.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExplainedRange {
    /// The salt bucket; `None` if keys are not salted.
    pub bucket: Option<u32>,
    /// First row key.
    pub start: String,
    /// End of the range, exclusive.
    pub stop: String,
}

/// Names of the UIDs in a plan, for the explanation.
struct PlanNames {
    tagks: NameMap<TagkKind>,
    tagvs: NameMap<TagvKind>,
}

impl QueryEngine {
    /// Explains a query.
    pub(crate) async fn explain(
        &self,
        query: &Query,
    ) -> Result<Vec<ExplainedSubQuery>, QueryFailure> {
        let mut explained = Vec::with_capacity(query.sub_queries.len());
        for sub in &query.sub_queries {
            explained.push(self.explain_sub_query(query, sub).await?);
        }
        Ok(explained)
    }

    async fn explain_sub_query(
        &self,
        query: &Query,
        sub: &SubQuery,
    ) -> Result<ExplainedSubQuery, QueryFailure> {
        let resolved = self.resolve(sub, &self.plan_settings()).await?;
        let (attempts, split) = read_attempts(self, sub, query.range_of(sub))?;
        let mut reads = Vec::with_capacity(attempts.len());
        for attempt in &attempts {
            reads.push(self.explain_read(attempt, &resolved, query).await?);
        }
        Ok(ExplainedSubQuery { index: sub.index, split, reads })
    }

    async fn explain_read(
        &self,
        attempt: &ReadAttempt,
        resolved: &ResolvedSubQuery,
        query: &Query,
    ) -> Result<ExplainedRead, QueryFailure> {
        let plan = self.plan_of(attempt, resolved);
        let (table, content) = self.source(attempt);
        let names = self.plan_names(&plan).await?;
        let is_data = table == self.shared.tables.data && content == RowContent::Points;
        let has_time_range = is_data && self.cell_time_range(&plan.window).is_some();
        let read = PlannedRead {
            table: &table,
            content: &content,
            plan: &plan,
            with_keys: query.delete,
            has_time_range,
        };
        let access = self.row_access(read, None).await?;
        let (estimated_rows, estimated_from) = match (&access.counts, &access.rows) {
            (Some(counts), _) => (counts.rows, counts.basis()),
            (None, FoundRows::Keys(keys)) => {
                (keys.len() as u64, "row keys of the series, all fetched".to_owned())
            }
            _ => estimate(&plan, &content),
        };
        let by_key = !matches!(access.rows, FoundRows::Scan);
        let by_series = access.by_series;
        let source = match &content {
            RowContent::Points if by_series => PointSource::Series,
            RowContent::Points => PointSource::Rows,
            RowContent::Rollup { .. } | RowContent::Histograms => PointSource::OtherCells,
        };
        let pipeline = SeriesPipeline::new(&attempt.sub, &plan.window, &query.zone);
        let estimate = MemoryEstimate::of_read(&plan, &content, &pipeline, access.counts);
        let summaries = ExplainedSummaries::new(pipeline.summary_use(), source);
        let ranges = plan.ranges.iter().map(|range| ExplainedRange {
            bucket: range.bucket,
            start: to_hex(&range.start),
            stop: to_hex(&range.stop),
        });
        let post_filters = plan.post_filters.iter().map(|post| {
            let (kind, filter) = (post.filter.type_name(), &post.filter.filter);
            let tagk = post.tagk.map(|tagk| names.tagk(tagk)).unwrap_or_default();
            format!("{tagk} {kind}({filter})")
        });
        let mut read = ExplainedRead {
            table: table.as_str().to_owned(),
            cells: self.cells(&content),
            range_ms: (plan.window.start_ms, plan.window.end_ms),
            rows_secs: (plan.window.scan_start_secs, plan.window.scan_end_secs),
            ranges: ranges.collect(),
            pushed_down: pushed_down(&plan, &names),
            checked_afterwards: post_filters.collect(),
            group_by: plan.group_by.iter().map(|tagk| names.tagk(*tagk)).collect(),
            by_key,
            by_series,
            summaries,
            estimated_rows,
            estimated_from,
            estimated_bytes: estimate.bytes(self.points_per_row.get()),
            text: String::new(),
        };
        read.text = read.as_text();
        Ok(read)
    }

    /// Names the cells that are read from each row.
    fn cells(&self, content: &RowContent) -> String {
        let aggregator = |id: u8| {
            let config = self.shared.rollups.as_ref().map(|rollups| &rollups.config);
            config.and_then(|config| config.aggregator_name(id)).unwrap_or("unknown").to_owned()
        };
        match content {
            RowContent::Points => "points".to_owned(),
            RowContent::Histograms => "histograms".to_owned(),
            RowContent::Rollup { interval, cells } => {
                let which = match cells {
                    RollupCells::One(id) => aggregator(*id),
                    RollupCells::SumAndCount { sum, count } => {
                        format!("{} and {}", aggregator(*sum), aggregator(*count))
                    }
                };
                format!("{which} of {}", interval.interval)
            }
        }
    }

    async fn plan_names(&self, plan: &SubQueryPlan) -> Result<PlanNames, QueryFailure> {
        let (mut tagks, mut tagvs) = (Vec::new(), Vec::new());
        if let SeriesSelection::Tags(tags) = &plan.selection {
            tagks.extend(tags.conditions.iter().map(|condition| condition.tagk));
            let values = tags.conditions.iter().filter_map(|condition| condition.tagvs.as_ref());
            tagvs.extend(values.flatten().copied());
        }
        Ok(PlanNames { tagks: self.names(tagks).await?, tagvs: self.names(tagvs).await? })
    }
}

impl PlanNames {
    fn tagk(&self, uid: TagkUid) -> String {
        name_and_uid(&self.tagks, uid)
    }

    fn tagv(&self, uid: TagvUid) -> String {
        name_and_uid(&self.tagvs, uid)
    }
}

/// A name with its UID.
fn name_and_uid<K: KnownKind>(names: &NameMap<K>, uid: KindUid<K>) -> String {
    match names.get(&uid) {
        Some(name) => format!("{name} ({uid})"),
        None => uid.to_string(),
    }
}

/// Conditions that the store checks.
fn pushed_down(plan: &SubQueryPlan, names: &PlanNames) -> Vec<String> {
    let TagSelection { conditions, explicit, one_deviation } = match &plan.selection {
        SeriesSelection::Tags(tags) => tags,
        SeriesSelection::Tsuids(series) => {
            return series.iter().map(|tags| format!("tags are {}", to_hex(tags))).collect();
        }
    };
    let mut lines: Vec<String> = conditions
        .iter()
        .map(|condition| {
            let values = match &condition.tagvs {
                None => "anything".to_owned(),
                Some(values) => {
                    let values: Vec<_> = values.iter().map(|value| names.tagv(*value)).collect();
                    values.join(" or ")
                }
            };
            format!("{} is {values}", names.tagk(condition.tagk))
        })
        .collect();
    if *explicit {
        lines.push("there are no other tag keys".to_owned());
    }
    if *one_deviation {
        lines.push("at most one tag has another than its first value".to_owned());
    }
    lines
}

impl IndexCounts {
    /// Basis of the number of rows.
    fn basis(&self) -> String {
        let Self { series, scanned_rows, .. } = self;
        format!("{series} series by the series index; all of the metric have {scanned_rows} rows")
    }
}

/// Estimates the rows that a scan returns. The number of series of a metric is unknown, so the estimate counts only
/// the series that the query names.
fn estimate(plan: &SubQueryPlan, content: &RowContent) -> (u64, String) {
    let rows = rows_of_series(plan, content);
    let (series, basis) = named_series(plan);
    (
        rows.saturating_mul(series),
        format!("{rows} rows of an unbroken series times {series} {basis}"),
    )
}

impl ExplainedRead {
    fn as_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "read {} from {}", self.cells, self.table)?;
        writeln!(out, "rows from {} to before {}", self.rows_secs.0, self.rows_secs.1)?;
        if self.by_key {
            let how =
                if self.by_series { "read points of listed series" } else { "fetch rows by key" };
            writeln!(out, "{how}")?;
        } else {
            for range in &self.ranges {
                write!(out, "{}", if self.by_series { "read series of " } else { "scan " })?;
                if let Some(bucket) = range.bucket {
                    write!(out, "bucket {bucket} ")?;
                }
                writeln!(out, "[{}, {})", range.start, range.stop)?;
            }
        }
        let ExplainedSummaries { may_serve, reason, most_days, most_hours } = &self.summaries;
        if *may_serve {
            writeln!(
                out,
                "summaries: {reason}; of one series at most {most_days} days and {most_hours} hours"
            )?;
        } else {
            writeln!(out, "no summaries: {reason}")?;
        }
        for line in &self.pushed_down {
            writeln!(out, "pushed down: {line}")?;
        }
        for line in &self.checked_afterwards {
            writeln!(out, "checked afterwards: {line}")?;
        }
        for line in &self.group_by {
            writeln!(out, "group by {line}")?;
        }
        writeln!(out, "about {} rows: {}", self.estimated_rows, self.estimated_from)?;
        writeln!(out, "about {} bytes of memory", self.estimated_bytes)
    }
}
