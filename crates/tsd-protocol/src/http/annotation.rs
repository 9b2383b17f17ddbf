//! Annotation requests, from URI parameters or a JSON body, and their responses.
//!
//! Times in parameters may be any time expression and are truncated to seconds. Times in a body stay
//! as sent. A field with its default value counts as not set.

use tsd_model::{Annotation, Timestamp};
use tsd_query::{Clock, parse_time};

use super::{
    body_fields::{
        BodyError, CountLimit, read_all, read_body_object, read_document, read_flag, read_text,
        take_null,
    },
    query_error::time_text,
    query_response::write_annotation,
    query_string::QueryString,
};
use crate::{
    ApiError,
    json::{JsonObject, write_json_list},
};

/// Maximum annotations of one body.
const MAX_ANNOTATIONS: usize = 65_536;

/// The annotations that a bulk delete selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnotationRange {
    /// Start, in epoch milliseconds.
    pub start_ms: i64,
    /// End, in epoch milliseconds.
    pub end_ms: i64,
    /// TSUIDs as sent; `None` if the field is missing.
    pub tsuids: Option<Vec<String>>,
    /// Includes global annotations.
    pub global: bool,
}

/// Parses one annotation from the parameters of a URI.
pub fn parse_annotation_uri(query: &QueryString, clock: &Clock) -> Result<Annotation, ApiError> {
    let text = |name| query.get(name).unwrap_or_default().to_owned();
    let millis = |name: &str| {
        let text = query.get(name).unwrap_or_default();
        parse_time(text, None, clock).map_err(|error| ApiError::new(400, time_text(&error)))
    };
    let Some(start_ms @ 1..) = millis("start_time")? else {
        return Err(ApiError::new(400, "Missing start time"));
    };
    // In seconds, unless OpenTSDB reads them as milliseconds: ten digits over 32 bits, as in a body.
    let secs = |name: &str, ms: i64| {
        let is_short = query.get(name).is_some_and(|text| text.len() <= 10);
        if ms / 1_000 > Timestamp::MAX_SECS && !is_short { ms } else { ms / 1_000 }
    };
    Ok(Annotation {
        tsuid: text("tsuid"),
        start_time: secs("start_time", start_ms),
        end_time: millis("end_time")?.map_or(0, |ms| secs("end_time", ms)),
        description: text("description"),
        notes: text("notes"),
        custom: None,
    })
}

/// Parses one annotation from a body.
pub fn parse_annotation_body(body: &str) -> Result<Annotation, ApiError> {
    let annotation = Annotation::from_json(body.as_bytes())
        .map_err(|error| ApiError::new(400, error.to_string()))?;
    read_document(body, |reader| Ok(reader.skip_value()?)).map_err(BodyError::into_api_error)?;
    Ok(annotation)
}

/// Parses an array of annotations.
pub fn parse_annotations_body(body: &str) -> Result<Vec<Annotation>, ApiError> {
    let mut limit = CountLimit::new("annotations", MAX_ANNOTATIONS);
    read_document(body, |reader| {
        read_all(reader, "annotations", |reader| {
            limit.take()?;
            reader.peek_token();
            let start = reader.offset();
            reader.skip_value()?;
            let text = body.get(start..reader.offset()).unwrap_or_default();
            Annotation::from_json(text.as_bytes()).map_err(BodyError::Annotation)
        })
    })
    .map_err(bulk_body_error)
}

/// Parses a bulk delete from the parameters of a URI.
pub fn parse_annotation_range_uri(
    query: &QueryString,
    clock: &Clock,
) -> Result<AnnotationRange, ApiError> {
    let start = query.required("start_time")?;
    let tsuids = query
        .get("tsuids")
        .map(|list| list.split(',').map(|tsuid| tsuid.trim().to_owned()).collect());
    AnnotationRange::new(start, query.get("end_time"), tsuids, query.has("global"), clock)
}

