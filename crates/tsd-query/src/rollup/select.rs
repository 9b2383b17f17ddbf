//! Selection of the tables that a sub query reads.
//!
//! The best rollup interval is the longest one that divides the downsampling interval. If its table
//! has no series, the request determines the fallback. As in OpenTSDB, a fallback to raw data uses
//! the interval of the last rollup tried instead of the requested one, and ignores the calendar.

use tsd_model::{RollupConfig, RollupInterval};

use crate::{
    aggregator::Aggregator,
    error::{QueryError, RollupError},
    filter::FilterKind,
    plan::ScanWindow,
    request::{DownsampleSpec, DownsampleWindow, RollupUsage, SubQuery},
};

/// Server settings of rollups.
#[derive(Clone, Debug)]
pub struct RollupSettings<'a> {
    /// The configured rollups; `None` if rollups are disabled.
    pub config: Option<&'a RollupConfig>,
    /// Tag key of pre-aggregates (`tsd.rollups.agg_tag_key`).
    pub aggregate_tag_key: &'a str,
    /// Value of that tag for data that is not aggregated (`tsd.rollups.raw_agg_tag_value`).
    pub raw_tag_value: &'a str,
    /// True to read recent data, not rolled up yet, from the data table
    /// (`tsd.rollups.split_query.enable`).
    pub split_queries: bool,
    /// Current time in epoch milliseconds.
    pub now_ms: i64,
}

impl Default for RollupSettings<'_> {
    fn default() -> Self {
        Self {
            config: None,
            aggregate_tag_key: "_aggregate",
            raw_tag_value: "RAW",
            split_queries: false,
            now_ms: 0,
        }
    }
}

/// The reads of a sub query and their combination.
#[derive(Clone, Debug, PartialEq)]
pub enum ReadStrategy {
    /// The first of these reads with any series; never empty.
    FirstWithSeries(Vec<ReadAttempt>),
    /// Both, joined by [`super::join_split`]: rollups up to the split time, raw data from there on.
    Split {
        /// Read of the older data.
        rollup: Box<ReadAttempt>,
        /// Read of the younger data.
        raw: Box<ReadAttempt>,
    },
}

/// One read of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadAttempt {
    /// The table and its cells.
    pub source: ReadSource,
    /// The sub query of this read; use it for plans and pipelines.
    pub sub: SubQuery,
    /// The range of rows and the range of the result.
    pub window: ScanWindow,
}

/// A table and its cells.
#[derive(Clone, Debug, PartialEq)]
pub enum ReadSource {
    /// Points of the data table, or of a table of pre-aggregates at the default interval.
    Points {
        /// The table; `None` is the data table.
        table: Option<String>,
    },
    /// Cells of a rollup table.
    Rollup {
        /// The table.
        table: String,
        /// Interval of the table, which maps cells to times.
        interval: Box<RollupInterval>,
        /// The cells to read.
        cells: RollupCells,
    },
}

/// Cells of a rollup table to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RollupCells {
    /// Cells of one aggregator id.
    One(u8),
    /// Sums and counts, for averages; see [`super::RollupAverageBuilder`].
    SumAndCount {
        /// Id of sums.
        sum: u8,
        /// Id of counts.
        count: u8,
    },
}

