//! Operations on a row, encoded in commit order.
//!
//! A point takes its qualifier, its value and three bytes. Timestamps are stored in milliseconds since the base
//! of the memtable.
//!
//! ```text
//! op     = point | other
//! point  = 0 q vvv g ss | qualifier (2 bytes, q: 4) | value (vvv + 1 bytes) | stamp
//! other  = 1 g oo ff ss | ...
//!          oo 0 put:           qualifier length | value length | qualifier | value | stamp
//!          oo 1 delete column: qualifier length | qualifier | stamp
//!          oo 2 delete row:    stamp
//! g      = 1: the writer gave the timestamp, else it is the time of the commit
//! stamp  = ss 0, 1, 2: 2, 3, 4 bytes since the base (little-endian); ss 3: 8 bytes since the epoch
//! length = 7 bits a byte, lowest first, high bit: more
//! ```

use tsd_model::Family;

/// An operation on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowOp<'a> {
    Put {
        family: Family,
        qualifier: &'a [u8],
        value: &'a [u8],
        timestamp_ms: i64,
        /// True if the writer gave the timestamp.
        is_given: bool,
    },
    DeleteColumn {
        family: Family,
        qualifier: &'a [u8],
        timestamp_ms: i64,
    },
    DeleteRow {
        timestamp_ms: i64,
    },
}

/// Bytes of the shortest encoded point.
pub(super) const MIN_POINT_BYTES: usize = 6;

/// Bit of the head of an operation that is not the put of a point.
pub(super) const OTHER: u8 = 0x80;
const PUT: u8 = 0 << 4;
const DELETE_COLUMN: u8 = 1 << 4;
const DELETE_ROW: u8 = 2 << 4;
const GIVEN_TIME: u8 = 0x40;
/// Bit of the head of a point: its qualifier has four bytes.
pub(super) const LONG_QUALIFIER: u8 = 0x40;
const POINT_GIVEN_TIME: u8 = 0x04;

/// Bytes of an operation that puts a point, by its head.
#[inline]
pub(super) const fn point_len(head: u8) -> usize {
    let qualifier = if head & LONG_QUALIFIER == 0 { 2 } else { 4 };
    1 + qualifier + ((head >> 3) & 7) as usize + 1 + stamp_len(head)
}

/// Bytes of a stamp of this class.
#[inline]
const fn stamp_len(class: u8) -> usize {
    match class & 3 {
        0 => 2,
        1 => 3,
        2 => 4,
        _ => 8,
    }
}

/// Encodes an operation at the end of `out`.
#[inline]
pub(crate) fn encode_op(op: RowOp<'_>, base_ms: i64, out: &mut Vec<u8>) {
    match op {
        RowOp::Put { family, qualifier, value, timestamp_ms, is_given } => {
            let stamp = stamp(timestamp_ms, base_ms);
            let given = if is_given { POINT_GIVEN_TIME } else { 0 };
            if family == Family::T && encode_point(qualifier, value, stamp, given, out) {
                return;
            }
            let given = if is_given { GIVEN_TIME } else { 0 };
            out.push(OTHER | PUT | given | ((family as u8) << 2) | stamp.class);
            push_len(qualifier.len(), out);
            push_len(value.len(), out);
            out.extend_from_slice(qualifier);
            out.extend_from_slice(value);
            out.extend_from_slice(stamp.as_bytes());
        }
        RowOp::DeleteColumn { family, qualifier, timestamp_ms } => {
            let stamp = stamp(timestamp_ms, base_ms);
            out.push(OTHER | DELETE_COLUMN | ((family as u8) << 2) | stamp.class);
            push_len(qualifier.len(), out);
            out.extend_from_slice(qualifier);
            out.extend_from_slice(stamp.as_bytes());
        }
        RowOp::DeleteRow { timestamp_ms } => {
            let stamp = stamp(timestamp_ms, base_ms);
            out.push(OTHER | DELETE_ROW | stamp.class);
            out.extend_from_slice(stamp.as_bytes());
        }
    }
}

