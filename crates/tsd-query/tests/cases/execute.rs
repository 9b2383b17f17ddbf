//! Executes the query of a case.

use bytes::Bytes;
use serde_json::{Value as Json, json};
use tsd_model::{TagkUid, TagvUid, Uid, UidKind, Value};
use tsd_protocol::ApiError;
use tsd_query::{
    Clock, ExpOutput, FillPolicy, GexpQuery, GroupEvaluation, NamedSeries, OutputSeries,
    PlanSettings, Query, QueryError, RawQuery, ReadAttempt, ReadStrategy, RollupSettings,
    SeriesPipeline, SeriesSource, SubQuery, SubQueryPlan, Unlimited, choose_reads,
    evaluate_histograms, group_spans,
};

use crate::{request, table::Tables};

/// The result as JSON, or the error.
pub(crate) fn execute(case: &Json, salt_buckets: u32) -> Result<Json, ApiError> {
    let tables = Tables::of_case(case, salt_buckets);
    let executor = QueryExecutor { tables: &tables, settings: settings(case) };
    let uri = case["request"]["uri"].as_str().unwrap_or("/api/query");
    if uri == "/api/query/exp" {
        return Ok(executor.exp(&case["query"])?);
    }
    let parameters = request::parameters(uri);
    let raw = match &case["query"] {
        Json::Null => request::from_uri(uri)?,
        body => request::from_body(body)?,
    };
    if uri.starts_with("/api/query/gexp") {
        let texts = parameters.iter().filter(|(key, _)| key == "exp").map(|(_, text)| text);
        return Ok(executor.gexp(raw, &texts.map(String::as_str).collect::<Vec<_>>())?);
    }
    let in_arrays = parameters.iter().any(|(key, _)| key == "arrays");
    let query = validate(&raw)?;
    let mut results = Vec::new();
    for sub in &query.sub_queries {
        let series = executor.series(&query, sub, (query.start_ms, query.end_ms))?;
        results.extend(series.iter().map(|series| to_json(&query, sub, series, in_arrays)));
    }
    Ok(Json::Array(results))
}

pub(crate) fn validate(raw: &RawQuery) -> Result<Query, QueryError> {
    raw.validate(&Clock::utc(1_500_000_000_000))
}

pub(crate) fn settings(case: &Json) -> PlanSettings {
    let is = |key: &str, value: &str| case["config"][key].as_str() == Some(value);
    PlanSettings {
        fuzzy_filter: !is("tsd.query.enable_fuzzy_filter", "false"),
        skip_unresolved_tagvs: is("tsd.query.skip_unresolved_tagvs", "true"),
        ..PlanSettings::default()
    }
}

/// Range of all read points, also of points outside the query range.
pub(crate) const EVERYTHING: (i64, i64) = (i64::MIN, i64::MAX);

/// Executes queries on tables.
pub(crate) struct QueryExecutor<'t> {
    pub(crate) tables: &'t Tables,
    pub(crate) settings: PlanSettings,
}

