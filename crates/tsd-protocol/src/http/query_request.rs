//! Parses queries: a JSON body, or the parameters of a URI.
//!
//! Both become a [`RawQuery`], which is validated later. This module checks only fields and their
//! types, with the conversions of OpenTSDB's JSON library.

use tsd_query::{
    BodyFilter, BodyQueryError, BodyValueFilter, Gexp, RateOptions, RawQuery, RawSubQuery,
    parse_m_parameter, parse_tsuid_parameter,
};

use super::body_fields::{
    BodyError, CountLimit, put_text, read_all, read_document, read_flag, read_float, read_integer,
    read_object, read_text, read_texts, take_null,
};
use crate::{ApiError, QueryString, http::query_error, json::JsonReader};

/// Maximum sub queries of one request, including metrics of expressions.
pub(super) const MAX_SUB_QUERIES: usize = 4_096;
/// Maximum filters of one sub query, on tags and values. A series has about ten tags.
pub(super) const MAX_FILTERS: usize = 1_024;
/// Maximum TSUIDs of one request.
pub(super) const MAX_TSUIDS: usize = 100_000;
/// Maximum expressions of one request.
const MAX_EXPRESSIONS: usize = 1_024;
/// Maximum percentiles of one request.
const MAX_PERCENTILES: usize = 4_096;
/// Maximum regular expressions of one request: each may need a megabyte when compiled.
pub(super) const MAX_REGEXPS: usize = 256;
/// Maximum alternatives and wildcards of all filters of one request.
const MAX_PATTERN_PARTS: usize = 100_000;

/// Parses the body of a query.
pub fn parse_query_body(body: &str) -> Result<RawQuery, ApiError> {
    Ok(read_whole(body, false)?.0)
}

/// Parses the body of a query with functions: a query with a text `exp`, or an array of them.
/// OpenTSDB fails on such bodies; metrics used only in expressions need no sub query.
pub fn parse_gexp_body(body: &str) -> Result<(RawQuery, Vec<String>), ApiError> {
    let (mut query, expressions) = read_whole(body, true)?;
    if query.queries.is_none() && !expressions.is_empty() {
        query.queries = Some(Vec::new());
    }
    Ok((query, expressions))
}

fn read_whole(body: &str, with_exp: bool) -> Result<(RawQuery, Vec<String>), ApiError> {
    if body.is_empty() {
        return Err(ApiError::missing_content());
    }
    read_document(body, |reader| read_query(reader, with_exp)).map_err(BodyError::into_api_error)
}

/// Parses the parameters of a query URI. Metrics of an `exp` are sub queries, too.
pub fn parse_query_uri(query: &QueryString) -> Result<RawQuery, ApiError> {
    let mut raw = parse_gexp_uri(query)?;
    let queries = raw.queries.get_or_insert_default();
    for text in query.all("exp") {
        let used = Gexp::parse(text).and_then(|gexp| gexp.sub_queries());
        let used = used.map_err(|e| query_error(&e, None))?;
        // This endpoint does not evaluate the expression, so it does not shift the points either.
        queries.extend(used.into_iter().map(|sub| RawSubQuery { offset_ms: 0, ..sub }));
    }
    Ok(raw)
}

/// Parses the parameters of a query URI except its expressions.
pub fn parse_gexp_uri(query: &QueryString) -> Result<RawQuery, ApiError> {
    let mut raw = parse_query_flags(query)?;
    let queries = raw.queries.get_or_insert_default();
    for text in query.all("tsuid") {
        queries.push(parse_tsuid_parameter(text).map_err(|e| query_error(&e, None))?);
    }
    for text in query.all("m") {
        queries.push(parse_m_parameter(text).map_err(|e| query_error(&e, None))?);
    }
    if queries.is_empty() && query.get("exp").is_none() {
        return Err(ApiError::new(400, "Missing sub queries"));
    }
    Ok(raw)
}

