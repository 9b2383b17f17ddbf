//! The queries, in the languages of both servers, with the size of their results.

use crate::data_set::{CPUS, DataSet, FIRST_SECOND, METRIC, RACKS, REGIONS, host_name};

/// A query.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// First and last second.
    pub(crate) range: (u64, u64),
    /// Downsampling interval, seconds.
    pub(crate) interval: u64,
    /// Value of `m`.
    pub(crate) opentsdb: String,
    /// Value of `m` that counts the selected points.
    pub(crate) opentsdb_count: String,
    /// MetricsQL.
    pub(crate) metricsql: String,
    /// Series of the answer.
    pub(crate) groups: usize,
    /// Points of the answer.
    pub(crate) points: usize,
    /// Points that the query selects.
    pub(crate) input: usize,
}

/// Selection and grouping of the series of a query.
struct Selection {
    /// Tags that group, then tags that only filter, as OpenTSDB spells them.
    braces: String,
    /// The filter of MetricsQL.
    matchers: String,
    /// Tags that group; `None`: each series.
    by: Option<&'static str>,
    series: usize,
    groups: usize,
}

/// Functions of downsampling and of aggregation.
#[derive(Clone, Copy)]
struct Functions {
    interval: &'static str,
    secs: u64,
    downsample: &'static str,
    aggregate: &'static str,
    rate: bool,
}

const fn functions(
    interval: &'static str,
    secs: u64,
    downsample: &'static str,
    aggregate: &'static str,
) -> Functions {
    Functions { interval, secs, downsample, aggregate, rate: false }
}

/// The queries of a set.
pub(crate) fn of(set: &DataSet) -> Vec<Shape> {
    let all = (FIRST_SECOND, set.last_second());
    let last = |secs: u64| (all.1.saturating_sub(secs - 1).max(FIRST_SECOND), all.1);
    let shape =
        |name, range, functions, selection| Shape::new(set, name, range, functions, selection);
    match set.name {
        "day" => vec![
            shape("5m-avg by series", all, functions("5m", 300, "avg", "avg"), each(set)),
            shape("sum of 5m-avg of all", all, functions("5m", 300, "avg", "sum"), total(set)),
            shape("one host, 1m-avg", all, functions("1m", 60, "avg", "avg"), hosts(set, &[7])),
            shape("one host, 30s-max", all, functions("30s", 30, "max", "avg"), hosts(set, &[8])),
            shape(
                "max of 1h-max by region",
                all,
                functions("1h", 3_600, "max", "max"),
                regions(set),
            ),
            shape(
                "last hour, 1m-avg by series",
                last(3_600),
                functions("1m", 60, "avg", "avg"),
                each(set),
            ),
            shape(
                "last 6 h of three hosts, 1m-min",
                last(21_600),
                functions("1m", 60, "min", "avg"),
                hosts(set, &[1, 2, 3]),
            ),
        ],
        "months" => vec![
            shape("1h-avg by series", all, functions("1h", 3_600, "avg", "avg"), each(set)),
            shape("sum of 1d-avg of all", all, functions("1d", 86_400, "avg", "sum"), total(set)),
            shape("one host, 1d-max", all, functions("1d", 86_400, "max", "avg"), hosts(set, &[3])),
            shape("one host, 1h-sum", all, functions("1h", 3_600, "sum", "avg"), hosts(set, &[2])),
            shape("one host, 15m-avg", all, functions("15m", 900, "avg", "avg"), hosts(set, &[1])),
            shape(
                "last day, 5m-avg by series",
                last(86_400),
                functions("5m", 300, "avg", "avg"),
                each(set),
            ),
            shape(
                "max of 6h-max by region",
                all,
                functions("6h", 21_600, "max", "max"),
                regions(set),
            ),
        ],
        "functions" => of_functions(set),
        _ if set.is_growing() => vec![
            shape("one host", all, functions("10m", 600, "avg", "avg"), hosts(set, &[4])),
            shape("sum by region", all, functions("10m", 600, "avg", "sum"), regions(set)),
        ],
        _ => vec![
            shape("one host", all, functions("10m", 600, "avg", "avg"), hosts(set, &[4])),
            shape("three hosts", all, functions("10m", 600, "avg", "avg"), hosts(set, &[0, 2, 4])),
            shape(
                "sum of hosts by regular expression",
                all,
                functions("10m", 600, "avg", "sum"),
                by_regexp(set),
            ),
            shape("sum by region", all, functions("10m", 600, "avg", "sum"), regions(set)),
            shape(
                "sum of all but one host",
                all,
                functions("10m", 600, "avg", "sum"),
                all_but_one(set),
            ),
            shape(
                "sum of a tenth of the hosts",
                all,
                functions("10m", 600, "avg", "sum"),
                last_digits(set, "7"),
            ),
            shape(
                "sum of half of the hosts",
                all,
                functions("10m", 600, "avg", "sum"),
                last_digits(set, "02468"),
            ),
            shape("max by rack", all, functions("10m", 600, "max", "max"), racks(set)),
            shape("sum of 1m-avg by region", all, functions("1m", 60, "avg", "sum"), regions(set)),
            shape(
                "sum of 1h-avg by region",
                all,
                functions("1h", 3_600, "avg", "sum"),
                regions(set),
            ),
            shape(
                "last point, sum by region",
                last(set.step_secs),
                functions("10m", 600, "avg", "sum"),
                regions(set),
            ),
        ],
    }
}

