//! Groups of changes as payloads of records. A group that is too long for one record is divided.

use bytes::Bytes;

use crate::record::{LogRecord, MAX_PAYLOAD};

/// Returns the payloads of a group. An empty group has no payload.
pub fn split_group(group: &[u8]) -> impl ExactSizeIterator<Item = Bytes> {
    group.chunks(MAX_PAYLOAD).map(Bytes::copy_from_slice)
}

/// Joins the records of a stream, in their order, into groups.
///
/// Leaves out a group whose last record is missing: the group was not acknowledged, because its owner gave up
/// or was fenced.
#[derive(Debug, Default)]
pub struct GroupAssembler {
    parts: Vec<Bytes>,
    is_open: bool,
    incomplete: u64,
}

impl GroupAssembler {
    /// Adds the next record. Returns the group that the record ends.
    pub fn push(&mut self, record: &LogRecord) -> Option<Bytes> {
        if record.begins_group {
            self.incomplete += u64::from(self.is_open);
            self.parts.clear();
            self.is_open = true;
        }
        if !self.is_open {
            return None;
        }
        self.parts.push(record.payload.clone());
        if !record.ends_group {
            return None;
        }
        self.is_open = false;
        let parts = std::mem::take(&mut self.parts);
        Some(if let [only] = &parts[..] { only.clone() } else { parts.concat().into() })
    }

    /// Number of incomplete groups before the last group.
    #[must_use]
    pub const fn incomplete(&self) -> u64 {
        self.incomplete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(group: &[u8], first: u64) -> Vec<LogRecord> {
        let payloads = split_group(group);
        let last = payloads.len() - 1;
        let record = |(at, payload)| LogRecord {
            sequence: first + at as u64,
            acknowledged_through: first + at as u64 - 1,
            begins_group: at == 0,
            ends_group: at == last,
            payload,
        };
        payloads.enumerate().map(record).collect()
    }

    #[test]
    fn a_long_group_is_divided_and_joined() {
        let mut assembler = GroupAssembler::default();
        for length in [1, MAX_PAYLOAD, MAX_PAYLOAD + 1, 3 * MAX_PAYLOAD] {
            let group: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let parts = records(&group, 1);
            assert_eq!(parts.len(), length.div_ceil(MAX_PAYLOAD));
            let joined: Vec<Bytes> =
                parts.iter().filter_map(|record| assembler.push(record)).collect();
            assert_eq!(joined, [Bytes::from(group)]);
        }
    }

    #[test]
    fn a_group_without_its_end_is_left_out() {
        let mut assembler = GroupAssembler::default();
        let long = records(&vec![1; 2 * MAX_PAYLOAD], 1);
        let [first, second] = &long[..] else { panic!("two records") };
        assert_eq!(assembler.push(first), None);
        for record in records(b"next", 2) {
            assert_eq!(assembler.push(&record).as_deref(), Some(&b"next"[..]));
        }
        assert_eq!(assembler.incomplete(), 1);
        assert_eq!(assembler.push(second), None, "its begin was trimmed");
    }
}
