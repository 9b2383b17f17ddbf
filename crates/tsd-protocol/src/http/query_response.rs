//! Writes the response of a query in chunks.
//!
//! A response may be far larger than a socket buffer. The writer produces one chunk at a time and
//! stops between two points when the chunk is full, so at most one chunk is buffered.

use std::{fmt, sync::Arc};

use tsd_model::{Annotation, PointColumns, ValueKinds, sort_as_grown_hash_map, write_java_double};

use crate::json::{JsonObject, write_json_string};

/// Layout of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseLayout {
    /// Times in milliseconds instead of seconds.
    pub ms_resolution: bool,
    /// Points as an array of pairs instead of an object.
    pub arrays: bool,
}

/// One series of a response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesResult {
    /// Name of the metric.
    pub metric: String,
    /// Tags that all series of the group share.
    pub tags: Vec<(String, String)>,
    /// Tag keys with several values, in output order.
    pub aggregate_tags: Vec<String>,
    /// The sub query, rendered by [`crate::render_sub_query`].
    pub query: Option<Arc<str>>,
    /// TSUIDs in upper-case hex, in output order.
    pub tsuids: Option<Vec<String>>,
    /// Annotations of the series by start time; `None` without annotations.
    pub annotations: Option<Vec<Annotation>>,
    /// Global annotations by start time; `None` if not requested or without annotations.
    pub global_annotations: Option<Arc<[Annotation]>>,
    /// The points, in time order.
    pub points: PointColumns,
    /// Writes NaN as `null`: the fill policy of the sub query.
    pub nan_as_null: bool,
    /// Statistics of the series.
    pub stats: Option<Vec<(String, StatValue)>>,
}

/// A value in a query's statistics.
#[derive(Clone, Debug, PartialEq)]
pub enum StatValue {
    /// A count.
    Count(i64),
    /// Milliseconds.
    Millis(f64),
    /// A name.
    Text(String),
    /// Nested statistics.
    Part(Vec<(String, StatValue)>),
}

/// Returns the statistics at the end of a response. Called after the rest of the response was written.
pub type Summary = Box<dyn FnOnce() -> Vec<(String, StatValue)> + Send>;

/// Writes the response of a query, series by series as `I` yields them.
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
    /// The current series, and the number of points written.
    Points(Box<SeriesResult>, usize),
    Done,
}

impl<I: Iterator<Item = SeriesResult>> QueryResponseWriter<I> {
    /// Starts a response with these series. `summary` becomes the last element.
    pub fn new(layout: ResponseLayout, series: I, summary: Option<Summary>) -> Self {
        Self { layout, series, summary, state: QueryWriterState::Start, first: true }
    }

    /// Appends to `out` until it holds `chunk_bytes` bytes or the response is complete. Returns
    /// false once the response is complete.
    ///
    /// A chunk may exceed `chunk_bytes` by the names of one series.
    pub fn write(&mut self, out: &mut Vec<u8>, chunk_bytes: usize) -> bool {
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
                    self.write_separator(out);
                    self.write_head(out, &series);
                    self.state = QueryWriterState::Points(Box::new(series), 0);
                }
                QueryWriterState::Points(series, from) => {
                    let to = self.write_points(out, &series, from, chunk_bytes);
                    if to < series.points.len() {
                        self.state = QueryWriterState::Points(series, to);
                    } else {
                        self.write_tail(out, &series);
                        self.state = QueryWriterState::Next;
                    }
                }
                QueryWriterState::Done => return false,
            }
            if out.len() >= chunk_bytes {
                return true;
            }
        }
    }

    /// Returns the complete response.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while self.write(&mut out, usize::MAX) {}
        out
    }

    fn write_separator(&mut self, out: &mut Vec<u8>) {
        if !std::mem::take(&mut self.first) {
            out.push(b',');
        }
    }

    /// Writes everything before the points, and their opening bracket.
    fn write_head(&self, out: &mut Vec<u8>, series: &SeriesResult) {
        let mut object = JsonObject::open(out);
        object
            .string("metric", &series.metric)
            .tags("tags", &series.tags)
            .strings("aggregateTags", &series.aggregate_tags);
        if let Some(query) = &series.query {
            object.key("query").extend_from_slice(query.as_bytes());
        }
        if let Some(tsuids) = &series.tsuids {
            object.strings("tsuids", tsuids);
        }
        for (key, annotations) in [
            ("annotations", series.annotations.as_deref()),
            ("globalAnnotations", series.global_annotations.as_deref()),
        ] {
            if let Some(annotations) = annotations {
                object.list(key, annotations, write_annotation);
            }
        }
        object.key("dps").push(if self.layout.arrays { b'[' } else { b'{' });
    }

    /// Writes points from index `from`; returns the index of the next one.
    fn write_points(
        &self,
        out: &mut Vec<u8>,
        series: &SeriesResult,
        from: usize,
        chunk_bytes: usize,
    ) -> usize {
        let (time_prefix, time_suffix, value_suffix): (&[u8], &[u8], &[u8]) =
            if self.layout.arrays { (b"[", b",", b"]") } else { (b"\"", b"\":", b"") };
        let divisor = if self.layout.ms_resolution { 1 } else { 1_000 };
        let points = &series.points;
        let mut digits = itoa::Buffer::new();
        let times = points.times_ms.iter().zip(&points.bits).enumerate().skip(from);
        for (i, (time_ms, bits)) in times {
            if out.len() >= chunk_bytes {
                return i;
            }
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(time_prefix);
            out.extend_from_slice(digits.format(time_ms / divisor).as_bytes());
            out.extend_from_slice(time_suffix);
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
            out.extend_from_slice(value_suffix);
        }
        points.len()
    }

    /// Writes everything after the points.
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
            self.write_separator(out);
            let mut object = JsonObject::open(out);
            write_stats(object.key("statsSummary"), &summary());
            object.close();
        }
        out.push(b']');
    }
}

/// Writes a double; NaN and infinities are strings.
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

/// Writes an annotation. The order of fields differs from the stored JSON.
pub(super) fn write_annotation(out: &mut Vec<u8>, annotation: &Annotation) {
    let mut object = JsonObject::open(out);
    object.string("tsuid", &annotation.tsuid);
    object.string("description", &annotation.description).string("notes", &annotation.notes);
    if let Some(custom) = &annotation.custom {
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
    object
        .literal("startTime", annotation.start_time)
        .literal("endTime", annotation.end_time)
        .close();
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

#[cfg(test)]
mod tests;
