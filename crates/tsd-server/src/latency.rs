//! Latency percentiles for `stats`, computed over buckets as OpenTSDB does.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Width of the linear buckets.
const WIDTH_MS: u64 = 2;
/// Upper bound of the linear buckets; above it bucket widths double.
const CUTOFF_MS: u64 = 100;
/// Upper bound: slower requests count as this long.
const MAX_MS: u64 = 16_000;
const LINEAR: usize = (CUTOFF_MS / WIDTH_MS) as usize;
const BUCKETS: usize = LINEAR + 13;

/// Histogram of request durations in milliseconds.
#[derive(Debug)]
pub(crate) struct LatencyHistogram {
    buckets: [AtomicU64; BUCKETS],
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl LatencyHistogram {
    pub(crate) fn record(&self, took: Duration) {
        let ms = u64::try_from(took.as_millis()).unwrap_or(MAX_MS).min(MAX_MS);
        let bucket = if ms < CUTOFF_MS {
            (ms / WIDTH_MS) as usize
        } else {
            LINEAR + (((ms - CUTOFF_MS) / WIDTH_MS).max(1).ilog2() as usize)
        };
        if let Some(bucket) = self.buckets.get(bucket.min(BUCKETS - 1)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the upper bound, in milliseconds, of the bucket of the percentile; 0 if the
    /// histogram is empty.
    pub(crate) fn percentile(&self, percent: u64) -> u64 {
        let counts: Vec<u64> = self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        if total == 0 {
            return 0;
        }
        let rank = (total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (bucket, count) in counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_bound_ms(bucket);
            }
        }
        MAX_MS
    }
}

fn upper_bound_ms(bucket: usize) -> u64 {
    if bucket < LINEAR {
        return (bucket as u64 + 1) * WIDTH_MS;
    }
    (CUTOFF_MS + (WIDTH_MS << (bucket - LINEAR + 1).min(20))).min(MAX_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(took_ms: &[u64], percent: u64, expected: u64) {
        let histogram = LatencyHistogram::default();
        for ms in took_ms {
            histogram.record(Duration::from_millis(*ms));
        }
        assert_eq!(histogram.percentile(percent), expected, "{took_ms:?} p{percent}");
    }

    #[test]
    fn a_percentile_is_the_upper_bound_of_its_bucket() {
        check(&[], 95, 0);
        check(&[0], 50, 2);
        check(&[1, 3, 5, 7], 50, 4);
        check(&[1, 3, 5, 7], 95, 8);
        check(&[99], 50, 100);
        check(&[100], 50, 104);
        check(&[110], 50, 116);
        check(&[1_000_000], 95, 16_000);
    }
}
