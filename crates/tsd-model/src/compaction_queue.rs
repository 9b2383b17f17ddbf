//! Order and pace of the row compaction queue.

use std::cmp::Ordering;

use crate::table_schema::TableSchema;

/// Compares queued rows: by base time, then by the whole key, salt included.
#[must_use]
pub fn compare_queued_rows(schema: &TableSchema, a: &[u8], b: &[u8]) -> Ordering {
    let at = schema.base_time_start();
    let time = |key: &[u8]| key.get(at..).and_then(<[u8]>::first_chunk::<4>).copied();
    time(a).cmp(&time(b)).then_with(|| a.cmp(b))
}

/// Pace of compaction of queued rows (`tsd.storage.compaction.*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushPace {
    /// Seconds between two rounds.
    pub interval_secs: u32,
    /// A round runs only if more than this many rows are queued.
    pub min_rows: u64,
    /// Speed relative to the hour of the rows (`flush_speed`).
    pub speed: u32,
}

impl Default for FlushPace {
    fn default() -> Self {
        Self { interval_secs: 10, min_rows: 100, speed: 2 }
    }
}

impl FlushPace {
    /// Maximum number of rows that one round compacts from a queue of length `queued`.
    #[must_use]
    pub fn rows_per_round(&self, queued: u64) -> u64 {
        if queued <= self.min_rows {
            return 0;
        }
        let steps = u128::from(queued) * u128::from(self.interval_secs) * u128::from(self.speed);
        let share = u64::try_from(steps / 3_600).unwrap_or(u64::MAX);
        share.max(self.min_rows).min(queued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_queue_but_at_least_the_threshold() {
        let pace = FlushPace::default();
        assert_eq!(pace.rows_per_round(100), 0);
        assert_eq!(pace.rows_per_round(101), 100);
        assert_eq!(pace.rows_per_round(100_000), 555);
        assert_eq!(pace.rows_per_round(u64::MAX), u64::MAX / 180);
    }

    #[test]
    fn a_round_is_limited_to_the_queue() {
        let pace = FlushPace { interval_secs: 3_600, min_rows: 1, speed: 1_000 };
        assert_eq!(pace.rows_per_round(7), 7);
        assert_eq!(FlushPace { min_rows: 0, ..pace }.rows_per_round(0), 0);
    }

    #[test]
    fn time_comes_before_the_salt() {
        let schema = TableSchema::try_new(1, 1, 1, 1, 20);
        let order =
            schema.map(|s| compare_queued_rows(&s, &[9, 1, 0, 0, 0, 1], &[0, 1, 0, 0, 0, 2]));
        assert_eq!(order, Ok(Ordering::Less));
    }
}
