//! How many rows a round of compaction takes: a slope, not a storm.
//!
//! All series of a table start a new row in the same second, so an hour's rows become due at once.
//! OpenTSDB's allowance lets most of them go in the first minutes. Here the allowance stays the
//! upper bound, and below it the due rows are spread evenly over the rounds that are left until
//! the next hour's rows become due.

use tsd_model::FlushPace;

use super::row::latest_base;

/// What a bucket's actor knows when a round begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// Epoch seconds.
    pub(crate) now_secs: i64,
    /// Rows queued in all buckets.
    pub(crate) queued_total: usize,
    /// Rows queued in this bucket.
    pub(crate) queued: usize,
    /// Rows of this bucket that are due.
    pub(crate) due: usize,
}

/// How rows of an hour are spread over the rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slope {
    /// The allowance.
    pub(crate) pace: FlushPace,
}

const HOUR_SECS: i64 = 3_600;

impl Slope {
    /// Rows this bucket takes in a round.
    pub(crate) fn take(&self, round: Round) -> usize {
        if round.due == 0 || round.queued_total == 0 {
            return 0;
        }
        // Each bucket has its share of what all may take.
        let share = |all: usize| {
            (all as u128 * round.queued as u128).div_ceil(round.queued_total as u128) as usize
        };
        let allowed = share(self.pace.rows_per_round(round.queued_total as u64) as usize);
        let spread = round.due.div_ceil(self.rounds_left(round.now_secs));
        spread.max(share(self.pace.min_rows as usize)).min(allowed).min(round.due)
    }

    /// Rounds to spread the due rows over, this one included: what is left of the hour after they
    /// became due, or of a part of it where the configured speed is above the usual 2.
    fn rounds_left(&self, now_secs: i64) -> usize {
        let interval = i64::from(self.pace.interval_secs.max(1));
        let window = (2 * HOUR_SECS / i64::from(self.pace.speed.max(1))).min(HOUR_SECS);
        let since_due = latest_base(now_secs).rem_euclid(HOUR_SECS);
        usize::try_from(
            (window - since_due).max(0).unsigned_abs().div_ceil(interval.unsigned_abs()),
        )
        .unwrap_or(1)
        .max(1)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::*;

    const UPSTREAM: Slope =
        Slope { pace: FlushPace { interval_secs: 10, min_rows: 100, speed: 2 } };

    /// Rows taken in each minute of the hour in which `rows` rows become due at its start, while as
    /// many of the next hour are queued.
    fn minutes(slope: Slope, buckets: usize, rows: usize, jitter: bool) -> Vec<usize> {
        let start = 1_356_998_400 + tsd_model::RowCompaction::MIN_AGE_SECS;
        let mut due = vec![rows / buckets; buckets];
        let mut minutes = vec![0; 60];
        let mut now = start;
        while now < start + HOUR_SECS {
            for (bucket, left) in due.clone().into_iter().enumerate() {
                let queued = left + rows / buckets;
                let total: usize = due.iter().sum::<usize>() + rows;
                let take =
                    slope.take(Round { now_secs: now, queued_total: total, queued, due: left });
                due[bucket] -= take;
                minutes[usize::try_from(now - start).unwrap() / 60] += take;
            }
            now += 10 + i64::from(jitter && now % 7 == 0);
        }
        assert_eq!(due.iter().sum::<usize>(), 0, "all rows leave before the next hour's are due");
        minutes
    }

    #[test]
    fn an_hour_of_rows_leaves_on_a_slope() {
        for (buckets, jitter) in [(1, false), (20, false), (20, true)] {
            let minutes = minutes(UPSTREAM, buckets, 100_000, jitter);
            let (highest, sum) = (minutes.iter().max().unwrap(), minutes.iter().sum::<usize>());
            assert!(highest * 60 * 10 <= sum * 12, "{highest} of {sum}: {minutes:?}");
        }
    }

    #[test]
    fn a_higher_speed_makes_the_slope_steeper() {
        let round = Round { now_secs: 3_601, queued_total: 3_600, queued: 3_600, due: 3_600 };
        let take = |speed| {
            let pace = FlushPace { interval_secs: 10, min_rows: 0, speed };
            Slope { pace }.take(round)
        };
        assert_eq!((take(2), take(4), take(36_000)), (10, 20, 3_600));
    }

    #[test]
    fn no_round_takes_more_than_its_allowance_or_what_is_due() {
        let round = Round { now_secs: 10_000, queued_total: 1_000, queued: 1_000, due: 30 };
        assert_eq!(UPSTREAM.take(round), 30);
        assert_eq!(UPSTREAM.take(Round { due: 900, ..round }), 100);
        // One second before the next wave the backlog would want to leave at once.
        let late =
            Round { now_secs: 7_200 + 3_600, queued_total: 9_000, queued: 9_000, due: 9_000 };
        assert_eq!(UPSTREAM.take(late), 100);
    }
}
