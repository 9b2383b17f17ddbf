//! One query, from names to an answer.

use std::{fmt, sync::Arc, time::Instant};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use hashbrown::HashMap;
use tokio::{runtime, task::JoinSet};
use tsd_model::{BaseTime, MergeRule, SeriesKey, TableSchema, Tsuid, Uid, UidKind};
use tsd_query::{
    NameKind, OutputSeries, PlanSettings, Query, QueryError, ResolvedSubQuery, SeriesPipeline,
    SeriesSelection, SeriesSource, SpanGroup, SubQuery, SubQueryPlan, group_spans,
};
use tsd_storage::{RowFilter, Storage, Table, TagPattern, WantedTag};

use super::{
    AnswerSeries, QueryAnswer, QueryFailure, SubAnswer, SubQueryStages,
    budget::Budget,
    fan_out::read_all,
    run::{QueryRun, Step},
    scan::ScanJob,
};
use crate::{
    actor::DoerRef,
    clock::Clock,
    compaction::{CompactionStats, RowCompactor},
    config::{QueryConfig, RowConfig},
    uid::{UidAdmin, UidError},
};

/// Sub queries of one query that are read at once.
const SUB_QUERIES_AT_ONCE: usize = 4;

/// Row keys that a filter of TSUIDs is spelled out to at most.
const MAX_FILTER_KEYS: u64 = 100_000;

/// Tasks that aggregate groups, for each thread.
const TASKS_A_THREAD: usize = 4;

/// What all queries share.
pub(crate) struct QueryContext {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) data_table: Table,
    pub(crate) schema: TableSchema,
    pub(crate) config: QueryConfig,
    pub(crate) rows: RowConfig,
    pub(crate) merge: MergeRule,
    pub(crate) uids: UidAdmin,
    pub(crate) clock: Arc<dyn Clock>,
    /// Empty where queries leave rows as they are.
    pub(crate) compactors: Vec<DoerRef<RowCompactor>>,
    pub(crate) compaction_stats: Arc<CompactionStats>,
    pub(crate) runtime: runtime::Handle,
    pub(crate) threads: usize,
}

impl fmt::Debug for QueryContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryContext").field("threads", &self.threads).finish_non_exhaustive()
    }
}

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
type NameMap = Map<Bytes, String>;

impl QueryContext {
    /// Whether rows met in pieces are handed to row compaction.
    pub(crate) const fn compacts_what_it_meets(&self) -> bool {
        !self.compactors.is_empty()
    }

