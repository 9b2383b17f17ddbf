//! Requests and responses of `/api/query/last`.

use tsd_model::{Value, from_hex, write_java_double};

use super::{
    body_fields::{
        BodyError, CountLimit, put_text, read_all, read_body_object, read_flag, read_integer,
        read_object, read_text, read_texts, take_null,
    },
    list_response::ListResponseWriter,
    query_request::{MAX_FILTERS, MAX_SUB_QUERIES, MAX_TSUIDS},
    tag_text::parse_metric_with_tags,
};
use crate::{
    ApiError, QueryString,
    json::{JsonObject, JsonReader},
};

/// Maximum rows that a request may read: series times hours.
const MAX_HOURS: usize = 10_000_000;

/// A request for the newest points of series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastRequest {
    /// The series.
    pub series: Vec<LastSelector>,
    /// Includes metric and tags in the response.
    pub resolve: bool,
    /// Hours to search backwards.
    pub back_scan: i64,
}

/// Selects series of a [`LastRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastSelector {
    /// By metric and tags.
    Names {
        /// Name of the metric.
        metric: String,
        /// Its tags.
        tags: Vec<(String, String)>,
    },
    /// By the bytes of a TSUID.
    Tsuid(Vec<u8>),
}

/// The newest point of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct LastPointResult {
    /// Metric and tags, if requested.
    pub names: Option<(String, Vec<(String, String)>)>,
    /// Epoch milliseconds.
    pub timestamp_ms: i64,
    /// The value.
    pub value: Value,
    /// TSUID in upper-case hex.
    pub tsuid: String,
}

/// Parses the body of a request for newest points.
pub fn parse_last_body(body: &str) -> Result<LastRequest, ApiError> {
    if body.is_empty() {
        return Err(ApiError::missing_content());
    }
    let mut request = LastRequest::default();
    let mut selected = Vec::new();
    let mut query_limit = CountLimit::new("sub queries in one request", MAX_SUB_QUERIES);
    let mut tsuid_limit = CountLimit::new("TSUIDs in one request", MAX_TSUIDS);
    read_body_object(body, "the query", |name, reader| {
        match name {
            "queries" => {
                selected = read_all(reader, "queries", |reader| {
                    query_limit.take()?;
                    read_query(reader, &mut tsuid_limit)
                })?;
            }
            "resolveNames" => request.resolve = read_flag(reader, "resolveNames")?,
            "backScan" => request.back_scan = read_integer(reader, "backScan")?,
            _ => reader.skip_value()?,
        }
        Ok(())
    })
    .map_err(BodyError::into_api_error)?;
    for query in selected {
        query.add_to(&mut request)?;
    }
    validate(request)
}

/// Parses the parameters of a request for newest points.
pub fn parse_last_uri(query: &QueryString) -> Result<LastRequest, ApiError> {
    let back_scan = match query.get("back_scan") {
        None => 0,
        Some(text) => text
            .parse::<i32>()
            .map(i64::from)
            .map_err(|_| ApiError::new(400, "Unable to parse back_scan parameter"))?,
    };
    let mut request =
        LastRequest { resolve: query.has("resolve"), back_scan, ..LastRequest::default() };
    for text in query.all("timeseries") {
        let (metric, tags) = parse_metric_with_tags(text)
            .map_err(|error| ApiError::wrapped(400, error.to_string()))?;
        RawLastQuery { metric: Some(metric), tags, tsuids: Vec::new() }.add_to(&mut request)?;
    }
    for list in query.all("tsuids") {
        if list.is_empty() {
            return Err(ApiError::wrapped(400, "UID was empty"));
        }
        let tsuids = list.split(',').filter(|tsuid| !tsuid.is_empty()).map(str::to_owned);
        RawLastQuery { tsuids: tsuids.collect(), ..RawLastQuery::default() }
            .add_to(&mut request)?;
    }
    validate(request)
}

