//! Ticks of the x axis, at round times of the clock and the calendar of a time zone.

use jiff::{
    Timestamp, ToSpan, Zoned,
    civil::{Date, DateTime, Time},
    tz::TimeZone,
};

use super::AxisTick;
use crate::options::TimeFormat;

/// Most ticks of an axis.
const MOST_TICKS: usize = 200;

/// Distance of two ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TickStep {
    /// Seconds; a day has a whole number of steps.
    Seconds(i64),
    /// Days from the first of January; months begin a new count.
    Days(i8),
    /// Weeks, from Monday on.
    Weeks,
    /// Months from January on.
    Months(i8),
    /// Years, multiples of the step.
    Years(i16),
}

const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;

impl TickStep {
    /// Steps from the shortest on.
    fn all() -> impl Iterator<Item = Self> {
        let of_sixty = [1, 2, 5, 10, 15, 30];
        let seconds = of_sixty.map(Self::Seconds).into_iter();
        seconds
            .chain(of_sixty.map(|minutes| Self::Seconds(minutes * MINUTE)))
            .chain([1, 2, 3, 6, 12].map(|hours| Self::Seconds(hours * HOUR)))
            .chain([Self::Days(1), Self::Days(2), Self::Weeks, Self::Days(15)])
            .chain([1, 2, 3, 6].map(Self::Months))
            .chain([1, 2, 5, 10, 20, 50, 100, 200].map(Self::Years))
    }

    /// Approximate greatest length of a step, seconds.
    fn length(self) -> i64 {
        match self {
            Self::Seconds(secs) => secs,
            Self::Days(days) => i64::from(days) * DAY,
            Self::Weeks => 7 * DAY,
            // One month has up to 31 days, two have 61.
            Self::Months(months) => (i64::from(months) * 61 + 1) / 2 * DAY,
            Self::Years(years) => i64::from(years) * 366 * DAY,
        }
    }
}

/// OpenTSDB's format for a range of that many seconds.
pub(crate) fn default_time_format(secs: i64) -> TimeFormat {
    TimeFormat::fixed(match secs {
        ..2_100 => "%H:%M:%S",
        2_100..86_400 => "%H:%M",
        86_400..604_800 => "%a %H:%M",
        604_800..1_209_600 => "%a %d %H:%M",
        1_209_600..7_776_000 => "%b %d",
        _ => "%Y/%m/%d",
    })
}

/// Ticks of the times from `start_ms` to `end_ms`, at most about `most` of them.
pub(crate) fn time_ticks(
    (start_ms, end_ms): (i64, i64),
    zone: &TimeZone,
    format: &TimeFormat,
    most: usize,
) -> Vec<AxisTick> {
    let secs = ((end_ms - start_ms) / 1_000).max(1);
    let most = most.clamp(1, MOST_TICKS / 2) as i64;
    let step = TickStep::all().find(|step| secs / step.length() <= most);
    let step = step.unwrap_or(TickStep::Years(500));
    let length = (end_ms - start_ms).max(1) as f64;
    let tick = |time: Zoned| AxisTick {
        position: (time.timestamp().as_millisecond() - start_ms) as f64 / length,
        label: Some(format.render(&time)),
    };
    times((start_ms, end_ms), zone, step).unwrap_or_default().into_iter().map(tick).collect()
}

/// Multiples of a step within a range. A clock time that a change of the offset skips or repeats is
/// listed once.
fn times(
    (start_ms, end_ms): (i64, i64),
    zone: &TimeZone,
    step: TickStep,
) -> Result<Vec<Zoned>, jiff::Error> {
    let start = Timestamp::from_millisecond(start_ms)?.to_zoned(zone.clone()).datetime();
    let mut at = first(start, step)?;
    let mut found: Vec<Zoned> = Vec::new();
    for _ in 0..MOST_TICKS {
        let time = at.to_zoned(zone.clone())?;
        let ms = time.timestamp().as_millisecond();
        if ms > end_ms {
            break;
        }
        if ms >= start_ms && found.last().is_none_or(|last| *last < time) {
            found.push(time);
        }
        at = next(at, step)?;
    }
    Ok(found)
}

/// The last multiple of a step that is not after `start`.
fn first(start: DateTime, step: TickStep) -> Result<DateTime, jiff::Error> {
    let date = start.date();
    Ok(match step {
        TickStep::Seconds(step) => {
            let time = start.time();
            let of_day = i64::from(time.hour()) * HOUR
                + i64::from(time.minute()) * MINUTE
                + i64::from(time.second());
            date.at(0, 0, 0, 0).checked_add((of_day - of_day % step).seconds())?
        }
        TickStep::Days(step) => {
            let day = date.day() - (date.day() - 1) % step;
            midnight(Date::new(date.year(), date.month(), day)?)
        }
        TickStep::Weeks => {
            let days = i64::from(date.weekday().to_monday_zero_offset());
            midnight(date.checked_sub(days.days())?)
        }
        TickStep::Months(step) => {
            let month = date.month() - (date.month() - 1) % step;
            midnight(Date::new(date.year(), month, 1)?)
        }
        TickStep::Years(step) => {
            midnight(Date::new(date.year() - date.year().rem_euclid(step), 1, 1)?)
        }
    })
}