    /// Answers a query.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        query: &Query,
        run: &Arc<QueryRun>,
    ) -> Result<QueryAnswer, QueryFailure> {
        if query.delete {
            return Err(QueryError::bad_request("Deleting data is not enabled").into());
        }
        let answers: Vec<_> =
            query.sub_queries.iter().map(|sub| self.answer_sub_query(query, sub, run)).collect();
        let sub_answers =
            futures_util::stream::iter(answers).buffered(SUB_QUERIES_AT_ONCE).try_collect().await?;
        Ok(QueryAnswer { sub_answers, ..QueryAnswer::default() })
    }

    async fn answer_sub_query(
        self: &Arc<Self>,
        query: &Query,
        sub: &SubQuery,
        run: &Arc<QueryRun>,
    ) -> Result<SubAnswer, QueryFailure> {
        let started = Instant::now();
        if sub.is_histogram() {
            return Err(QueryError::bad_request("Histogram queries are not supported").into());
        }
        let mut answer = SubAnswer { index: sub.index, ..SubAnswer::default() };
        let settings = PlanSettings {
            expansion_limit: self.config.filter_expansion_limit,
            skip_unresolved_tagvs: self.config.skip_unresolved_tagvs,
            fuzzy_filter: self.config.enable_fuzzy_filter,
        };
        let mut stages = SubQueryStages::default();
        let resolved = self.resolve(sub, &settings).await?;
        stages.string_to_uid = started.elapsed();
        let range = (query.start_ms, query.end_ms);
        let plan = SubQueryPlan::new(sub, &resolved, range, &self.schema, &settings);
        if plan.is_empty() {
            answer.stages = SubQueryStages { index: sub.index, ..stages };
            run.tell(&answer.stages);
            return Ok(answer);
        }
        tracing::debug!(%plan, "planned");
        let metric = self.metric_of(sub, &plan).await?;
        let budget = Arc::new(Budget::new(Arc::clone(run), &self.config, &metric));
        let job = Arc::new(ScanJob {
            context: Arc::clone(self),
            pipeline: SeriesPipeline::new(sub, &plan.window, &query.zone),
            filter: row_filter(&plan),
            time_range_ms: self.cell_time_range(&plan),
            budget: Arc::clone(&budget),
            plan,
        });
        let spans = read_all(Arc::clone(&job), &mut stages).await?;
        let mut began = Instant::now();
        let mut lap = || std::mem::replace(&mut began, Instant::now()).elapsed();
        let slice = run.slice().await?;
        let groups = group_spans(&job.plan, sub.aggregator, spans);
        drop(slice);
        stages.group_by = lap();
        run.enter(Step::Aggregating);
        let outputs = self.aggregate(&job, sub, groups).await?;
        budget.release_series();
        stages.aggregation = lap();
        run.enter(Step::Naming);
        answer.series = self.name(&job.plan, outputs).await?;
        stages.uid_to_string = lap();
        stages.emitted_points = answer.series.iter().map(|s| s.points.len() as u64).sum();
        stages.nan_points = answer.series.iter().map(|s| s.points.nan_count() as u64).sum();
        answer.stages = SubQueryStages { index: sub.index, ..stages };
        answer.stages.total = started.elapsed();
        run.tell(&answer.stages);
        Ok(answer)
    }

    /// Puts UIDs in place of the names in a sub query.
    async fn resolve(
        &self,
        sub: &SubQuery,
        settings: &PlanSettings,
    ) -> Result<ResolvedSubQuery, QueryFailure> {
        let wanted = sub.names(settings);
        let mut uids: Map<(NameKind, String), Uid> = Map::default();
        for (name_kind, kind) in [
            (NameKind::Metric, UidKind::Metric),
            (NameKind::Tagk, UidKind::Tagk),
            (NameKind::Tagv, UidKind::Tagv),
        ] {
            // An empty name is none; what it means is the query's to say.
            let names: Vec<String> = wanted
                .iter()
                .filter(|(kind, name)| *kind == name_kind && !name.is_empty())
                .map(|(_, name)| (*name).to_owned())
                .collect();
            let found = self.uids.uids_of(kind, &names).await;
            for (name, uid) in names.into_iter().zip(found) {
                if let Some(uid) = uid? {
                    uids.insert((name_kind, name), uid);
                }
            }
        }
        let resolved = sub.resolve(&self.schema, settings, |kind, name| {
            let uid = uids.get(&(kind, name.to_owned()))?;
            Some(Bytes::copy_from_slice(uid.as_bytes()))
        })?;
        Ok(resolved)
    }

    /// Name of the metric a sub query reads, where there are rules that ask for it.
    async fn metric_of(&self, sub: &SubQuery, plan: &SubQueryPlan) -> Result<String, QueryFailure> {
        match &sub.source {
            _ if self.config.overrides.is_empty() => Ok(String::new()),
            SeriesSource::Metric(name) => Ok(name.clone()),
            SeriesSource::Tsuids(_) => {
                let names = self.names(UidKind::Metric, vec![&plan.metric]).await?;
                Ok(names.into_values().next().unwrap_or_default())
            }
        }
    }

    /// Where cells carry the time of their points, cells of other times need not be read.
    fn cell_time_range(&self, plan: &SubQueryPlan) -> Option<(i64, i64)> {
        let range = (plan.window.scan_start_ms(), plan.window.scan_end_ms());
        (self.rows.use_otsdb_timestamp && range.0 >= self.rows.date_tiered_compaction_start_ms)
            .then_some(range)
    }

    /// Aggregates groups on all threads.
    async fn aggregate(
        &self,
        job: &Arc<ScanJob>,
        sub: &SubQuery,
        groups: Vec<SpanGroup>,
    ) -> Result<Vec<OutputSeries>, QueryFailure> {
        let emitted = (job.plan.window.start_ms, job.plan.window.end_ms);
        let chunk = groups.len().div_ceil((self.threads * TASKS_A_THREAD).max(1)).max(1);
        let sub = Arc::new(sub.clone());
        let mut running = JoinSet::new();
        let mut groups = groups.into_iter().peekable();
        while groups.peek().is_some() {
            let part: Vec<SpanGroup> = groups.by_ref().take(chunk).collect();
            let (job, sub, place) = (Arc::clone(job), Arc::clone(&sub), running.len());
            running.spawn(async move {
                let outputs = aggregate_groups(&job, &sub, part, emitted).await;
                (place, outputs)
            });
        }
        let mut outputs: Vec<Vec<OutputSeries>> = vec![Vec::new(); running.len()];
        while let Some(ended) = running.join_next().await {
            let (place, part) = ended.map_err(|_| QueryFailure::Lost)?;
            if let Some(slot) = outputs.get_mut(place) {
                *slot = part?;
            }
        }
        Ok(outputs.into_iter().flatten().collect())
    }

    /// Puts names in place of UIDs.
    async fn name(
        &self,
        plan: &SubQueryPlan,
        outputs: Vec<OutputSeries>,
    ) -> Result<Vec<AnswerSeries>, QueryFailure> {
        if outputs.is_empty() {
            return Ok(Vec::new());
        }
        let (mut tagks, mut tagvs) = (Vec::new(), Vec::new());
        for tags in outputs.iter().map(|output| &output.group_tags) {
            tagks.extend(tags.tags.iter().map(|(tagk, _)| tagk).chain(&tags.aggregate_tags));
            tagvs.extend(tags.tags.iter().map(|(_, tagv)| tagv));
        }
        let metrics = self.names(UidKind::Metric, vec![&plan.metric]).await?;
        let tagks = self.names(UidKind::Tagk, tagks).await?;
        let tagvs = self.names(UidKind::Tagv, tagvs).await?;
        // Each of them was looked up, and a UID without name is an error.
        let name = |names: &NameMap, uid: &Bytes| names.get(uid).cloned().unwrap_or_default();
        Ok(outputs
            .into_iter()
            .map(|output| AnswerSeries {
                metric: name(&metrics, &plan.metric),
                tags: output
                    .group_tags
                    .tags
                    .iter()
                    .map(|(tagk, tagv)| (name(&tagks, tagk), name(&tagvs, tagv)))
                    .collect(),
                aggregate_tags: output
                    .group_tags
                    .aggregate_tags
                    .iter()
                    .map(|tagk| name(&tagks, tagk))
                    .collect(),
                tsuids: output.tsuids,
                points: output.points,
                annotations: None,
            })
            .collect())
    }

    async fn names(&self, kind: UidKind, uids: Vec<&Bytes>) -> Result<NameMap, QueryFailure> {
        let mut distinct: Vec<Uid> =
            uids.into_iter().filter_map(|uid| Uid::try_new(uid).ok()).collect();
        distinct.sort_unstable();
        distinct.dedup();
        let names = self.uids.names_of(kind, &distinct).await?;
        distinct
            .into_iter()
            .zip(names)
            .map(|(uid, name)| match name {
                Some(name) => Ok((Bytes::copy_from_slice(uid.as_bytes()), name)),
                None => Err(UidError::NoSuchUid { kind, uid: uid.as_bytes().to_vec() }.into()),
            })
            .collect()
    }
}

