//! Progress of a scan over regions and failures.
//!
//! A scan resumes from a row, never from a region, since regions may have changed. A server accepts a
//! start row outside its region and starts at the region's boundary, so the remaining rows are tracked
//! here.

use bytes::Bytes;

use crate::{
    region::{info::Region, meta::RegionTarget},
    request::scan::Scan,
};

/// Remaining range of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPosition {
    start: Bytes,
    include_start: bool,
    stop: Bytes,
    include_stop: bool,
    reversed: bool,
    /// Maximum number of remaining rows.
    limit: Option<u32>,
}

impl ScanPosition {
    /// Starts with the whole range of a scan.
    #[must_use]
    pub fn of(scan: &Scan) -> Self {
        Self {
            start: scan.start.clone(),
            include_start: scan.include_start,
            stop: scan.stop.clone(),
            include_stop: scan.include_stop,
            reversed: scan.reversed,
            limit: scan.limit,
        }
    }

    /// Returns the start row and whether it is inclusive.
    #[must_use]
    pub const fn start(&self) -> (&Bytes, bool) {
        (&self.start, self.include_start)
    }

    /// Returns the maximum number of remaining rows.
    #[must_use]
    pub const fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// True if the limit of rows is reached.
    #[must_use]
    pub fn limit_reached(&self) -> bool {
        self.limit == Some(0)
    }

    /// Returns how to locate the next region.
    #[must_use]
    pub fn locate(&self) -> RegionTarget {
        match (self.reversed, self.include_start) {
            (false, true) => RegionTarget::Holding(self.start.clone()),
            (false, false) => RegionTarget::Holding([&self.start[..], &[0]].concat().into()),
            (true, true) if !self.start.is_empty() => RegionTarget::Holding(self.start.clone()),
            (true, _) => RegionTarget::Before(self.start.clone()),
        }
    }

    /// Records a complete row: the remaining range starts after it.
    pub fn row_done(&mut self, row: Bytes) {
        self.count_row();
        self.move_after(row);
    }

    /// Counts a complete row. The caller sets the position with [`Self::move_after`] before it uses it.
    pub(crate) fn count_row(&mut self) {
        self.limit = self.limit.map(|limit| limit.saturating_sub(1));
    }

    /// Sets the start of the remaining range after this row.
    pub(crate) fn move_after(&mut self, row: Bytes) {
        self.start = row;
        self.include_start = false;
    }

    /// Sets the start of the remaining range to this row, which has been read in part.
    pub fn inside_row(&mut self, row: Bytes) {
        self.start = row;
        self.include_start = true;
    }

    /// Starts at a row that the server has reached, unless that is behind the start.
    pub fn advance_to(&mut self, row: Bytes) {
        let ahead = self.start.is_empty()
            || if self.reversed { row < self.start } else { row > self.start };
        if ahead && !row.is_empty() {
            self.inside_row(row);
        }
    }

    /// Moves on to the next region. Returns true if the scan is complete.
    ///
    /// The server reports the end of a region, but not whether it includes the stop row.
    pub fn region_done(&mut self, region: &Region) -> bool {
        if self.limit_reached() {
            return true;
        }
        let edge = if self.reversed { region.start_key() } else { region.end_key() };
        let stop = &self.stop;
        let passed = !stop.is_empty()
            && if self.reversed {
                edge <= stop
            } else {
                edge > stop || edge == stop && !self.include_stop
            };
        if edge.is_empty() || passed {
            return true;
        }
        self.start = edge.clone();
        // The start key of a region is inclusive, so a reversed scan has read it.
        self.include_start = !self.reversed;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: &str, end: &str) -> Region {
        Region::new("t".parse().unwrap(), start.to_owned().into(), end.to_owned().into(), 1)
    }

    #[track_caller]
    fn check(scan: &Scan, start: &str, end: &str, next: Option<(&str, bool)>) {
        let mut position = ScanPosition::of(scan);
        let over = position.region_done(&region(start, end));
        let remaining = (!over).then(|| position.start());
        let remaining =
            remaining.map(|(row, include)| (std::str::from_utf8(row).unwrap(), include));
        assert_eq!(remaining, next);
    }

    #[test]
    fn forward_scan_continues_at_the_end_key() {
        check(&Scan::all(), "a", "m", Some(("m", true)));
        check(&Scan::all(), "m", "", None);
        check(&Scan::range("b", "p"), "a", "m", Some(("m", true)));
        check(&Scan::range("b", "m"), "a", "m", None);
        check(&Scan::range("b", "m").inclusive(true, true), "a", "m", Some(("m", true)));
        check(&Scan::range("b", "c"), "a", "m", None);
    }

    #[test]
    fn reversed_scan_continues_before_the_start_key() {
        check(&Scan::all().reversed(), "m", "", Some(("m", false)));
        check(&Scan::all().reversed(), "", "m", None);
        check(&Scan::range("p", "c").reversed(), "m", "z", Some(("m", false)));
        check(&Scan::range("p", "m").reversed(), "m", "z", None);
        // The region's first row was the last of the range, whether inclusive or not.
        check(&Scan::range("p", "m").reversed().inclusive(true, true), "m", "z", None);
        check(&Scan::range("p", "n").reversed(), "m", "z", None);
    }

    #[test]
    fn next_region_is_located_by_the_remaining_range() {
        let at = |scan: &Scan, rows: &[&str]| {
            let mut position = ScanPosition::of(scan);
            for row in rows {
                position.row_done((*row).to_owned().into());
            }
            position.locate()
        };
        let up = Scan::range("b", "");
        assert_eq!(at(&up, &[]), RegionTarget::Holding("b".into()));
        assert_eq!(at(&up, &["c"]), RegionTarget::Holding("c\0".into()));
        let down = Scan::range("b", "").reversed();
        assert_eq!(at(&down, &[]), RegionTarget::Holding("b".into()));
        assert_eq!(at(&down, &["a"]), RegionTarget::Before("a".into()));
        assert_eq!(at(&down.inclusive(false, false), &[]), RegionTarget::Before("b".into()));
        assert_eq!(at(&Scan::all().reversed(), &[]), RegionTarget::Before(Bytes::new()));
    }

    #[test]
    fn rows_count_against_the_limit() {
        let mut position = ScanPosition::of(&Scan::all().limit(2));
        position.row_done("a".into());
        assert_eq!((position.limit(), position.limit_reached()), (Some(1), false));
        assert!(!position.clone().region_done(&region("", "m")));
        position.row_done("b".into());
        assert!(position.limit_reached());
        assert!(position.region_done(&region("", "m")));
    }

    #[test]
    fn scan_inside_a_row_resumes_with_that_row() {
        let mut position = ScanPosition::of(&Scan::all().limit(2));
        position.inside_row("k".into());
        assert_eq!(position.start(), (&"k".into(), true));
        assert_eq!(position.limit(), Some(2));
    }
}