/// Parses a bulk delete from a body.
pub fn parse_annotation_range_body(body: &str, clock: &Clock) -> Result<AnnotationRange, ApiError> {
    let (mut start, mut end) = (None, None);
    let (mut tsuids, mut global) = (None, false);
    read_body_object(body, "annotations", |key, reader| {
        match key {
            "startTime" | "start_time" => start = read_text(reader, "startTime")?,
            "endTime" | "end_time" => end = read_text(reader, "endTime")?,
            "global" => global = read_flag(reader, "global")?,
            "tsuids" if take_null(reader)? => tsuids = None,
            "tsuids" => {
                let mut limit = CountLimit::new("TSUIDs", MAX_ANNOTATIONS);
                let list = read_all(reader, "tsuids", |reader| {
                    limit.take()?;
                    read_text(reader, "tsuids")
                })?;
                tsuids = Some(list.into_iter().flatten().collect());
            }
            _ => reader.skip_value()?,
        }
        Ok(())
    })
    .map_err(bulk_body_error)?;
    AnnotationRange::new(&start.unwrap_or_default(), end.as_deref(), tsuids, global, clock)
}

impl AnnotationRange {
    fn new(
        start: &str,
        end: Option<&str>,
        tsuids: Option<Vec<String>>,
        global: bool,
        clock: &Clock,
    ) -> Result<Self, ApiError> {
        if start.is_empty() {
            return Err(ApiError::new(400, "Missing the start time value"));
        }
        if !global && tsuids.as_ref().is_none_or(Vec::is_empty) {
            return Err(ApiError::new(400, "Missing the TSUIDs or global annotations flag"));
        }
        let millis = |text: &str| {
            parse_time(text, None, clock).map_err(|error| ApiError::wrapped(400, time_text(&error)))
        };
        Ok(Self {
            start_ms: millis(start)?.unwrap_or_default(),
            end_ms: millis(end.unwrap_or_default())?.unwrap_or(clock.now_ms),
            tsuids,
            global,
        })
    }

    /// Renders the response of the delete.
    #[must_use]
    pub fn render(&self, deleted: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let mut object = JsonObject::open(&mut out);
        match &self.tsuids {
            None => object.literal("tsuids", "null"),
            Some(tsuids) => object.strings("tsuids", tsuids),
        }
        .literal("global", self.global)
        .literal("startTime", self.start_ms)
        .literal("endTime", self.end_ms)
        .literal("totalDeleted", deleted)
        .close();
        out
    }
}

/// Renders an annotation.
#[must_use]
pub fn render_annotation(annotation: &Annotation) -> Vec<u8> {
    let mut out = Vec::new();
    write_annotation(&mut out, annotation);
    out
}

/// Renders an array of annotations.
#[must_use]
pub fn render_annotations(annotations: &[Annotation]) -> Vec<u8> {
    let mut out = Vec::new();
    write_json_list(&mut out, annotations, write_annotation);
    out
}

