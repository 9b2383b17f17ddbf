//! Requests and responses of `/api/search/<type>`: lookups by metric and tags, and searches of meta objects
//! and annotations.

use tsd_model::{Annotation, NamedUidMeta, SeriesMeta, UidKind, java_byte_list, to_hex};
use tsd_query::SearchText;

use super::{
    body_fields::{
        BodyError, CountLimit, read_all, read_body_object, read_flag, read_integer, read_object,
        read_text, take_null,
    },
    list_response::ListResponseWriter,
    meta_object::{write_series_meta, write_uid_meta},
    query_error::time_text,
    query_request::MAX_FILTERS,
    query_response::{write_annotation, write_double},
    tag_text::{OpenPair, parse_metric_with_open_tags},
};
use tsd_query::{Clock, parse_time};

use crate::{
    ApiError, QueryString,
    json::{JsonObject, JsonReader, write_json_string},
};

/// Default maximum number of results.
const DEFAULT_LIMIT: i64 = 25;

/// Type of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchType {
    /// Series by metric and tags.
    Lookup,
    /// TSMeta.
    TsMeta,
    /// Names of the series with TSMeta.
    TsMetaSummary,
    /// TSUIDs of the series with TSMeta.
    Tsuids,
    /// UIDMeta.
    UidMeta,
    /// Annotations.
    Annotation,
}

impl SearchType {
    const ALL: [Self; 6] = [
        Self::Lookup,
        Self::TsMeta,
        Self::TsMetaSummary,
        Self::Tsuids,
        Self::UidMeta,
        Self::Annotation,
    ];

    /// Parses the type in a path.
    pub fn from_path(component: &str) -> Result<Self, ApiError> {
        let invalid = |details| {
            ApiError::new(400, "Invalid search query type supplied").with_details(details)
        };
        if component.is_empty() {
            return Err(invalid("Type provided was null or empty".to_owned()));
        }
        Self::ALL
            .into_iter()
            .find(|of| of.as_str().eq_ignore_ascii_case(component))
            .ok_or_else(|| invalid(format!("Unknown type: {component}")))
    }

    /// Returns the name of the type in responses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lookup => "LOOKUP",
            Self::TsMeta => "TSMETA",
            Self::TsMetaSummary => "TSMETA_SUMMARY",
            Self::Tsuids => "TSUIDS",
            Self::UidMeta => "UIDMETA",
            Self::Annotation => "ANNOTATION",
        }
    }
}

/// A result of a search of meta objects or annotations.
#[derive(Clone, Debug, PartialEq)]
pub enum SearchHit {
    /// Result of [`SearchType::TsMeta`].
    Series(Box<SeriesMeta>),
    /// Result of [`SearchType::TsMetaSummary`].
    SeriesName(LookupResult),
    /// Result of [`SearchType::Tsuids`], in upper-case hex.
    Tsuid(String),
    /// Result of [`SearchType::UidMeta`].
    UidMeta(NamedUidMeta),
    /// Result of [`SearchType::Annotation`].
    Annotation(Annotation),
}

/// A request for a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupRequest {
    /// Name of the metric; `None` and `*` match any metric.
    pub metric: Option<String>,
    /// Tag pairs; `None` matches any key or value.
    pub tags: Option<Vec<(Option<String>, Option<String>)>>,
    /// Maximum number of results; 0 is unlimited.
    pub limit: i64,
    /// Number of results to skip.
    pub start_index: i64,
    /// Start of the time range in which a series must have points, as text. OpenTSDB lacks this field.
    pub start: Option<String>,
    /// End of the time range.
    pub end: Option<String>,
    /// Text of the query, which the response repeats.
    pub query: Option<String>,
    /// True reads the meta table, false the data table; `None` leaves the choice to the daemon.
    pub use_meta: Option<bool>,
    /// Lists series with a nameless UID separately instead of failing. OpenTSDB's tool does so, its API cannot.
    pub skips_unnamed: bool,
}

impl Default for LookupRequest {
    fn default() -> Self {
        Self {
            metric: Some("*".to_owned()),
            tags: None,
            limit: DEFAULT_LIMIT,
            start_index: 0,
            start: None,
            end: None,
            query: None,
            use_meta: None,
            skips_unnamed: false,
        }
    }
}

