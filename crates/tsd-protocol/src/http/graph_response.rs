//! Responses of `/q` other than pictures.

use std::fmt::Write;

use tsd_model::{PointColumns, ValueKinds, sort_as_grown_hash_map, write_java_double};

use super::api_error::escape_html;
use crate::{
    ApiError,
    json::{JsonObject, write_json_list, write_json_string},
};

/// Summary of a graph, the response to `json`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphSummary {
    /// Drawn points.
    pub plotted: u64,
    /// Milliseconds since the request.
    pub timing_ms: u64,
    /// For each sub query, the tag keys with several values of its last series; `None` without series.
    pub aggregate_tags: Vec<Option<Vec<String>>>,
    /// Points read.
    pub points: u64,
}

impl GraphSummary {
    /// Renders the summary, in the order of Java's hash map.
    #[must_use]
    pub fn render(mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut object = JsonObject::open(&mut out);
        object.literal("plotted", self.plotted).literal("timing", self.timing_ms);
        // OpenTSDB has an empty list instead of the first `null`.
        if let Some(first @ None) = self.aggregate_tags.first_mut() {
            *first = Some(Vec::new());
        }
        object.list("etags", &self.aggregate_tags, |out, tags| match tags {
            None => out.extend_from_slice(b"null"),
            Some(tags) => {
                let mut tags: Vec<&String> = tags.iter().collect();
                sort_as_grown_hash_map(&mut tags, |tag| tag);
                write_json_list(out, &tags, |out, tag| write_json_string(out, tag));
            }
        });
        object.literal("points", self.points).close();
        out
    }
}

/// Renders a series for the key of a graph: `metric{k=v, k2=v2}`, in the order of Java's hash map.
#[must_use]
pub fn graph_label(metric: &str, tags: &[(String, String)]) -> String {
    let mut label = metric.to_owned();
    for (at, (tagk, tagv)) in in_map_order(tags).into_iter().enumerate() {
        let before = if at == 0 { "{" } else { ", " };
        let _ = write!(label, "{before}{tagk}={tagv}");
    }
    if !tags.is_empty() {
        label.push('}');
    }
    label
}

fn in_map_order(tags: &[(String, String)]) -> Vec<&(String, String)> {
    let mut tags: Vec<&(String, String)> = tags.iter().collect();
    sort_as_grown_hash_map(&mut tags, |(tagk, _)| tagk);
    tags
}

/// Counts the drawn points of a series within a range of milliseconds. Fails on infinite points, which
/// neither a graph nor lines of points can show. NaN is a gap.
pub fn count_graph_points(
    metric: &str,
    points: &PointColumns,
    (start_ms, end_ms): (i64, i64),
) -> Result<u64, ApiError> {
    let mut count = 0;
    for (at, time_ms) in points.times_ms.iter().enumerate() {
        let value = points.bits.get(at).map_or(0.0, |bits| f64::from_bits(*bits));
        if !points.is_integer(at) && !value.is_finite() {
            if value.is_nan() {
                continue;
            }
            let secs = time_ms.div_euclid(1_000);
            return Err(ApiError::new(400, format!("{metric} is infinite at {secs}")));
        }
        count += u64::from((start_ms..=end_ms).contains(time_ms));
    }
    Ok(count)
}

/// A series of `ascii`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphTextSeries {
    /// Name of the metric.
    pub metric: String,
    /// Tags that all series of the group share.
    pub tags: Vec<(String, String)>,
    /// The points, in time order, without infinite values.
    pub points: PointColumns,
}

/// Writes the response of `ascii` in chunks: one line `metric seconds value tagk=tagv…` per point.
#[derive(Debug)]
pub struct GraphTextWriter<I> {
    series: I,
    current: Option<SeriesLines>,
}

/// A series with the parts of its lines.
#[derive(Debug)]
struct SeriesLines {
    points: PointColumns,
    /// Points written.
    written: usize,
    before: String,
    after: String,
}

impl<I: Iterator<Item = GraphTextSeries>> GraphTextWriter<I> {
    /// Starts a response with these series.
    pub const fn new(series: I) -> Self {
        Self { series, current: None }
    }

    /// Appends to `out` until it holds `chunk_bytes` bytes or the response is complete. Returns false once
    /// the response is complete.
    pub fn write(&mut self, out: &mut Vec<u8>, chunk_bytes: usize) -> bool {
        loop {
            if let Some(lines) = &mut self.current {
                if lines.write(out, chunk_bytes) {
                    return true;
                }
                self.current = None;
            }
            match self.series.next() {
                Some(series) => self.current = Some(SeriesLines::new(series)),
                None => return false,
            }
        }
    }
}

impl SeriesLines {
    fn new(series: GraphTextSeries) -> Self {
        let mut after = String::new();
        for (tagk, tagv) in in_map_order(&series.tags) {
            let _ = write!(after, " {tagk}={tagv}");
        }
        after.push('\n');
        let before = format!("{} ", series.metric);
        Self { points: series.points, written: 0, before, after }
    }

