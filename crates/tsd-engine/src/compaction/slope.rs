//! How many rows a round of compaction takes: a slope, not a storm.
//!
//! All series of a table start a new row in the same second, so an hour's rows become due at once.
//! OpenTSDB's allowance lets most of them go in the first minutes. Here the allowance stays the
//! upper bound, and below it the due rows are spread evenly over the rounds that are left until
//! the next hour's rows become due.

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

/// Settings of the slope, as OpenTSDB names them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slope {
    /// Seconds between rounds.
    pub(crate) flush_interval: u64,
    /// A round acts if more rows than this are queued.
    pub(crate) min_flush_threshold: usize,
    /// How many times faster than rows arrive they may leave.
    pub(crate) flush_speed: u64,
}

/// Rows newer than this are still being written.
pub(crate) const CUT_OFF_SECS: i64 = 3_601;

const HOUR_SECS: i64 = 3_600;

/// The largest base time whose row may be compacted at `now_secs`.
pub(crate) const fn latest_base(now_secs: i64) -> i64 {
    now_secs - CUT_OFF_SECS
}

impl Slope {
    /// Rows all buckets together may take in a round.
    pub(crate) fn allowance(&self, queued_total: usize) -> usize {
        if queued_total <= self.min_flush_threshold {
            return 0;
        }
        let share = (queued_total as u128)
            .saturating_mul(u128::from(self.flush_interval))
            .saturating_mul(u128::from(self.flush_speed))
            / 3_600;
        usize::try_from(share).unwrap_or(usize::MAX).max(self.min_flush_threshold).min(queued_total)
    }

    /// Rows this bucket takes in a round.
    pub(crate) fn take(&self, round: Round) -> usize {
        if round.due == 0 || round.queued_total == 0 {
            return 0;
        }
        // Each bucket has its share of what all may take.
        let share = |all: usize| {
            (all as u128 * round.queued as u128).div_ceil(round.queued_total as u128) as usize
        };
        let allowed = share(self.allowance(round.queued_total));
        let spread = round.due.div_ceil(self.rounds_left(round.now_secs));
        spread.max(share(self.min_flush_threshold)).min(allowed).min(round.due)
    }

    /// Rounds until the next hour's rows become due, this one included.
    fn rounds_left(&self, now_secs: i64) -> usize {
        let since_due = latest_base(now_secs).rem_euclid(HOUR_SECS);
        let left = (HOUR_SECS - since_due) as u64;
        usize::try_from(left.div_ceil(self.flush_interval.max(1))).unwrap_or(1).max(1)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::*;

    const UPSTREAM: Slope = Slope { flush_interval: 10, min_flush_threshold: 100, flush_speed: 2 };

    /// Rows taken in each minute of the hour in which `rows` rows become due at its start, while as
    /// many of the next hour are queued.
    fn minutes(slope: Slope, buckets: usize, rows: usize, jitter: bool) -> Vec<usize> {
        let start = 1_356_998_400 + CUT_OFF_SECS;
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
    fn the_allowance_is_upstreams() {
        for (queued, expected) in
            [(0, 0), (100, 0), (101, 100), (18_000, 100), (36_000, 200), (360_000, 2_000)]
        {
            assert_eq!(UPSTREAM.allowance(queued), expected, "{queued} queued");
        }
        let eager = Slope { flush_interval: 1, min_flush_threshold: 0, flush_speed: 36_000 };
        assert_eq!((eager.allowance(0), eager.allowance(1)), (0, 1));
        let lazy = Slope { flush_interval: 10, min_flush_threshold: 0, flush_speed: 2 };
        assert_eq!(lazy.allowance(179), 0, "a short queue never moves with a threshold of 0");
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
