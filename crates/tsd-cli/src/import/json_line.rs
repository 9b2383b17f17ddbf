//! Parser of a line of JSON. The spool writes such lines for histograms, rollups, and points whose names do not fit
//! an import line.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};
use tsd_engine::{RollupTarget, SampleContent};
use tsd_model::{HistogramCodecs, InputFormat, PointValue, ValueTextError, parse_point_value};
use tsd_protocol::{
    HistogramValue, HistogramValueError, NAME_SEPARATOR, RollupRules, RollupSpec, TagPairs,
};

use crate::json_fields::texts;

/// First byte of such a line.
pub(super) const BRACE: u8 = b'{';

/// A line of JSON with names that are not validated yet.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JsonLine {
    pub(super) kind: JsonKind,
    /// The object that the endpoint of the kind accepts.
    pub(super) object: Map<String, Value>,
    pub(super) metric: String,
    pub(super) timestamp: i64,
    tags: Vec<(String, String)>,
    pub(super) line_bytes: usize,
}

/// The kind of value that a line stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum JsonKind {
    Point,
    Rollup,
    Histogram,
}

/// A line of JSON that is not a point.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum JsonLineError {
    #[error("invalid JSON: {0}")]
    Json(String),
    #[error("the type is neither point, rollup nor histogram")]
    Type,
    #[error("{0} is missing or has another type")]
    Field(&'static str),
    #[error("invalid value: {0}")]
    Value(#[from] ValueTextError),
    #[error("histograms are not configured (tsd.core.histograms.config)")]
    NoHistograms,
    /// An error of another crate, as text so that it can be compared.
    #[error("{0}")]
    Histogram(String),
    #[error("rollups are not configured (tsd.rollups.config)")]
    NoRollups,
    #[error("no rollup is configured for this interval and these aggregators")]
    UnknownRollup,
}

impl From<HistogramValueError> for JsonLineError {
    fn from(error: HistogramValueError) -> Self {
        Self::Histogram(error.to_string())
    }
}

impl JsonKind {
    pub(super) const ALL: [Self; 3] = [Self::Point, Self::Rollup, Self::Histogram];

    /// The endpoint of lines of the kind.
    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Point => "/api/put?details",
            Self::Rollup => "/api/rollup?details",
            Self::Histogram => "/api/histogram?details",
        }
    }
}

/// The content of a line for an engine.
pub(super) struct JsonContent {
    value: JsonValue,
    /// Tags as stored, separated by [`NAME_SEPARATOR`]: a key of the series cache that no import line can have.
    tags_raw: Vec<u8>,
}

enum JsonValue {
    Point(PointValue),
    Rollup(RollupTarget, PointValue),
    Histogram(Vec<u8>),
}

impl JsonLine {
    pub(super) fn parse(line: &[u8]) -> Result<Self, JsonLineError> {
        let object: Map<String, Value> =
            serde_json::from_slice(line).map_err(|error| JsonLineError::Json(error.to_string()))?;
        let kind = match object.get("type").and_then(Value::as_str) {
            Some("point") => JsonKind::Point,
            Some("rollup") => JsonKind::Rollup,
            Some("histogram") => JsonKind::Histogram,
            _ => return Err(JsonLineError::Type),
        };
        let metric = object.get("metric").and_then(Value::as_str);
        let metric = metric.ok_or(JsonLineError::Field("metric"))?.to_owned();
        let timestamp = object.get("timestamp").and_then(Value::as_i64);
        let timestamp = timestamp.ok_or(JsonLineError::Field("timestamp"))?;
        let tags = object.get("tags").and_then(Value::as_object).and_then(texts);
        let tags = tags.ok_or(JsonLineError::Field("tags"))?;
        Ok(Self { kind, object, metric, timestamp, tags, line_bytes: line.len() })
    }

    /// The content of the line for the settings of an engine.
    pub(super) fn content(
        &self,
        rollups: Option<&RollupRules>,
        histograms: Option<&HistogramCodecs>,
    ) -> Result<JsonContent, JsonLineError> {
        // Outlives the tags that borrow from it.
        let placement;
        let mut tags: TagPairs<'_> =
            self.tags.iter().map(|(tagk, tagv)| (tagk.as_bytes(), tagv.as_bytes())).collect();
        let value = match self.kind {
            JsonKind::Point => JsonValue::Point(self.number()?),
            JsonKind::Histogram => {
                let codecs = histograms.ok_or(JsonLineError::NoHistograms)?;
                JsonValue::Histogram(self.histogram()?.encode(codecs)?)
            }
            JsonKind::Rollup => {
                let rules = rollups.ok_or(JsonLineError::NoRollups)?;
                placement = rules.placement(&self.spec()).ok_or(JsonLineError::UnknownRollup)?;
                let place = match placement.slot {
                    None => RollupTarget::PreAggregate,
                    Some((interval, aggregator_id)) => RollupTarget::Slot {
                        interval,
                        aggregator_id,
                        pre_aggregate: placement.pre_aggregate,
                    },
                };
                tags = rules.tags(&tags, &placement);
                JsonValue::Rollup(place, self.number()?)
            }
        };
        let mut tags_raw = Vec::new();
        for name in tags.iter().flat_map(|(tagk, tagv)| [tagk, tagv]) {
            tags_raw.push(NAME_SEPARATOR);
            tags_raw.extend_from_slice(name);
        }
        Ok(JsonContent { value, tags_raw })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.object.get(name).and_then(Value::as_str)
    }

    fn number(&self) -> Result<PointValue, JsonLineError> {
        let number = self.object.get("value").and_then(Value::as_number);
        let text = number.ok_or(JsonLineError::Field("value"))?.to_string();
        Ok(parse_point_value(text.as_bytes(), InputFormat::Telnet)?)
    }

