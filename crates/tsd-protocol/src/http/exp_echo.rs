//! Renders the request of `/api/query/exp` as its response repeats it.

use tsd_model::java_double;
use tsd_query::{BodyFilter, FillPolicy, RawExpExpression, RawExpFill, RawExpQuery, RawExpTime};

use crate::json::JsonObject;

/// Renders the request: known fields in OpenTSDB's order, missing ones as `null`.
#[must_use]
pub fn render_exp_query(query: &RawExpQuery) -> String {
    let mut out = Vec::new();
    let is_empty = |name: &str| query.empty_lists.contains(&name);
    let mut object = JsonObject::open(&mut out);
    object.optional("name", query.name.as_deref());
    match &query.time {
        None => drop(object.literal("time", "null")),
        Some(time) => write_time(object.key("time"), time),
    }
    list(&mut object, "filters", &query.filters, is_empty("filters"), |out, filter| {
        let mut object = JsonObject::open(out);
        object.optional("id", filter.id.as_deref());
        list(&mut object, "tags", &filter.tags, false, write_filter);
        object.literal("explicitTags", filter.explicit_tags).close();
    });
    list(&mut object, "metrics", &query.metrics, is_empty("metrics"), |out, metric| {
        let mut object = JsonObject::open(out);
        object
            .optional("metric", metric.metric.as_deref())
            .optional("id", metric.id.as_deref())
            .optional("filter", metric.filter.as_deref())
            .optional("aggregator", metric.aggregator.as_deref())
            .optional("timeOffset", metric.time_offset.as_deref());
        fill(&mut object, metric.fill.as_ref());
        if !metric.value_filters.is_empty() {
            object.list("valueFilters", &metric.value_filters, |out, filter| {
                JsonObject::open(out)
                    .optional("type", filter.kind.as_deref())
                    .optional("filter", filter.filter.as_deref())
                    .close();
            });
        }
        object.close();
    });
    list(&mut object, "expressions", &query.expressions, is_empty("expressions"), write_expression);
    list(&mut object, "outputs", &query.outputs, is_empty("outputs"), |out, output| {
        JsonObject::open(out)
            .optional("id", output.id.as_deref())
            .optional("alias", output.alias.as_deref())
            .close();
    });
    object.close();
    String::from_utf8(out).unwrap_or_default()
}

fn write_time(out: &mut Vec<u8>, time: &RawExpTime) {
    let mut object = JsonObject::open(out);
    object
        .optional("start", time.start.as_deref())
        .optional("end", time.end.as_deref())
        .optional("timezone", time.timezone.as_deref());
    if time.downsample_interval.is_none() && time.downsample_aggregator.is_none() {
        object.literal("downsampler", "null");
    } else {
        let mut downsampler = JsonObject::open(object.key("downsampler"));
        downsampler
            .optional("interval", time.downsample_interval.as_deref())
            .optional("aggregator", time.downsample_aggregator.as_deref());
        fill(&mut downsampler, time.downsample_fill.as_ref());
        downsampler.close();
    }
    object.optional("aggregator", time.aggregator.as_deref()).literal("rate", time.rate).close();
}

fn write_filter(out: &mut Vec<u8>, filter: &BodyFilter) {
    JsonObject::open(out)
        .optional("tagk", filter.tagk.as_deref())
        .optional("filter", filter.filter.as_deref())
        .literal("group_by", filter.group_by)
        .optional("type", filter.kind.as_deref())
        .close();
}

fn write_expression(out: &mut Vec<u8>, expression: &RawExpExpression) {
    let mut object = JsonObject::open(out);
    object.optional("id", expression.id.as_deref()).optional("expr", expression.expr.as_deref());
    let join = expression.join.clone().unwrap_or_default();
    let operator = join.operator.map(|name| name.to_ascii_lowercase());
    JsonObject::open(object.key("join"))
        .string("operator", operator.as_deref().unwrap_or("union"))
        .literal("useQueryTags", join.use_query_tags)
        .literal("includeAggTags", join.include_agg_tags)
        .close();
    fill(&mut object, expression.fill.as_ref());
    object.close();
}

/// Writes `fillPolicy`: name and value of the policy.
fn fill(object: &mut JsonObject<'_>, fill: Option<&RawExpFill>) {
    let Some(fill) = fill else {
        object.literal("fillPolicy", "null");
        return;
    };
    let policy = match &fill.policy {
        Some(name) => FillPolicy::from_name(name),
        None if fill.value.is_some_and(|value| value != 0.0) => Some(FillPolicy::Scalar),
        None => Some(FillPolicy::Zero),
    };
    let value = match policy {
        Some(FillPolicy::Zero) => 0.0,
        Some(FillPolicy::Scalar) | None => fill.value.unwrap_or(0.0),
        Some(_) => f64::NAN,
    };
    let mut written = JsonObject::open(object.key("fillPolicy"));
    written.optional("policy", policy.map(FillPolicy::name));
    if value.is_finite() {
        written.literal("value", java_double(value)).close();
    } else {
        written.string("value", &java_double(value)).close();
    }
}

/// Writes an array, or `null` if it is empty and the request did not give it.
fn list<T>(
    object: &mut JsonObject<'_>,
    key: &str,
    elements: &[T],
    is_given: bool,
    write: impl Fn(&mut Vec<u8>, &T),
) {
    if elements.is_empty() && !is_given {
        object.literal(key, "null");
    } else {
        object.list(key, elements, write);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;
    use tsd_query::RawExpMetric;

    use super::*;
    use crate::{http::exp_request::tests::FULL, parse_exp_body};

    #[test]
    fn the_echo_has_every_field_in_its_place() {
        insta::assert_snapshot!(render_exp_query(&parse_exp_body(FULL).unwrap()));
        insta::assert_snapshot!(render_exp_query(&parse_exp_body("{}").unwrap()));
    }

    proptest! {
        #[test]
        fn the_echo_of_any_texts_is_json(name in any::<String>(), value in any::<f64>()) {
            let query = RawExpQuery {
                name: Some(name),
                metrics: vec![RawExpMetric {
                    fill: Some(RawExpFill { policy: None, value: Some(value) }),
                    ..RawExpMetric::default()
                }],
                ..RawExpQuery::default()
            };
            let read: serde_json::Value = serde_json::from_str(&render_exp_query(&query))?;
            prop_assert!(read.is_object());
        }
    }
}
