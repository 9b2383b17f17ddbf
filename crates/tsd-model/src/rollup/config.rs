//! Configuration of rollups: `tsd.rollups.config`.

use serde_json::{Map, Value};

use super::{RollupAggregator, RollupQualifier, RowSpan, parse_duration_secs};
use crate::{base_time::BaseTime, flags::Flags};

/// One rollup interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollupInterval {
    /// As written, such as `10m`. Requests name intervals by this text.
    pub interval: String,
    /// Table of rollups of single series.
    pub table: String,
    /// Table of pre-aggregates.
    pub pre_aggregation_table: String,
    /// Time span of one row.
    pub row_span: RowSpan,
    /// Seconds of the interval.
    pub seconds: u32,
    /// True for the interval of the data table.
    pub is_default: bool,
    /// Delay of rollups in seconds; 0 if unknown.
    pub delay_sla_secs: u64,
}

impl RollupInterval {
    /// Number of slots in a row.
    #[must_use]
    pub const fn slots(&self) -> u64 {
        self.row_span.seconds() / if self.seconds == 0 { 1 } else { self.seconds as u64 }
    }

    /// Row and qualifier of an aggregator's value at a time.
    #[must_use]
    pub fn place(
        &self,
        epoch_secs: u32,
        aggregator_id: u8,
        flags: Flags,
    ) -> (BaseTime, RollupQualifier<'static>) {
        let base = self.row_span.base_time(epoch_secs);
        let slot = ((epoch_secs - base.as_secs()) / self.seconds.max(1)) as u16;
        let aggregator = RollupAggregator::Id(aggregator_id);
        (base, RollupQualifier { aggregator, slot, flags })
    }

    /// Start of a slot of a row, epoch seconds.
    #[must_use]
    pub const fn slot_start(&self, base: BaseTime, slot: u16) -> u64 {
        base.as_secs() as u64 + slot as u64 * self.seconds as u64
    }
}

/// The validated configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollupConfig {
    aggregators: Vec<(String, u8)>,
    intervals: Vec<RollupInterval>,
}

/// An invalid configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RollupConfigError {
    /// Not JSON of the expected form.
    #[error("rollup configuration: {0}")]
    Form(String),
    /// A required part is missing.
    #[error("rollup configuration lacks {0}")]
    Missing(&'static str),
    /// An unknown aggregator.
    #[error("rollup configuration names the unknown aggregator \"{0}\"")]
    UnknownAggregator(String),
    /// An id outside 0 to 127, given twice, or the first letter of an aggregator in use.
    #[error("rollup configuration gives \"{name}\" the id {id}, which is not free")]
    AggregatorId {
        /// The aggregator.
        name: String,
        /// The id.
        id: i64,
    },
    /// An invalid interval.
    #[error("rollup interval \"{interval}\": {problem}")]
    Interval {
        /// As written.
        interval: String,
        /// The problem.
        problem: &'static str,
    },
    /// Not exactly one default interval.
    #[error("rollup configuration has {0} default intervals instead of one")]
    Defaults(usize),
}

impl RollupConfig {
    /// Minimum number of slots of a row.
    const MIN_SLOTS: u64 = 12;
    /// Maximum number of slots of a row. OpenTSDB allows more, with collisions.
    const MAX_SLOTS: u64 = 3_840;

    /// Parses and validates the JSON. `is_aggregator` is true for lower-case names of aggregators.
    pub fn from_json(
        json: &[u8],
        is_aggregator: impl Fn(&str) -> bool,
    ) -> Result<Self, RollupConfigError> {
        let form = |problem: String| RollupConfigError::Form(problem);
        let object: Map<String, Value> =
            serde_json::from_slice(json).map_err(|e| form(e.to_string()))?;
        let ids = object
            .get("aggregationIds")
            .and_then(Value::as_object)
            .filter(|ids| !ids.is_empty())
            .ok_or(RollupConfigError::Missing("aggregationIds"))?;
        let aggregators = read_aggregators(ids, is_aggregator)?;
        let list = object
            .get("intervals")
            .and_then(Value::as_array)
            .filter(|list| !list.is_empty())
            .ok_or(RollupConfigError::Missing("intervals"))?;
        let mut intervals: Vec<RollupInterval> = Vec::new();
        for item in list {
            let item =
                item.as_object().ok_or_else(|| form("an interval is no object".to_owned()))?;
            let interval = read_interval(item)?;
            if intervals.iter().any(|other| other.interval == interval.interval) {
                let (interval, problem) = (interval.interval, "given twice");
                return Err(RollupConfigError::Interval { interval, problem });
            }
            intervals.push(interval);
        }
        match intervals.iter().filter(|i| i.is_default).count() {
            1 => Ok(Self { aggregators, intervals }),
            defaults => Err(RollupConfigError::Defaults(defaults)),
        }
    }