/// Parses the parameters other than sub queries.
fn parse_query_flags(query: &QueryString) -> Result<RawQuery, ApiError> {
    Ok(RawQuery {
        start: Some(query.required("start")?.to_owned()),
        end: query.get("end").map(str::to_owned),
        timezone: query.get("timezone").map(str::to_owned),
        padding: query.has("padding"),
        ms_resolution: query.has("ms"),
        show_tsuids: query.has("show_tsuids"),
        show_query: query.has("show_query"),
        show_stats: query.has("show_stats"),
        show_summary: query.has("show_summary"),
        explain: query.has("explain"),
        no_annotations: query.has("no_annotations"),
        global_annotations: query.has("global_annotations"),
        ..RawQuery::default()
    })
}

/// Limits on filters, per sub query and per request.
pub(super) struct FilterLimits {
    filters: CountLimit,
    regexps: CountLimit,
    parts: CountLimit,
}

impl FilterLimits {
    pub(super) const fn new() -> Self {
        Self {
            filters: Self::one_sub_query(),
            regexps: CountLimit::new("regular expressions in one request", MAX_REGEXPS),
            parts: CountLimit::new("alternatives of filters in one request", MAX_PATTERN_PARTS),
        }
    }

    const fn one_sub_query() -> CountLimit {
        CountLimit::new("filters in one sub query", MAX_FILTERS)
    }

    /// Resets the count of filters for the next sub query.
    pub(super) fn next_sub_query(&mut self) {
        self.filters = Self::one_sub_query();
    }

    /// Counts a filter before it is built; `kind` is its type, or the start of a short filter.
    pub(super) fn take(
        &mut self,
        kind: Option<&str>,
        filter: Option<&str>,
    ) -> Result<(), BodyError> {
        self.filters.take()?;
        let (kind, filter) = (kind.unwrap_or_default(), filter.unwrap_or_default());
        let is_regexp = |head: &[u8]| head.eq_ignore_ascii_case(b"regexp");
        if kind.as_bytes().get(..b"regexp".len()).is_some_and(is_regexp) {
            self.regexps.take()?;
        }
        self.parts.take_many(filter.bytes().filter(|b| matches!(b, b'|' | b'*')).count())
    }
}

/// Limits on the elements of a request.
struct RequestLimits {
    sub_queries: CountLimit,
    filters: FilterLimits,
    tsuids: CountLimit,
    percentiles: CountLimit,
}

/// Reads a query and its expressions, which only some endpoints support.
fn read_query(
    reader: &mut JsonReader<'_>,
    with_exp: bool,
) -> Result<(RawQuery, Vec<String>), BodyError> {
    let mut query = RawQuery::default();
    let mut expressions = Vec::new();
    let mut limits = RequestLimits {
        sub_queries: CountLimit::new("sub queries in one request", MAX_SUB_QUERIES),
        filters: FilterLimits::new(),
        tsuids: CountLimit::new("TSUIDs in one request", MAX_TSUIDS),
        percentiles: CountLimit::new("percentiles in one request", MAX_PERCENTILES),
    };
    read_object(reader, "the query", |name, reader| {
        match name {
            "start" => query.start = read_text(reader, "start")?,
            "end" => query.end = read_text(reader, "end")?,
            "timezone" => query.timezone = read_text(reader, "timezone")?,
            "padding" => query.padding = read_flag(reader, "padding")?,
            "useCalendar" => query.use_calendar = read_flag(reader, "useCalendar")?,
            "msResolution" => query.ms_resolution = read_flag(reader, "msResolution")?,
            "showTSUIDs" => query.show_tsuids = read_flag(reader, "showTSUIDs")?,
            "showQuery" => query.show_query = read_flag(reader, "showQuery")?,
            "showStats" => query.show_stats = read_flag(reader, "showStats")?,
            "showSummary" => query.show_summary = read_flag(reader, "showSummary")?,
            "noAnnotations" => query.no_annotations = read_flag(reader, "noAnnotations")?,
            "globalAnnotations" => {
                query.global_annotations = read_flag(reader, "globalAnnotations")?;
            }
            "delete" => query.delete = read_flag(reader, "delete")?,
            "dry_run" | "dryRun" => query.dry_run = read_flag(reader, "dryRun")?,
            "explain" => query.explain = read_flag(reader, "explain")?,
            "allowDamaged" | "allow_damaged" => {
                query.allow_damaged = read_flag(reader, "allowDamaged")?;
            }
            "overrideByteLimit" => {
                query.override_byte_limit = read_flag(reader, "overrideByteLimit")?;
            }
            "overrideDataPointLimit" => {
                query.override_data_point_limit = read_flag(reader, "overrideDataPointLimit")?;
            }
            "queries" if take_null(reader)? => query.queries = None,
            "queries" => {
                let subs = read_all(reader, "queries", |reader| {
                    limits.sub_queries.take()?;
                    read_sub_query(reader, &mut limits)
                })?;
                query.queries = Some(subs);
            }
            "exp" if with_exp && reader.peek_token() == Some(b'"') => {
                expressions = read_text(reader, "exp")?.into_iter().collect();
            }
            "exp" if with_exp => {
                let mut limit = CountLimit::new("expressions in one request", MAX_EXPRESSIONS);
                expressions = read_texts(reader, "exp", &mut limit)?;
            }
            _ => reader.skip_value()?,
        }
        Ok(())
    })?;
    Ok((query, expressions))
}

