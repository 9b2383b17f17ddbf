#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use tsd_model::PointColumns;

use super::*;
use crate::{
    exp::{ExpOutput, RawExpJoin, RawExpOutput},
    pipeline::NamedSeries,
    request::BodyFilter,
};

fn request(expressions: &[(&str, &str)]) -> RawExpQuery {
    let metric = |id: &str| RawExpMetric {
        id: Some(id.into()),
        metric: Some(format!("m.{id}")),
        filter: Some("f1".into()),
        ..RawExpMetric::default()
    };
    let tag = BodyFilter {
        kind: Some("wildcard".into()),
        tagk: Some("host".into()),
        filter: Some("*".into()),
        group_by: true,
    };
    RawExpQuery {
        time: Some(RawExpTime {
            start: Some("1356998400".into()),
            end: Some("1356998500".into()),
            aggregator: Some("sum".into()),
            ..RawExpTime::default()
        }),
        filters: vec![RawExpFilter {
            id: Some("f1".into()),
            tags: vec![tag],
            explicit_tags: false,
        }],
        metrics: vec![metric("a"), metric("b")],
        expressions: expressions
            .iter()
            .map(|(id, expr)| RawExpExpression {
                id: Some((*id).into()),
                expr: Some((*expr).into()),
                ..RawExpExpression::default()
            })
            .collect(),
        ..RawExpQuery::default()
    }
}

#[track_caller]
fn refuse(change: impl FnOnce(&mut RawExpQuery), status: u16, message: &str) {
    let mut raw = request(&[("e", "a + b")]);
    change(&mut raw);
    let error = raw.validate(&Clock::utc(0)).unwrap_err();
    assert_eq!((error.class.status(), error.message.as_str()), (status, message));
}

#[test]
fn refusals_have_the_original_words() {
    let expr = |text: &str| {
        let text = text.to_owned();
        move |raw: &mut RawExpQuery| raw.expressions[0].expr = Some(text)
    };
    refuse(|raw| raw.time = None, 500, "missing time");
    refuse(|raw| raw.metrics.clear(), 500, "missing or empty metrics");
    refuse(|raw| raw.metrics[1].id = Some("a".into()), 500, "duplicated metric id: a");
    refuse(
        |raw| raw.metrics[0].filter = Some("x".into()),
        500,
        "unrecognized filter id x in metric a",
    );
    refuse(|raw| raw.metrics[1].metric = None, 500, "Invalid metric at index 1");
    refuse(|raw| raw.metrics[1].time_offset = Some("1m".into()), 500, "Invalid metric at index 1");
    refuse(|raw| raw.metrics[0].id = Some("a b".into()), 500, "Invalid id: a b");
    refuse(|raw| raw.metrics[0].id = Some("7".into()), 500, "Invalid id: 7");
    let interval = |text: &str| {
        let text = Some(text.to_owned());
        move |raw: &mut RawExpQuery| raw.time.as_mut().unwrap().downsample_interval = text
    };
    refuse(interval("1dc"), 500, "Invalid time");
    refuse(interval("0all"), 500, "Invalid time");
    refuse(expr("a + q"), 500, "Expression [a + q] was missing input q");
    refuse(expr("1 + 2"), 500, "No variables found in expression: 1 + 2");
    refuse(expr("1e3 + a"), 500, "Unable to parse expression: 1e3 + a");
    refuse(expr("e + a"), 400, "Self referencing expression found: e");
    let fill = RawExpFill { policy: Some("zero".into()), value: Some(1.0) };
    refuse(
        |raw| raw.metrics[0].fill = Some(fill),
        500,
        "The value 1 contradicts the fill policy zero",
    );
}

#[test]
fn cycles_are_refused_and_chains_are_ordered() {
    let error = request(&[("x", "y + a"), ("y", "x + a")]).validate(&Clock::utc(0)).unwrap_err();
    assert_eq!(error.message, "Circular reference found: x");
    let checked = request(&[("x", "y + a"), ("z", "x * y"), ("y", "a + b")]);
    let checked = checked.validate(&Clock::utc(0)).unwrap();
    let order: Vec<_> = checked.expressions.iter().map(|e| e.id.as_str()).collect();
    assert_eq!(order, ["y", "x", "z"]);
}

