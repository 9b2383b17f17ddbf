//! The points of a year, with their count and sum.

use std::{fmt::Write as _, io::Write as _, net::SocketAddr};

use tsd_testkit::{Xorshift64, close_and_drain, connect};

pub(crate) const METRIC: &str = "year.load";
/// 2024-01-01.
const FIRST_SECOND: u64 = 1_704_067_200;
const DAY: u64 = 86_400;
/// Parts of a day between which the clock is set.
const PARTS: u64 = 24;
/// One in this many points is written a day late.
const LATE: u64 = 30;

/// Series with a point at every step of some days.
pub(crate) struct YearLoad {
    pub(crate) days: u64,
    pub(crate) series: u64,
    pub(crate) step_secs: u64,
}

/// Start of a day, epoch seconds.
pub(crate) const fn day_start(day: u64) -> u64 {
    FIRST_SECOND + day * DAY
}

impl YearLoad {
    /// The value of a point, in hundredths: a slow wave with noise.
    fn hundredths(series: u64, second: u64) -> i64 {
        let wave = ((second / 600 + series * 37) % 288).cast_signed() - 144;
        let seed = ((series + 1) * 0x9E37_79B9) ^ (second / 60);
        let noise = Xorshift64::new(seed | 1).below(100).cast_signed();
        5_000 + wave * wave / 8 + noise
    }

    /// True if a point is written a day late.
    const fn is_late(series: u64, second: u64) -> bool {
        (second / 60 + series).is_multiple_of(LATE)
    }

    fn steps(&self, day: u64, part: u64) -> impl Iterator<Item = u64> + use<> {
        let start = day_start(day) + part * (DAY / PARTS);
        let (end, step) = (start + DAY / PARTS, self.step_secs);
        (start.div_ceil(step) * step..end).step_by(usize::try_from(step).unwrap_or(usize::MAX))
    }

    /// Writes a day and the late points of the previous day, hour by hour, and sets the clock to
    /// the end of each hour. Returns the number of points.
    pub(crate) fn write_day(
        &self,
        day: u64,
        address: SocketAddr,
        set_time: &mut dyn FnMut(u64),
    ) -> u64 {
        let mut points = 0;
        let mut stream = connect(address);
        for part in 0..PARTS {
            set_time(day_start(day) + (part + 1) * (DAY / PARTS));
            let mut lines = String::new();
            // No day follows the last day, so all its points are written at once.
            let is_last = day + 1 == self.days;
            let of_day = self.steps(day, part).map(|second| (second, false));
            let before = day.checked_sub(1).map(|before| self.steps(before, part));
            let late = before.into_iter().flatten().map(|second| (second, true));
            for (second, late) in of_day.chain(late) {
                for series in 0..self.series {
                    let is_late = Self::is_late(series, second);
                    if late != is_late && !(is_last && is_late) {
                        continue;
                    }
                    let value = Self::hundredths(series, second) as f64 / 100.0;
                    writeln!(
                        lines,
                        "put {METRIC} {second} {value} host=h{series:05} dc=d{}",
                        series % 5
                    )
                    .expect("a string");
                    points += 1;
                }
            }
            stream.write_all(lines.as_bytes()).expect("send");
        }
        close_and_drain(stream);
        points
    }

    /// Count and sum of all points from a day on.
    pub(crate) fn totals(&self, from_day: u64) -> (f64, f64) {
        let (mut count, mut sum) = (0_u64, 0_i64);
        for day in from_day..self.days {
            for second in (0..PARTS).flat_map(|part| self.steps(day, part)) {
                for series in 0..self.series {
                    count += 1;
                    sum += Self::hundredths(series, second);
                }
            }
        }
        (count as f64, sum as f64 / 100.0)
    }
}
