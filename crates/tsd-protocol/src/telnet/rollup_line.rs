//! `rollup <interval>-<aggregator>[:<group-by aggregator>] <metric> <timestamp> <value> <tags…>`

use std::fmt::Write;

use super::{put_line::PutLine, put_line_error::PutLineError};
use crate::Latin1;

/// Words that OpenTSDB says are needed behind the command; it is content with one less.
const NEEDED_AS_SAID: usize = 7;
const NEEDED: usize = 5;

/// One rolled-up or pre-aggregated point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RollupLine<'l> {
    /// Interval as written, such as `1h`; absent for a point that is only pre-aggregated.
    pub interval: Option<&'l [u8]>,
    /// Aggregator over time; where there is no interval, the group-by aggregator again.
    pub aggregator: &'l [u8],
    /// Aggregator over series.
    pub group_by: Option<&'l [u8]>,
    /// The rest of the line, which is that of a `put`.
    pub point: PutLine<'l>,
}

impl<'l> RollupLine<'l> {
    /// Reads a whole line, command included. `enabled` says whether rollups are configured, since
    /// without them an interval is refused before anything behind it is looked at.
    pub fn parse(line: &'l [u8], enabled: bool) -> Result<Self, PutLineError> {
        let got = memchr::memchr_iter(b' ', line).count();
        let mut words = line.splitn(6, |b| *b == b' ');
        words.next();
        let (Some(spec), Some(metric), Some(time), Some(value), Some(tags_raw), NEEDED..) =
            (words.next(), words.next(), words.next(), words.next(), words.next(), got)
        else {
            return Err(PutLineError::NotEnoughArguments { needed: NEEDED_AS_SAID, got });
        };
        if spec.is_empty() {
            return Err(PutLineError::MissingRollupSpec);
        }
        let mut parts = spec.split(|b| *b == b':');
        let first = parts.next().unwrap_or_default();
        let (interval, aggregator, group_by) = match memchr::memchr(b'-', first) {
            Some(dash) => {
                (first.get(..dash), first.get(dash + 1..).unwrap_or_default(), parts.next())
            }
            None => (None, first, Some(first)),
        };
        if interval.is_some() && !enabled {
            return Err(PutLineError::RollupsDisabled);
        }
        let point = PutLine::check_words(metric, time, value, tags_raw)?;
        Ok(Self { interval, aggregator, group_by, point })
    }
}

/// Why a rolled-up point cannot be stored, in OpenTSDB's words without the command and
/// `illegal argument: `, except where the text says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RollupFault {
    /// An interval that is not configured. Stands behind `No such rollup: `.
    #[error("No rollups configured for the interval: {0}")]
    UnknownInterval(String),
    /// An aggregator without an id.
    #[error("No ID found mapping to aggregator: {0}")]
    UnknownAggregator(String),
    /// A group-by aggregator that does not exist.
    #[error("Invalid group by aggregator {aggregator} with metric {metric} {tags}")]
    UnknownGroupBy {
        /// As written.
        aggregator: String,
        /// Metric of the point.
        metric: String,
        /// The tags as `{k=v}`.
        tags: String,
    },
    /// An average or deviation over time while those are blocked.
    #[error("Derived rollup aggregations are not allowed {aggregator} with metric {metric} {tags}")]
    DerivedRollup {
        /// In upper case.
        aggregator: String,
        /// Metric of the point.
        metric: String,
        /// The tags as `{k=v}`.
        tags: String,
    },
    /// An average or deviation over series while those are blocked.
    #[error(
        "Derived group by aggregations are not allowed {aggregator} with metric {metric} {tags}"
    )]
    DerivedGroupBy {
        /// In upper case.
        aggregator: String,
        /// Metric of the point.
        metric: String,
        /// The tags as `{k=v}`.
        tags: String,
    },
    /// The tag that names the aggregator names another one.
    #[error(
        "Given tag value for {key} of {value} did not match the group by aggregator of \
         {aggregator} for {metric} {tags}"
    )]
    OtherAggregatorTag {
        /// Key of that tag.
        key: String,
        /// Its value.
        value: String,
        /// The aggregator, or `null`.
        aggregator: String,
        /// Metric of the point.
        metric: String,
        /// The tags as `{k=v}`.
        tags: String,
    },
    /// A group-by aggregator while rollups are off, so that its tag has no key.
    #[error("Invalid tag name with value [{0}]: null")]
    NoAggregatorTag(String),
}