#[test]
fn equal_metrics_share_a_sub_query() {
    let mut raw = request(&[("e", "a + b")]);
    raw.metrics[1].metric = raw.metrics[0].metric.clone();
    let checked = raw.validate(&Clock::utc(0)).unwrap();
    assert_eq!(checked.query.sub_queries.len(), 1);
    assert_eq!(checked.metrics.iter().map(|m| m.sub_query).collect::<Vec<_>>(), [0, 0]);
}

/// Series by host UID with their points in seconds after the start.
fn series(hosts: &[(u8, &[(i64, f64)])]) -> Vec<NamedSeries> {
    hosts
        .iter()
        .map(|(host, values)| {
            let mut series = NamedSeries {
                tags: vec![("host".into(), host.to_string())],
                points: PointColumns::default(),
                ..NamedSeries::default()
            };
            series.group_tags.tags = vec![(vec![1].into(), vec![*host].into())];
            for (time, value) in *values {
                series
                    .points
                    .push(1_356_998_400_000 + time * 1000, tsd_model::Value::Float(*value));
            }
            series
        })
        .collect()
}

fn outputs(raw: &RawExpQuery) -> Vec<ExpOutput> {
    let a = series(&[(1, &[(0, 1.0), (10, 2.0), (200, 3.0)]), (2, &[(0, 5.0)])]);
    let b = series(&[(1, &[(0, 10.0), (20, f64::NAN)]), (3, &[(0, 7.0)])]);
    raw.validate(&Clock::utc(0)).unwrap().evaluate(&[a, b]).unwrap().outputs
}

fn values(output: &ExpOutput) -> Vec<(i64, Vec<f64>)> {
    let secs = |ms: i64| (ms - 1_356_998_400_000) / 1000;
    output.rows.iter().map(|(time, values)| (secs(*time), values.clone())).collect()
}

#[test]
fn expressions_of_expressions_join_by_tags() {
    let mut raw = request(&[("twice", "sum * 2"), ("sum", "a + b")]);
    raw.outputs = vec![
        RawExpOutput { id: Some("twice".into()), alias: Some("Twice".into()) },
        RawExpOutput { id: Some("nothing".into()), alias: None },
        RawExpOutput { id: Some("a".into()), alias: None },
    ];
    let outputs = outputs(&raw);
    assert_eq!(outputs.len(), 2);
    assert_eq!(outputs[0].alias.as_deref(), Some("Twice"));
    let expected =
        vec![(0, vec![22.0, 10.0, 14.0]), (10, vec![4.0, 0.0, 0.0]), (20, vec![0.0, 0.0, 0.0])];
    assert_eq!(values(&outputs[0]), expected);
    assert_eq!(outputs[0].columns[0].metrics, ["m.a", "m.b"]);
    // Metrics are not cut to the range.
    assert_eq!(values(&outputs[1]).last(), Some(&(200, vec![3.0, 0.0])));
}

#[test]
fn an_intersection_has_only_what_all_have() {
    let mut raw = request(&[("e", "a + b")]);
    raw.expressions[0].join =
        Some(RawExpJoin { operator: Some("Intersection".into()), ..RawExpJoin::default() });
    let outputs = outputs(&raw);
    assert_eq!(outputs[0].columns.len(), 1);
    assert_eq!(outputs[0].first_ms, 1_356_998_400_000);
    assert_eq!(outputs[0].last_ms, 1_356_998_420_000);
}

#[test]
fn upper_case_ids_are_never_found() {
    let mut raw = request(&[("e", "A + b")]);
    raw.metrics[0].id = Some("A".into());
    let error = raw.validate(&Clock::utc(0)).unwrap().evaluate(&[Vec::new(), Vec::new()]);
    assert_eq!(error.unwrap_err().message, "Missing results for variable A");
}
