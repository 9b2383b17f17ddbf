//! `rollup <interval>-<aggregator>[:<group-by aggregator>] <metric> <timestamp> <value> <tags…>`

use super::{put_line::PutLine, put_line_error::PutLineError};
use crate::RollupSpec;

/// Required words after the command in OpenTSDB's error text. OpenTSDB accepts fewer.
const NEEDED_AS_SAID: usize = 7;
const NEEDED: usize = 5;

/// One rolled-up or pre-aggregated point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RollupLine<'l> {
    /// Interval and aggregators; without an interval both aggregators are equal.
    pub spec: RollupSpec<'l>,
    /// The rest of the line, as in a `put`.
    pub point: PutLine<'l>,
}

impl<'l> RollupLine<'l> {
    /// Parses a whole line, including the command. `enabled` is true if rollups are configured;
    /// otherwise an interval is rejected before the rest is parsed.
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
        Ok(Self { spec: RollupSpec { interval, aggregator, group_by }, point })
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
        let expected = RollupSpec {
            interval: interval.map(str::as_bytes),
            aggregator: aggregator.as_bytes(),
            group_by: group_by.map(str::as_bytes),
        };
        assert_eq!(rollup.spec, expected, "{spec}");
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

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(line in prop::collection::vec(any::<u8>(), 0..80), enabled: bool) {
            let _ = RollupLine::parse(&line, enabled);
            let _ = RollupLine::parse(&[b"rollup ", line.as_slice()].concat(), enabled);
        }
    }
}