impl RollupFault {
    /// Writes the whole reply.
    pub fn render(&self, out: &mut String) {
        let class = match self {
            Self::UnknownInterval(_) => "No such rollup",
            _ => "illegal argument",
        };
        // Writing to memory cannot fail.
        let _ = writeln!(out, "rollup: {class}: {self}");
    }

    /// The fault of a group-by aggregator while rollups are off.
    #[must_use]
    pub fn without_configuration(aggregator: &[u8]) -> Self {
        Self::NoAggregatorTag(Latin1(aggregator).to_string().to_uppercase())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(spec: &str, interval: Option<&str>, aggregator: &str, group_by: Option<&str>) {
        let line = format!("rollup {spec} m 1356998400 1 host=a");
        let rollup = RollupLine::parse(line.as_bytes(), true).unwrap();
        assert_eq!(rollup.interval, interval.map(str::as_bytes), "{spec}");
        assert_eq!(rollup.aggregator, aggregator.as_bytes(), "{spec}");
        assert_eq!(rollup.group_by, group_by.map(str::as_bytes), "{spec}");
        assert_eq!((rollup.point.metric, rollup.point.tags_raw), (&b"m"[..], &b"host=a"[..]));
    }

    #[track_caller]
    fn refuse(line: &str, enabled: bool, expected: &str) {
        let error = RollupLine::parse(line.as_bytes(), enabled).unwrap_err();
        assert_eq!(error.to_string(), expected, "{line}");
    }

    #[test]
    fn the_first_part_is_an_interval_if_it_has_a_dash() {
        check("1h-sum", Some("1h"), "sum", None);
        check("1h-sum:max", Some("1h"), "sum", Some("max"));
        check("sum", None, "sum", Some("sum"));
        check("1h", None, "1h", Some("1h"));
    }

    #[test]
    fn refused_lines() {
        let few = "illegal argument: not enough arguments (need least 7, got";
        refuse("rollup", true, &format!("{few} 0)"));
        refuse("rollup 1h-sum m 1 1", true, &format!("{few} 4)"));
        refuse("rollup  m 1 1 a=b", true, "illegal argument: Missing interval or aggregator");
        refuse(
            "rollup 1h-sum  x x host",
            false,
            "illegal argument: No rollup or aggregations were configured",
        );
        refuse("rollup 1h-sum  x x host", true, "illegal argument: empty metric name");
        refuse("rollup sum m 0 1 a=b", false, "illegal argument: invalid timestamp: 0");
        refuse("rollup sum m 1 1 a", false, "illegal argument: invalid tag: a");
    }

    #[test]
    fn faults_are_in_opentsdbs_words() {
        let texts = |name: &str| (name.to_owned(), "m".to_owned(), "{host=a}".to_owned());
        let (aggregator, metric, tags) = texts("AVG");
        let faults = [
            RollupFault::UnknownInterval("5m".into()),
            RollupFault::UnknownAggregator("last".into()),
            RollupFault::UnknownGroupBy {
                aggregator: "nope".into(),
                metric: metric.clone(),
                tags: "{_aggregate=NOPE, host=a}".into(),
            },
            RollupFault::DerivedRollup {
                aggregator: aggregator.clone(),
                metric: metric.clone(),
                tags: tags.clone(),
            },
            RollupFault::DerivedGroupBy { aggregator, metric: metric.clone(), tags },
            RollupFault::OtherAggregatorTag {
                key: "_aggregate".into(),
                value: "max".into(),
                aggregator: "sum".into(),
                metric,
                tags: "{_aggregate=max, host=a}".into(),
            },
            RollupFault::without_configuration(b"sum"),
        ];
        let mut text = String::new();
        for fault in faults {
            fault.render(&mut text);
        }
        insta::assert_snapshot!(text, @r"
        rollup: No such rollup: No rollups configured for the interval: 5m
        rollup: illegal argument: No ID found mapping to aggregator: last
        rollup: illegal argument: Invalid group by aggregator nope with metric m {_aggregate=NOPE, host=a}
        rollup: illegal argument: Derived rollup aggregations are not allowed AVG with metric m {host=a}
        rollup: illegal argument: Derived group by aggregations are not allowed AVG with metric m {host=a}
        rollup: illegal argument: Given tag value for _aggregate of max did not match the group by aggregator of sum for m {_aggregate=max, host=a}
        rollup: illegal argument: Invalid tag name with value [SUM]: null
        ");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(line in prop::collection::vec(any::<u8>(), 0..80), enabled: bool) {
            let _ = RollupLine::parse(&line, enabled);
            let _ = RollupLine::parse(&[b"rollup ", line.as_slice()].concat(), enabled);
        }
    }
}