/// Maps errors of bulk bodies: the parser's text is both the message and the details.
fn bulk_body_error(error: BodyError) -> ApiError {
    match error {
        BodyError::TooMany { .. } => error.into_api_error(),
        error => ApiError::wrapped(400, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn clock() -> Clock {
        Clock { now_ms: 1_400_000_000_123, zone: tsd_query::find_zone("UTC").unwrap() }
    }

    fn uri(text: &str) -> Result<Annotation, ApiError> {
        parse_annotation_uri(&QueryString::parse(text).unwrap(), &clock())
    }

    #[test]
    fn times_of_parameters_are_cut_to_seconds() {
        let annotation = uri(
            "start_time=1356998400500&end_time=2013/01/01-00:01:00&tsuid=01&description=d&notes=n",
        );
        let expected = Annotation {
            tsuid: "01".into(),
            start_time: 1_356_998_400,
            end_time: 1_356_998_460,
            description: "d".into(),
            notes: "n".into(),
            custom: None,
        };
        assert_eq!(annotation, Ok(expected));
        assert_eq!(uri("start_time=1h-ago").unwrap().start_time, 1_399_996_400);
        for missing in ["", "start_time=", "start_time=0"] {
            assert_eq!(uri(missing), Err(ApiError::new(400, "Missing start time")), "{missing}");
        }
        assert_eq!(uri("start_time=soon").unwrap_err().status, 400);
        assert_eq!(uri("start_time=1&end_time=later").unwrap_err().status, 400);
    }

    #[test]
    fn bodies_keep_their_times() {
        let annotation =
            parse_annotation_body(r#"{"startTime":1356998400500,"x":[1],"custom":{"a":1}}"#);
        let annotation = annotation.unwrap();
        assert_eq!(annotation.start_time, 1_356_998_400_500);
        assert_eq!(annotation.custom, Some(vec![("a".into(), Some("1".into()))]));
        assert_eq!(parse_annotation_body("{").unwrap_err().status, 400);
        assert_eq!(parse_annotation_body("[]").unwrap_err().status, 400);
    }

    #[test]
    fn bulk_bodies_are_arrays() {
        let annotations =
            parse_annotations_body(r#" [ {"startTime":1}, {"startTime":2,"a":{"b":[]}} ]"#);
        let starts: Vec<i64> =
            annotations.unwrap().iter().map(|annotation| annotation.start_time).collect();
        assert_eq!(starts, [1, 2]);
        assert_eq!(parse_annotations_body("[]").unwrap(), []);
        for bad in ["", "{}", "[", "[1]", r#"[{"startTime":{}}]"#, r#"[{"startTime":1}"#] {
            let error = parse_annotations_body(bad).unwrap_err();
            assert_eq!((error.status, &error.details), (400, &error.message), "{bad}");
        }
    }

    fn range(body: &str) -> Result<AnnotationRange, String> {
        parse_annotation_range_body(body, &clock()).map_err(|error| error.message)
    }

    #[test]
    fn ranges_need_a_start_and_a_selection() {
        let by_body =
            range(r#"{"startTime":1356998400,"endTime":"1356998460","tsuids":["01"," 02"]}"#)
                .unwrap();
        let query = QueryString::parse("start_time=1356998400&end_time=1356998460&tsuids=01,02%20");
        let by_uri = parse_annotation_range_uri(&query.unwrap(), &clock()).unwrap();
        assert_eq!((by_uri.start_ms, by_uri.end_ms), (1_356_998_400_000, 1_356_998_460_000));
        assert_eq!((by_body.start_ms, by_body.end_ms), (by_uri.start_ms, by_uri.end_ms));
        assert_eq!(by_uri.tsuids, Some(vec!["01".to_owned(), "02".to_owned()]));
        assert_eq!(
            String::from_utf8(by_uri.render(2)).unwrap(),
            r#"{"tsuids":["01","02"],"global":false,"startTime":1356998400000,"endTime":1356998460000,"totalDeleted":2}"#
        );
        let open = range(r#"{"start_time":"1h-ago","global":true,"tsuids":null}"#).unwrap();
        assert_eq!((open.start_ms, open.end_ms), (1_399_996_400_123, 1_400_000_000_123));
        assert!(
            String::from_utf8(open.render(0))
                .unwrap()
                .starts_with(r#"{"tsuids":null,"global":true,"#)
        );
    }

    #[test]
    fn rejected_ranges() {
        assert_eq!(range(r#"{"global":true}"#), Err("Missing the start time value".into()));
        for body in [r#"{"startTime":"1"}"#, r#"{"startTime":"1","tsuids":[]}"#] {
            assert_eq!(range(body), Err("Missing the TSUIDs or global annotations flag".into()));
        }
        assert!(
            range(r#"{"startTime":"soon","global":true}"#)
                .unwrap_err()
                .starts_with("Invalid time: soon")
        );
        assert!(range("{").is_err());
        let query = QueryString::parse("global").unwrap();
        let error = parse_annotation_range_uri(&query, &clock()).unwrap_err();
        assert_eq!(error, ApiError::missing_parameter("start_time"));
    }
}
