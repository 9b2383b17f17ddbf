//! An in-memory table with the row keys of the real one.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value as Json;
use tsd_model::{
    HistogramBucket, PointColumns, RollupConfig, SimpleHistogram, TableSchema, UidKind, Value,
};
use tsd_query::{
    Aggregator, HistogramSeries, QueryError, ReadSource, RollupAverageBuilder, RollupCells,
    SeriesPipeline, Span, SubQueryPlan,
};

/// UIDs by name, counting from 1 in order of first appearance.
#[derive(Default)]
pub(crate) struct Names {
    kinds: [Vec<String>; 3],
}

impl Names {
    pub(crate) fn assign(&mut self, kind: UidKind, name: &str) -> Bytes {
        if self.uid(kind, name).is_none() {
            self.kinds[kind as usize].push(name.to_owned());
        }
        self.uid(kind, name).unwrap()
    }

    pub(crate) fn uid(&self, kind: UidKind, name: &str) -> Option<Bytes> {
        let at = self.kinds[kind as usize].iter().position(|n| n == name)? as u32 + 1;
        Some(Bytes::copy_from_slice(&at.to_be_bytes()[1..]))
    }

    pub(crate) fn name(&self, kind: UidKind, uid: &[u8]) -> &str {
        let number = uid.iter().fold(0, |n, b| n << 8 | usize::from(*b));
        &self.kinds[kind as usize][number - 1]
    }
}

/// A row: values by aggregator id (`None` for raw points) and time.
type TableRow = BTreeMap<(Option<u8>, i64), Value>;

/// The data table and the tables of rollups.
pub(crate) struct Tables {
    pub(crate) schema: TableSchema,
    pub(crate) names: Names,
    pub(crate) rollups: Option<RollupConfig>,
    histograms: BTreeMap<Vec<u8>, Vec<(i64, SimpleHistogram)>>,
    by_name: BTreeMap<String, BTreeMap<Vec<u8>, TableRow>>,
}

const DATA: &str = "tsdb";

pub(crate) fn time_ms(json: &Json) -> i64 {
    let time = json.as_i64().unwrap();
    if time > 9_999_999_999 { time } else { time * 1000 }
}

fn value(json: &Json) -> Value {
    json.as_i64().map_or_else(|| Value::Float(json.as_f64().unwrap()), Value::Integer)
}

impl Tables {
    pub(crate) fn of_case(case: &Json, salt_buckets: u32) -> Self {
        let salt_width = usize::from(salt_buckets > 0);
        let schema = TableSchema::try_new(3, 3, 3, salt_width, salt_buckets.max(1)).unwrap();
        let rollups = case["config"]["tsd.rollups.config"].as_str().map(|json| {
            let is_aggregator = |name: &str| Aggregator::from_name(name).is_some();
            RollupConfig::from_json(json.as_bytes(), is_aggregator).unwrap()
        });
        let mut tables = Self {
            schema,
            names: Names::default(),
            rollups,
            histograms: BTreeMap::new(),
            by_name: BTreeMap::new(),
        };
        for uid in case["uids"].as_array().into_iter().flatten() {
            let kind = match uid[0].as_str().unwrap() {
                "metric" => UidKind::Metric,
                "tagk" => UidKind::Tagk,
                _ => UidKind::Tagv,
            };
            tables.names.assign(kind, uid[1].as_str().unwrap());
        }
        for point in case["points"].as_array().unwrap() {
            tables.put(point);
        }
        for request in case["setup_requests"].as_array().into_iter().flatten() {
            for point in request["body"].as_array().unwrap() {
                tables.put_histogram(point);
            }
        }
        tables
    }

    /// Metric and tag UIDs of a point.
    pub(crate) fn series_of(&mut self, point: &Json) -> (Bytes, Vec<u8>) {
        let metric = self.names.assign(UidKind::Metric, point["metric"].as_str().unwrap());
        let mut named: Vec<(&str, &str)> = Vec::new();
        for (tagk, tagv) in point["tags"].as_object().unwrap() {
            named.push((tagk, tagv.as_str().unwrap()));
        }
        if let Some(aggregator) = point["groupByAggregator"].as_str() {
            named.push(("_aggregate", aggregator));
        }
        let mut pairs: Vec<(Bytes, Bytes)> = Vec::new();
        for (tagk, tagv) in named {
            let tagk = self.names.assign(UidKind::Tagk, tagk);
            pairs.push((tagk, self.names.assign(UidKind::Tagv, tagv)));
        }
        pairs.sort();
        (metric, pairs.iter().flat_map(|(k, v)| [k.as_ref(), v].concat()).collect())
    }