    /// Returns true if there are more points.
    fn write(&mut self, out: &mut Vec<u8>, chunk_bytes: usize) -> bool {
        let mut digits = itoa::Buffer::new();
        let points = self.points.times_ms.iter().zip(&self.points.bits).enumerate();
        for (at, (time_ms, bits)) in points.skip(self.written) {
            if out.len() >= chunk_bytes {
                self.written = at;
                return true;
            }
            let is_integer = match &self.points.kinds {
                ValueKinds::AllIntegers => true,
                ValueKinds::AllFloats => false,
                ValueKinds::Mixed(flags) => flags.get(at).copied().unwrap_or(false),
            };
            let value = f64::from_bits(*bits);
            if !is_integer && value.is_nan() {
                continue;
            }
            out.extend_from_slice(self.before.as_bytes());
            out.extend_from_slice(digits.format(time_ms / 1_000).as_bytes());
            out.push(b' ');
            if is_integer {
                out.extend_from_slice(digits.format(*bits as i64).as_bytes());
            } else {
                write_java_double(value, out);
            }
            out.extend_from_slice(self.after.as_bytes());
        }
        false
    }
}

/// Returns the page that redirects a browser to the user interface, and the address to redirect to.
/// `query` is the query of the URI as sent.
#[must_use]
pub fn graph_redirect(query: &str) -> (String, String) {
    let location = if query.is_empty() { "/".to_owned() } else { format!("/#{query}") };
    // OpenTSDB's page, byte for byte except for the escapes.
    let mut page = String::from("<html></head><meta http-equiv=\"refresh\" content=\"0; url=");
    escape_html(&mut page, &location);
    page.push_str("\"></head></html>");
    (location, page)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tsd_model::Value;

    use super::*;

    fn points(values: &[(i64, Value)]) -> PointColumns {
        let mut points = PointColumns::default();
        for (time_ms, value) in values {
            points.push(*time_ms, *value);
        }
        points
    }

    fn tags(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(tagk, tagv)| ((*tagk).to_owned(), (*tagv).to_owned())).collect()
    }

    #[test]
    fn lines_have_seconds_values_and_tags() {
        let series = || GraphTextSeries {
            metric: "sys.cpu".to_owned(),
            tags: tags(&[("host", "a"), ("cpu", "0")]),
            points: points(&[
                (1_356_998_400_999, Value::Integer(-3)),
                (1_356_998_401_000, Value::Float(f64::NAN)),
                (1_356_998_402_000, Value::Float(1e7)),
                (1_356_998_403_000, Value::Float(0.5)),
            ]),
        };
        let expected = "sys.cpu 1356998400 -3 host=a cpu=0\n\
                        sys.cpu 1356998402 1.0E7 host=a cpu=0\n\
                        sys.cpu 1356998403 0.5 host=a cpu=0\n";
        let mut whole = Vec::new();
        let mut writer = GraphTextWriter::new([series(), series()].into_iter());
        assert!(!writer.write(&mut whole, usize::MAX));
        assert_eq!(String::from_utf8(whole.clone()).unwrap(), expected.repeat(2));
        let mut chunks = Vec::new();
        let mut writer = GraphTextWriter::new([series(), series()].into_iter());
        loop {
            let mut chunk = Vec::new();
            let more = writer.write(&mut chunk, 1);
            chunks.push(chunk);
            if !more {
                break;
            }
        }
        assert!(chunks.len() > 3);
        assert_eq!(chunks.concat(), whole);
    }

    #[test]
    fn labels_are_maps() {
        assert_eq!(graph_label("m", &[]), "m");
        assert_eq!(graph_label("m", &tags(&[("host", "a")])), "m{host=a}");
        assert_eq!(graph_label("m", &tags(&[("cpu", "0"), ("host", "a")])), "m{host=a, cpu=0}");
    }

    #[test]
    fn points_outside_the_range_are_not_counted() {
        let some = points(&[
            (1_000, Value::Float(f64::NAN)),
            (2_000, Value::Integer(i64::MAX)),
            (3_000, Value::Float(1.0)),
            (4_000, Value::Float(1.0)),
        ]);
        assert_eq!(count_graph_points("m", &some, (1_000, 3_000)).unwrap(), 2);
        let infinite = points(&[(1_000, Value::Float(f64::NEG_INFINITY))]);
        let error = count_graph_points("m", &infinite, (5_000, 6_000)).unwrap_err();
        assert_eq!((error.status, error.message.as_str()), (400, "m is infinite at 1"));
    }

    #[test]
    fn summaries_are_ordered_like_a_hash_map() {
        let summary = GraphSummary {
            plotted: 2,
            timing_ms: 7,
            aggregate_tags: vec![None, None, Some(vec!["host".to_owned(), "cpu".to_owned()])],
            points: 3,
        };
        let expected = r#"{"plotted":2,"timing":7,"etags":[[],null,["host","cpu"]],"points":3}"#;
        assert_eq!(String::from_utf8(summary.render()).unwrap(), expected);
    }

    #[test]
    fn redirects_are_escaped() {
        let (location, page) = graph_redirect("start=1h-ago&m=sum:m\"><script>");
        assert_eq!(location, "/#start=1h-ago&m=sum:m\"><script>");
        let url = "/#start=1h-ago&amp;m=sum:m&quot;&gt;&lt;script&gt;";
        assert!(page.contains(url) && !page.contains("<script>"), "{page}");
        assert_eq!(graph_redirect("").0, "/");
    }
}
