//! Learns how many points a row has from the rows that were read.

use std::sync::atomic::{AtomicU64, Ordering};

use super::row_content::RowContent;
use crate::query::stats::ScannerStats;

/// Points of a row before the first read: one every ten seconds.
const FIRST_POINTS_PER_ROW: u64 = 360;
/// Fewest rows from which a read updates the average.
const MIN_ROWS: u64 = 16;
/// Weight of the previous average, in eighths.
const KNOWN_WEIGHT: u64 = 7;

/// Moving average of the points per row of the data table.
#[derive(Debug)]
pub(crate) struct PointsPerRow(AtomicU64);

impl Default for PointsPerRow {
    fn default() -> Self {
        Self(AtomicU64::new(FIRST_POINTS_PER_ROW))
    }
}

impl PointsPerRow {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Updates the average from a read. Summaries are left out, because each counts as a row with one point.
    pub(crate) fn learn(&self, content: &RowContent, scans: &[ScannerStats]) {
        let sum = |of: fn(&ScannerStats) -> u64| scans.iter().map(of).sum::<u64>();
        let (rows, cells) = (
            sum(|scan| scan.rows.saturating_sub(scan.summaries)),
            sum(|scan| scan.cells.saturating_sub(scan.summaries)),
        );
        if *content != RowContent::Points || rows < MIN_ROWS {
            return;
        }
        // A concurrent update may be lost, which makes little difference.
        let known = (self.get() * KNOWN_WEIGHT + cells / rows).div_ceil(KNOWN_WEIGHT + 1);
        self.0.store(known.max(1), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_rows_follow_what_is_read() {
        let known = PointsPerRow::default();
        let scan = |rows, cells, summaries| {
            [ScannerStats { rows, cells, summaries, ..ScannerStats::default() }]
        };
        known.learn(&RowContent::Points, &scan(MIN_ROWS - 1, 1, 0));
        known.learn(&RowContent::Histograms, &scan(100, 100, 0));
        known.learn(&RowContent::Points, &scan(100, 100, 100));
        assert_eq!(known.get(), FIRST_POINTS_PER_ROW);
        for _ in 0..100 {
            known.learn(&RowContent::Points, &scan(200, 6_100, 100));
        }
        assert!((60..=67).contains(&known.get()), "{}", known.get());
    }
}
