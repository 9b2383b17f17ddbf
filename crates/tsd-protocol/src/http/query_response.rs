//! The answer to a query, in pieces.
//!
//! An answer may be far larger than a socket takes at once. The writer is asked for one piece after
//! the other and stops between two points when a piece is full, so what waits for the client is
//! never more than that.

use std::{fmt, sync::Arc};

use tsd_model::{Annotation, PointColumns, ValueKinds, sort_as_grown_hash_map, write_java_double};

use crate::json::{JsonList, JsonObject, write_json_string};

/// How an answer is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseLayout {
    /// Times in milliseconds, else in seconds.
    pub ms_resolution: bool,
    /// Points as pairs in an array, else as an object.
    pub arrays: bool,
}

/// One series of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesResult {
    /// Name of the metric.
    pub metric: String,
    /// Tags that all series of the group share.
    pub tags: Vec<(String, String)>,
    /// Tag keys with several values, in the order in which they are shown.
    pub aggregate_tags: Vec<String>,
    /// The sub query, as [`crate::render_sub_query`] has it.
    pub query: Option<Arc<str>>,
    /// TSUIDs in upper-case hex, in the order in which they are shown.
    pub tsuids: Option<Vec<String>>,
    /// Notes on the series, by start time, if any were read.
    pub annotations: Option<Vec<Annotation>>,
    /// Notes on everything, by start time, if they were asked for and there are any.
    pub global_annotations: Option<Vec<Annotation>>,
    /// The points to be shown, in time order.
    pub points: PointColumns,
    /// NaN is written as `null`: the sub query fills with that.
    pub nan_as_null: bool,
    /// How the series was made.
    pub stats: Option<Vec<(String, StatValue)>>,
}

/// A number of a query's statistics.
#[derive(Clone, Debug, PartialEq)]
pub enum StatValue {
    /// A count.
    Count(i64),
    /// Milliseconds.
    Millis(f64),
    /// A name.
    Text(String),
    /// Numbers of a part.
    Part(Vec<(String, StatValue)>),
}

/// Makes the numbers at the end of an answer, once everything before them was written.
pub type Summary = Box<dyn FnOnce() -> Vec<(String, StatValue)> + Send>;

/// Writes the answer to a query, series by series as `I` yields them.
pub struct QueryResponseWriter<I> {
    layout: ResponseLayout,
    series: I,
    summary: Option<Summary>,
    state: QueryWriterState,
    first: bool,
}

impl<I> fmt::Debug for QueryResponseWriter<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryResponseWriter").field("step", &self.state).finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum QueryWriterState {
    Start,
    Next,
    /// The series whose points are being written, and how many were.
    Points(Box<SeriesResult>, usize),
    Done,
}

impl<I: Iterator<Item = SeriesResult>> QueryResponseWriter<I> {
    /// Starts an answer of these series. `summary` becomes its last element.
    pub fn new(layout: ResponseLayout, series: I, summary: Option<Summary>) -> Self {
        Self { layout, series, summary, state: QueryWriterState::Start, first: true }
    }

    /// Appends to `out` until it holds `enough` bytes or the answer is complete; false then.
    ///
    /// A piece may be larger than `enough` by the names of one series.
    pub fn write(&mut self, out: &mut Vec<u8>, enough: usize) -> bool {
        loop {
            match std::mem::replace(&mut self.state, QueryWriterState::Done) {
                QueryWriterState::Start => {
                    out.push(b'[');
                    self.state = QueryWriterState::Next;
                }
                QueryWriterState::Next => {
                    let Some(series) = self.series.next() else {
                        self.write_end(out);
                        return false;
                    };
                    self.separate(out);
                    self.write_head(out, &series);
                    self.state = QueryWriterState::Points(Box::new(series), 0);
                }
                QueryWriterState::Points(series, from) => {
                    let to = self.write_points(out, &series, from, enough);
                    if to < series.points.len() {
                        self.state = QueryWriterState::Points(series, to);
                    } else {
                        self.write_tail(out, &series);
                        self.state = QueryWriterState::Next;
                    }
                }
                QueryWriterState::Done => return false,
            }
            if out.len() >= enough {
                return true;
            }
        }
    }

