//! Where a scan stands, from region to region and across faults.
//!
//! It always goes on from a row, never from a region: regions may have changed in the meantime. A
//! server does not complain about a start row outside its region, it begins at the region's edge;
//! so which rows are still missing is decided here alone.

use bytes::{BufMut, Bytes, BytesMut};

use crate::{
    region::{info::Region, meta::RegionTarget},
    request::scan::Scan,
};

/// What is left to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPosition {
    start: Bytes,
    include_start: bool,
    stop: Bytes,
    include_stop: bool,
    reversed: bool,
    /// Rows still wanted.
    limit: Option<u32>,
}

impl ScanPosition {
    /// All that the scan wants.
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

    /// First row to read, and whether it belongs.
    #[must_use]
    pub const fn start(&self) -> (&Bytes, bool) {
        (&self.start, self.include_start)
    }

    /// Rows still wanted.
    #[must_use]
    pub const fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// Whether as many rows came as were wanted.
    #[must_use]
    pub fn limit_reached(&self) -> bool {
        self.limit == Some(0)
    }

    /// Region to go on with.
    #[must_use]
    pub fn locate(&self) -> RegionTarget {
        match (self.reversed, self.include_start) {
            (false, true) => RegionTarget::Holding(self.start.clone()),
            (false, false) => {
                let mut next = BytesMut::with_capacity(self.start.len() + 1);
                next.put_slice(&self.start);
                next.put_u8(0);
                RegionTarget::Holding(next.freeze())
            }
            (true, true) if !self.start.is_empty() => RegionTarget::Holding(self.start.clone()),
            (true, _) => RegionTarget::Before(self.start.clone()),
        }
    }

    /// A whole row was handed out: what is left begins behind it.
    pub fn row_done(&mut self, row: Bytes) {
        self.row_counted();
        self.behind(row);
    }

    /// A whole row was handed out, and another one or the row itself is said to [`Self::behind`]
    /// before this is asked where to go on.
    pub(crate) fn row_counted(&mut self) {
        self.limit = self.limit.map(|limit| limit.saturating_sub(1));
    }

    /// What is left begins behind this row.
    pub(crate) fn behind(&mut self, row: Bytes) {
        self.start = row;
        self.include_start = false;
    }

    /// A part of this row was handed out: what is left begins in it.
    pub fn inside_row(&mut self, row: Bytes) {
        self.start = row;
        self.include_start = true;
    }

    /// The region is read to its end. Returns whether that was the scan's end too.
    ///
    /// The server tells the end of a region, not that the stop row was passed or that the table ends.
    pub fn region_done(&mut self, region: &Region) -> bool {
        if self.limit_reached() {
            return true;
        }
        let (edge, stop) = if self.reversed {
            (region.start_key(), &self.stop)
        } else {
            (region.end_key(), &self.stop)
        };
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
        // The start key of a region belongs to it: going down it has been read.
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
        let left = (!over).then(|| position.start());
        let left = left.map(|(row, include)| (std::str::from_utf8(row).unwrap(), include));
        assert_eq!(left, next);
    }

    #[test]
    fn forward_the_next_region_begins_where_one_ends() {
        check(&Scan::all(), "a", "m", Some(("m", true)));
        check(&Scan::all(), "m", "", None);
        check(&Scan::range("b", "p"), "a", "m", Some(("m", true)));
        check(&Scan::range("b", "m"), "a", "m", None);
        check(&Scan::range("b", "m").inclusive(true, true), "a", "m", Some(("m", true)));
        check(&Scan::range("b", "c"), "a", "m", None);
    }

    #[test]
    fn downward_the_next_region_ends_where_one_begins() {
        check(&Scan::all().reversed(), "m", "", Some(("m", false)));
        check(&Scan::all().reversed(), "", "m", None);
        check(&Scan::range("p", "c").reversed(), "m", "z", Some(("m", false)));
        check(&Scan::range("p", "m").reversed(), "m", "z", None);
        // Its first row was the last wanted one, whether it counts or not.
        check(&Scan::range("p", "m").reversed().inclusive(true, true), "m", "z", None);
        check(&Scan::range("p", "n").reversed(), "m", "z", None);
    }

    #[test]
    fn the_region_of_what_is_left_is_looked_for() {
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
    fn inside_a_row_it_goes_on_with_that_row() {
        let mut position = ScanPosition::of(&Scan::all().limit(2));
        position.inside_row("k".into());
        assert_eq!(position.start(), (&"k".into(), true));
        assert_eq!(position.limit(), Some(2));
    }
}