    fn histogram(&self) -> Result<HistogramValue, JsonLineError> {
        let codec = self.object.get("id").and_then(Value::as_i64);
        let codec = codec.ok_or(JsonLineError::Field("id"))?;
        let bytes = self.text("value").and_then(|text| STANDARD.decode(text).ok());
        let bytes = bytes.ok_or(JsonLineError::Field("value"))?;
        Ok(HistogramValue::Encoded { codec, bytes })
    }

    fn spec(&self) -> RollupSpec<'_> {
        RollupSpec {
            interval: self.text("interval").map(str::as_bytes),
            aggregator: self.text("aggregator").unwrap_or_default().as_bytes(),
            group_by: self.text("groupByAggregator").map(str::as_bytes),
        }
    }
}

impl JsonContent {
    pub(super) fn sample(&self) -> SampleContent<'_> {
        match &self.value {
            JsonValue::Point(value) => SampleContent::Point(*value),
            JsonValue::Rollup(place, value) => {
                SampleContent::Rollup { place: *place, value: *value }
            }
            JsonValue::Histogram(stored) => SampleContent::Histogram(stored),
        }
    }

    pub(super) fn tags_raw(&self) -> &[u8] {
        &self.tags_raw
    }

    /// Distinct keys and values in their stored order.
    pub(super) fn tags(&self) -> TagPairs<'_> {
        let mut names = self.tags_raw.split(|byte| *byte == NAME_SEPARATOR).skip(1);
        std::iter::from_fn(|| Some((names.next()?, names.next()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tsd_model::RollupConfig;

    use super::*;

    const ROLLUPS: &str = r#"{"aggregationIds":{"sum":0,"max":3},"intervals":[{"table":"tsdb",
        "preAggregationTable":"agg","interval":"1m","rowSpan":"1h","defaultInterval":true},
        {"table":"r","preAggregationTable":"a","interval":"1h","rowSpan":"1d"}]}"#;

    fn rules() -> RollupRules {
        RollupRules {
            config: RollupConfig::from_json(ROLLUPS.as_bytes(), |_| true).unwrap(),
            aggregate_tag_key: "_aggregate".to_owned(),
            raw_tag_value: "RAW".to_owned(),
            tag_raw: false,
            block_derived: true,
        }
    }

    /// Content and tags of a line with this kind and these fields after its tags.
    fn content(kind: &str, rest: &str) -> Result<(String, String), JsonLineError> {
        let line = format!(
            r#"{{"type":"{kind}","metric":"m x","timestamp":1600000000,"tags":{{"host":"a b"}}{rest}}}"#
        );
        let content = JsonLine::parse(line.as_bytes())?
            .content(Some(&rules()), Some(&HistogramCodecs::simple(42)))?;
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let mut tags: Vec<_> =
            content.tags().iter().map(|(tagk, tagv)| text(tagk) + "=" + &text(tagv)).collect();
        tags.sort_unstable();
        Ok((format!("{:?}", content.sample()), tags.join(",")))
    }

    #[test]
    fn each_kind_has_its_content_and_tags() {
        let plain = "host=a b";
        for (kind, rest, expected, tags) in [
            ("point", r#","value":5"#, "Point(Integer(5))", plain),
            ("point", r#","value":0.1"#, "Point(Double(0.1))", plain),
            ("point", r#","value":1.5E3"#, "Point(Single(1500.0))", plain),
            (
                "rollup",
                r#","value":7,"interval":"1h","aggregator":"max""#,
                "Rollup { place: Slot { interval: 1, aggregator_id: 3, pre_aggregate: false }, value: Integer(7) }",
                plain,
            ),
            (
                "rollup",
                r#","value":7,"interval":"1h","aggregator":"sum","groupByAggregator":"SUM""#,
                "Rollup { place: Slot { interval: 1, aggregator_id: 0, pre_aggregate: true }, value: Integer(7) }",
                "_aggregate=SUM,host=a b",
            ),
            (
                "rollup",
                r#","value":-2,"groupByAggregator":"MAX""#,
                "Rollup { place: PreAggregate, value: Integer(-2) }",
                "_aggregate=MAX,host=a b",
            ),
        ] {
            let (content, found) = content(kind, rest).unwrap();
            assert_eq!((content.as_str(), found.as_str()), (expected, tags), "{rest}");
        }
        let stored = tsd_model::SimpleHistogram::parse("0,1=42").unwrap().encode(42).unwrap();
        let value = STANDARD.encode(stored.get(1..).unwrap());
        let histogram = content("histogram", &format!(r#","id":42,"value":"{value}""#)).unwrap();
        assert_eq!(histogram.0, format!("{:?}", SampleContent::Histogram(&stored)));
    }

    #[test]
    fn lines_that_are_no_point_are_errors() {
        let error = |kind: &str, rest: &str| content(kind, rest).unwrap_err();
        assert_eq!(error("annotation", ""), JsonLineError::Type);
        assert_eq!(error("point", ""), JsonLineError::Field("value"));
        assert_eq!(error("histogram", r#","value":"AA==""#), JsonLineError::Field("id"));
        assert_eq!(
            error("rollup", r#","value":1,"interval":"9h","aggregator":"sum""#),
            JsonLineError::UnknownRollup
        );
        assert!(matches!(
            error("histogram", r#","id":7,"value":"AA==""#),
            JsonLineError::Histogram(_)
        ));
        assert!(matches!(JsonLine::parse(b"{\"type\":"), Err(JsonLineError::Json(_))));
        let line = JsonLine::parse(br#"{"type":"rollup","metric":"m","timestamp":1,"tags":{}}"#);
        assert_eq!(line.unwrap().content(None, None).err(), Some(JsonLineError::NoRollups));
    }
}
