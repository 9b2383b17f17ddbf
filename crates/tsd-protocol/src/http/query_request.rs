//! Queries as clients send them: a JSON body, or the parameters of a URI.
//!
//! Both become a [`RawQuery`]; what it means is checked there. Here only the shapes are: which
//! fields there are, which types they may have, and what OpenTSDB's JSON library makes of others.

use tsd_query::{
    BodyFilter, BodyValueFilter, ErrorDetails, Gexp, QueryError, RateOptions, RawQuery,
    RawSubQuery, parse_m_parameter, parse_tsuid_parameter,
};

use super::body_fields::{
    BodyError, CountLimit, read_flag, read_float, read_integer, read_list, read_object, read_text,
    take_null,
};
use crate::{ApiError, QueryString, json::JsonReader};

/// Most sub queries of one request; an expression's metrics count as such.
pub(super) const MAX_SUB_QUERIES: usize = 4_096;
/// Most filters of one sub query, on tags and values; a series has some ten tags.
pub(super) const MAX_FILTERS: usize = 1_024;
/// Most TSUIDs of one request.
pub(super) const MAX_TSUIDS: usize = 100_000;
/// Most expressions of one request.
const MAX_EXPRESSIONS: usize = 1_024;
/// Most percentiles of one request.
const MAX_PERCENTILES: usize = 4_096;
/// Most regular expressions of one request: each may take a megabyte once it is compiled.
const MAX_REGEXPS: usize = 256;
/// Most alternatives and parts of patterns in one request, all its filters together.
const MAX_PATTERN_PARTS: usize = 100_000;
/// Longest dump of a query in the details of an error.
const MAX_DUMP: usize = 64 << 10;

/// Reads the body of a query. Text behind the JSON value is ignored.
pub fn parse_query_body(body: &str) -> Result<RawQuery, ApiError> {
    if body.is_empty() {
        return Err(ApiError::missing_content());
    }
    Ok(read_whole(body, false)?.0)
}

/// Reads the body of a query with functions: that of a query with a text `exp`, or several in an array.
/// OpenTSDB fails on such bodies; metrics that only expressions mention need no sub query.
pub fn parse_gexp_body(body: &str) -> Result<(RawQuery, Vec<String>), ApiError> {
    if body.is_empty() {
        return Err(ApiError::missing_content());
    }
    let (mut query, expressions) = read_whole(body, true)?;
    if query.queries.is_none() && !expressions.is_empty() {
        query.queries = Some(Vec::new());
    }
    Ok((query, expressions))
}

fn read_whole(body: &str, with_exp: bool) -> Result<(RawQuery, Vec<String>), ApiError> {
    read_query(&mut JsonReader::new(body), with_exp).map_err(|fault| fault.into_api_error(400))
}

/// Reads the parameters of a query URI. Metrics that an `exp` mentions are sub queries, too.
pub fn parse_query_uri(query: &QueryString) -> Result<RawQuery, ApiError> {
    let mut raw = parse_gexp_uri(query)?;
    let queries = raw.queries.get_or_insert_default();
    for text in query.all("exp") {
        let mentioned = Gexp::parse(text).and_then(|gexp| gexp.sub_queries());
        queries.extend(mentioned.map_err(|e| query_error(&e, None))?);
    }
    Ok(raw)
}

/// Reads the parameters of a query URI without its expressions.
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

/// The parameters beside the sub queries.
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

/// The error answer for a query that cannot be run. `raw` is the query, if it came that far.
#[must_use]
pub fn query_error(error: &QueryError, raw: Option<&RawQuery>) -> ApiError {
    let answer = ApiError::new(error.class.status(), error.message.clone());
    match &error.details {
        ErrorDetails::None => answer,
        ErrorDetails::SameAsMessage => answer.with_details(error.message.clone()),
        ErrorDetails::QueryDump => answer.with_details(raw.map(dump).unwrap_or_default()),
        ErrorDetails::Text(text) => answer.with_details(text.clone()),
    }
}