/// A found series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupResult {
    /// TSUID in upper-case hex.
    pub tsuid: String,
    /// Name of the metric.
    pub metric: String,
    /// Tags of the series.
    pub tags: Vec<(String, String)>,
}

impl LookupRequest {
    /// Returns the range in which a series must have points, in epoch seconds; `None` is any time.
    pub fn range_secs(&self, clock: &Clock) -> Result<Option<(u32, u32)>, ApiError> {
        if self.start.is_none() && self.end.is_none() {
            return Ok(None);
        }
        let millis = |text: &Option<String>| {
            parse_time(text.as_deref().unwrap_or_default(), None, clock)
                .map_err(|error| ApiError::new(400, time_text(&error)))
        };
        let start = millis(&self.start)?.unwrap_or(0);
        let end = millis(&self.end)?.unwrap_or(clock.now_ms);
        if end < start {
            let message = format!(
                "End time [{end}] must be greater than or equal to the start time [{start}]"
            );
            return Err(ApiError::new(400, message));
        }
        let secs = |millis: i64| u32::try_from((millis / 1_000).max(0)).unwrap_or(u32::MAX);
        Ok(Some((secs(start), secs(end))))
    }
}

/// Returns the error of a search if searches are disabled.
pub fn search_disabled() -> ApiError {
    ApiError::new(400, "Searching is not enabled")
        .with_details("Searching has not been enabled on this TSD")
}

/// Parses the parameters of a search of meta objects or annotations.
pub fn parse_search_uri(query: &QueryString) -> Result<LookupRequest, ApiError> {
    let text = query.required("query")?.to_owned();
    let limit = number(query, "limit")?.unwrap_or(DEFAULT_LIMIT);
    let start_index = number(query, "start_index")?.unwrap_or(0);
    Ok(LookupRequest { query: Some(text), limit, start_index, ..LookupRequest::default() })
}

/// Parses the body of a search of meta objects or annotations.
pub fn parse_search_body(body: &str) -> Result<LookupRequest, ApiError> {
    read_request(body)
}

/// Parses the query of a search of meta objects or annotations.
pub fn search_text(request: &LookupRequest) -> Result<SearchText, ApiError> {
    let Some(text) = request.query.as_deref().filter(|text| !text.is_empty()) else {
        return Err(ApiError::new(400, "Missing query"));
    };
    SearchText::parse(text).map_err(|error| {
        ApiError::new(400, "Unable to parse query").with_details(error.to_string())
    })
}

/// Parses the parameters of a lookup.
pub fn parse_lookup_uri(query: &QueryString) -> Result<LookupRequest, ApiError> {
    let (metric, tags) = parse_metric_with_open_tags(query.required("m")?).map_err(|error| {
        ApiError::new(400, "Unable to parse query").with_details(error.to_string())
    })?;
    let text = |name: &str| query.get(name).map(str::to_owned);
    validate(LookupRequest {
        metric,
        tags: Some(tags),
        limit: number(query, "limit")?.unwrap_or(DEFAULT_LIMIT),
        start_index: number(query, "start_index")?.unwrap_or(0),
        start: text("start"),
        end: text("end"),
        ..LookupRequest::default()
    })
}

/// Parses the body of a lookup.
pub fn parse_lookup_body(body: &str) -> Result<LookupRequest, ApiError> {
    validate(read_request(body)?)
}

fn read_request(body: &str) -> Result<LookupRequest, ApiError> {
    let mut request = LookupRequest::default();
    let mut tag_limit = CountLimit::new("tags in one request", MAX_FILTERS);
    read_body_object(body, "the query", |name, reader| {
        match name {
            "query" => request.query = read_text(reader, "query")?,
            "metric" => request.metric = read_text(reader, "metric")?,
            "limit" => request.limit = read_integer(reader, "limit")?,
            "start" => request.start = read_text(reader, "start")?,
            "end" => request.end = read_text(reader, "end")?,
            "startIndex" => request.start_index = read_integer(reader, "startIndex")?,
            "useMeta" => request.use_meta = Some(read_flag(reader, "useMeta")?),
            "skipUnnamed" => request.skips_unnamed = read_flag(reader, "skipUnnamed")?,
            "tags" if take_null(reader)? => request.tags = None,
            "tags" => {
                let tags = read_all(reader, "tags", |reader| {
                    tag_limit.take()?;
                    read_pair(reader)
                })?;
                request.tags = Some(tags);
            }
            _ => reader.skip_value()?,
        }
        Ok(())
    })
    .map_err(BodyError::into_api_error)?;
    Ok(request)
}