fn read_sub_query(
    reader: &mut JsonReader<'_>,
    limits: &mut RequestLimits,
) -> Result<RawSubQuery, BodyError> {
    let mut sub = RawSubQuery::default();
    let mut has_filters = false;
    let RequestLimits {
        filters: filter_limit,
        tsuids: tsuid_limit,
        percentiles: percentile_limit,
        ..
    } = limits;
    filter_limit.next_sub_query();
    read_object(reader, "queries", |name, reader| {
        match name {
            "aggregator" => sub.aggregator = read_text(reader, "aggregator")?,
            "metric" => sub.metric = read_text(reader, "metric")?,
            "tsuids" => sub.tsuids = read_texts(reader, "tsuids", tsuid_limit)?,
            "downsample" => sub.downsample = read_text(reader, "downsample")?,
            "rate" => sub.rate = read_flag(reader, "rate")?,
            "rateOptions" if take_null(reader)? => sub.rate_options = None,
            "rateOptions" => sub.rate_options = Some(read_rate_options(reader)?),
            "filters" => {
                has_filters = true;
                sub.set_filters(&read_filters(reader, filter_limit)?)?;
            }
            // As in OpenTSDB, `null` removes the filters before it, and is an error without filters.
            "tags" if has_filters && take_null(reader)? => sub.filters.clear(),
            "tags" => {
                has_filters = true;
                let mut tags: Vec<(String, String)> = Vec::new();
                read_object(reader, "tags", |tagk, reader| {
                    let filter = read_text(reader, "tags")?.unwrap_or_default();
                    filter_limit.take(Some(&filter), Some(&filter))?;
                    put_text(&mut tags, tagk, filter);
                    Ok(())
                })?;
                sub.set_tags(tags.iter().map(|(tagk, filter)| (tagk.as_str(), filter.as_str())))?;
            }
            "valueFilters" => {
                sub.add_value_filters(&read_value_filters(reader, filter_limit)?)?;
            }
            "explicitTags" => sub.explicit_tags = read_flag(reader, "explicitTags")?,
            "percentiles" => {
                sub.percentiles = read_all(reader, "percentiles", |reader| {
                    percentile_limit.take()?;
                    read_float(reader, "percentiles")
                })?;
            }
            "showHistogramBuckets" => {
                sub.show_histogram_buckets = read_flag(reader, "showHistogramBuckets")?;
            }
            "preAggregate" => sub.pre_aggregate = read_flag(reader, "preAggregate")?,
            "rollupUsage" => sub.rollup_usage = read_text(reader, "rollupUsage")?,
            _ => reader.skip_value()?,
        }
        Ok(())
    })?;
    Ok(sub)
}

fn read_rate_options(reader: &mut JsonReader<'_>) -> Result<RateOptions, BodyError> {
    let mut options = RateOptions::default();
    read_object(reader, "rateOptions", |name, reader| {
        match name {
            "counter" | "isCounter" => options.counter = read_flag(reader, "counter")?,
            "counterMax" => options.counter_max = read_integer(reader, "counterMax")?,
            "resetValue" => options.reset_value = read_integer(reader, "resetValue")?,
            "dropResets" => options.drop_resets = read_flag(reader, "dropResets")?,
            _ => {
                return Err(BodyError::Query(
                    BodyQueryError::UnknownRateOption(name.to_owned()).into(),
                ));
            }
        }
        Ok(())
    })?;
    Ok(options)
}

