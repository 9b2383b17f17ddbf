//! Decides which rows another daemon may have compacted.

use std::time::Duration;

use tsd_model::{BaseTime, RowKey, TableSchema};

/// Rows count as compactible this long before another daemon may compact them, because clocks differ.
const CLOCK_TOLERANCE: Duration = Duration::from_mins(1);

/// Decides which rows another daemon may have compacted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactibleRows {
    pub(crate) schema: TableSchema,
}

impl CompactibleRows {
    /// True if the hour of the row is over at `now_ms`, or nearly.
    pub(crate) fn contains(self, key: &[u8], now_ms: i64) -> bool {
        self.since_ms(key) <= now_ms
    }

    /// Returns the time from which on another daemon may compact the row, epoch milliseconds; `i64::MAX` if it
    /// is not a row of points.
    pub(crate) fn since_ms(self, key: &[u8]) -> i64 {
        let Ok(key) = RowKey::decode(&self.schema, key) else { return i64::MAX };
        let end_secs = i64::from(key.base_time().as_secs()) + i64::from(BaseTime::SPAN_SECONDS);
        end_secs * 1_000 - CLOCK_TOLERANCE.as_millis() as i64
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn rows_of_the_present_hour_are_not_compactible() {
        let rows = CompactibleRows { schema: TableSchema::opentsdb_default() };
        let key = |base: u32| [&[0, 0, 1][..], &base.to_be_bytes(), &[0, 0, 1, 0, 0, 1]].concat();
        let now_ms = 1_400_000_400_000_i64;
        let hour = u32::try_from(now_ms / 1_000).unwrap() / 3_600 * 3_600;
        assert!(!rows.contains(&key(hour), now_ms));
        assert!(rows.contains(&key(hour - 3_600), now_ms));
        let end_ms = (i64::from(hour) + 3_600) * 1_000;
        assert!(rows.contains(&key(hour), end_ms - 30_000), "clocks differ");
        assert!(!rows.contains(b"short", end_ms));
    }
}