fn read_pair(reader: &mut JsonReader<'_>) -> Result<OpenPair, BodyError> {
    let mut pair = OpenPair::default();
    read_object(reader, "tags", |name, reader| {
        match name {
            "key" => pair.0 = read_text(reader, "key")?,
            "value" => pair.1 = read_text(reader, "value")?,
            _ => reader.skip_value()?,
        }
        Ok(())
    })?;
    Ok(pair)
}

fn validate(request: LookupRequest) -> Result<LookupRequest, ApiError> {
    if request.metric.is_none() && request.tags.as_ref().is_none_or(Vec::is_empty) {
        let message = "Missing metric and tags. Please supply at least one value.";
        return Err(ApiError::new(400, message));
    }
    Ok(request)
}

fn number(query: &QueryString, name: &str) -> Result<Option<i64>, ApiError> {
    let Some(text) = query.get(name) else { return Ok(None) };
    let unable = |_| ApiError::new(400, format!("Unable to convert '{name}' to a valid number"));
    text.parse::<i32>().map(|number| Some(i64::from(number))).map_err(unable)
}

/// Describes a series with a nameless UID, in the words of OpenTSDB's tool.
#[must_use]
pub fn unnamed_series_text(tsuid: &[u8], kind: UidKind, uid: &[u8]) -> String {
    let (tsuid, uid) = (to_hex(tsuid), java_byte_list(uid));
    format!("Unable to resolve UID in TSUID ({tsuid}) No such unique ID for '{kind}': {uid}")
}

/// Builds the response of a lookup that took `millis` milliseconds and found `total` series. `unnamed` describes the
/// omitted series.
pub fn lookup_response<I: Iterator<Item = LookupResult>>(
    request: &LookupRequest,
    results: I,
    total: usize,
    unnamed: &[String],
    millis: u64,
) -> ListResponseWriter<I> {
    let (head, mut tail) = frame(SearchType::Lookup, request, total as u64, millis);
    if request.skips_unnamed {
        let mut members = Vec::new();
        JsonObject::open(&mut members).strings("unnamed", unnamed).close();
        // The tail closes the object, so `unnamed` goes before its brace.
        tail.pop();
        tail.push(b',');
        tail.extend(members.into_iter().skip(1));
    }
    ListResponseWriter::new(head, results, |out, series| write_series(out, &series), tail)
}

/// Builds the response of a search that took `millis` milliseconds and found `total` objects.
pub fn search_response<I: Iterator<Item = SearchHit>>(
    of: SearchType,
    request: &LookupRequest,
    hits: I,
    total: u64,
    millis: u64,
) -> ListResponseWriter<I> {
    let (head, tail) = frame(of, request, total, millis);
    ListResponseWriter::new(head, hits, |out, hit| write_hit(out, &hit), tail)
}

/// Renders the text before and after the results.
fn frame(of: SearchType, request: &LookupRequest, total: u64, millis: u64) -> (Vec<u8>, Vec<u8>) {
    let mut head = Vec::new();
    let mut object = JsonObject::open(&mut head);
    object.string("type", of.as_str());
    if let Some(query) = &request.query {
        object.string("query", query);
    }
    if let Some(metric) = &request.metric {
        object.string("metric", metric);
    }
    if let Some(tags) = &request.tags {
        object.list("tags", tags, |out, (key, value)| {
            JsonObject::open(out)
                .optional("key", key.as_deref())
                .optional("value", value.as_deref())
                .close();
        });
    }
    object.literal("limit", request.limit);
    write_double(object.key("time"), millis as f64, false);
    object.key("results").push(b'[');
    let mut tail = b"],".to_vec();
    let mut members = Vec::new();
    JsonObject::open(&mut members)
        .literal("startIndex", request.start_index)
        .literal("totalResults", total)
        .close();
    // The members continue the object of the head.
    tail.extend(members.into_iter().skip(1));
    (head, tail)
}