/// Encodes a put in the short form, if it has one. It is built in a buffer of fixed size, because one append to
/// `out` costs half of four appends.
#[inline]
fn encode_point(
    qualifier: &[u8],
    value: &[u8],
    stamp: Stamp,
    given: u8,
    out: &mut Vec<u8>,
) -> bool {
    if !matches!(qualifier.len(), 2 | 4) || !matches!(value.len(), 1..=8) {
        return false;
    }
    let mut bytes = [0; 1 + 4 + 8 + 8];
    let long = if qualifier.len() == 4 { LONG_QUALIFIER } else { 0 };
    let head = long | ((value.len() as u8 - 1) << 3) | given | stamp.class;
    let len = 1 + qualifier.len() + value.len() + stamp.len;
    let [first, rest @ ..] = &mut bytes;
    *first = head;
    let (to, rest) = rest.split_at_mut(qualifier.len());
    to.copy_from_slice(qualifier);
    let (to, rest) = rest.split_at_mut(value.len());
    to.copy_from_slice(value);
    if let Some(to) = rest.first_chunk_mut::<8>() {
        *to = stamp.bytes;
    }
    out.extend_from_slice(bytes.get(..len).unwrap_or(&bytes));
    true
}

#[derive(Clone, Copy)]
struct Stamp {
    bytes: [u8; 8],
    len: usize,
    class: u8,
}

impl Stamp {
    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

#[inline]
fn stamp(timestamp_ms: i64, base_ms: i64) -> Stamp {
    let (number, len, class) = match timestamp_ms.checked_sub(base_ms) {
        Some(delta @ 0..0x1_0000) => (delta, 2, 0),
        Some(delta @ 0x1_0000..0x100_0000) => (delta, 3, 1),
        Some(delta @ 0x100_0000..0x1_0000_0000) => (delta, 4, 2),
        _ => (timestamp_ms, 8, 3),
    };
    Stamp { bytes: number.to_le_bytes(), len, class }
}

fn push_len(mut len: usize, out: &mut Vec<u8>) {
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
}

/// Decodes the operations of a row.
pub(crate) struct RowOpIter<'a> {
    rest: &'a [u8],
    base_ms: i64,
}

impl<'a> RowOpIter<'a> {
    pub(crate) const fn new(ops: &'a [u8], base_ms: i64) -> Self {
        Self { rest: ops, base_ms }
    }

    /// Bytes of the operations that are not decoded yet.
    #[cfg(test)]
    pub(super) const fn rest_len(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn len(&mut self) -> Option<usize> {
        let mut len = 0;
        for shift in (0..63).step_by(7) {
            let byte = *self.rest.split_off_first()?;
            len |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(len);
            }
        }
        None
    }

    #[inline]
    fn stamp(&mut self, class: u8) -> Option<i64> {
        let len = stamp_len(class);
        let mut bytes = [0; 8];
        bytes.get_mut(..len)?.copy_from_slice(self.take(len)?);
        let number = i64::from_le_bytes(bytes);
        Some(if len == 8 { number } else { self.base_ms.wrapping_add(number) })
    }
}

impl<'a> Iterator for RowOpIter<'a> {
    type Item = RowOp<'a>;

