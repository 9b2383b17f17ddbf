//! The text of a query in the details of an error.

use std::fmt::Write as _;

use tsd_query::{Aggregator, DownsampleSpec, RawQuery, RawSubQuery};

use crate::http::sub_query_echo::single_text;

/// Maximum bytes of a query in the details of an error.
const MAX_DUMP: usize = 64 << 10;

/// Renders the query as OpenTSDB's objects print themselves, for the details of an error.
pub(super) fn dump(raw: &RawQuery) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "null".to_owned());
    let mut out = format!(
        "TSQuery(start_time={}, end_time={}, subQueries[",
        text(&raw.start),
        text(&raw.end)
    );
    for (i, sub) in raw.queries.iter().flatten().enumerate() {
        if out.len() > MAX_DUMP {
            break;
        }
        if i > 0 {
            out.push_str(", ");
        }
        dump_sub_query(&mut out, i, sub);
    }
    if out.len() > MAX_DUMP {
        out.truncate(out.floor_char_boundary(MAX_DUMP));
        out.push_str("...");
    } else {
        // Writing to memory cannot fail.
        let _ = write!(
            out,
            "] padding={}, no_annotations={}, with_global_annotations={}, show_tsuids={}, \
             ms_resolution={}, options=[])",
            raw.padding,
            raw.no_annotations,
            raw.global_annotations,
            raw.show_tsuids,
            raw.ms_resolution,
        );
    }
    out
}

fn dump_sub_query(out: &mut String, index: usize, sub: &RawSubQuery) {
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "null".to_owned());
    let filters: Vec<String> = sub
        .filters
        .iter()
        .map(|filter| {
            let (kind, tagk, filter_text) = (filter.type_name(), &filter.tagk, &filter.filter);
            let group_by = filter.group_by;
            format!("filter_name={kind}, tagk={tagk}, group_by={group_by}, config={filter_text}")
        })
        .collect();
    let rate_options = sub.rate_options.map_or_else(
        || "null".to_owned(),
        |o| format!("{{{},{},{}}}", o.counter, o.counter_max, o.reset_value),
    );
    let percentiles: Vec<String> = sub.percentiles.iter().map(|p| single_text(*p)).collect();
    let percentiles = match percentiles.as_slice() {
        [] => "null".to_owned(),
        some => format!("[{}]", some.join(", ")),
    };
    // OpenTSDB parses the downsampler after the aggregator, so errors of the latter show an interval of 0.
    let interval = sub
        .aggregator
        .as_deref()
        .and_then(Aggregator::from_name)
        .and(sub.downsample.as_deref())
        .and_then(|text| DownsampleSpec::parse(text, false).ok())
        .map_or(0, |spec| spec.interval_ms());
    let _ = write!(
        out,
        "TSSubQuery(metric={}, filters=[{}], tsuids=[{}], agg={}, downsample={}, ds_interval={interval}, \
         rate={}, rate_options={rate_options}, explicit_tags=explicit_tags, index={index}, \
         percentiles={percentiles}, show_histogram_buckets={})",
        sub.metric.as_deref().unwrap_or_default(),
        filters.join(", "),
        sub.tsuids.join(", "),
        text(&sub.aggregator),
        text(&sub.downsample),
        sub.rate,
        sub.show_histogram_buckets,
    );
}