    /// Id of an aggregator, by its name in any case.
    #[must_use]
    pub fn aggregator_id(&self, name: &str) -> Option<u8> {
        let found = self.aggregators.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, id)| *id)
    }

    /// Name of an aggregator, by its id.
    #[must_use]
    pub fn aggregator_name(&self, id: u8) -> Option<&str> {
        self.aggregators.iter().find(|(_, known)| *known == id).map(|(name, _)| name.as_str())
    }

    /// Id of the aggregator of a cell, for both forms of qualifiers.
    #[must_use]
    pub fn id_of(&self, aggregator: RollupAggregator<'_>) -> Option<u8> {
        match aggregator {
            RollupAggregator::Id(id) => self.aggregator_name(id).map(|_| id),
            RollupAggregator::Name(name) => self.aggregator_id(std::str::from_utf8(name).ok()?),
        }
    }

    /// All intervals, as configured.
    #[must_use]
    pub fn intervals(&self) -> &[RollupInterval] {
        &self.intervals
    }

    /// Finds an interval by its text.
    #[must_use]
    pub fn interval(&self, text: &str) -> Option<&RollupInterval> {
        self.intervals.iter().find(|i| i.interval == text)
    }

    /// The interval of the data table.
    #[must_use]
    pub fn default_interval(&self) -> Option<&RollupInterval> {
        self.intervals.iter().find(|i| i.is_default)
    }
}

fn read_aggregators(
    ids: &Map<String, Value>,
    is_aggregator: impl Fn(&str) -> bool,
) -> Result<Vec<(String, u8)>, RollupConfigError> {
    let mut aggregators: Vec<(String, u8)> = Vec::new();
    let letters: Vec<i64> = ids
        .keys()
        .filter_map(|name| name.bytes().next())
        .map(|first| i64::from(first.to_ascii_lowercase()))
        .collect();
    for (name, id) in ids {
        let name = name.to_lowercase();
        if !is_aggregator(&name) {
            return Err(RollupConfigError::UnknownAggregator(name));
        }
        let number = id.as_i64().unwrap_or(-1);
        let taken = |id: u8| aggregators.iter().any(|(other, old)| *old == id || *other == name);
        // Such an id could not be distinguished from the first letter of an old qualifier.
        match u8::try_from(number) {
            Ok(id @ 0..128) if !taken(id) && !letters.contains(&number) => {
                aggregators.push((name, id));
            }
            _ => return Err(RollupConfigError::AggregatorId { name, id: number }),
        }
    }
    Ok(aggregators)
}

