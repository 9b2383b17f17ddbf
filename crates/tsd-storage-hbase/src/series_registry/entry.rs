//! Entries of the registration log: their rows and their bytes.
//!
//! ```text
//! row    name of the table of points | 0 | sequence number u64
//! value  version u8 (1) | kind u8 | body
//!          1 series  each: length u16, TSUID
//!          2 built   (empty)
//!          3 closed  reason, UTF-8
//! ```
//!
//! Numbers are big-endian, sequence numbers dense from 0.

use bytes::Bytes;

const VERSION: u8 = 1;
const SERIES: u8 = 1;
const BUILT: u8 = 2;
const CLOSED: u8 = 3;

/// Longest reason, in bytes.
const MAX_REASON: usize = 1_024;

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// TSUIDs of registered series.
    Series(Vec<Box<[u8]>>),
    /// Every series with rows in the table is registered.
    Built,
    /// The log is closed: no daemon registers series or relies on the log. The text has the reason.
    Closed(String),
}

impl Entry {
    /// Encodes the value of the entry's cell.
    pub(crate) fn encode(&self) -> Bytes {
        let mut value = vec![VERSION];
        match self {
            Self::Series(tsuids) => {
                value.push(SERIES);
                for tsuid in tsuids {
                    // A row key has at most 32 KiB.
                    value.extend_from_slice(&(tsuid.len() as u16).to_be_bytes());
                    value.extend_from_slice(tsuid);
                }
            }
            Self::Built => value.push(BUILT),
            Self::Closed(reason) => {
                value.push(CLOSED);
                let reason = reason.as_bytes();
                value.extend_from_slice(reason.get(..MAX_REASON).unwrap_or(reason));
            }
        }
        value.into()
    }

    /// Decodes a value; `None` if it is not a valid entry of this version.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let (&[VERSION, kind], mut body) = value.split_first_chunk()? else { return None };
        match kind {
            SERIES => {
                let mut tsuids = Vec::new();
                while let Some((len, rest)) = body.split_first_chunk() {
                    let (tsuid, rest) = rest.split_at_checked(u16::from_be_bytes(*len).into())?;
                    tsuids.push(tsuid.into());
                    body = rest;
                }
                body.is_empty().then_some(Self::Series(tsuids))
            }
            BUILT if body.is_empty() => Some(Self::Built),
            CLOSED => Some(Self::Closed(String::from_utf8_lossy(body).into_owned())),
            _ => None,
        }
    }
}

/// The rows of the entries of one table of points.
#[derive(Clone, Debug)]
pub(crate) struct EntryRows {
    prefix: Vec<u8>,
}

impl EntryRows {
    pub(crate) fn of_table(name: &str) -> Self {
        Self { prefix: [name.as_bytes(), &[0]].concat() }
    }

    /// Returns the row of an entry.
    pub(crate) fn row(&self, sequence: u64) -> Bytes {
        [&self.prefix[..], &sequence.to_be_bytes()].concat().into()
    }

    /// Returns a row after the rows of all entries.
    pub(crate) fn end(&self) -> Bytes {
        let name = self.prefix.get(..self.prefix.len().saturating_sub(1)).unwrap_or_default();
        [name, &[1]].concat().into()
    }

    /// Returns the sequence number of a row.
    pub(crate) fn sequence(&self, row: &[u8]) -> Option<u64> {
        let number = row.strip_prefix(&self.prefix[..])?;
        Some(u64::from_be_bytes(number.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_are_in_the_order_of_their_numbers() {
        let rows = EntryRows::of_table("tsdb");
        assert_eq!(rows.row(0x0102), b"tsdb\0\0\0\0\0\0\0\x01\x02"[..]);
        assert!(rows.row(255) < rows.row(256) && rows.row(u64::MAX) < rows.end());
        assert_eq!(rows.sequence(&rows.row(77)), Some(77));
        assert_eq!(rows.sequence(b"tsdb2\0\0\0\0\0\0\0\0"), None);
        assert_eq!(EntryRows::of_table("tsdb2").sequence(&rows.row(1)), None);
    }

    #[test]
    fn encoded_entries_are_stable() {
        let series = Entry::Series(vec![[7, 8].into(), [9].into()]);
        assert_eq!(series.encode(), [1, 1, 0, 2, 7, 8, 0, 1, 9][..]);
        assert_eq!(Entry::Built.encode(), [1, 2][..]);
        assert_eq!(Entry::Closed("why".to_owned()).encode(), b"\x01\x03why"[..]);
        assert_eq!(Entry::decode(&[2, 1]), None);
        assert_eq!(Entry::decode(&[1, 1, 0, 2, 7]), None);
    }

    proptest! {
        #[test]
        fn decode_undoes_encode(tsuids: Vec<Vec<u8>>, reason: String) {
            let series = Entry::Series(tsuids.into_iter().map(Vec::into_boxed_slice).collect());
            prop_assert_eq!(Entry::decode(&series.encode()), Some(series));
            let closed = Entry::Closed(reason);
            prop_assert_eq!(Entry::decode(&closed.encode()), Some(closed));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(value: Vec<u8>) {
            let _ = Entry::decode(&value);
        }
    }
}
