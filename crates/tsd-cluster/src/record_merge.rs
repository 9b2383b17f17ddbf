//! Restores the order of a stream's records from segments that may overlap.
//!
//! A record may be in two segments after a hedge or a late write. Records below the watermark are stored
//! elsewhere, and may be superseded there, so they must not be replayed.

use std::collections::BTreeMap;

use crate::record::LogRecord;

/// Merges the records of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordMerge {
    /// Sequence number of the next record.
    next: u64,
    acknowledged_through: u64,
    /// Records after a gap. Unless a record is missing, the overlap of the segments bounds their number.
    ahead: BTreeMap<u64, LogRecord>,
    duplicates: u64,
    #[cfg(test)]
    watermark: u64,
    #[cfg(test)]
    pub(crate) keeps_duplicates: bool,
}

/// A record is missing although it was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {sequence} is missing, and records up to {acknowledged_through} were acknowledged")]
pub struct HoleError {
    /// The first missing record.
    pub sequence: u64,
    /// The last record that is known to be acknowledged.
    pub acknowledged_through: u64,
}

impl RecordMerge {
    /// Starts at a watermark.
    #[must_use]
    pub const fn new(watermark: u64) -> Self {
        Self {
            next: watermark,
            acknowledged_through: 0,
            ahead: BTreeMap::new(),
            duplicates: 0,
            #[cfg(test)]
            watermark,
            #[cfg(test)]
            keeps_duplicates: false,
        }
    }

    /// Adds a record. Returns the records that are next in order.
    pub fn push(&mut self, record: LogRecord) -> Vec<LogRecord> {
        self.acknowledged_through = self.acknowledged_through.max(record.acknowledged_through);
        if record.sequence < self.next {
            self.duplicates += 1;
            #[cfg(test)]
            if self.keeps_duplicates && record.sequence >= self.watermark {
                return vec![record];
            }
            return Vec::new();
        }
        self.ahead.insert(record.sequence, record);
        let mut ready = Vec::new();
        while let Some(record) = self.ahead.remove(&self.next) {
            self.next += 1;
            ready.push(record);
        }
        ready
    }

    /// Ends the stream. Drops records after a gap: they were not acknowledged.
    ///
    /// # Errors
    ///
    /// If an acknowledged record is missing.
    pub const fn finish(&self) -> Result<(), HoleError> {
        if self.acknowledged_through >= self.next {
            let acknowledged_through = self.acknowledged_through;
            return Err(HoleError { sequence: self.next, acknowledged_through });
        }
        Ok(())
    }

    /// Number of dropped records: duplicates, and records below the watermark.
    #[must_use]
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn record(sequence: u64) -> LogRecord {
        LogRecord {
            sequence,
            acknowledged_through: sequence - 1,
            begins_group: true,
            ends_group: true,
            payload: Bytes::new(),
        }
    }

    #[track_caller]
    fn check(watermark: u64, pushed: &[u64], expected: &[u64], hole: Option<u64>) {
        let mut merge = RecordMerge::new(watermark);
        let ready = pushed.iter().flat_map(|sequence| merge.push(record(*sequence)));
        let ready: Vec<u64> = ready.map(|record| record.sequence).collect();
        assert_eq!(ready, expected);
        assert_eq!(merge.finish().err().map(|hole| hole.sequence), hole);
    }

    #[test]
    fn records_of_overlapping_segments_come_in_order_and_once() {
        check(1, &[1, 2, 3], &[1, 2, 3], None);
        check(1, &[1, 3, 2, 3, 1], &[1, 2, 3], None);
        check(3, &[1, 2, 3, 2], &[3], None);
        check(9, &[], &[], None);
        check(9, &[7, 8], &[], None);
    }

    #[test]
    fn a_missing_record_is_found() {
        check(1, &[1, 3], &[1], Some(2));
        check(5, &[6], &[], Some(5));
    }
}
