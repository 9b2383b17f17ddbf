//! Compares the rows of a scan with the rows that were acknowledged before its start.

use super::ack_tracker::{AckTracker, cells, key, parse_key};

/// A scan that is being checked.
#[derive(Debug)]
pub(super) struct ScanCheck {
    seen: Vec<Vec<bool>>,
    /// One more than the highest number seen, by writer.
    ends: Vec<u64>,
    last_key: Option<Vec<u8>>,
    reversed: bool,
    rows: u64,
    errors: Vec<String>,
}

/// Result of a checked scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScanReport {
    /// Rows of writers.
    pub(super) rows: u64,
    /// Rows that were acknowledged before the scan and not returned.
    pub(super) missing: u64,
    /// Rows returned twice, out of order, with other cells than were written, or never written.
    pub(super) wrong: u64,
    /// Up to five of both kinds.
    pub(super) examples: Vec<String>,
}

impl ScanReport {
    /// True if the scan returned exactly the expected rows.
    pub(super) const fn is_correct(&self) -> bool {
        self.missing == 0 && self.wrong == 0
    }
}

impl ScanCheck {
    /// Starts a check; the rows acknowledged by now are expected.
    pub(super) fn start(tracker: &AckTracker, reversed: bool) -> Self {
        let acknowledged = tracker.acknowledged();
        let seen = acknowledged.iter().map(|&rows| vec![false; rows as usize]).collect();
        let ends = vec![0; acknowledged.len()];
        Self { seen, ends, last_key: None, reversed, rows: 0, errors: Vec::new() }
    }

    /// Checks the next row of the scan.
    pub(super) fn add_row<'a>(
        &mut self,
        key: &[u8],
        found: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) {
        let text = String::from_utf8_lossy(key);
        if let Some(last) = &self.last_key {
            let in_order = if self.reversed { key < &last[..] } else { key > &last[..] };
            if !in_order {
                self.errors.push(format!("{text} after {}", String::from_utf8_lossy(last)));
            }
        }
        self.last_key = Some(key.to_vec());
        let Some((writer, number)) = parse_key(key) else { return };
        self.rows += 1;
        let expected = cells(writer, number);
        let found: Vec<_> = found.collect();
        let same = expected.map(|(qualifier, value)| (qualifier.into_bytes(), value.into_bytes()));
        if !same.eq(found.iter().map(|(qualifier, value)| (qualifier.to_vec(), value.to_vec()))) {
            self.errors.push(format!("{text} with {} other cells", found.len()));
        }
        if let Some(end) = self.ends.get_mut(writer) {
            *end = (*end).max(number + 1);
        }
        let seen = self.seen.get_mut(writer).and_then(|seen| seen.get_mut(number as usize));
        if let Some(seen) = seen
            && std::mem::replace(seen, true)
        {
            self.errors.push(format!("{text} twice"));
        }
    }

    /// Ends the check of a whole scan.
    pub(super) fn finish(mut self, tracker: &AckTracker) -> ScanReport {
        for (writer, (end, sent)) in self.ends.iter().zip(tracker.sent()).enumerate() {
            if *end > sent {
                self.errors.push(format!("{} was never sent", key(writer, end - 1)));
            }
        }
        let missing = self.seen.iter().enumerate().flat_map(|(writer, seen)| {
            let absent = seen.iter().enumerate().filter(|(_, seen)| !**seen);
            absent.map(move |(number, _)| format!("{} missing", key(writer, number as u64)))
        });
        let missing: Vec<_> = missing.collect();
        let examples = missing.iter().chain(&self.errors).take(5).cloned().collect();
        ScanReport {
            rows: self.rows,
            missing: missing.len() as u64,
            wrong: self.errors.len() as u64,
            examples,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In key order the rows are 0, 5, 2, 1.
    #[track_caller]
    fn check(reversed: bool, returned: &[u64], missing: u64, wrong: u64) {
        let tracker = AckTracker::new(1);
        tracker.record_sent(0, 6);
        tracker.record_acknowledged(0, 3);
        let mut scan = ScanCheck::start(&tracker, reversed);
        for &number in returned {
            let cells: Vec<_> = cells(0, number).collect();
            scan.add_row(
                key(0, number).as_bytes(),
                cells.iter().map(|(qualifier, value)| (qualifier.as_bytes(), value.as_bytes())),
            );
        }
        let report = scan.finish(&tracker);
        assert_eq!((report.missing, report.wrong), (missing, wrong), "{report:?}");
    }

    #[test]
    fn a_scan_may_return_more_than_was_acknowledged() {
        check(false, &[0, 2, 1], 0, 0);
        check(true, &[1, 2, 0], 0, 0);
        check(false, &[0, 5, 2, 1], 0, 0);
    }

    #[test]
    fn missing_repeated_disordered_and_unknown_rows_are_reported() {
        check(false, &[0, 1], 1, 0);
        check(false, &[0, 2, 2, 1], 0, 2);
        check(false, &[2, 0, 1], 0, 1);
        check(true, &[0, 2, 1], 0, 2);
        check(false, &[0, 5, 5, 2, 1], 0, 1);
        check(false, &[0, 6, 2, 1], 0, 2);
    }

    #[test]
    fn a_row_that_lacks_cells_is_wrong() {
        let tracker = AckTracker::new(1);
        tracker.record_sent(0, 1);
        let mut scan = ScanCheck::start(&tracker, false);
        let first = cells(0, 0).next().expect("a cell");
        scan.add_row(key(0, 0).as_bytes(), [(first.0.as_bytes(), first.1.as_bytes())].into_iter());
        assert_eq!(scan.finish(&tracker).wrong, 1);
    }
}