/// Reads a list of tag filters.
pub(super) fn read_filters(
    reader: &mut JsonReader<'_>,
    limit: &mut FilterLimits,
) -> Result<Vec<BodyFilter>, BodyError> {
    read_all(reader, "filters", |reader| {
        let mut filter = BodyFilter::default();
        read_object(reader, "filters", |name, reader| {
            match name {
                "type" => filter.kind = read_text(reader, "type")?,
                "tagk" => filter.tagk = read_text(reader, "tagk")?,
                "filter" => filter.filter = read_text(reader, "filter")?,
                "groupBy" | "group_by" => filter.group_by = read_flag(reader, "groupBy")?,
                _ => reader.skip_value()?,
            }
            Ok(())
        })?;
        limit.take(filter.kind.as_deref(), filter.filter.as_deref())?;
        Ok(filter)
    })
}

/// Reads a list of value filters.
pub(super) fn read_value_filters(
    reader: &mut JsonReader<'_>,
    limit: &mut FilterLimits,
) -> Result<Vec<BodyValueFilter>, BodyError> {
    read_all(reader, "valueFilters", |reader| {
        let mut filter = BodyValueFilter::default();
        read_object(reader, "valueFilters", |name, reader| {
            match name {
                "type" => filter.kind = read_text(reader, "type")?,
                "filter" => filter.filter = read_text(reader, "filter")?,
                _ => reader.skip_value()?,
            }
            Ok(())
        })?;
        limit.take(filter.kind.as_deref(), filter.filter.as_deref())?;
        Ok(filter)
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn body(text: &str) -> RawQuery {
        parse_query_body(text).unwrap()
    }

    #[track_caller]
    fn refuse(text: &str, status: u16, message: &str, details: &str) {
        let error = parse_query_body(text).unwrap_err();
        assert_eq!((error.status, error.message.as_str()), (status, message), "{text}");
        assert!(error.details.contains(details), "{}", error.details);
    }

    fn uri(text: &str) -> Result<RawQuery, ApiError> {
        parse_query_uri(&QueryString::parse(text).unwrap())
    }

    #[test]
    fn every_field_of_a_body_is_read() {
        let query = body(
            r#"{"start":1356998400,"end":"1h-ago","timezone":"UTC","useCalendar":true,"msResolution":true,
            "showTSUIDs":true,"showQuery":true,"showStats":true,"showSummary":true,
            "noAnnotations":true,"globalAnnotations":true,"delete":true,"dryRun":true,"overrideByteLimit":true,
            "overrideDataPointLimit":true,"padding":true,"options":{"a":["b"]},"ms":false,
            "queries":[{"aggregator":"sum","metric":"m","tsuids":["000001000001000001"],
              "downsample":"1m-avg","rate":true,
              "rateOptions":{"counter":true,"counterMax":255,"resetValue":"30","dropResets":true},
              "filters":[{"type":"wildcard","tagk":"host","filter":"*","groupBy":true}],
              "explicitTags":true,"percentiles":[50,99.9],"showHistogramBuckets":true,
              "preAggregate":true,"rollupUsage":"ROLLUP_RAW","useFuzzyFilter":false,
              "useMultiGets":false,"index":3}]}"#,
        );
        assert_eq!(query.start.as_deref(), Some("1356998400"));
        assert_eq!(query.end.as_deref(), Some("1h-ago"));
        assert_eq!(query.timezone.as_deref(), Some("UTC"));
        assert!(query.use_calendar && query.ms_resolution && query.show_tsuids && query.show_query);
        assert!(query.show_stats && query.show_summary && query.no_annotations);
        assert!(query.global_annotations && query.delete && query.dry_run);
        assert!(query.override_byte_limit && query.override_data_point_limit);
        let sub = &query.queries.unwrap()[0];
        assert_eq!(sub.aggregator.as_deref(), Some("sum"));
        assert_eq!(sub.metric.as_deref(), Some("m"));
        assert_eq!(sub.tsuids, ["000001000001000001"]);
        assert_eq!(sub.downsample.as_deref(), Some("1m-avg"));
        assert!(sub.rate && sub.explicit_tags && sub.show_histogram_buckets && sub.pre_aggregate);
        assert_eq!(
            sub.rate_options,
            Some(RateOptions {
                counter: true,
                counter_max: 255,
                reset_value: 30,
                drop_resets: true
            })
        );
        assert_eq!(sub.filters.len(), 1);
        assert!(sub.filters[0].group_by);
        assert_eq!(sub.percentiles, [50.0, 99.9]);
        assert_eq!(sub.rollup_usage.as_deref(), Some("ROLLUP_RAW"));
    }

    #[test]
    fn the_later_of_tags_and_filters_wins() {
        let tags = r#""tags":{"dc":"lga"}"#;
        let filters =
            r#""filters":[{"type":"literal_or","tagk":"host","filter":"a","group_by":false}]"#;
        for (first, second, tagk) in [(tags, filters, "host"), (filters, tags, "dc")] {
            let query = body(&format!(r#"{{"queries":[{{{first},{second}}}]}}"#));
            let sub = &query.queries.unwrap()[0];
            assert_eq!(sub.filters.iter().map(|f| f.tagk.as_str()).collect::<Vec<_>>(), [tagk]);
        }
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let query = body(r#"{"start":"1h-ago","nobody":{"knows":[1]},"queries":[]} "#);
        assert_eq!(query.start.as_deref(), Some("1h-ago"));
        assert_eq!(query.queries, Some(Vec::new()));
        assert_eq!(body(r#"{"queries":null}"#).queries, None);
    }

    #[test]
    fn bodies_that_are_no_query_are_refused() {
        let unable = "Unable to parse the given JSON";
        refuse("", 400, "Missing message content", "");
        refuse("{", 400, unable, "unexpected end of input");
        refuse("[]", 400, unable, "cannot read an array as the field 'the query'");
        refuse(r#"{"start":{}}"#, 400, unable, "cannot read an object as the field 'start'");
        refuse(r#"{"queries":{}}"#, 400, unable, "cannot read an object as the field 'queries'");
        refuse(r#"{"queries":[1]}"#, 400, unable, "cannot read a number");
        refuse(r#"{"queries":[{"tags":null}]}"#, 400, unable, "cannot read null");
        refuse(r#"{"queries":[{"rate":"maybe"}]}"#, 400, unable, "cannot read a text");
        refuse(r#"{"queries":[{"rateOptions":{"x":1}}]}"#, 400, unable, "\"x\"");
        refuse(
            r#"{"queries":[{"filters":[{"type":"nope","tagk":"h","filter":"a"}]}]}"#,
            400,
            unable,
            "Could not find a tag value filter of the type: nope",
        );
        refuse(&format!(r#"{{"x":{}"#, "[".repeat(100_000)), 400, unable, "nesting too deep");
    }

    #[test]
    fn parts_of_a_body_are_counted() {
        let queries =
            |sub: &str, count| format!(r#"{{"queries":[{}]}}"#, vec![sub; count].join(","));
        let sub = |fields: &str| format!(r#"{{"queries":[{{{fields}}}]}}"#);
        refuse(
            &queries("{}", 10_000),
            413,
            "Too many sub queries in one request: the limit is 4096",
            "",
        );
        assert_eq!(body(&queries("{}", 4_096)).queries.unwrap().len(), 4_096);
        let filters = vec![r#"{"type":"wildcard","tagk":"h","filter":"*"}"#; 100_000].join(",");
        let message = "Too many filters in one sub query: the limit is 1024";
        refuse(&sub(&format!(r#""filters":[{filters}]"#)), 413, message, "");
        let tags: Vec<String> = (0..2_000).map(|n| format!(r#""k{n}":"*""#)).collect();
        refuse(&sub(&format!(r#""tags":{{{}}}"#, tags.join(","))), 413, message, "");
        let filter = |kind: &str, filter: &str| {
            format!(r#""filters":[{{"type":"{kind}","tagk":"h","filter":"{filter}"}}]"#)
        };
        let message = "Too many alternatives of filters in one request: the limit is 100000";
        refuse(&sub(&filter("literal_or", &"a|".repeat(200_000))), 413, message, "");
        refuse(&sub(&filter("wildcard", &"a*".repeat(500_000))), 413, message, "");
        let message = "Too many regular expressions in one request: the limit is 256";
        let regexp = format!("{{{}}}", filter("regexp", "a{10}"));
        refuse(&queries(&regexp, 300), 413, message, "");
        refuse(&queries(r#"{"tags":{"h":"regexp(a)"}}"#, 300), 413, message, "");
        let message = "Too many TSUIDs in one request: the limit is 100000";
        refuse(&sub(&format!(r#""tsuids":[{}]"#, vec!["1"; 100_001].join(","))), 413, message, "");
        let message = "Too many percentiles in one request: the limit is 4096";
        refuse(
            &sub(&format!(r#""percentiles":[{}]"#, vec!["1"; 5_000].join(","))),
            413,
            message,
            "",
        );
    }

    #[test]
    fn the_last_of_repeated_fields_counts() {
        let query = body(
            r#"{"start":"1","start":"2","queries":[{}],"queries":[{"metric":"a","metric":"b"}]}"#,
        );
        assert_eq!(query.start.as_deref(), Some("2"));
        let queries = query.queries.unwrap();
        assert_eq!(queries.len(), 1);
        assert_eq!(queries[0].metric.as_deref(), Some("b"));
    }

    #[test]
    fn escapes_in_names_and_values_are_undone() {
        let query = body(r#"{"st\u0061rt":"\u0000\ud83d\ude00","queries":[{"metric":"\u00e9"}]}"#);
        assert_eq!(query.start.as_deref(), Some("\0😀"));
        assert_eq!(query.queries.unwrap()[0].metric.as_deref(), Some("é"));
    }

    #[test]
    fn uri_parameters_are_read() {
        let query = uri(
            "start=1h-ago&end=now&ms&show_query=false&m=sum:a&tsuid=max:000001000001000001&m=avg:b\
             &timezone=Asia/Kabul&arrays",
        )
        .unwrap();
        assert!(query.ms_resolution && query.show_query && !query.show_tsuids);
        assert_eq!(query.timezone.as_deref(), Some("Asia/Kabul"));
        let queries = query.queries.unwrap();
        let first: Vec<_> = queries.iter().map(|q| q.aggregator.as_deref().unwrap()).collect();
        assert_eq!(first, ["max", "sum", "avg"]);
        assert_eq!(queries[0].tsuids, ["000001000001000001"]);
    }

    #[test]
    fn expressions_add_their_metrics_as_sub_queries() {
        let text = "start=1h-ago&exp=scale(sum:b,2)&m=max:a";
        let metrics = |raw: RawQuery| -> Vec<String> {
            raw.queries.unwrap().into_iter().filter_map(|sub| sub.metric).collect()
        };
        assert_eq!(metrics(uri(text).unwrap()), ["a", "b"]);
        let gexp = parse_gexp_uri(&QueryString::parse(text).unwrap()).unwrap();
        assert_eq!(metrics(gexp), ["a"]);
    }

    #[test]
    fn uris_without_start_or_queries_are_refused() {
        let message = |text: &str| uri(text).unwrap_err().message;
        assert_eq!(message("m=sum:m"), "Missing parameter <code>start</code>");
        assert_eq!(message("start=1h-ago"), "Missing sub queries");
        assert_eq!(message("start=1h-ago&exp=scale(sum:m,2"), "Failed to parse scale(sum:m,2");
        assert_eq!(
            message("start=1h-ago&m=sum"),
            "Invalid parameter m=sum (not enough :-separated parts)"
        );
        let unbalanced = uri("start=1h-ago&m=sum:m%7Ba=b").unwrap_err();
        assert_eq!(unbalanced.status, 400);
    }

    proptest! {
        #[test]
        fn arbitrary_bodies_never_panic(text in "\\PC*") {
            let _ = parse_query_body(&text);
        }

        #[test]
        fn arbitrary_fields_never_panic(
            name in prop::sample::select(vec!["start", "queries", "msResolution", "timezone"]),
            value in "(null|true|[0-9]{1,25}|\"[a-z{]*\"|\\[[0-9]?\\]|\\{\\})",
        ) {
            let _ = parse_query_body(&format!(r#"{{"{name}":{value}}}"#));
            let _ = parse_query_body(&format!(r#"{{"queries":[{{"{name}":{value}}}]}}"#));
        }
    }
}
