//! Points, histograms and annotations as lines of JSON.
//!
//! A line of a point is accepted by `/api/put`, one of a histogram by `/api/histogram`, and the object of an
//! annotation by `/api/annotation`: what they do not know they ignore.

use std::fmt::Write;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tsd_engine::{PluginBatch, PluginItem, PointRecord, RecordContent};
use tsd_model::{PointValue, java_double, write_java_json_string};

/// The lines of a batch.
pub(super) fn render(batch: &PluginBatch) -> String {
    let mut out = String::new();
    for item in batch.items() {
        match item {
            PluginItem::Points(points) => {
                for point in points {
                    push_point(point, &mut out);
                }
            }
            PluginItem::Annotation(annotation) => {
                out.push_str("{\"type\":\"annotation\",\"annotation\":");
                out.push_str(&annotation.to_json());
                out.push_str("}\n");
            }
        }
    }
    out
}

// Writing to a string cannot fail.
fn push_point(point: &PointRecord, out: &mut String) {
    let kind = match point.content() {
        RecordContent::Point(_) => "point",
        RecordContent::Histogram(_) => "histogram",
        // Publishers do not get them.
        RecordContent::Rollup => return,
    };
    out.push_str("{\"type\":\"");
    out.push_str(kind);
    out.push_str("\",\"metric\":");
    write_java_json_string(&point.metric(), out);
    out.push_str(",\"timestamp\":");
    let _ = write!(out, "{}", point.timestamp());
    match point.content() {
        RecordContent::Point(value) => {
            out.push_str(",\"value\":");
            push_number(*value, out);
        }
        RecordContent::Histogram(stored) => push_histogram(stored, out),
        RecordContent::Rollup => {}
    }
    out.push_str(",\"tags\":{");
    for (at, (tagk, tagv)) in point.tags().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_java_json_string(&tagk, out);
        out.push(':');
        write_java_json_string(&tagv, out);
    }
    out.push_str("},\"tsuid\":\"");
    for byte in point.tsuid() {
        let _ = write!(out, "{byte:02X}");
    }
    out.push_str("\"}\n");
}

/// A number that reads back as the same value.
fn push_number(value: PointValue, out: &mut String) {
    match value {
        PointValue::Integer(value) => out.push_str(&value.to_string()),
        PointValue::Single(value) => out.push_str(&java_double(f64::from(value))),
        PointValue::Double(value) => out.push_str(&java_double(value)),
    }
}

/// Id of the codec, and the value in base64.
fn push_histogram(stored: &[u8], out: &mut String) {
    let (id, value) = stored.split_first().unwrap_or((&0, &[]));
    let _ = write!(out, ",\"id\":{id},\"value\":\"{}\"", STANDARD.encode(value));
}
