//! Boundaries of calendar intervals.
//!
//! The *anchor* of a time is the start of its calendar interval. The *chain* continues from one
//! boundary by adding units, without realigning to the calendar. Weeks begin on Sunday; in OpenTSDB
//! their first day depends on the locale.

use jiff::{Span, Timestamp, Zoned, civil, tz::TimeZone};

use tsd_model::{DAY_MS, SumBucket};

use super::hourly_buckets::HourlyBuckets;
use crate::time::TimeUnit;

/// Calendar intervals in a time zone.
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    count: i64,
    unit: TimeUnit,
    zone: TimeZone,
}

impl Calendar {
    pub(super) const fn new(count: i64, unit: TimeUnit, zone: TimeZone) -> Self {
        Self { count, unit, zone }
    }

    /// Start of the calendar interval that contains `time_ms`.
    pub(super) fn anchor(&self, time_ms: i64) -> i64 {
        self.local(time_ms).and_then(|local| self.anchor_of(&local)).unwrap_or(time_ms)
    }

    /// The boundary after `boundary_ms` in a chain.
    pub(super) fn next(&self, boundary_ms: i64) -> i64 {
        if let Some(step) = self.fixed_length() {
            return boundary_ms.saturating_add(step);
        }
        let span = match self.unit {
            TimeUnit::Week => Span::new().try_weeks(self.count),
            TimeUnit::Month => Span::new().try_months(self.count),
            TimeUnit::Year => Span::new().try_years(self.count),
            _ => Span::new().try_days(self.count),
        };
        span.ok()
            .and_then(|span| self.local(boundary_ms)?.checked_add(span).ok())
            .map_or(i64::MAX, |local| local.timestamp().as_millisecond())
    }

    /// The last boundary of the chain from `boundary_ms` that is not after `time_ms`.
    pub(super) fn last_not_after(&self, boundary_ms: i64, time_ms: i64) -> i64 {
        if let Some(step) = self.fixed_length() {
            return boundary_ms + (time_ms - boundary_ms).max(0) / step * step;
        }
        let mut at = boundary_ms;
        loop {
            let next = self.next(at);
            if next > time_ms || next <= at {
                return at;
            }
            at = next;
        }
    }

    /// Length of an interval in milliseconds, if it is constant.
    fn fixed_length(&self) -> Option<i64> {
        let by_clock = matches!(
            self.unit,
            TimeUnit::Millisecond | TimeUnit::Second | TimeUnit::Minute | TimeUnit::Hour
        );
        let even_days =
            self.zone == TimeZone::UTC && matches!(self.unit, TimeUnit::Day | TimeUnit::Week);
        (by_clock || even_days).then(|| self.unit.millis().saturating_mul(self.count))
    }

    fn local(&self, time_ms: i64) -> Option<Zoned> {
        Timestamp::from_millisecond(time_ms).ok().map(|t| t.to_zoned(self.zone.clone()))
    }

    fn anchor_of(&self, local: &Zoned) -> Option<i64> {
        let time_ms = local.timestamp().as_millisecond();
        let k = self.count.max(1);
        let midnight = |date: civil::Date| {
            let start = date.to_zoned(self.zone.clone()).ok()?;
            Some(start.timestamp().as_millisecond())
        };
        // Within an hour, wall-clock time and elapsed time differ only by the zone's offset.
        let in_hour = i64::from(local.minute()) * 60_000
            + i64::from(local.second()) * 1_000
            + i64::from(local.millisecond());
        let stepped = |origin: i64| {
            let step = self.unit.millis().saturating_mul(k);
            origin + (time_ms - origin) / step * step
        };
        let date = local.date();
        Some(match self.unit {
            TimeUnit::Millisecond if 1000 % k == 0 => stepped(time_ms - in_hour % 1_000),
            TimeUnit::Millisecond => stepped(time_ms - in_hour % 60_000),
            TimeUnit::Second if 60 % k == 0 => stepped(time_ms - in_hour % 60_000),
            TimeUnit::Second => stepped(time_ms - in_hour),
            TimeUnit::Minute if 60 % k == 0 => stepped(time_ms - in_hour),
            TimeUnit::Minute => stepped(midnight(date)?),
            TimeUnit::Hour if 24 % k == 0 => stepped(midnight(date)?),
            TimeUnit::Hour => stepped(midnight(date.first_of_month())?),
            TimeUnit::Day if k == 1 => midnight(date)?,
            TimeUnit::Day => {
                let days = i64::from(date.day_of_year()) - 1;
                midnight(date.first_of_year().checked_add(Span::new().days(days / k * k)).ok()?)?
            }
            TimeUnit::Week => {
                let since_sunday = i64::from(date.weekday().to_sunday_zero_offset());
                midnight(date.checked_sub(Span::new().days(since_sunday)).ok()?)?
            }
            TimeUnit::Month => {
                let months = (i64::from(date.month()) - 1) / k * k;
                midnight(date.first_of_year().checked_add(Span::new().months(months)).ok()?)?
            }
            TimeUnit::Year => midnight(date.first_of_year())?,
        })
    }