/// The query as text, for the details of an error.
fn dump(raw: &RawQuery) -> String {
    use std::fmt::Write;

    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "null".to_owned());
    let mut out = format!(
        "TSQuery(start_time={}, end_time={}, timezone={}, queries=[",
        text(&raw.start),
        text(&raw.end),
        text(&raw.timezone),
    );
    for (i, sub) in raw.queries.iter().flatten().enumerate() {
        if out.len() > MAX_DUMP {
            break;
        }
        // Writing to memory cannot fail.
        let _ = write!(
            out,
            "{}TSSubQuery(metric={}, tsuids={:?}, aggregator={}, downsample={}, rate={})",
            if i == 0 { "" } else { ", " },
            text(&sub.metric),
            sub.tsuids,
            text(&sub.aggregator),
            text(&sub.downsample),
            sub.rate,
        );
    }
    if out.len() > MAX_DUMP {
        out.truncate(out.floor_char_boundary(MAX_DUMP));
        out.push_str("...");
    } else {
        out.push_str("])");
    }
    out
}

/// What filters may still take, those of a sub query and those of the whole request.
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

    /// Counts the filters of the next sub query anew.
    pub(super) fn next_sub_query(&mut self) {
        self.filters = Self::one_sub_query();
    }

    /// Takes a filter off before it is built; `kind` is its type, or what a short filter begins with.
    pub(super) fn take(&mut self, kind: &str, filter: &str) -> Result<(), BodyError> {
        self.filters.take()?;
        let is_regexp = |head: &[u8]| head.eq_ignore_ascii_case(b"regexp");
        if kind.as_bytes().get(..b"regexp".len()).is_some_and(is_regexp) {
            self.regexps.take()?;
        }
        self.parts.take_many(filter.bytes().filter(|b| matches!(b, b'|' | b'*')).count())
    }
}

/// What the parts of a request may still add up to.
struct RequestLimits {
    sub_queries: CountLimit,
    filters: FilterLimits,
    tsuids: CountLimit,
    percentiles: CountLimit,
}

/// A query and its expressions, which only some endpoints know.
fn read_query(
    reader: &mut JsonReader<'_>,
    with_exp: bool,
) -> Result<(RawQuery, Vec<String>), BodyError> {
    let mut query = RawQuery::default();
    let mut expressions = Vec::new();
    let mut allowances = RequestLimits {
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
            "explain" => query.explain = read_flag(reader, "explain")?,
            "overrideByteLimit" => {
                query.override_byte_limit = read_flag(reader, "overrideByteLimit")?;
            }
            "overrideDataPointLimit" => {
                query.override_data_point_limit = read_flag(reader, "overrideDataPointLimit")?;
            }
            "queries" if take_null(reader)? => query.queries = None,
            "queries" => {
                let mut subs = Vec::new();
                read_list(reader, "queries", |reader| {
                    allowances.sub_queries.take()?;
                    subs.push(read_sub_query(reader, &mut allowances)?);
                    Ok(())
                })?;
                query.queries = Some(subs);
            }
            "exp" if with_exp && reader.peek_token() == Some(b'"') => {
                expressions = read_text(reader, "exp")?.into_iter().collect();
            }
            "exp" if with_exp => {
                let mut left = CountLimit::new("expressions in one request", MAX_EXPRESSIONS);
                expressions = read_texts(reader, "exp", &mut left)?;
            }
            _ => reader.skip_value()?,
        }
        Ok(())
    })?;
    Ok((query, expressions))
}