fn read_interval(item: &Map<String, Value>) -> Result<RollupInterval, RollupConfigError> {
    let text = |key: &'static str| {
        let value = item.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        value.map(str::to_owned).ok_or(RollupConfigError::Missing(key))
    };
    let interval = text("interval")?;
    let error = |problem| RollupConfigError::Interval { interval: interval.clone(), problem };
    let seconds = parse_duration_secs(&interval)
        .and_then(|secs| u32::try_from(secs).ok())
        .filter(|secs| *secs > 0)
        .ok_or_else(|| error("not a duration of a second or more"))?;
    let row_span = RowSpan::parse(&text("rowSpan")?)
        .ok_or_else(|| error("rowSpan must be 1h, an even number of hours, 1d, 1n or 1y"))?;
    let delay_sla_secs = match item.get("delaySla").and_then(Value::as_str) {
        None | Some("") => 0,
        Some(delay) => parse_duration_secs(delay)
            .filter(|secs| *secs > 0)
            .ok_or_else(|| error("delaySla is not a duration of a second or more"))?,
    };
    let is_default = item.get("defaultInterval").and_then(Value::as_bool).unwrap_or_default();
    let (table, pre_aggregation_table) = (text("table")?, text("preAggregationTable")?);
    let read = RollupInterval {
        interval: interval.clone(),
        table,
        pre_aggregation_table,
        row_span,
        seconds,
        is_default,
        delay_sla_secs,
    };
    if u64::from(seconds) >= row_span.seconds() {
        return Err(error("longer than its row"));
    }
    match read.slots() {
        ..RollupConfig::MIN_SLOTS => Err(error("fewer than 12 to a row")),
        RollupConfig::MIN_SLOTS..=RollupConfig::MAX_SLOTS => Ok(read),
        _ => Err(error("more than 3840 to a row")),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn read(ids: &str, intervals: &str) -> Result<RollupConfig, RollupConfigError> {
        let json = format!(r#"{{"aggregationIds":{{{ids}}},"intervals":[{intervals}]}}"#);
        RollupConfig::from_json(json.as_bytes(), |name| {
            ["sum", "count", "min", "max", "avg"].contains(&name)
        })
    }

    fn interval(interval: &str, span: &str, default: bool) -> String {
        format!(
            r#"{{"table":"t-{interval}","preAggregationTable":"p-{interval}","interval":"{interval}",
            "rowSpan":"{span}","defaultInterval":{default}}}"#
        )
    }

    #[test]
    fn a_valid_configuration_is_accepted() {
        let list = [interval("1m", "1h", true), interval("1h", "1n", false)].join(",");
        let config = read(r#""SUM":0,"count":1"#, &list).unwrap();
        assert_eq!(config.aggregator_id("Sum"), Some(0));
        assert_eq!(config.aggregator_name(1), Some("count"));
        assert_eq!(config.id_of(RollupAggregator::Name(b"count")), Some(1));
        assert_eq!(config.id_of(RollupAggregator::Id(7)), None);
        assert_eq!(config.interval("1h").unwrap().slots(), 768);
        assert_eq!(config.default_interval().unwrap().interval, "1m");
        assert_eq!(config.intervals().len(), 2);
    }

    #[test]
    fn slots_start_at_their_interval() {
        let config = read(r#""sum":0"#, &interval("10m", "1d", true)).unwrap();
        let interval = config.interval("10m").unwrap();
        let (base, qualifier) = interval.place(1_370_532_925, 0, Flags::from_bits(0));
        assert_eq!((base.as_secs(), qualifier.slot), (1_370_476_800, 93));
        assert_eq!(interval.slot_start(base, qualifier.slot), 1_370_532_600);
    }

    #[test]
    fn aggregators_must_exist_and_ids_be_unique() {
        let list = interval("1m", "1h", true);
        for ids in [
            r#""foo":0"#,
            r#""sum":128"#,
            r#""sum":-1"#,
            r#""sum":"0""#,
            r#""sum":0,"max":0"#,
            r#""sum":115"#,
            r#""sum":99,"count":1"#,
            "",
        ] {
            assert!(read(ids, &list).is_err(), "{ids}");
        }
        assert!(read(r#""sum":99"#, &list).is_ok());
    }

    #[test]
    fn intervals_fit_their_rows() {
        for (text, span) in [
            ("1x", "1h"),
            ("500ms", "1h"),
            ("1m", "3h"),
            ("1h", "1h"),
            ("10m", "1h"),
            ("2h", "1y"),
            ("6h", "1w"),
            ("20s", "1d"),
        ] {
            assert!(read(r#""sum":0"#, &interval(text, span, true)).is_err(), "{text} {span}");
        }
    }

    #[test]
    fn there_is_one_default_and_no_interval_twice() {
        let ids = r#""sum":0"#;
        assert_eq!(read(ids, &interval("1m", "1h", false)), Err(RollupConfigError::Defaults(0)));
        let two = [interval("1m", "1h", true), interval("2m", "1h", true)].join(",");
        assert_eq!(read(ids, &two), Err(RollupConfigError::Defaults(2)));
        let twice = [interval("1m", "1h", true), interval("1m", "1d", false)].join(",");
        assert!(matches!(read(ids, &twice), Err(RollupConfigError::Interval { .. })));
        assert!(read(ids, "").is_err());
        assert!(read(ids, "7").is_err());
    }
}