/// Chooses the tables for a sub query.
pub fn choose_reads(
    sub: &SubQuery,
    (start_ms, end_ms): (i64, i64),
    settings: &RollupSettings<'_>,
) -> Result<ReadStrategy, QueryError> {
    let pre_aggregate = sub.pre_aggregate || selects_pre_aggregate(sub, settings);
    let Some(config) = settings.config else {
        if sub.pre_aggregate {
            return Err(RollupError::NotConfigured.into());
        }
        return Ok(only(raw(sub.clone(), (start_ms, end_ms), None)));
    };
    let default_table = || {
        let default = config.default_interval().filter(|_| pre_aggregate);
        default.map(|interval| interval.pre_aggregation_table.clone())
    };
    let candidates = candidates(sub, config);
    let Some(best) = candidates.first().filter(|best| !best.is_default) else {
        return Ok(only(raw(sub.clone(), (start_ms, end_ms), default_table())));
    };
    let rollup =
        |interval: &RollupInterval, range| rolled_up(sub, range, interval, config, pre_aggregate);
    if settings.split_queries && best.delay_sla_secs > 0 {
        let lag_ms = i64::try_from(best.delay_sla_secs).unwrap_or(i64::MAX).saturating_mul(1000);
        let split_ms = settings.now_ms.saturating_sub(lag_ms);
        if start_ms >= split_ms {
            return Ok(only(raw(sub.clone(), (start_ms, end_ms), default_table())));
        }
        if end_ms > split_ms {
            return Ok(ReadStrategy::Split {
                rollup: Box::new(rollup(best, (start_ms, split_ms))?),
                raw: Box::new(raw(sub.clone(), (split_ms, end_ms), default_table())),
            });
        }
    }
    let tried: &[&RollupInterval] = match sub.rollup_usage.unwrap_or_default() {
        RollupUsage::Fallback => &candidates,
        _ => candidates.get(..1).unwrap_or_default(),
    };
    let mut attempts = Vec::new();
    let mut last = *best;
    for interval in tried.iter().take_while(|interval| !interval.is_default) {
        attempts.push(rollup(interval, (start_ms, end_ms))?);
        last = interval;
    }
    if matches!(sub.rollup_usage, Some(RollupUsage::Fallback | RollupUsage::FallbackRaw)) {
        let fallback = raw_fallback(sub, last);
        attempts.push(raw(fallback, (start_ms, end_ms), default_table()));
    }
    Ok(ReadStrategy::FirstWithSeries(attempts))
}

const fn millis(interval: &RollupInterval) -> i64 {
    interval.seconds as i64 * 1000
}

fn only(attempt: ReadAttempt) -> ReadStrategy {
    ReadStrategy::FirstWithSeries(vec![attempt])
}

/// Intervals that divide the downsampling interval, longest first; empty if raw data is requested.
fn candidates<'c>(sub: &SubQuery, config: &'c RollupConfig) -> Vec<&'c RollupInterval> {
    let interval_ms = sub.downsample.as_ref().map_or(0, DownsampleSpec::interval_ms);
    if interval_ms == 0 || sub.rollup_usage == Some(RollupUsage::Raw) || sub.is_histogram() {
        return Vec::new();
    }
    let mut candidates: Vec<_> = config
        .intervals()
        .iter()
        .filter(|interval| millis(interval) > 0 && interval_ms % millis(interval) == 0)
        .collect();
    candidates.sort_by_key(|interval| std::cmp::Reverse(interval.seconds));
    candidates
}

/// True if a filter on the aggregate tag accepts anything but raw data.
fn selects_pre_aggregate(sub: &SubQuery, settings: &RollupSettings<'_>) -> bool {
    sub.filters.iter().filter(|filter| filter.tagk == settings.aggregate_tag_key).any(|filter| {
        match &filter.kind {
            FilterKind::LiteralOr(values) => values.iter().any(|v| v != settings.raw_tag_value),
            _ => false,
        }
    })
}

fn raw(sub: SubQuery, (start_ms, end_ms): (i64, i64), table: Option<String>) -> ReadAttempt {
    let interval_ms = sub.downsample.as_ref().map_or(0, DownsampleSpec::interval_ms);
    let window = ScanWindow::raw(start_ms, end_ms, interval_ms);
    ReadAttempt { source: ReadSource::Points { table }, sub, window }
}

/// The sub query of a fallback to raw data.
fn raw_fallback(sub: &SubQuery, last: &RollupInterval) -> SubQuery {
    let mut sub = sub.clone();
    if let Some(spec) = &mut sub.downsample {
        spec.window = DownsampleWindow::Fixed { interval_ms: millis(last) };
        spec.function = stored_aggregator(spec.function);
    }
    sub
}

/// The aggregator whose cells are used for a function.
const fn stored_aggregator(function: Aggregator) -> Aggregator {
    match function {
        Aggregator::Zimsum => Aggregator::Sum,
        Aggregator::Mimmin => Aggregator::Min,
        Aggregator::Mimmax => Aggregator::Max,
        other => other,
    }
}