/// Queries with other functions, intervals and ranges than the set of the day.
fn of_functions(set: &DataSet) -> Vec<Shape> {
    let all = (FIRST_SECOND, set.last_second());
    let (middle, minutes) = ((FIRST_SECOND + 21_600, FIRST_SECOND + 64_799), (all.1 - 299, all.1));
    let rate = Functions { rate: true, ..functions("5m", 300, "avg", "sum") };
    let step = functions("10s", 10, "avg", "sum");
    [
        ("sum of rates", all, rate, total(set)),
        ("95th percentile of 1h-avg", all, functions("1h", 3_600, "avg", "p95"), total(set)),
        ("1h-p95 by region", all, functions("1h", 3_600, "p95", "avg"), regions(set)),
        ("1h-median by region", all, functions("1h", 3_600, "median", "avg"), regions(set)),
        ("deviation of 10m-avg", all, functions("10m", 600, "avg", "dev"), total(set)),
        ("10m-dev by region", all, functions("10m", 600, "dev", "max"), regions(set)),
        ("sum of 1m-count", all, functions("1m", 60, "count", "sum"), total(set)),
        ("1h-first by region", all, functions("1h", 3_600, "first", "avg"), regions(set)),
        ("1h-last by region", all, functions("1h", 3_600, "last", "avg"), regions(set)),
        ("1d-max of all", all, functions("1d", 86_400, "max", "max"), total(set)),
        ("every point, sum of all", all, step, total(set)),
        ("every point of a host", all, step, hosts(set, &[9])),
        ("8m-avg, no divisor of an hour", all, functions("8m", 480, "avg", "sum"), total(set)),
        ("12 h in the middle, 15m-avg", middle, functions("15m", 900, "avg", "sum"), total(set)),
        ("last 5 minutes by series", minutes, functions("1m", 60, "avg", "avg"), each(set)),
        ("last 5 minutes of all", minutes, functions("1m", 60, "avg", "sum"), total(set)),
        ("5m-avg, all but one host", all, functions("5m", 300, "avg", "sum"), all_but_one(set)),
        (
            "5m-avg of half of the hosts",
            all,
            functions("5m", 300, "avg", "sum"),
            last_digits(set, "02468"),
        ),
        ("5m-avg by rack", all, functions("5m", 300, "avg", "avg"), racks(set)),
    ]
    .into_iter()
    .map(|(name, range, functions, selection)| Shape::new(set, name, range, functions, selection))
    .collect()
}

/// The call of `MetricsQL` that is a function of OpenTSDB: of points in an interval, or of series.
fn metricsql_call(function: &str, of_points: bool, argument: &str) -> String {
    let suffix = if of_points { "_over_time" } else { "" };
    match function {
        "p95" => format!("quantile{suffix}(0.95, {argument})"),
        "dev" => format!("stddev{suffix}({argument})"),
        _ => format!("{function}{suffix}({argument})"),
    }
}

