//! Paces row compaction: decides how many due rows a round takes.
//!
//! All series of a table start a new row in the same second, so an hour's rows become due at once. OpenTSDB's
//! allowance compacts most of them in the first minutes. Here the allowance is only the upper bound. Below it, the due
//! rows are spread evenly over the rounds that remain until the next hour's rows become due.

use tsd_model::{BaseTime, FlushPace};

use super::row::latest_base;

/// State of a bucket's queue when a round begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactionRound {
    /// Epoch seconds.
    pub(crate) now_secs: i64,
    /// Rows queued in all buckets.
    pub(crate) queued_total: usize,
    /// Rows queued in this bucket.
    pub(crate) queued: usize,
    /// Rows of this bucket that are due.
    pub(crate) due: usize,
}

/// Distributes the rows of an hour over rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactionPace {
    /// Most rows of one round, over all buckets.
    pub(crate) allowance: FlushPace,
}

const SPAN_SECS: i64 = BaseTime::SPAN_SECONDS as i64;

impl CompactionPace {
    /// Rows that this bucket compacts in a round.
    pub(crate) fn rows_to_take(&self, round: CompactionRound) -> usize {
        if round.due == 0 || round.queued_total == 0 {
            return 0;
        }
        // The share of this bucket, in proportion to its queue.
        let share = |all: usize| {
            (all as u128 * round.queued as u128).div_ceil(round.queued_total as u128) as usize
        };
        let max = share(self.allowance.rows_per_round(round.queued_total as u64) as usize);
        let paced = round.due.div_ceil(self.rounds_left(round.now_secs));
        paced.max(share(self.allowance.min_rows as usize)).min(max).min(round.due)
    }

    /// Rounds over which to spread the due rows, including this one: the rounds left in the hour after the rows became
    /// due, or in a fraction of that hour if the configured speed is above the default of 2.
    fn rounds_left(&self, now_secs: i64) -> usize {
        let interval = i64::from(self.allowance.interval_secs.max(1));
        let window = (2 * SPAN_SECS / i64::from(self.allowance.speed.max(1))).min(SPAN_SECS);
        let since_due = latest_base(now_secs).rem_euclid(SPAN_SECS);
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

    const OPENTSDB: CompactionPace =
        CompactionPace { allowance: FlushPace { interval_secs: 10, min_rows: 100, speed: 2 } };

    /// Rows taken in each minute of an hour. `rows` rows become due at its start, and as many rows of the next hour
    /// are queued.
    fn minutes(pace: CompactionPace, buckets: usize, rows: usize, jitter: bool) -> Vec<usize> {
        let start = 1_356_998_400 + tsd_model::RowCompaction::MIN_AGE_SECS;
        let mut due = vec![rows / buckets; buckets];
        let mut minutes = vec![0; 60];
        let mut now = start;
        while now < start + SPAN_SECS {
            for (bucket, left) in due.clone().into_iter().enumerate() {
                let queued = left + rows / buckets;
                let total: usize = due.iter().sum::<usize>() + rows;
                let take = pace.rows_to_take(CompactionRound {
                    now_secs: now,
                    queued_total: total,
                    queued,
                    due: left,
                });
                due[bucket] -= take;
                minutes[usize::try_from(now - start).unwrap() / 60] += take;
            }
            now += 10 + i64::from(jitter && now % 7 == 0);
        }
        assert_eq!(
            due.iter().sum::<usize>(),
            0,
            "all rows are compacted before the next hour's are due"
        );
        minutes
    }

    #[test]
    fn rows_of_an_hour_are_compacted_at_an_even_rate() {
        for (buckets, jitter) in [(1, false), (20, false), (20, true)] {
            let minutes = minutes(OPENTSDB, buckets, 100_000, jitter);
            let (highest, sum) = (minutes.iter().max().unwrap(), minutes.iter().sum::<usize>());
            assert!(highest * 60 * 10 <= sum * 12, "{highest} of {sum}: {minutes:?}");
        }
    }

    #[test]
    fn higher_speed_shortens_the_window() {
        let round =
            CompactionRound { now_secs: 3_601, queued_total: 3_600, queued: 3_600, due: 3_600 };
        let take = |speed| {
            let allowance = FlushPace { interval_secs: 10, min_rows: 0, speed };
            CompactionPace { allowance }.rows_to_take(round)
        };
        assert_eq!((take(2), take(4), take(36_000)), (10, 20, 3_600));
    }

    #[test]
    fn rounds_take_at_most_the_allowance_and_the_due_rows() {
        let round =
            CompactionRound { now_secs: 10_000, queued_total: 1_000, queued: 1_000, due: 30 };
        assert_eq!(OPENTSDB.rows_to_take(round), 30);
        assert_eq!(OPENTSDB.rows_to_take(CompactionRound { due: 900, ..round }), 100);
        // One second before the next hour's rows are due, one round is left for the whole backlog.
        let late = CompactionRound {
            now_secs: 7_200 + 3_600,
            queued_total: 9_000,
            queued: 9_000,
            due: 9_000,
        };
        assert_eq!(OPENTSDB.rows_to_take(late), 100);
    }
}