fn validate(request: LastRequest) -> Result<LastRequest, ApiError> {
    if request.series.is_empty() {
        return Err(ApiError::new(400, "Missing sub queries"));
    }
    // No data is older than the epoch, which is less than a million hours ago.
    let hours = usize::try_from(request.back_scan.clamp(0, 1_000_000)).unwrap_or(0);
    if request.series.len().saturating_mul(hours) > MAX_HOURS {
        return Err(ApiError::too_many("hours of series in one request", MAX_HOURS));
    }
    let by_tsuid = |selected: &LastSelector| matches!(selected, LastSelector::Tsuid(_));
    if request.back_scan < 0 && request.series.iter().any(by_tsuid) {
        return Err(ApiError::wrapped(400, "Backscan must be zero or a positive number"));
    }
    Ok(request)
}

/// An entry of `queries`.
#[derive(Debug, Default)]
struct RawLastQuery {
    metric: Option<String>,
    tags: Vec<(String, String)>,
    tsuids: Vec<String>,
}

impl RawLastQuery {
    /// Adds the selected series; TSUIDs take precedence over names.
    fn add_to(self, request: &mut LastRequest) -> Result<(), ApiError> {
        if self.tsuids.is_empty() {
            let metric = self.metric.filter(|metric| !metric.is_empty());
            let metric =
                metric.ok_or_else(|| ApiError::wrapped(400, "Metric cannot be null or empty"))?;
            request.series.push(LastSelector::Names { metric, tags: self.tags });
        }
        for tsuid in self.tsuids {
            // An odd number of digits lacks a leading zero.
            let zero = if tsuid.len().is_multiple_of(2) { "" } else { "0" };
            let bytes = from_hex(format!("{zero}{tsuid}").as_bytes()).ok_or_else(|| {
                ApiError::wrapped(
                    400,
                    format!("contains illegal character for hexBinary: {zero}{tsuid}"),
                )
            })?;
            request.series.push(LastSelector::Tsuid(bytes));
        }
        Ok(())
    }
}

fn read_query(
    reader: &mut JsonReader<'_>,
    tsuid_limit: &mut CountLimit,
) -> Result<RawLastQuery, BodyError> {
    let mut selected = RawLastQuery::default();
    let mut tag_limit = CountLimit::new("tags in one sub query", MAX_FILTERS);
    read_object(reader, "queries", |name, reader| {
        match name {
            "metric" => selected.metric = read_text(reader, "metric")?,
            "tsuids" => selected.tsuids = read_texts(reader, "tsuids", tsuid_limit)?,
            "tags" => {
                selected.tags.clear();
                if !take_null(reader)? {
                    read_object(reader, "tags", |tagk, reader| {
                        tag_limit.take()?;
                        let tagv = read_text(reader, "tags")?.unwrap_or_default();
                        put_text(&mut selected.tags, tagk, tagv);
                        Ok(())
                    })?;
                }
            }
            _ => reader.skip_value()?,
        }
        Ok(())
    })?;
    Ok(selected)
}

/// The response: an array of points.
pub fn last_points_response<I: Iterator<Item = LastPointResult>>(
    points: I,
) -> ListResponseWriter<I> {
    ListResponseWriter::new(
        b"[".to_vec(),
        points,
        |out, point| write_point(out, &point),
        b"]".to_vec(),
    )
}

