//! Renders a sub query as a response repeats it (`show_query`).

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use tsd_model::java_double;
use tsd_query::{SeriesSource, SubQuery};

use crate::json::{JsonObject, write_json_string};

/// Renders a sub query with OpenTSDB's fields in their order; missing ones are `null`.
///
/// `filter_tagks` are the resolved UIDs of the tag keys with filters. `rollup` is the interval of the
/// rollups that the query read; `None` if it read points.
#[must_use]
pub fn render_sub_query(
    sub: &SubQuery,
    filter_tagks: Option<&[Bytes]>,
    rollup: Option<&str>,
) -> String {
    let mut out = Vec::new();
    let mut object = JsonObject::open(&mut out);
    let tsuids = match &sub.source {
        SeriesSource::Metric(_) => None,
        SeriesSource::Tsuids(tsuids) => Some(tsuids),
    };
    object
        .string("aggregator", sub.aggregator.name())
        .optional("metric", sub.given_metric.as_deref());
    match tsuids {
        None => object.literal("tsuids", "null"),
        Some(tsuids) => object.strings("tsuids", tsuids),
    }
    .optional("downsample", sub.downsample.as_ref().map(|spec| spec.text.as_str()))
    .literal("rate", sub.rate.is_some())
    .list("filters", &sub.filters, |out, filter| {
        JsonObject::open(out)
            .string("tagk", &filter.tagk)
            .string("filter", &filter.filter)
            .literal("group_by", filter.group_by)
            .string("type", filter.type_name())
            .close();
    });
    if sub.percentiles.is_empty() {
        object.literal("percentiles", "null");
    } else {
        let mut percentiles = sub.percentiles.clone();
        percentiles.sort_by(f32::total_cmp);
        object.list("percentiles", &percentiles, |out, p| {
            out.extend_from_slice(single_text(*p).as_bytes());
        });
    }
    object.literal("index", sub.index);
    match &sub.rate_options {
        None => drop(object.literal("rateOptions", "null")),
        Some(options) => JsonObject::open(object.key("rateOptions"))
            .literal("counter", options.counter)
            .literal("counterMax", options.counter_max)
            .literal("resetValue", options.reset_value)
            .literal("dropResets", options.drop_resets)
            .close(),
    }
    match filter_tagks {
        None => object.literal("filterTagKs", "null"),
        Some(uids) => object.list("filterTagKs", uids, |out, uid| {
            write_json_string(out, &BASE64_STANDARD.encode(uid));
        }),
    }
    .literal("explicitTags", sub.explicit_tags)
    .literal("useFuzzyFilter", true)
    .literal("preAggregate", sub.pre_aggregate)
    .optional("rollupUsage", sub.rollup_usage.map(tsd_query::RollupUsage::name))
    .string("rollupTable", rollup.unwrap_or("raw"))
    .literal("showHistogramBuckets", sub.show_histogram_buckets)
    .literal("useMultiGets", true);
    let tags: Vec<(String, String)> = sub
        .filters
        .iter()
        .filter(|filter| filter.group_by)
        .map(|filter| (filter.tagk.clone(), format!("{}({})", filter.type_name(), filter.filter)))
        .collect();
    object.tags("tags", &tags).literal("histogramQuery", sub.is_histogram());
    if !sub.value_filters.is_empty() {
        object.list("valueFilters", &sub.value_filters, |out, filter| {
            JsonObject::open(out)
                .string("type", filter.kind)
                .string("filter", &filter.filter)
                .close();
        });
    }
    object.close();
    String::from_utf8(out).unwrap_or_default()
}

/// Renders a float like Java: with the fewest digits that identify it.
pub(super) fn single_text(value: f32) -> String {
    value.to_string().parse().map_or_else(|_| value.to_string(), java_double)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use tsd_query::Clock;

    use super::*;
    use crate::parse_query_body;

    fn echo(sub_query: &str) -> String {
        let body = format!(r#"{{"start":1,"end":2,"queries":[{sub_query}]}}"#);
        let raw = parse_query_body(&body).unwrap();
        let clock = Clock::utc(1_356_998_400_000);
        let query = raw.validate(&clock).unwrap();
        render_sub_query(&query.sub_queries[0], None, None)
    }

    #[test]
    fn missing_fields_are_null() {
        insta::assert_snapshot!(echo(r#"{"aggregator":"sum","metric":"m"}"#));
    }

    #[test]
    fn the_echo_has_what_was_given() {
        let text = echo(r#"{"aggregator":"sum","metric":"m","tsuids":["000001000001000001"]}"#);
        assert!(text.contains(r#""metric":"m","tsuids":["000001000001000001"]"#), "{text}");
        assert!(text.contains(r#""rollupUsage":null"#), "{text}");
    }

    #[test]
    fn given_fields_are_repeated() {
        insta::assert_snapshot!(echo(
            r#"{"aggregator":"sum","tsuids":["000001000001000001"],"downsample":"1m-avg-nan",
                "rate":true,"rateOptions":{"counter":true,"counterMax":255},
                "filters":[{"type":"wildcard","tagk":"host","filter":"*","groupBy":true},
                           {"type":"literal_or","tagk":"dc","filter":"a|b","groupBy":false}],
                "explicitTags":true,"rollupUsage":"ROLLUP_RAW"}"#
        ));
    }

    #[test]
    fn percentiles_keep_their_digits_and_are_sorted() {
        let text = echo(r#"{"aggregator":"sum","metric":"m","percentiles":[99.9,50]}"#);
        assert!(text.contains(r#""percentiles":[50.0,99.9]"#), "{text}");
        assert!(text.ends_with(r#""histogramQuery":true}"#), "{text}");
    }

    #[test]
    fn value_filters_are_shown_where_there_are_any() {
        let text = echo(
            r#"{"aggregator":"sum","metric":"m","valueFilters":[{"type":"between","filter":"0,10"}]}"#,
        );
        let expected =
            r#""histogramQuery":false,"valueFilters":[{"type":"between","filter":"0,10"}]}"#;
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn tag_keys_are_base64() {
        let raw = parse_query_body(
            r#"{"start":1,"end":2,"queries":[{"aggregator":"sum","metric":"m"}]}"#,
        );
        let clock = Clock::utc(1);
        let query = raw.unwrap().validate(&clock).unwrap();
        let tagks = [Bytes::from_static(&[0, 0, 1])];
        let text = render_sub_query(&query.sub_queries[0], Some(&tagks), Some("10m"));
        assert!(text.contains(r#""filterTagKs":["AAAB"]"#), "{text}");
        assert!(text.contains(r#""rollupTable":"10m""#), "{text}");
    }
}