/// Aggregates groups, one after the other.
async fn aggregate_groups(
    job: &ScanJob,
    sub: &SubQuery,
    groups: Vec<SpanGroup>,
    emitted: (i64, i64),
) -> Result<Vec<OutputSeries>, QueryFailure> {
    let run = job.budget.run();
    let mut outputs = Vec::with_capacity(groups.len());
    let mut groups = groups.into_iter();
    while groups.len() > 0 {
        run.check_time()?;
        let slice = run.slice().await?;
        for group in groups.by_ref() {
            let output = OutputSeries::of(sub, &job.plan, &group, emitted)?;
            run.hold(size_of::<OutputSeries>() + output.points.memory_bytes())?;
            outputs.push(output);
            if slice.is_over() {
                break;
            }
        }
    }
    Ok(outputs)
}

/// What of a plan's selection the store can check by itself.
fn row_filter(plan: &SubQueryPlan) -> Option<RowFilter> {
    match &plan.selection {
        SeriesSelection::Tags(tags) => {
            if tags.wanted.is_empty() && !tags.explicit {
                return None;
            }
            let wanted = tags
                .wanted
                .iter()
                .map(|tag| WantedTag { tagk: tag.tagk.clone(), tagvs: tag.tagvs.clone() })
                .collect();
            Some(RowFilter::Tags(Arc::new(TagPattern {
                tags_start: plan.schema.tags_start(),
                tagk_width: plan.schema.tagk_width(),
                tagv_width: plan.schema.tagv_width(),
                wanted,
                explicit: tags.explicit,
            })))
        }
        SeriesSelection::Tsuids(tags) => key_filter(plan, tags),
    }
}

/// The row keys of series in the plan's window, where they are few enough to be listed.
fn key_filter(plan: &SubQueryPlan, series: &[Bytes]) -> Option<RowFilter> {
    let (from, to) = (plan.window.scan_start_secs, plan.window.scan_end_secs);
    let hours = (to - from).max(0).unsigned_abs() / u64::from(BaseTime::SPAN_SECONDS);
    if hours.saturating_mul(series.len() as u64) > MAX_FILTER_KEYS {
        return None;
    }
    let first = BaseTime::containing(u32::try_from(from).ok()?);
    let mut keys = Vec::new();
    for tags in series {
        let tsuid = Tsuid::try_new(&plan.schema, &[&*plan.metric, &**tags].concat()).ok()?;
        let series = SeriesKey::from_tsuid(&plan.schema, &tsuid);
        let hours = std::iter::successors(Some(first), |base| base.next())
            .take_while(|base| i64::from(base.as_secs()) < to);
        keys.extend(hours.map(|base| series.row_key(base)));
    }
    keys.sort();
    Some(RowFilter::Keys(Arc::new(keys)))
}
