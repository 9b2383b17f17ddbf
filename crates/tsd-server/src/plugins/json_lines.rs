//! Points, histograms, rolled-up values and annotations as lines of JSON.
//!
//! `/api/put` accepts the line of a point, `/api/histogram` the line of a histogram, `/api/rollup` the line of a
//! rolled-up value, and `/api/annotation` the object of an annotation. They ignore unknown fields.

use std::fmt::Write;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tsd_engine::{
    PluginBatch, PluginItem, PointRecord, RecordContent, RolledUpValue, RollupTarget, Rollups,
};
use tsd_model::{PointValue, java_double, write_java_json_string};

/// Renders the lines of a batch.
pub(super) fn render(batch: &PluginBatch) -> String {
    let mut out = String::new();
    for item in batch.items() {
        match item {
            PluginItem::Points(points) => {
                for point in points {
                    // Publishers get no rolled-up values, and all other points have a line.
                    let _ = push_point(point, None, &mut out);
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

/// Appends the line of a point; false for a rolled-up value whose interval or aggregators are no longer configured.
// Writing to a string cannot fail.
pub(super) fn push_point(point: &PointRecord, rollups: Option<&Rollups>, out: &mut String) -> bool {
    let rollup = match point.content() {
        RecordContent::Rollup(value) => match RollupFields::new(point, value, rollups) {
            Some(fields) => Some(fields),
            None => return false,
        },
        RecordContent::Point(_) | RecordContent::Histogram(_) => None,
    };
    let kind = match point.content() {
        RecordContent::Point(_) => "point",
        RecordContent::Histogram(_) => "histogram",
        RecordContent::Rollup(_) => "rollup",
    };
    out.push_str("{\"type\":\"");
    out.push_str(kind);
    out.push_str("\",\"metric\":");
    write_java_json_string(&point.metric(), out);
    out.push_str(",\"timestamp\":");
    let _ = write!(out, "{}", point.timestamp());
    match point.content() {
        RecordContent::Point(value) => push_value(*value, out),
        RecordContent::Rollup(rolled_up) => push_value(rolled_up.value, out),
        RecordContent::Histogram(stored) => push_histogram(stored, out),
    }
    push_tags(point, rollup.as_ref().map(|fields| fields.aggregate_tag_key), out);
    if let Some(fields) = rollup {
        fields.push(out);
    }
    out.push_str(",\"tsuid\":\"");
    for byte in point.tsuid() {
        let _ = write!(out, "{byte:02X}");
    }
    out.push_str("\"}\n");
    true
}

/// Appends the tags without the tag of an aggregator, since a put of the line adds that tag again.
fn push_tags(point: &PointRecord, left_out: Option<&str>, out: &mut String) {
    out.push_str(",\"tags\":{");
    let tags = point.tags().filter(|(tagk, _)| Some(tagk.as_str()) != left_out);
    for (at, (tagk, tagv)) in tags.enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_java_json_string(&tagk, out);
        out.push(':');
        write_java_json_string(&tagv, out);
    }
    out.push('}');
}

/// Fields that a rolled-up value has in addition to the fields of a point, as sent.
struct RollupFields<'r> {
    aggregate_tag_key: &'r str,
    /// Interval and aggregator over time; `None` for a pre-aggregate of points.
    slot: Option<(&'r str, &'r str)>,
    /// Aggregator over series.
    group_by: Option<String>,
}

impl<'r> RollupFields<'r> {
    fn new(
        point: &PointRecord,
        RolledUpValue { place, .. }: &RolledUpValue,
        rollups: Option<&'r Rollups>,
    ) -> Option<Self> {
        let rollups = rollups?;
        let aggregate_tag_key = rollups.aggregate_tag_key.as_str();
        let (slot, is_grouped) = match *place {
            RollupTarget::PreAggregate => (None, true),
            RollupTarget::Slot { interval, aggregator_id, pre_aggregate } => {
                let interval = rollups.config.intervals().get(interval)?;
                let aggregator = rollups.config.aggregator_name(aggregator_id)?;
                (Some((interval.interval.as_str(), aggregator)), pre_aggregate)
            }
        };
        let group_by = if is_grouped {
            let tag = point.tags().find(|(tagk, _)| tagk == aggregate_tag_key);
            Some(tag.map(|(_, aggregator)| aggregator)?)
        } else {
            None
        };
        Some(Self { aggregate_tag_key, slot, group_by })
    }

    fn push(&self, out: &mut String) {
        let fields = [
            ("interval", self.slot.map(|(interval, _)| interval)),
            ("aggregator", self.slot.map(|(_, aggregator)| aggregator)),
            ("groupByAggregator", self.group_by.as_deref()),
        ];
        for (name, text) in fields {
            if let Some(text) = text {
                let _ = write!(out, ",\"{name}\":");
                write_java_json_string(text, out);
            }
        }
    }
}

fn push_value(value: PointValue, out: &mut String) {
    out.push_str(",\"value\":");
    push_number(value, out);
}

/// Appends a number that reads back as the same value.
pub(super) fn push_number(value: PointValue, out: &mut String) {
    match value {
        PointValue::Integer(value) => out.push_str(&value.to_string()),
        PointValue::Single(value) => out.push_str(&java_double(f64::from(value))),
        PointValue::Double(value) => out.push_str(&java_double(value)),
    }
}

/// Appends the id of the codec and the value in base64.
fn push_histogram(stored: &[u8], out: &mut String) {
    let (id, value) = stored.split_first().unwrap_or((&0, &[]));
    let _ = write!(out, ",\"id\":{id},\"value\":\"{}\"", STANDARD.encode(value));
}