fn each(set: &DataSet) -> Selection {
    let (series, groups) = (set.series(), set.series());
    let braces = "{host=*,cpu=*}".to_owned();
    Selection { braces, matchers: String::new(), by: None, series, groups }
}

fn total(set: &DataSet) -> Selection {
    let (braces, matchers) = (String::new(), String::new());
    Selection { braces, matchers, by: Some(""), series: set.series(), groups: 1 }
}

fn regions(set: &DataSet) -> Selection {
    let (braces, matchers) = ("{region=*}".to_owned(), String::new());
    Selection { braces, matchers, by: Some("region"), series: set.series(), groups: REGIONS }
}

fn racks(set: &DataSet) -> Selection {
    let (braces, matchers) = ("{rack=*}".to_owned(), String::new());
    let groups = RACKS.min(set.hosts);
    Selection { braces, matchers, by: Some("rack"), series: set.series(), groups }
}

fn hosts(_: &DataSet, hosts: &[usize]) -> Selection {
    let names: Vec<String> = hosts.iter().map(|host| host_name(*host)).collect();
    let names = names.join("|");
    let series = hosts.len() * CPUS;
    let (braces, matchers) = (format!("{{host={names},cpu=*}}"), format!("{{host=~\"{names}\"}}"));
    Selection { braces, matchers, by: None, series, groups: series }
}

/// Two hosts of a thousand. OpenTSDB finds a match anywhere in a name; MetricsQL matches the whole
/// name.
fn by_regexp(set: &DataSet) -> Selection {
    let (braces, matchers) =
        ("{}{host=regexp(.*[05]03$)}".to_owned(), "{host=~\".*[05]03\"}".to_owned());
    let matches = |host: &usize| matches!(host % 1_000, 3 | 503);
    let series = (0..set.hosts).filter(matches).count() * CPUS;
    Selection { braces, matchers, by: Some(""), series, groups: 1 }
}

/// Hosts whose number ends in one of some digits.
fn last_digits(set: &DataSet, digits: &str) -> Selection {
    let (braces, matchers) =
        (format!("{{}}{{host=regexp(.*[{digits}]$)}}"), format!("{{host=~\".*[{digits}]\"}}"));
    let matches = |host: &usize| host_name(*host).ends_with(|digit| digits.contains(digit));
    let series = (0..set.hosts).filter(matches).count() * CPUS;
    Selection { braces, matchers, by: Some(""), series, groups: 1 }
}

fn all_but_one(set: &DataSet) -> Selection {
    let name = host_name(1);
    let (braces, matchers) =
        (format!("{{}}{{host=not_literal_or({name})}}"), format!("{{host!=\"{name}\"}}"));
    Selection { braces, matchers, by: Some(""), series: set.series() - CPUS, groups: 1 }
}

impl Shape {
    fn new(
        set: &DataSet,
        name: &'static str,
        range: (u64, u64),
        functions: Functions,
        selection: Selection,
    ) -> Self {
        let Functions { interval, secs, downsample, aggregate, rate } = functions;
        let Selection { braces, matchers, by, series, groups } = selection;
        let name_of_metric = METRIC.replace('.', "\\.");
        let points = format!("{name_of_metric}{matchers}[{interval}]");
        let rollup = if rate {
            format!("rate({points})")
        } else {
            metricsql_call(downsample, true, &points)
        };
        let metricsql = match by {
            None => rollup,
            Some("") => metricsql_call(aggregate, false, &rollup),
            Some(tag) => format!("{} by ({tag})", metricsql_call(aggregate, false, &rollup)),
        };
        // Intervals with points.
        let first = range.0.next_multiple_of(set.step_secs);
        let intervals = (range.1 / secs - first / secs + 1) as usize;
        // The first interval has no rate.
        let intervals = intervals.min(set.steps) - usize::from(rate);
        let rate_text = if rate { "rate:" } else { "" };
        Self {
            name,
            range,
            interval: secs,
            opentsdb: format!("{aggregate}:{interval}-{downsample}:{rate_text}{METRIC}{braces}"),
            opentsdb_count: format!("sum:{interval}-count:{METRIC}{braces}"),
            metricsql,
            groups,
            points: groups * intervals,
            input: series * ((range.1 - first) / set.step_secs + 1) as usize,
        }
    }
}