fn rolled_up(
    sub: &SubQuery,
    (start_ms, end_ms): (i64, i64),
    interval: &RollupInterval,
    config: &RollupConfig,
    pre_aggregate: bool,
) -> Result<ReadAttempt, QueryError> {
    let mut sub = sub.clone();
    let function =
        sub.downsample.as_ref().map_or(Aggregator::Sum, |spec| stored_aggregator(spec.function));
    let id = |function: Aggregator| {
        let name = function.name();
        config.aggregator_id(name).ok_or_else(|| RollupError::NoCells(name.to_owned()))
    };
    let cells = match function {
        Aggregator::Avg => {
            RollupCells::SumAndCount { sum: id(Aggregator::Sum)?, count: id(Aggregator::Count)? }
        }
        Aggregator::Dev => {
            id(function)?;
            return Err(RollupError::Deviation.into());
        }
        other => RollupCells::One(id(other)?),
    };
    if let Some(spec) = &mut sub.downsample {
        // Counts and sums are summed; other cells are aggregated with their own function.
        spec.function = match function {
            Aggregator::Count | Aggregator::Avg => Aggregator::Sum,
            other => other,
        };
    }
    let window = window(start_ms, end_ms, interval, sub.rate.is_some());
    let table =
        if pre_aggregate { &interval.pre_aggregation_table } else { &interval.table }.clone();
    let source = ReadSource::Rollup { table, interval: Box::new(interval.clone()), cells };
    Ok(ReadAttempt { source, sub, window })
}