    /// Describes the intervals in a range of time (epoch milliseconds) for summaries; `None` if a
    /// boundary is not a full hour.
    pub(super) fn hourly_buckets(&self, (from_ms, to_ms): (i64, i64)) -> Option<HourlyBuckets> {
        if matches!(self.unit, TimeUnit::Millisecond | TimeUnit::Second | TimeUnit::Minute) {
            return None;
        }
        // A chain of hours has the offset of its anchor, up to a year before.
        let first = Timestamp::from_millisecond(from_ms.saturating_sub(366 * DAY_MS)).ok()?;
        let last = Timestamp::from_millisecond(to_ms).ok()?;
        let is_hours = |offset: jiff::tz::Offset| offset.seconds() % 3_600 == 0;
        let mut changes =
            self.zone.following(first).take_while(|change| change.timestamp() <= last);
        if !is_hours(self.zone.to_offset(first)) || !changes.all(|change| is_hours(change.offset()))
        {
            return None;
        }
        let is_utc = self.zone == TimeZone::UTC;
        let length = match self.unit {
            TimeUnit::Hour if self.count == 1 => SumBucket::Hour,
            TimeUnit::Day if self.count == 1 && is_utc => SumBucket::Day,
            _ => SumBucket::Longer,
        };
        Some(HourlyBuckets { has_days: is_utc && self.unit != TimeUnit::Hour, length })
    }

    /// Minimum length of an interval, for estimates.
    pub(super) const fn shortest_ms(&self) -> i64 {
        let unit = match self.unit {
            TimeUnit::Day => DAY_MS - 7_200_000,
            TimeUnit::Month => 28 * DAY_MS - 7_200_000,
            unit => unit.millis(),
        };
        unit.saturating_mul(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Clock, find_zone, parse_time};

    fn at(text: &str, zone: &str) -> i64 {
        parse_time(text, Some(zone), &Clock::utc(0)).ok().flatten().unwrap_or(-1)
    }

    #[track_caller]
    fn check(count: i64, unit: TimeUnit, zone: &str, time: &str, anchor: &str) {
        let calendar = Calendar::new(count, unit, find_zone(zone).unwrap_or(TimeZone::UTC));
        assert_eq!(calendar.anchor(at(time, zone)), at(anchor, zone), "{count} {unit:?} {time}");
    }

    #[test]
    fn anchors_are_calendar_boundaries_of_the_zone() {
        let zone = "Asia/Kabul";
        check(1, TimeUnit::Hour, zone, "2013/05/17-13:45", "2013/05/17-13:00");
        check(7, TimeUnit::Hour, zone, "2013/05/02-05:00", "2013/05/02-04:00");
        check(1, TimeUnit::Day, zone, "2013/05/17-13:45", "2013/05/17-00:00");
        check(3, TimeUnit::Day, zone, "2013/01/05-13:45", "2013/01/04-00:00");
        check(2, TimeUnit::Week, zone, "2013/05/17-13:45", "2013/05/12-00:00");
        check(1, TimeUnit::Month, zone, "2013/05/17-13:45", "2013/05/01-00:00");
        check(3, TimeUnit::Month, zone, "2013/05/17-13:45", "2013/04/01-00:00");
        check(2, TimeUnit::Year, zone, "2013/05/17-13:45", "2013/01/01-00:00");
        check(15, TimeUnit::Minute, zone, "2013/05/17-13:50", "2013/05/17-13:45");
        check(7, TimeUnit::Minute, zone, "2013/05/17-00:15", "2013/05/17-00:14");
        check(30, TimeUnit::Second, zone, "2013/05/17-13:50:45", "2013/05/17-13:50:30");
        check(7, TimeUnit::Second, zone, "2013/05/17-13:00:15", "2013/05/17-13:00:14");
        check(500, TimeUnit::Millisecond, zone, "2013/05/17-13:00:15", "2013/05/17-13:00:15");
    }

    #[test]
    fn day_length_follows_daylight_saving() {
        let zone = "America/New_York";
        let calendar = Calendar::new(1, TimeUnit::Day, find_zone(zone).unwrap_or(TimeZone::UTC));
        let day = at("2016/03/13", zone);
        assert_eq!(calendar.next(day) - day, 23 * 3_600_000);
        let day = at("2016/11/06", zone);
        assert_eq!(calendar.next(day) - day, 25 * 3_600_000);
    }

    #[test]
    fn chain_is_not_realigned_to_the_calendar() {
        let calendar = Calendar::new(7, TimeUnit::Hour, TimeZone::UTC);
        let start = at("2013/01/31-21:00", "UTC");
        let end = at("2013/02/01-04:00", "UTC");
        assert_eq!(calendar.next(start), end);
        assert_eq!(calendar.last_not_after(start, end + 1), end);
        assert_eq!(calendar.last_not_after(start, end - 1), start);
        let months = Calendar::new(5, TimeUnit::Month, TimeZone::UTC);
        let start = at("2013/11/01", "UTC");
        assert_eq!(months.last_not_after(start, at("2014/10/01", "UTC")), at("2014/09/01", "UTC"));
    }
}