    fn put(&mut self, point: &Json) {
        let (metric, tags) = self.series_of(point);
        let time = time_ms(&point["timestamp"]);
        let secs = u32::try_from(time / 1000).unwrap();
        let mut base = secs - secs % 3600;
        let mut table = DATA.to_owned();
        let mut id = None;
        if let Some(interval) = point["interval"].as_str() {
            let config = self.rollups.as_ref().unwrap();
            let interval = config.interval(interval).unwrap();
            base = interval.row_span.base_time(secs).as_secs();
            id = config.aggregator_id(point["aggregator"].as_str().unwrap());
            let grouped = point["groupByAggregator"].is_string();
            let (single, pre) = (&interval.table, &interval.pre_aggregation_table);
            table = if grouped { pre.clone() } else { single.clone() };
        }
        // Any salt bucket will do, as long as each series has one.
        let salt = tags.iter().fold(7, |n: u32, b| n * 31 % 251 + u32::from(*b));
        let salt = (salt % self.schema.salt_buckets()) as u8;
        let mut key = vec![salt; self.schema.salt_width()];
        key.extend_from_slice(&[&metric, &base.to_be_bytes()[..], &tags].concat());
        let row = self.by_name.entry(table).or_default().entry(key).or_default();
        row.insert((id, time), value(&point["value"]));
    }

    fn put_histogram(&mut self, point: &Json) {
        let (metric, tags) = self.series_of(point);
        let underflow = point["underflow"].as_i64().unwrap();
        let overflow = point["overflow"].as_i64().unwrap();
        let mut buckets = Vec::new();
        for (bounds, count) in point["buckets"].as_object().unwrap() {
            let (lower, upper) = bounds.split_once(',').unwrap();
            let bounds = (lower.parse().unwrap(), upper.parse().unwrap());
            let count = count.as_i64().unwrap();
            buckets.push(HistogramBucket { lower: bounds.0, upper: bounds.1, count });
        }
        let histogram = SimpleHistogram::from_buckets(buckets, underflow, overflow);
        let points = self.histograms.entry([&metric, &tags[..]].concat()).or_default();
        points.push((time_ms(&point["timestamp"]), histogram));
    }

    /// Histograms of the series of a plan.
    pub(crate) fn histograms(&self, plan: &SubQueryPlan) -> Vec<HistogramSeries> {
        let mut matches = Vec::new();
        for (tsuid, points) in &self.histograms {
            if tsuid.starts_with(&plan.metric) && plan.admits(&tsuid[plan.metric.len()..]) {
                matches
                    .push(HistogramSeries { tsuid: tsuid.clone().into(), points: points.clone() });
            }
        }
        matches
    }

    /// Rows of a plan, by tags, in time order.
    fn rows<'t>(&'t self, table: &str, plan: &SubQueryPlan) -> Vec<(&'t [u8], &'t TableRow)> {
        let mut matches = Vec::new();
        for range in &plan.ranges {
            let rows = self.by_name.get(table).into_iter();
            for (key, row) in rows.flat_map(|t| t.range(range.start.to_vec()..range.stop.to_vec()))
            {
                let tags = &key[self.schema.tags_start()..];
                let name_of = |uid: &[u8]| Some(self.names.name(UidKind::Tagv, uid));
                if plan.admits(tags) && plan.accepts(tags, name_of) {
                    matches.push((tags, row));
                }
            }
        }
        matches
    }

    /// Reads the cells of an attempt through the pipeline.
    pub(crate) fn read(
        &self,
        source: &ReadSource,
        plan: &SubQueryPlan,
        pipeline: &SeriesPipeline,
    ) -> Result<Vec<Span>, QueryError> {
        let tsuid = |tags: &[u8]| Bytes::from([&plan.metric, tags].concat());
        let mut spans = Vec::new();
        let (table, id) = match source {
            ReadSource::Points { table } => (table.as_deref().unwrap_or(DATA), None),
            ReadSource::Rollup { table, cells: RollupCells::One(id), .. } => {
                (table.as_str(), Some(*id))
            }
            ReadSource::Rollup {
                table, cells: RollupCells::SumAndCount { sum, count }, ..
            } => {
                let mut builders = BTreeMap::new();
                for (tags, row) in self.rows(table, plan) {
                    builders
                        .entry(tags)
                        .or_insert_with(|| RollupAverageBuilder::start(pipeline, false))
                        .push(pipeline, &columns(row, Some(*sum)), &columns(row, Some(*count)));
                }
                for (tags, builder) in builders {
                    spans.extend(builder.finish(pipeline, tsuid(tags))?);
                }
                return Ok(spans);
            }
        };
        let mut builders = BTreeMap::new();
        for (tags, row) in self.rows(table, plan) {
            let builder = builders.entry(tags).or_insert_with(|| pipeline.start());
            builder.push(pipeline, &columns(row, id));
        }
        for (tags, builder) in builders {
            spans.extend(builder.finish(pipeline, tsuid(tags))?);
        }
        Ok(spans)
    }
}

fn columns(row: &TableRow, id: Option<u8>) -> PointColumns {
    let mut columns = PointColumns::default();
    for ((cell, time), value) in row {
        if *cell == id {
            columns.push(*time, *value);
        }
    }
    columns
}