fn next(at: DateTime, step: TickStep) -> Result<DateTime, jiff::Error> {
    match step {
        TickStep::Seconds(step) => at.checked_add(step.seconds()),
        TickStep::Days(step) => {
            let after = at.checked_add(i64::from(step).days())?;
            let first = Date::new(after.year(), after.month(), 1)?;
            // A new month begins a new count; the last step of a month would be too short otherwise.
            let rest = after.date().days_in_month() - after.day();
            if after.month() != at.month() || step > 1 && rest < step / 2 && after.day() > 1 {
                let first = if after.month() == at.month() {
                    first.checked_add(1.months())?
                } else {
                    first
                };
                Ok(midnight(first))
            } else {
                Ok(after)
            }
        }
        TickStep::Weeks => at.checked_add(7.days()),
        TickStep::Months(step) => at.checked_add(i64::from(step).months()),
        TickStep::Years(step) => at.checked_add(i64::from(step).years()),
    }
}

fn midnight(date: Date) -> DateTime {
    date.to_datetime(Time::midnight())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(
        zone: &str,
        (start, end): (&str, &str),
        most: usize,
        format: &'static str,
        expected: &[&str],
    ) {
        let ms = |text: &str| text.parse::<Timestamp>().unwrap().as_millisecond();
        let zone = TimeZone::get(zone).unwrap();
        let ticks = time_ticks((ms(start), ms(end)), &zone, &TimeFormat::fixed(format), most);
        let labels: Vec<&str> = ticks.iter().filter_map(|tick| tick.label.as_deref()).collect();
        assert_eq!(labels, expected);
    }

    #[test]
    fn ticks_are_round_times_of_the_zone() {
        let range = ("2013-01-01T00:10:00Z", "2013-01-01T02:05:00Z");
        check("UTC", range, 4, "%H:%M", &["00:30", "01:00", "01:30", "02:00"]);
        check("Asia/Kolkata", range, 4, "%H:%M", &["06:00", "06:30", "07:00", "07:30"]);
        check(
            "UTC",
            ("2013-01-01T00:10:00Z", "2013-01-01T00:10:03Z"),
            9,
            "%S",
            &["00", "01", "02", "03"],
        );
        check("UTC", ("2013-01-30T00:00:00Z", "2013-02-03T00:00:00Z"), 3, "%d", &["01", "03"]);
        check(
            "UTC",
            ("2013-01-02T00:00:00Z", "2013-01-20T00:00:00Z"),
            3,
            "%a %d",
            &["Mon 07", "Mon 14"],
        );
        let range = ("2012-12-15T00:00:00Z", "2013-04-15T00:00:00Z");
        check("UTC", range, 4, "%b", &["Jan", "Feb", "Mar", "Apr"]);
        check(
            "UTC",
            ("1971-01-01T00:00:00Z", "2013-01-01T00:00:00Z"),
            4,
            "%Y",
            &["1980", "1990", "2000", "2010"],
        );
    }

    #[test]
    fn changes_of_the_offset_leave_the_clock_round() {
        let range = ("2013-03-30T23:00:00Z", "2013-03-31T06:00:00Z");
        let expected = ["00:00", "01:00", "03:00", "04:00", "05:00", "06:00", "07:00", "08:00"];
        check("Europe/Berlin", range, 9, "%H:%M", &expected);
        let range = ("2013-10-26T22:00:00Z", "2013-10-27T04:00:00Z");
        let expected = ["00:00", "01:00", "02:00", "03:00", "04:00", "05:00"];
        check("Europe/Berlin", range, 9, "%H:%M", &expected);
    }

    proptest! {
        #[test]
        fn any_range_has_ticks_in_it(
            start in 0..9_999_999_999_i64, length in 1..9_999_999_999_i64, most in 0..500_usize,
        ) {
            let end = (start + length).min(9_999_999_999);
            let zone = TimeZone::get("America/St_Johns").unwrap();
            let format = default_time_format(end - start);
            let ticks = time_ticks((start * 1_000, end * 1_000), &zone, &format, most);
            prop_assert!(ticks.len() <= MOST_TICKS);
            prop_assert!(ticks.iter().all(|tick| (0.0..=1.0).contains(&tick.position)));
            prop_assert!(ticks.is_sorted_by(|a, b| a.position < b.position));
        }
    }
}
