//! Asks the query of a case.

use bytes::Bytes;
use serde_json::{Value as Json, json};
use tsd_model::Value;
use tsd_query::{
    Clock, FillPolicy, HistogramOutput, NameKind, OutputSeries, PlanSettings, Query, QueryError,
    RawQuery, ReadAttempt, ReadStrategy, RollupSettings, SeriesPipeline, SeriesSource, SubQuery,
    SubQueryPlan, choose_reads, evaluate, evaluate_histograms,
};

use crate::{request, table::Tables};

/// Why a case is not run, if it is not.
pub(crate) fn not_covered(path: &str) -> Option<&'static str> {
    match path {
        "/api/query/gexp" | "/api/query/exp" => return Some("expressions come later"),
        _ => {}
    }
    None
}

/// The answer as JSON, or the refusal.
pub(crate) fn ask(case: &Json, salt_buckets: u32) -> Result<Json, QueryError> {
    let table = Tables::of_case(case, salt_buckets);
    let uri = case["request"]["uri"].as_str().unwrap_or("/api/query");
    let raw = match &case["query"] {
        Json::Null => request::from_uri(uri)?,
        body => request::from_body(body)?,
    };
    let in_arrays = request::parameters(uri).iter().any(|(key, _)| key == "arrays");
    answer(case, &table, &raw, in_arrays)
}

fn settings(case: &Json) -> PlanSettings {
    let is = |key: &str, value: &str| case["config"][key].as_str() == Some(value);
    PlanSettings {
        fuzzy_filter: !is("tsd.query.enable_fuzzy_filter", "false"),
        skip_unresolved_tagvs: is("tsd.query.skip_unresolved_tagvs", "true"),
        ..PlanSettings::default()
    }
}

fn answer(
    case: &Json,
    table: &Tables,
    raw: &RawQuery,
    in_arrays: bool,
) -> Result<Json, QueryError> {
    let query = raw.validate(&Clock::utc(1_500_000_000_000))?;
    let mut series = Vec::new();
    for sub in &query.sub_queries {
        series.extend(answer_sub_query(table, &query, sub, &settings(case), in_arrays)?);
    }
    Ok(Json::Array(series))
}

fn answer_sub_query(
    table: &Tables,
    query: &Query,
    sub: &SubQuery,
    settings: &PlanSettings,
    in_arrays: bool,
) -> Result<Vec<Json>, QueryError> {
    let resolved =
        sub.resolve(&table.schema, settings, |kind, name| table.names.uid(kind, name))?;
    let range = (query.start_ms, query.end_ms);
    if sub.is_histogram() {
        let plan = SubQueryPlan::new(sub, &resolved, range, &table.schema, settings);
        let pipeline = SeriesPipeline::new(sub, &plan.window, &query.zone);
        let series = table.histograms(&plan);
        let SeriesSource::Metric(metric) = &sub.source else { panic!("histograms of a metric") };
        let outputs = evaluate_histograms(sub, &plan, &pipeline, series);
        let show = |output: &HistogramOutput| {
            show(
                table,
                query,
                sub,
                &format!("{metric}{}", output.suffix),
                &output.series,
                in_arrays,
            )
        };
        return Ok(outputs.iter().map(show).collect());
    }
    let rollups = RollupSettings { config: table.rollups.as_ref(), ..RollupSettings::default() };
    let ReadStrategy::FirstWithSeries(attempts) = choose_reads(sub, range, &rollups)? else {
        panic!("no case asks for a split");
    };
    let mut outputs = Vec::new();
    let mut metric_uid = Bytes::new();
    for ReadAttempt { source, sub, window } in &attempts {
        let plan = SubQueryPlan::with_window(sub, &resolved, *window, &table.schema, settings);
        let pipeline = SeriesPipeline::new(sub, window, &query.zone);
        let spans = table.read(source, &plan, &pipeline)?;
        metric_uid.clone_from(&plan.metric);
        if !spans.is_empty() {
            outputs = evaluate(sub, &plan, spans)?;
            break;
        }
    }
    let metric = match &sub.source {
        SeriesSource::Metric(metric) => metric,
        SeriesSource::Tsuids(_) => table.names.name(NameKind::Metric, &metric_uid),
    };
    Ok(outputs.iter().map(|output| show(table, query, sub, metric, output, in_arrays)).collect())
}

/// A series as JSON.
fn show(
    table: &Tables,
    query: &Query,
    sub: &SubQuery,
    metric: &str,
    output: &OutputSeries,
    in_arrays: bool,
) -> Json {
    let name = |kind, uid: &[u8]| table.names.name(kind, uid).to_owned();
    let tags: serde_json::Map<_, _> = output
        .group_tags
        .tags
        .iter()
        .map(|(k, v)| (name(NameKind::Tagk, k), name(NameKind::Tagv, v).into()))
        .collect();
    let aggregate_tags: Vec<_> =
        output.group_tags.aggregate_tags.iter().map(|k| name(NameKind::Tagk, k)).collect();
    let mut json = json!({"metric": metric, "tags": tags, "aggregateTags": aggregate_tags});
    if query.show_tsuids {
        json["tsuids"] = output.tsuids.iter().map(|tsuid| format!("{tsuid:X}")).collect();
    }
    let is_null = sub.downsample.as_ref().is_some_and(|spec| spec.fill == FillPolicy::Null);
    let points = (0..output.points.len()).map(|i| {
        let time = output.points.times_ms[i] / if query.ms_resolution { 1 } else { 1000 };
        let value = match output.points.value(i).unwrap() {
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