/// Rows of a rollup table for a query range. A rate also reads the preceding row.
fn window(start_ms: i64, end_ms: i64, interval: &RollupInterval, rate: bool) -> ScanWindow {
    let base = |secs: i64| {
        let secs = u32::try_from(secs.max(0)).unwrap_or(u32::MAX);
        i64::from(interval.row_span.base_time(secs).as_secs())
    };
    let row_secs = i64::from(interval.seconds).saturating_mul(interval.slots() as i64);
    let mut scan_start_secs = base(start_ms / 1000);
    if rate {
        scan_start_secs = base(scan_start_secs - 1);
    }
    let scan_end_secs = match (end_ms / 1000 + 1).saturating_add(row_secs) {
        // The end is exclusive, so it must be past the last row.
        secs if secs > i64::from(u32::MAX) => i64::from(u32::MAX) + 1,
        secs => base(secs),
    };
    ScanWindow { start_ms, end_ms, scan_start_secs, scan_end_secs }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;
    use crate::{
        request::{RawQuery, parse_m_parameter},
        time::Clock,
    };

    /// 2013-01-01, an hour boundary.
    const T_MS: i64 = 1_356_998_400_000;
    const HOUR_MS: i64 = 3_600_000;

    const CONFIG: &str = r#"{
    "aggregationIds": {"sum": 0, "count": 1, "min": 2, "max": 3},
    "intervals": [
        {"table": "raw", "preAggregationTable": "raw-agg", "interval": "1m", "rowSpan": "1h",
         "defaultInterval": true},
        {"table": "10m", "preAggregationTable": "10m-agg", "interval": "10m", "rowSpan": "6h"},
        {"table": "1h", "preAggregationTable": "1h-agg", "interval": "1h", "rowSpan": "1d",
         "delaySla": "2h"}
    ]}"#;

    fn config() -> RollupConfig {
        RollupConfig::from_json(CONFIG.as_bytes(), |name| Aggregator::from_name(name).is_some())
            .unwrap()
    }

    fn choose_with(
        m: &str,
        range: (i64, i64),
        settings: &RollupSettings<'_>,
    ) -> Result<ReadStrategy, QueryError> {
        let raw = RawQuery {
            start: Some("1".into()),
            end: Some("2".into()),
            queries: Some(vec![parse_m_parameter(m).unwrap()]),
            ..RawQuery::default()
        };
        let sub = raw.validate(&Clock::utc(0)).unwrap().sub_queries.remove(0);
        choose_reads(&sub, range, settings)
    }

    fn describe(attempt: &ReadAttempt) -> String {
        let interval =
            attempt.sub.downsample.as_ref().map_or(0, DownsampleSpec::interval_ms) / 1000;
        let function = attempt.sub.downsample.as_ref().map_or("", |spec| spec.function.name());
        let source = match &attempt.source {
            ReadSource::Points { table } => table.clone().unwrap_or_else(|| "data".to_owned()),
            ReadSource::Rollup { table, cells: RollupCells::One(id), .. } => {
                format!("{table} id {id}")
            }
            ReadSource::Rollup { table, .. } => format!("{table} averages"),
        };
        format!("{source} {interval}s-{function}")
    }

    #[track_caller]
    fn check(m: &str, expected: &[&str]) {
        let config = config();
        let settings = RollupSettings { config: Some(&config), ..RollupSettings::default() };
        let ReadStrategy::FirstWithSeries(attempts) =
            choose_with(m, (T_MS, T_MS + HOUR_MS), &settings).unwrap()
        else {
            panic!("unexpected split");
        };
        assert_eq!(attempts.iter().map(describe).collect::<Vec<_>>(), expected, "{m}");
    }

    #[test]
    fn longest_dividing_interval_is_chosen() {
        check("sum:2h-sum:m", &["1h id 0 7200s-sum"]);
        check("sum:30m-mimmax:m", &["10m id 3 1800s-max"]);
        check("sum:45m-sum:m", &["data 2700s-sum"]);
        check("sum:1m-sum:m", &["data 60s-sum"]);
        check("sum:m", &["data 0s-"]);
        check("sum:0all-sum:m", &["data 0s-sum"]);
        check("sum:1h-count:m", &["1h id 1 3600s-sum"]);
        check("sum:1h-avg:m", &["1h averages 3600s-sum"]);
    }

    #[test]
    fn usage_determines_the_fallback() {
        check("sum:1h-zimsum:rollup_raw:m", &["data 3600s-zimsum"]);
        check("sum:1h-zimsum:rollup_fallback_raw:m", &["1h id 0 3600s-sum", "data 3600s-sum"]);
        check(
            "sum:2h-zimsum:rollup_fallback:m",
            &["1h id 0 7200s-sum", "10m id 0 7200s-sum", "data 600s-sum"],
        );
    }

    #[test]
    fn pre_aggregates_use_their_own_tables() {
        check("sum:1h-sum:pre-agg:m", &["1h-agg id 0 3600s-sum"]);
        check("sum:1h-sum:m{}{_aggregate=SUM}", &["1h-agg id 0 3600s-sum"]);
        check("sum:1h-sum:m{}{_aggregate=RAW}", &["1h id 0 3600s-sum"]);
        check("sum:pre-agg:m", &["raw-agg 0s-"]);
        let off = RollupSettings::default();
        let error = choose_with("sum:pre-agg:m", (0, 1), &off).unwrap_err();
        assert_eq!(error, RollupError::NotConfigured.into());
    }

    #[test]
    fn functions_without_cells_are_rejected() {
        let config = config();
        let settings = RollupSettings { config: Some(&config), ..RollupSettings::default() };
        for (m, name) in [("sum:1h-dev:m", "dev"), ("sum:1h-p99:m", "p99")] {
            let error = choose_with(m, (0, 1), &settings).unwrap_err();
            assert_eq!(error, RollupError::NoCells(name.to_owned()).into());
        }
    }

    #[test]
    fn rows_are_aligned_to_the_row_span() {
        let config = config();
        let settings = RollupSettings { config: Some(&config), ..RollupSettings::default() };
        let window = |m: &str| {
            let range = (T_MS + 30 * HOUR_MS, T_MS + 31 * HOUR_MS);
            let Ok(ReadStrategy::FirstWithSeries(attempts)) = choose_with(m, range, &settings)
            else {
                panic!("{m}");
            };
            let window = attempts[0].window;
            (
                (window.scan_start_secs - T_MS / 1000) / 3600,
                (window.scan_end_secs - T_MS / 1000) / 3600,
            )
        };
        assert_eq!(window("sum:1h-sum:m"), (24, 48));
        assert_eq!(window("sum:1h-sum:rate:m"), (0, 48));
        assert_eq!(window("sum:30m-sum:m"), (30, 36));
    }

    #[test]
    fn recent_data_is_read_raw() {
        let config = config();
        let now_ms = T_MS + 10 * HOUR_MS;
        let settings = RollupSettings {
            config: Some(&config),
            split_queries: true,
            now_ms,
            ..Default::default()
        };
        let split_ms = now_ms - 2 * HOUR_MS;
        let choose = |range| choose_with("sum:1h-sum:m", range, &settings).unwrap();
        let ReadStrategy::Split { rollup, raw } = choose((T_MS, now_ms)) else {
            panic!("not split")
        };
        assert_eq!((rollup.window.start_ms, rollup.window.end_ms), (T_MS, split_ms));
        assert_eq!((raw.window.start_ms, raw.window.end_ms), (split_ms, now_ms));
        assert_eq!(describe(&raw), "data 3600s-sum");
        let one = |range| match choose(range) {
            ReadStrategy::FirstWithSeries(attempts) => describe(&attempts[0]),
            ReadStrategy::Split { .. } => "split".to_owned(),
        };
        assert_eq!(one((T_MS, split_ms)), "1h id 0 3600s-sum");
        assert_eq!(one((split_ms, now_ms)), "data 3600s-sum");
    }
}