impl QueryExecutor<'_> {
    fn gexp(&self, raw: RawQuery, texts: &[&str]) -> Result<Json, QueryError> {
        let gexps = GexpQuery::new(raw, texts, &Clock::utc(1_500_000_000_000))?;
        let query = &gexps.query;
        let mut inputs = Vec::new();
        for sub in &query.sub_queries {
            inputs.push(self.series(query, sub, EVERYTHING)?);
        }
        let mut results = Vec::new();
        for output in gexps.evaluate(&inputs, &mut Unlimited)? {
            let mut json = to_json(query, &query.sub_queries[0], &output.series, false);
            if output.is_combined {
                json["annotations"] = json!([]);
            }
            results.push(json);
        }
        Ok(Json::Array(results))
    }

    fn exp(&self, body: &Json) -> Result<Json, QueryError> {
        let exp = request::exp_from_body(body).validate(&Clock::utc(1_500_000_000_000))?;
        let query = &exp.query;
        let mut inputs = Vec::new();
        for sub in &query.sub_queries {
            inputs.push(self.series(query, sub, EVERYTHING)?);
        }
        let outputs = exp.evaluate(&inputs)?.outputs;
        Ok(json!({"outputs": outputs.iter().map(output_to_json).collect::<Vec<_>>()}))
    }

    /// The result of a sub query, points cut to `output_range`.
    pub(crate) fn series(
        &self,
        query: &Query,
        sub: &SubQuery,
        output_range: (i64, i64),
    ) -> Result<Vec<NamedSeries>, QueryError> {
        let Self { tables, settings } = self;
        let schema = &tables.schema;
        let uid_of = |kind, name: &str| Uid::try_new(&tables.names.uid(kind, name)?).ok();
        let resolved = sub.resolve(schema, settings, uid_of)?;
        let range = (query.start_ms, query.end_ms);
        let named = |metric: String, series: OutputSeries| {
            let name_of = |kind, uid: Uid| tables.names.name(kind, uid.as_bytes()).to_owned();
            let tagk_name = |tagk: TagkUid| name_of(UidKind::Tagk, tagk.uid());
            let tagv_name = |tagv: TagvUid| name_of(UidKind::Tagv, tagv.uid());
            NamedSeries::new(metric, series, tagk_name, tagv_name)
        };
        if sub.is_histogram() {
            let plan = SubQueryPlan::new(sub, &resolved, range, schema, settings);
            let pipeline = SeriesPipeline::new(sub, &plan.window, &query.zone);
            let SeriesSource::Metric(metric) = &sub.source else {
                panic!("histograms of a metric")
            };
            let series = tables.histograms(&plan);
            let outputs = evaluate_histograms(sub, &plan, &pipeline, series, &mut Unlimited)?;
            return Ok(outputs
                .into_iter()
                .map(|output| named(format!("{metric}{}", output.suffix), output.series))
                .collect());
        }
        let rollups =
            RollupSettings { config: tables.rollups.as_ref(), ..RollupSettings::default() };
        let ReadStrategy::FirstWithSeries(attempts) = choose_reads(sub, range, &rollups)? else {
            panic!("no case is split");
        };
        let mut outputs = Vec::new();
        let mut metric_uid = Bytes::new();
        for ReadAttempt { source, sub, window } in &attempts {
            let plan = SubQueryPlan::with_window(sub, &resolved, *window, schema, settings);
            let pipeline = SeriesPipeline::new(sub, window, &query.zone);
            let spans = tables.read(source, &plan, &pipeline)?;
            metric_uid.clone_from(&plan.metric);
            let evaluation = GroupEvaluation { sub, plan: &plan, output_range };
            for group in group_spans(&plan, sub.aggregator, spans) {
                outputs.push(evaluation.output(&group, &mut || Ok(()))?);
            }
            if !outputs.is_empty() {
                break;
            }
        }
        let metric = match &sub.source {
            SeriesSource::Metric(metric) => metric,
            SeriesSource::Tsuids(_) => tables.names.name(UidKind::Metric, &metric_uid),
        };
        Ok(outputs.into_iter().map(|output| named(metric.to_owned(), output)).collect())
    }
}

/// A series as JSON.
fn to_json(query: &Query, sub: &SubQuery, series: &NamedSeries, in_arrays: bool) -> Json {
    let tags: serde_json::Map<_, _> =
        series.tags.iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect();
    let mut json =
        json!({"metric": series.metric, "tags": tags, "aggregateTags": series.aggregate_tags});
    if query.show_tsuids {
        json["tsuids"] = series.tsuids.iter().map(|tsuid| format!("{tsuid:X}")).collect();
    }
    let is_null = sub.downsample.as_ref().is_some_and(|spec| spec.fill == FillPolicy::Null);
    let points = (0..series.points.len()).map(|i| {
        let time = series.points.times_ms[i] / if query.ms_resolution { 1 } else { 1000 };
        let value = match series.points.value(i).unwrap() {
            Value::Integer(v) => json!(v),
            Value::Float(v) if v.is_nan() && is_null => Json::Null,
            Value::Float(v) if v.is_nan() => json!("NaN"),
            Value::Float(v) => json!(v),
        };
        (time, value)
    });
    json["dps"] = if in_arrays {
        points.map(|(time, value)| json!([time, value])).collect()
    } else {
        Json::Object(points.map(|(time, value)| (time.to_string(), value)).collect())
    };
    json
}

/// An output of expressions as JSON.
fn output_to_json(output: &ExpOutput) -> Json {
    let double = |v: &f64| if v.is_nan() { json!("NaN") } else { json!(v) };
    let rows = output.rows.iter().map(|(time, values)| {
        let mut row = vec![json!(time)];
        row.extend(values.iter().map(double));
        Json::Array(row)
    });
    let mut meta = vec![json!({"index": 0, "metrics": ["timestamp"]})];
    for (i, column) in output.columns.iter().enumerate() {
        let tags: serde_json::Map<_, _> =
            column.common_tags.iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect();
        meta.push(json!({
            "index": i + 1,
            "metrics": column.metrics,
            "commonTags": tags,
            "aggregatedTags": column.aggregated_tags,
        }));
    }
    let mut json = json!({
        "id": output.id,
        "dps": rows.collect::<Vec<_>>(),
        "dpsMeta": {
            "firstTimestamp": output.first_ms,
            "lastTimestamp": output.last_ms,
            "setCount": output.rows.len(),
            "series": output.columns.len(),
        },
        "meta": meta,
    });
    if let Some(alias) = &output.alias {
        json["alias"] = json!(alias);
    }
    json
}