fn write_hit(out: &mut Vec<u8>, hit: &SearchHit) {
    match hit {
        SearchHit::Series(object) => write_series_meta(out, object),
        SearchHit::SeriesName(series) => write_series(out, series),
        SearchHit::Tsuid(tsuid) => write_json_string(out, tsuid),
        SearchHit::UidMeta(object) => write_uid_meta(out, object),
        SearchHit::Annotation(annotation) => write_annotation(out, annotation),
    }
}

fn write_series(out: &mut Vec<u8>, series: &LookupResult) {
    JsonObject::open(out)
        .string("tsuid", &series.tsuid)
        .string("metric", &series.metric)
        .tags("tags", &series.tags)
        .close();
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn uri(text: &str) -> Result<LookupRequest, ApiError> {
        parse_lookup_uri(&QueryString::parse(text).unwrap())
    }

    #[test]
    fn types_are_known_by_name() {
        assert_eq!(SearchType::from_path("LookUp").unwrap(), SearchType::Lookup);
        assert_eq!(SearchType::from_path("uidmeta").unwrap(), SearchType::UidMeta);
        assert_eq!(SearchType::from_path("tsmeta_summary").unwrap(), SearchType::TsMetaSummary);
        for name in ["", "series"] {
            let message = SearchType::from_path(name).unwrap_err().message;
            assert_eq!(message, "Invalid search query type supplied");
        }
    }

    #[test]
    fn searches_need_a_query() {
        let uri = |text: &str| parse_search_uri(&QueryString::parse(text).unwrap());
        let message = |text: &str| uri(text).unwrap_err().message;
        assert_eq!(message(""), "Missing parameter <code>query</code>");
        assert_eq!(
            message("query=x&start_index=y"),
            "Unable to convert 'start_index' to a valid number"
        );
        let by_uri = uri("query=name:*&limit=3&start_index=6&use_meta=true").unwrap();
        let by_body =
            parse_search_body(r#"{"query":"name:*","limit":3,"startIndex":6,"metric":"*"}"#);
        assert_eq!(by_body.unwrap(), by_uri);
        assert!(search_text(&by_uri).is_ok());
        for (body, message) in
            [("{}", "Missing query"), (r#"{"query":":a"}"#, "Unable to parse query")]
        {
            let request = parse_search_body(body).unwrap();
            assert_eq!(search_text(&request).unwrap_err().message, message);
        }
        assert_eq!(parse_search_body("[").unwrap_err().status, 400);
    }

    #[test]
    fn results_of_a_search_are_of_its_type() {
        let request =
            parse_search_uri(&QueryString::parse("query=name:*&start_index=6").unwrap()).unwrap();
        let hits = [SearchHit::Tsuid("000001".to_owned()), SearchHit::Tsuid("000002".to_owned())];
        let mut out = Vec::new();
        let mut response = search_response(SearchType::Tsuids, &request, hits.into_iter(), 9, 517);
        assert!(!response.write(&mut out, usize::MAX));
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"type":"TSUIDS","query":"name:*","metric":"*","limit":25,"time":517.0,"results":["000001","000002"],"startIndex":6,"totalResults":9}"#
        );
    }

    #[test]
    fn parameters_and_bodies_are_read() {
        let by_uri =
            uri("m=sys%7Bhost=,=web,dc=lga%7D&limit=0&start_index=4&use_meta=false").unwrap();
        let pair = |k: &str, v: &str| {
            let side = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            (side(k), side(v))
        };
        let tags = vec![pair("host", ""), pair("", "web"), pair("dc", "lga")];
        assert_eq!(by_uri.metric.as_deref(), Some("sys"));
        assert_eq!(by_uri.tags.as_ref(), Some(&tags));
        assert_eq!((by_uri.limit, by_uri.start_index, by_uri.use_meta), (0, 4, None));
        let times = uri("m=sys&start=1d-ago&end=1356998400").unwrap();
        assert_eq!(
            (times.start.as_deref(), times.end.as_deref()),
            (Some("1d-ago"), Some("1356998400"))
        );
        let times = parse_lookup_body(r#"{"start":1356998400,"end":"now"}"#).unwrap();
        assert_eq!(
            (times.start.as_deref(), times.end.as_deref()),
            (Some("1356998400"), Some("now"))
        );
        let by_body = parse_lookup_body(
            r#"{"metric":"sys","tags":[{"key":"host"},{"value":"web"},{"key":"dc","value":"lga"}],
                "limit":5,"startIndex":4,"useMeta":false,"query":"q","x":{}}"#,
        )
        .unwrap();
        assert_eq!(by_body.tags, Some(tags));
        assert_eq!((by_body.limit, by_body.start_index, by_body.use_meta), (5, 4, Some(false)));
        assert_eq!(parse_lookup_body("{}").unwrap().metric.as_deref(), Some("*"));
    }

    #[test]
    fn series_without_a_name_are_listed_apart_on_demand() {
        let request = parse_lookup_body(r#"{"metric":"m","skipUnnamed":true}"#).unwrap();
        let unnamed =
            [unnamed_series_text(&[0, 0, 1, 0, 0, 2, 0, 0, 0xFE], UidKind::Tagv, &[0, 0, 0xFE])];
        let mut response = lookup_response(&request, std::iter::empty(), 0, &unnamed, 3);
        let mut out = Vec::new();
        while response.write(&mut out, 1_024) {}
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"type":"LOOKUP","metric":"m","limit":25,"time":3.0,"results":[],"startIndex":0,"totalResults":0,"unnamed":["Unable to resolve UID in TSUID (0000010000020000FE) No such unique ID for 'tagv': [0, 0, -2]"]}"#
        );
    }

    #[test]
    fn invalid_requests_are_rejected() {
        let by_uri = |text: &str| {
            let error = uri(text).unwrap_err();
            (error.status, error.message, error.details)
        };
        let expected = |message: &str, details: &str| (400, message.to_owned(), details.to_owned());
        assert_eq!(by_uri(""), expected("Missing parameter <code>m</code>", ""));
        assert_eq!(
            by_uri("m=%7B%7D"),
            expected("Unable to parse query", "Missing metric and tags: {}")
        );
        assert_eq!(
            by_uri("m=a&limit=x"),
            expected("Unable to convert 'limit' to a valid number", "")
        );
        let missing = "Missing metric and tags. Please supply at least one value.";
        assert_eq!(parse_lookup_body(r#"{"metric":null}"#).unwrap_err().message, missing);
        assert_eq!(parse_lookup_body("{").unwrap_err().status, 400);
    }

    #[test]
    fn responses_have_opentsdbs_order() {
        let request = parse_lookup_body(r#"{"metric":"m","tags":[{"key":"host"}],"limit":7}"#);
        let results = LookupResult {
            tsuid: "000001000001000001".to_owned(),
            metric: "m".to_owned(),
            tags: vec![("host".to_owned(), "a".to_owned())],
        };
        let mut out = Vec::new();
        let mut response = lookup_response(&request.unwrap(), [results].into_iter(), 1, &[], 12);
        assert!(!response.write(&mut out, usize::MAX));
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"type":"LOOKUP","metric":"m","tags":[{"key":"host","value":null}],"limit":7,"time":12.0,"results":[{"tsuid":"000001000001000001","metric":"m","tags":{"host":"a"}}],"startIndex":0,"totalResults":1}"#
        );
    }

    #[test]
    fn times_are_those_of_queries() {
        let range = |text: &str| {
            uri(&format!("m=a{text}"))
                .unwrap()
                .range_secs(&Clock::utc(10_000_000))
                .map_err(|e| e.message)
        };
        assert_eq!(range(""), Ok(None));
        assert_eq!(range("&start=1000"), Ok(Some((1_000, 10_000))));
        assert_eq!(range("&start=1h-ago&end=9999999"), Ok(Some((6_400, 9_999_999))));
        assert_eq!(range("&end=5000"), Ok(Some((0, 5_000))));
        let reversed =
            "End time [1000] must be greater than or equal to the start time [2000]".to_owned();
        assert_eq!(range("&start=2&end=1"), Err(reversed));
        assert!(range("&start=yesterday").unwrap_err().contains("yesterday"));
    }

    proptest! {
        #[test]
        fn arbitrary_input_never_panics(text in "[^%]*") {
            let _ = parse_lookup_body(&text);
            let _ = uri(&format!("m={text}&limit={text}"));
        }
    }
}