    #[inline]
    fn next(&mut self) -> Option<RowOp<'a>> {
        let head = *self.rest.split_off_first()?;
        if head & OTHER == 0 {
            let qualifier = self.take(if head & LONG_QUALIFIER == 0 { 2 } else { 4 })?;
            let value = self.take(usize::from((head >> 3) & 7) + 1)?;
            let timestamp_ms = self.stamp(head)?;
            let (family, is_given) = (Family::T, head & POINT_GIVEN_TIME != 0);
            return Some(RowOp::Put { family, qualifier, value, timestamp_ms, is_given });
        }
        let family = match (head >> 2) & 3 {
            0 => Family::Id,
            1 => Family::Name,
            _ => Family::T,
        };
        match head & 0x30 {
            PUT => {
                let (qualifier, value) = (self.len()?, self.len()?);
                let (qualifier, value) = (self.take(qualifier)?, self.take(value)?);
                let (timestamp_ms, is_given) = (self.stamp(head)?, head & GIVEN_TIME != 0);
                Some(RowOp::Put { family, qualifier, value, timestamp_ms, is_given })
            }
            DELETE_COLUMN => {
                let len = self.len()?;
                let qualifier = self.take(len)?;
                Some(RowOp::DeleteColumn { family, qualifier, timestamp_ms: self.stamp(head)? })
            }
            _ => Some(RowOp::DeleteRow { timestamp_ms: self.stamp(head)? }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Owned {
        Put(u8, Vec<u8>, Vec<u8>, i64, bool),
        DeleteColumn(u8, Vec<u8>, i64),
        DeleteRow(i64),
    }

    impl Owned {
        fn as_op(&self) -> RowOp<'_> {
            let family = |code: &u8| match code {
                0 => Family::Id,
                1 => Family::Name,
                _ => Family::T,
            };
            match self {
                Self::Put(code, qualifier, value, timestamp_ms, is_given) => RowOp::Put {
                    family: family(code),
                    qualifier,
                    value,
                    timestamp_ms: *timestamp_ms,
                    is_given: *is_given,
                },
                Self::DeleteColumn(code, qualifier, timestamp_ms) => RowOp::DeleteColumn {
                    family: family(code),
                    qualifier,
                    timestamp_ms: *timestamp_ms,
                },
                Self::DeleteRow(timestamp_ms) => RowOp::DeleteRow { timestamp_ms: *timestamp_ms },
            }
        }
    }

    fn op() -> impl Strategy<Value = Owned> {
        let bytes = || {
            prop_oneof![
                8 => prop::collection::vec(any::<u8>(), 0..10),
                1 => prop::collection::vec(any::<u8>(), 120..300),
            ]
        };
        let stamp = || {
            prop_oneof![
                -5..70_000_i64,
                16_777_000..16_778_000_i64,
                4_294_967_000..4_294_968_000_i64,
                any::<i64>()
            ]
        };
        prop_oneof![
            6 => (0..3_u8, bytes(), bytes(), stamp(), any::<bool>())
                .prop_map(|(f, q, v, t, g)| Owned::Put(f, q, v, t, g)),
            2 => (0..3_u8, bytes(), stamp()).prop_map(|(f, q, t)| Owned::DeleteColumn(f, q, t)),
            1 => stamp().prop_map(Owned::DeleteRow),
        ]
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(
            ops in prop::collection::vec(op(), 0..20),
            base in any::<i64>(),
            near: bool,
        ) {
            let base = if near { 0 } else { base };
            let mut bytes = Vec::new();
            for op in &ops {
                encode_op(op.as_op(), base, &mut bytes);
            }
            let read: Vec<_> = RowOpIter::new(&bytes, base).collect();
            prop_assert_eq!(read, ops.iter().map(Owned::as_op).collect::<Vec<_>>());
        }

        #[test]
        fn decoding_of_any_bytes_ends(bytes: Vec<u8>) {
            prop_assert!(RowOpIter::new(&bytes, 0).count() <= bytes.len());
        }
    }

    #[test]
    fn point_within_a_minute_takes_three_bytes_more_than_its_cell() {
        let mut bytes = Vec::new();
        let (qualifier, value) = (&[0, 7][..], &[42][..]);
        encode_op(
            RowOp::Put {
                family: Family::T,
                qualifier,
                value,
                timestamp_ms: 1_060_000,
                is_given: false,
            },
            1_000_000,
            &mut bytes,
        );
        assert_eq!(bytes.len(), 6);
    }
}