fn write_point(out: &mut Vec<u8>, point: &LastPointResult) {
    let mut object = JsonObject::open(out);
    if let Some((metric, _)) = &point.names {
        object.string("metric", metric);
    }
    object.literal("timestamp", point.timestamp_ms);
    let value = object.key("value");
    value.push(b'"');
    match point.value {
        Value::Integer(n) => value.extend_from_slice(itoa::Buffer::new().format(n).as_bytes()),
        Value::Float(x) => write_java_double(x, value),
    }
    value.push(b'"');
    if let Some((_, tags)) = &point.names {
        object.tags("tags", tags);
    }
    object.string("tsuid", &point.tsuid).close();
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn uri(text: &str) -> Result<LastRequest, ApiError> {
        parse_last_uri(&QueryString::parse(text).unwrap())
    }

    fn names(metric: &str, tags: &[(&str, &str)]) -> LastSelector {
        let tags = tags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        LastSelector::Names { metric: metric.to_owned(), tags }
    }

    fn render(points: Vec<LastPointResult>) -> String {
        let mut out = Vec::new();
        assert!(!last_points_response(points.into_iter()).write(&mut out, usize::MAX));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn parameters_and_bodies_are_equivalent() {
        let by_uri =
            uri("timeseries=m%7Ba=b,c=d%7D&timeseries=n&tsuids=0001,AB&resolve&back_scan=24");
        let by_body = parse_last_body(
            r#"{"resolveNames":true,"backScan":24,"other":[],"queries":[
                {"metric":"m","tags":{"a":"x","a":"b","c":"d"}},{"metric":"n","tags":null},
                {"metric":"ignored","tsuids":["0001","AB"]}]}"#,
        );
        let expected = LastRequest {
            series: vec![
                names("m", &[("a", "b"), ("c", "d")]),
                names("n", &[]),
                LastSelector::Tsuid(vec![0, 1]),
                LastSelector::Tsuid(vec![0xAB]),
            ],
            resolve: true,
            back_scan: 24,
        };
        assert_eq!(by_uri.unwrap(), expected);
        assert_eq!(by_body.unwrap(), expected);
    }

    #[test]
    fn invalid_requests_are_rejected() {
        let by_uri = |text: &str| uri(text).unwrap_err().message;
        assert_eq!(by_uri(""), "Missing sub queries");
        assert_eq!(by_uri("timeseries=m&back_scan=x"), "Unable to parse back_scan parameter");
        assert_eq!(by_uri("timeseries=m%7Ba"), "Missing '}' at the end of: m{a");
        assert_eq!(by_uri("timeseries=m%7Ba%7D"), "When parsing tag 'a': invalid tag: a");
        assert_eq!(by_uri("tsuids=xyz"), "contains illegal character for hexBinary: 0xyz");
        let negative = "Backscan must be zero or a positive number";
        assert_eq!(by_uri("tsuids=AB&back_scan=-1"), negative);
        assert!(uri("timeseries=m&back_scan=-1").is_ok());
        let by_body = |text: &str| parse_last_body(text).unwrap_err().message;
        assert_eq!(by_body(""), "Missing message content");
        assert_eq!(by_body("{}"), "Missing sub queries");
        assert_eq!(by_body("{"), "Unable to parse the given JSON");
        assert_eq!(by_body(r#"{"queries":[{}]}"#), "Metric cannot be null or empty");
        let far = format!(
            r#"{{"backScan":9999999,"queries":[{}]}}"#,
            [r#"{"metric":"m"}"#; 11].join(",")
        );
        assert_eq!(parse_last_body(&far).unwrap_err().status, 413);
        let many = vec!["{}"; 5_000].join(",");
        let many = parse_last_body(&format!(r#"{{"queries":[{many}]}}"#)).unwrap_err();
        assert_eq!(many.status, 413);
    }

    #[test]
    fn points_are_shown_in_opentsdbs_order() {
        let point = LastPointResult {
            names: None,
            timestamp_ms: 1_356_998_400_000,
            value: Value::Integer(-4),
            tsuid: "000001000001000001".to_owned(),
        };
        let tags = vec![("host".to_owned(), "é\"".to_owned()), ("dc".to_owned(), "x".to_owned())];
        let named = LastPointResult {
            names: Some(("m".to_owned(), tags)),
            value: Value::Float(1.0e7),
            ..point.clone()
        };
        assert_eq!(
            render(vec![point, named]),
            r#"[{"timestamp":1356998400000,"value":"-4","tsuid":"000001000001000001"},{"metric":"m","timestamp":1356998400000,"value":"1.0E7","tags":{"host":"é\"","dc":"x"},"tsuid":"000001000001000001"}]"#
        );
        assert_eq!(render(Vec::new()), "[]");
    }

    proptest! {
        #[test]
        fn arbitrary_input_never_panics(text in "[^%]*") {
            let _ = parse_last_body(&text);
            let _ = uri(&format!("timeseries={text}&tsuids={text}"));
        }
    }
}
