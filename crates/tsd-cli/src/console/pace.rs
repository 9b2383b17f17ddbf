//! The text of a progress: amounts, their rates, and the time left.

use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, HumanDuration};

/// Longest printed estimate of the time left; longer estimates are meaningless.
const MAX_LEFT: Duration = Duration::from_hours(24 * 365);

/// What an amount of bytes counts.
pub(crate) const BYTES: &str = "bytes";

/// A number that is done, and what it counts.
pub(crate) type Amount = (u64, &'static str);

fn shown(number: u64, things: &str) -> String {
    if things == BYTES {
        HumanBytes(number).to_string()
    } else {
        format!("{} {things}", HumanCount(number))
    }
}

/// Measures rates since the first amounts, which may include the work of an earlier run.
#[derive(Debug, Default)]
pub(super) struct Pace {
    first: Option<(Instant, Vec<Amount>)>,
    /// Time of the last line.
    pub(super) line_at: Option<Instant>,
    time_left: TimeLeft,
}

impl Pace {
    /// The text of a progress: amounts, a note that follows them as it is, rates, and time left.
    pub(super) fn text(
        &mut self,
        now: Instant,
        share: Option<f64>,
        amounts: &[Amount],
        note: &str,
    ) -> String {
        let (since, first) = self.first.get_or_insert_with(|| (now, amounts.to_vec()));
        let seconds = (now - *since).as_secs_f64();
        let done: Vec<String> = amounts.iter().map(|of| shown(of.0, of.1)).collect();
        let mut text = format!("{}{note}", done.join(", "));
        for ((number, things), (first, _)) in amounts.iter().zip(first).filter(|_| seconds > 0.0) {
            let rate = number.saturating_sub(*first) as f64 / seconds;
            text = format!("{text}, {}/s", shown(rate as u64, things));
        }
        let left = share.and_then(|share| self.time_left.estimate(now, share));
        match left.filter(|left| *left < MAX_LEFT) {
            Some(left) => format!("{text}, about {} left", HumanDuration(left)),
            None => text,
        }
    }
}

/// Estimates the time left from the rate since the share of this process began to grow. The estimate excludes rows
/// that an earlier run copied, and the names, which a copy reads first and does not count.
#[derive(Debug, Default)]
struct TimeLeft {
    begun: Option<(Instant, f64)>,
}

impl TimeLeft {
    /// The time left, from the share that is done (0 to 1).
    fn estimate(&mut self, now: Instant, done: f64) -> Option<Duration> {
        let (since, from) = self.begun.filter(|(_, from)| done > *from).or_else(|| {
            self.begun = Some((now, done));
            None
        })?;
        let seconds = (now - since).as_secs_f64() * (1.0 - done) / (done - from);
        Duration::try_from_secs_f64(seconds).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the estimate after the last of several shares, each with its second.
    #[track_caller]
    fn check(shares: &[(u64, f64)], expected: Option<u64>) {
        let (start, mut time_left) = (Instant::now(), TimeLeft::default());
        let estimates = shares
            .iter()
            .map(|(second, done)| time_left.estimate(start + Duration::from_secs(*second), *done));
        let left = estimates.last().flatten().map(|left| left.as_secs_f64().round() as u64);
        assert_eq!(left, expected, "{shares:?}");
    }

    #[test]
    fn time_left_is_that_of_the_pace_of_this_process() {
        check(&[(0, 0.0)], None);
        check(&[(0, 0.0), (10, 0.1)], Some(90));
        check(&[(0, 0.0), (10, 0.1), (20, 1.0)], Some(0));
        // An earlier run copied half of it.
        check(&[(0, 0.5), (10, 0.75)], Some(10));
        // The names took a minute.
        check(&[(0, 0.0), (60, 0.0), (70, 0.1)], Some(90));
    }

    #[test]
    fn rates_exclude_the_work_of_an_earlier_run() {
        let (start, mut pace) = (Instant::now(), Pace::default());
        let later = start + Duration::from_secs(10);
        assert_eq!(
            pace.text(start, None, &[(5_000, "rows")], ", 2 errors"),
            "5,000 rows, 2 errors"
        );
        assert_eq!(pace.text(later, None, &[(6_000, "rows")], ""), "6,000 rows, 100 rows/s");
    }

    #[test]
    fn bytes_have_their_total_and_the_time_left() {
        let (start, mut pace) = (Instant::now(), Pace::default());
        assert_eq!(pace.text(start, Some(0.0), &[(0, BYTES)], " of 20 MiB"), "0 B of 20 MiB");
        assert_eq!(
            pace.text(start + Duration::from_secs(10), Some(0.5), &[(10 << 20, BYTES)], ""),
            "10.00 MiB, 1.00 MiB/s, about 10 seconds left"
        );
    }
}