fn read_sub_query(
    reader: &mut JsonReader<'_>,
    allowances: &mut RequestLimits,
) -> Result<RawSubQuery, BodyError> {
    let mut sub = RawSubQuery::default();
    let RequestLimits {
        filters: filters_left,
        tsuids: tsuids_left,
        percentiles: percentiles_left,
        ..
    } = allowances;
    filters_left.next_sub_query();
    read_object(reader, "queries", |name, reader| {
        match name {
            "aggregator" => sub.aggregator = read_text(reader, "aggregator")?,
            "metric" => sub.metric = read_text(reader, "metric")?,
            "tsuids" => sub.tsuids = read_texts(reader, "tsuids", tsuids_left)?,
            "downsample" => sub.downsample = read_text(reader, "downsample")?,
            "rate" => sub.rate = read_flag(reader, "rate")?,
            "rateOptions" if take_null(reader)? => sub.rate_options = None,
            "rateOptions" => sub.rate_options = Some(read_rate_options(reader)?),
            "filters" => sub.set_filters(&read_filters(reader, filters_left)?)?,
            "tags" => {
                let mut tags: Vec<(String, String)> = Vec::new();
                read_object(reader, "tags", |tagk, reader| {
                    let filter = read_text(reader, "tags")?.unwrap_or_default();
                    filters_left.take(&filter, &filter)?;
                    match tags.iter_mut().find(|(known, _)| known == tagk) {
                        Some((_, known)) => *known = filter,
                        None => tags.push((tagk.to_owned(), filter)),
                    }
                    Ok(())
                })?;
                sub.set_tags(tags.iter().map(|(tagk, filter)| (tagk.as_str(), filter.as_str())))?;
            }
            "valueFilters" => {
                sub.add_value_filters(&read_value_filters(reader, filters_left)?)?;
            }
            "explicitTags" => sub.explicit_tags = read_flag(reader, "explicitTags")?,
            "percentiles" => {
                sub.percentiles.clear();
                read_list(reader, "percentiles", |reader| {
                    percentiles_left.take()?;
                    sub.percentiles.push(read_float(reader, "percentiles")?);
                    Ok(())
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
                return Err(BodyError::Query(QueryError::unreadable_json(format!(
                    "Unrecognized field \"{name}\" of the rate options"
                ))));
            }
        }
        Ok(())
    })?;
    Ok(options)
}

/// Reads a list of tag filters.
pub(super) fn read_filters(
    reader: &mut JsonReader<'_>,
    allowance: &mut FilterLimits,
) -> Result<Vec<BodyFilter>, BodyError> {
    let mut filters = Vec::new();
    read_list(reader, "filters", |reader| {
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
        let kind = filter.kind.as_deref().unwrap_or_default();
        allowance.take(kind, filter.filter.as_deref().unwrap_or_default())?;
        filters.push(filter);
        Ok(())
    })?;
    Ok(filters)
}

/// Reads a list of value filters.
pub(super) fn read_value_filters(
    reader: &mut JsonReader<'_>,
    allowance: &mut FilterLimits,
) -> Result<Vec<BodyValueFilter>, BodyError> {
    let mut filters = Vec::new();
    read_list(reader, "valueFilters", |reader| {
        let mut filter = BodyValueFilter::default();
        read_object(reader, "valueFilters", |name, reader| {
            match name {
                "type" => filter.kind = read_text(reader, "type")?,
                "filter" => filter.filter = read_text(reader, "filter")?,
                _ => reader.skip_value()?,
            }
            Ok(())
        })?;
        let kind = filter.kind.as_deref().unwrap_or_default();
        allowance.take(kind, filter.filter.as_deref().unwrap_or_default())?;
        filters.push(filter);
        Ok(())
    })?;
    Ok(filters)
}

/// Reads an array of texts.
pub(super) fn read_texts(
    reader: &mut JsonReader<'_>,
    field: &'static str,
    allowance: &mut CountLimit,
) -> Result<Vec<String>, BodyError> {
    let mut texts = Vec::new();
    read_list(reader, field, |reader| {
        allowance.take()?;
        texts.push(read_text(reader, field)?.unwrap_or_default());
        Ok(())
    })?;
    Ok(texts)
}

#[cfg(test)]
mod tests;