    /// The whole answer at once.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while self.write(&mut out, usize::MAX) {}
        out
    }

    fn separate(&mut self, out: &mut Vec<u8>) {
        if !std::mem::take(&mut self.first) {
            out.push(b',');
        }
    }

    /// Everything before the points, and the bracket that opens them.
    fn write_head(&self, out: &mut Vec<u8>, series: &SeriesResult) {
        let mut object = JsonObject::open(out);
        object.string("metric", &series.metric);
        let mut tags: Vec<&(String, String)> = series.tags.iter().collect();
        sort_as_grown_hash_map(&mut tags, |(key, _)| key);
        let mut tags_object = JsonObject::open(object.key("tags"));
        for (key, value) in tags {
            tags_object.string(key, value);
        }
        tags_object.close();
        write_texts(object.key("aggregateTags"), &series.aggregate_tags);
        if let Some(query) = &series.query {
            object.key("query").extend_from_slice(query.as_bytes());
        }
        if let Some(tsuids) = &series.tsuids {
            write_texts(object.key("tsuids"), tsuids);
        }
        for (key, notes) in [
            ("annotations", &series.annotations),
            ("globalAnnotations", &series.global_annotations),
        ] {
            if let Some(notes) = notes {
                let mut list = JsonList::open(object.key(key));
                for note in notes {
                    write_annotation(list.element(), note);
                }
                list.close();
            }
        }
        object.key("dps").push(if self.layout.arrays { b'[' } else { b'{' });
    }

    /// Points from the one at `from` on; says which comes next.
    fn write_points(
        &self,
        out: &mut Vec<u8>,
        series: &SeriesResult,
        from: usize,
        enough: usize,
    ) -> usize {
        let (before_time, after_time, after_value): (&[u8], &[u8], &[u8]) =
            if self.layout.arrays { (b"[", b",", b"]") } else { (b"\"", b"\":", b"") };
        let divisor = if self.layout.ms_resolution { 1 } else { 1_000 };
        let points = &series.points;
        let mut digits = itoa::Buffer::new();
        let times = points.times_ms.iter().zip(&points.bits).enumerate().skip(from);
        for (i, (time_ms, bits)) in times {
            if out.len() >= enough {
                return i;
            }
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(before_time);
            out.extend_from_slice(digits.format(time_ms / divisor).as_bytes());
            out.extend_from_slice(after_time);
            let integer = match &points.kinds {
                ValueKinds::AllIntegers => true,
                ValueKinds::AllFloats => false,
                ValueKinds::Mixed(flags) => flags.get(i).copied().unwrap_or(false),
            };
            if integer {
                out.extend_from_slice(digits.format(*bits as i64).as_bytes());
            } else {
                write_double(out, f64::from_bits(*bits), series.nan_as_null);
            }
            out.extend_from_slice(after_value);
        }
        points.len()
    }

    /// Everything behind the points.
    fn write_tail(&self, out: &mut Vec<u8>, series: &SeriesResult) {
        out.push(if self.layout.arrays { b']' } else { b'}' });
        if let Some(stats) = &series.stats {
            out.extend_from_slice(b",\"stats\":");
            write_stats(out, stats);
        }
        out.push(b'}');
    }

    fn write_end(&mut self, out: &mut Vec<u8>) {
        if let Some(summary) = self.summary.take() {
            self.separate(out);
            let mut object = JsonObject::open(out);
            write_stats(object.key("statsSummary"), &summary());
            object.close();
        }
        out.push(b']');
    }
}

/// A double as JSON: what JSON has no number for is a string.
pub(super) fn write_double(out: &mut Vec<u8>, value: f64, nan_as_null: bool) {
    if value.is_finite() {
        write_java_double(value, out);
    } else if value.is_nan() && nan_as_null {
        out.extend_from_slice(b"null");
    } else {
        out.push(b'"');
        write_java_double(value, out);
        out.push(b'"');
    }
}

/// Writes an annotation as the API shows it, which is not the order in which tables hold it.
pub fn write_annotation(out: &mut Vec<u8>, note: &Annotation) {
    let mut object = JsonObject::open(out);
    object.string("tsuid", &note.tsuid);
    object.string("description", &note.description).string("notes", &note.notes);
    if let Some(custom) = &note.custom {
        let mut custom: Vec<&(String, Option<String>)> = custom.iter().collect();
        sort_as_grown_hash_map(&mut custom, |(key, _)| key);
        let mut fields = JsonObject::open(object.key("custom"));
        for (key, value) in custom {
            match value {
                Some(value) => fields.string(key, value),
                None => fields.literal(key, "null"),
            };
        }
        fields.close();
    }
    object.literal("startTime", note.start_time).literal("endTime", note.end_time).close();
}

pub(super) fn write_stats(out: &mut Vec<u8>, stats: &[(String, StatValue)]) {
    let mut object = JsonObject::open(out);
    for (name, value) in stats {
        match value {
            StatValue::Count(count) => {
                object.literal(name, count);
            }
            StatValue::Millis(millis) => write_double(object.key(name), *millis, false),
            StatValue::Text(text) => write_json_string(object.key(name), text),
            StatValue::Part(stats) => write_stats(object.key(name), stats),
        }
    }
    object.close();
}

pub(super) fn write_texts(out: &mut Vec<u8>, texts: &[String]) {
    let mut list = JsonList::open(out);
    for text in texts {
        write_json_string(list.element(), text);
    }
    list.close();
}

#[cfg(test)]
mod tests;
