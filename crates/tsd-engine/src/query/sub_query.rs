//! One query, from names to an answer.

use std::{fmt, sync::Arc, time::Instant};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use hashbrown::HashMap;
use tokio::runtime;
use tsd_model::{HistogramCodecs, MergeRule, TableSchema, Uid, UidKind};
use tsd_query::{
    NamedSeries, PlanSettings, Query, ResolvedSubQuery, ScanWindow, SeriesSource, SubQuery,
};
use tsd_storage::{Storage, Table};

use super::{
    QueryAnswer, QueryFailure, SubAnswer, SubQueryStages,
    budget::Budget,
    halt::Halt,
    notes::sort,
    reads::SubQueryRead,
    run::{QueryRun, Step},
};
use crate::{
    actor::ActorRef,
    annotations::Annotations,
    clock::Clock,
    compaction::{CompactionStats, RowCompactor},
    config::{QueryConfig, Rollups, RowConfig},
    uid::UidAdmin,
};

/// Sub queries of one query that are read at once.
const SUB_QUERIES_AT_ONCE: usize = 4;

/// What all queries share.
pub(crate) struct QueryContext {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) data_table: Table,
    pub(crate) schema: TableSchema,
    pub(crate) config: QueryConfig,
    pub(crate) rows: RowConfig,
    pub(crate) merge: MergeRule,
    pub(crate) rollups: Option<Rollups>,
    pub(crate) histograms: Option<HistogramCodecs>,
    pub(crate) annotations: Annotations,
    pub(crate) uids: UidAdmin,
    pub(crate) clock: Arc<dyn Clock>,
    /// Empty where queries leave rows as they are.
    pub(crate) compactors: Vec<ActorRef<RowCompactor>>,
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

/// What is wanted of a query.
#[derive(Clone, Copy)]
pub(crate) struct Wishes<'q> {
    pub(crate) query: &'q Query,
    /// All points that are read, not only those of the query range; what expressions work on.
    pub(crate) all_points: bool,
    /// Notes on the series.
    pub(crate) notes: bool,
}

/// What one sub query came to.
pub(crate) struct SubQueryResult {
    pub(crate) series: Vec<NamedSeries>,
    pub(crate) stages: SubQueryStages,
    /// Keys of the rows read, where they are to be deleted.
    keys: Vec<Bytes>,
}

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
        // Ends what computes without waiting, once this future is dropped.
        let halt = Halt::default();
        let _guard = halt.when_dropped();
        let wishes = Wishes { query, all_points: false, notes: !query.no_annotations };
        let results = self.sub_queries(wishes, run, &halt).await?;
        let mut global_annotations = Vec::new();
        if query.global_annotations && !query.no_annotations {
            let range = (query.start_ms, query.end_ms);
            global_annotations = self.annotations.global(range).await?;
            sort(&mut global_annotations);
        }
        let mut keys = Vec::new();
        let mut sub_answers = Vec::with_capacity(results.len());
        for (sub, result) in query.sub_queries.iter().zip(results) {
            keys.extend(result.keys);
            sub_answers.push(SubAnswer {
                index: sub.index,
                series: result.series.into_iter().map(Into::into).collect(),
                stages: result.stages,
            });
        }
        self.delete_rows(keys).await?;
        Ok(QueryAnswer { sub_answers, global_annotations, ..QueryAnswer::default() })
    }

    /// Answers all sub queries, in request order.
    pub(crate) async fn sub_queries(
        self: &Arc<Self>,
        wishes: Wishes<'_>,
        run: &Arc<QueryRun>,
        halt: &Halt,
    ) -> Result<Vec<SubQueryResult>, QueryFailure> {
        let answers: Vec<_> = wishes
            .query
            .sub_queries
            .iter()
            .map(|sub| self.answer_sub_query(wishes, sub, run, halt))
            .collect();
        futures_util::stream::iter(answers).buffered(SUB_QUERIES_AT_ONCE).try_collect().await
    }

    async fn answer_sub_query(
        self: &Arc<Self>,
        wishes: Wishes<'_>,
        sub: &SubQuery,
        run: &Arc<QueryRun>,
        halt: &Halt,
    ) -> Result<SubQueryResult, QueryFailure> {
        let started = Instant::now();
        let mut stages = SubQueryStages { index: sub.index, ..SubQueryStages::default() };
        let resolved = self.resolve(sub, &self.plan_settings()).await?;
        stages.string_to_uid = started.elapsed();
        let metric = self.metric_of(sub, &resolved).await?;
        let budget = Arc::new(Budget::new(Arc::clone(run), &self.config, &metric));
        let read = SubQueryRead {
            context: self,
            wishes,
            sub,
            resolved: &resolved,
            budget,
            halt: halt.clone(),
        };
        let groups = read.groups(&mut stages).await?;
        run.enter(Step::Naming);
        let naming = Instant::now();
        let mut series = self.name(&resolved, groups.outputs).await?;
        if !wishes.notes {
            for series in &mut series {
                series.annotations = None;
            }
        }
        stages.uid_to_string = naming.elapsed();
        let names = |series: &NamedSeries| {
            series.memory_bytes().saturating_sub(series.points.memory_bytes())
        };
        run.hold(series.iter().map(names).sum())?;
        stages.emitted_points = series.iter().map(|s| s.points.len() as u64).sum();
        stages.nan_points = series.iter().map(|s| s.points.nan_count() as u64).sum();
        stages.total = started.elapsed();
        run.tell(&stages);
        Ok(SubQueryResult { series, stages, keys: groups.keys })
    }

    /// Settings of plans.
    pub(crate) const fn plan_settings(&self) -> PlanSettings {
        PlanSettings {
            expansion_limit: self.config.filter_expansion_limit,
            skip_unresolved_tagvs: self.config.skip_unresolved_tagvs,
            fuzzy_filter: self.config.enable_fuzzy_filter,
        }
    }

    /// Puts UIDs in place of the names in a sub query.
    pub(crate) async fn resolve(
        &self,
        sub: &SubQuery,
        settings: &PlanSettings,
    ) -> Result<ResolvedSubQuery, QueryFailure> {
        let wanted = sub.names(settings);
        let mut uids: Map<(UidKind, String), Uid> = Map::default();
        for kind in UidKind::ALL {
            // An empty name is none; what it means is the query's to say.
            let names: Vec<String> = wanted
                .iter()
                .filter(|(of, name)| *of == kind && !name.is_empty())
                .map(|(_, name)| (*name).to_owned())
                .collect();
            let found = self.uids.uids_of(kind, &names).await;
            for (name, uid) in names.into_iter().zip(found) {
                if let Some(uid) = uid? {
                    uids.insert((kind, name), uid);
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
    async fn metric_of(
        &self,
        sub: &SubQuery,
        resolved: &ResolvedSubQuery,
    ) -> Result<String, QueryFailure> {
        match &sub.source {
            _ if self.config.overrides.is_empty() => Ok(String::new()),
            SeriesSource::Metric(name) => Ok(name.clone()),
            SeriesSource::Tsuids(_) => self.metric_name(&self.metric_uid(resolved)).await,
        }
    }

    /// Where cells carry the time of their points, cells of other times need not be read.
    pub(crate) fn cell_time_range(&self, window: &ScanWindow) -> Option<(i64, i64)> {
        let range = (window.scan_start_ms(), window.scan_end_ms());
        (self.rows.use_otsdb_timestamp && range.0 >= self.rows.date_tiered_compaction_start_ms)
            .then_some(range)
    }
}
