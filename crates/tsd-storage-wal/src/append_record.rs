//! Log records of appends: the added bytes and their columns.
//!
//! Without them, a point that is appended to a column of a few thousand points would log the whole column. A
//! record still holds a result, not a condition: it states the length and the checksum of the value before. So a
//! replay gives the same value, even twice, or over a column that already contains the append.
//!
//! If the log of the same memtable lacks the value of a column, the whole column is logged, with a length of 0
//! before. So a replay finds the value before in the memtables that it fills, not in the backend.
//!
//! ```text
//! body = count u32 | before * | batch           a value before for each cell of the batch, in order
//! before = length u32 | CRC32C u32                                                    (big-endian)
//! ```

use bytes::Bytes;
use tsd_storage::{CellBatch, CellRef, Column};

/// Kind of an append record, distinct from the kinds of a change.
pub(crate) const APPEND: u8 = 5;

/// The value of a column before an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueBefore {
    len: u32,
    crc: u32,
}

impl ValueBefore {
    /// No value before: the record has the whole value.
    pub(crate) const NONE: Self = Self { len: 0, crc: 0 };

    /// The value before an append; `None` if it is too long.
    pub(crate) fn of(value: &[u8]) -> Option<Self> {
        let len = u32::try_from(value.len()).ok()?;
        Some(if len == 0 { Self::NONE } else { Self { len, crc: crc32c::crc32c(value) } })
    }

    /// The value with `added` appended. `present` may already contain `added`.
    fn append(self, present: &[u8], added: &[u8]) -> Bytes {
        if self.len == 0 {
            return Bytes::copy_from_slice(added);
        }
        match present.split_at_checked(self.len as usize) {
            Some((before, after)) if crc32c::crc32c(before) == self.crc => {
                if after.starts_with(added) {
                    Bytes::copy_from_slice(present)
                } else {
                    [before, added].concat().into()
                }
            }
            // The value before is lost, and the loss is accepted.
            _ if present.ends_with(added) => Bytes::copy_from_slice(present),
            _ => [present, added].concat().into(),
        }
    }
}

/// An append to one or several columns.
#[derive(Clone, Debug)]
pub(crate) struct AppendRecord {
    /// The added bytes of each column, as cells.
    added: CellBatch,
    /// The value before, for each cell of `added`.
    before: Vec<ValueBefore>,
}

impl AppendRecord {
    /// `before` has one value for each cell of `added`.
    pub(crate) const fn new(added: CellBatch, before: Vec<ValueBefore>) -> Self {
        Self { added, before }
    }

    /// Encodes the record body at the end of `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.before.len() as u32).to_be_bytes());
        for before in &self.before {
            out.extend_from_slice(&before.len.to_be_bytes());
            out.extend_from_slice(&before.crc.to_be_bytes());
        }
        out.extend_from_slice(self.added.as_bytes());
    }

    /// Decodes a record body; `None` if it is invalid.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let (count, rest) = body.split_first_chunk::<4>()?;
        let count = u32::from_be_bytes(*count) as usize;
        let (before, batch) = rest.split_at_checked(count.checked_mul(8)?)?;
        let added = CellBatch::from_bytes(batch.to_vec()).ok()?;
        let (pairs, _) = before.as_chunks::<8>();
        let before = pairs.iter().filter_map(|pair| {
            let (len, crc) = pair.split_first_chunk::<4>()?;
            let crc = crc.first_chunk::<4>()?;
            Some(ValueBefore { len: u32::from_be_bytes(*len), crc: u32::from_be_bytes(*crc) })
        });
        let record = Self { added, before: before.collect() };
        (record.added.cell_count() == count).then_some(record)
    }

    /// Returns the put with the same result. `present` returns the present value of a column.
    pub(crate) fn resolve<E>(
        &self,
        mut present: impl FnMut(&Column) -> Result<Option<Bytes>, E>,
    ) -> Result<Option<CellBatch>, E> {
        let mut put = CellBatch::new();
        let mut set: Vec<(Column, Bytes)> = Vec::new();
        let mut befores = self.before.iter();
        for row in self.added.rows() {
            if put.begin_row(row.key).is_err() {
                return Ok(None);
            }
            for cell in row.cells() {
                let column = Column {
                    row: Bytes::copy_from_slice(row.key),
                    family: cell.family,
                    qualifier: Bytes::copy_from_slice(cell.qualifier),
                };
                let before = befores.next().copied().unwrap_or(ValueBefore::NONE);
                let earlier = set.iter().rev().find(|(other, _)| *other == column);
                let now = match earlier {
                    Some((_, value)) => value.clone(),
                    None if before.len == 0 => Bytes::new(),
                    None => present(&column)?.unwrap_or_default(),
                };
                let value = before.append(&now, cell.value);
                if put.push(CellRef { value: &value, ..cell }).is_err() {
                    return Ok(None);
                }
                set.push((column, value));
            }
        }
        Ok(Some(put))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;
    use tsd_model::Family;

    use super::*;

    fn record(before: &[u8], added: &[u8]) -> AppendRecord {
        let cell = CellRef { family: Family::T, qualifier: b"q", value: added, timestamp_ms: None };
        let batch = CellBatch::single(b"row", cell).unwrap();
        AppendRecord::new(batch, vec![ValueBefore::of(before).unwrap()])
    }

    fn resolve(record: &AppendRecord, present: &[u8]) -> Vec<u8> {
        let found = |_: &Column| Ok::<_, ()>(Some(Bytes::copy_from_slice(present)));
        let put = record.resolve(found).unwrap().unwrap();
        put.rows().next().unwrap().cells().next().unwrap().value.to_vec()
    }

    proptest! {
        #[test]
        fn replaying_an_append_twice_or_over_its_result_gives_the_same_column(
            parts in prop::collection::vec(prop::collection::vec(0..3_u8, 0..6), 1..8),
            from in 0..8_usize,
        ) {
            let mut values = vec![Vec::new()];
            let mut records = Vec::new();
            for part in &parts {
                let before = values.last().unwrap().clone();
                records.push(record(&before, part));
                values.push([before.as_slice(), part].concat());
            }
            let result = values.last().unwrap();
            // From any prefix on that contains what the first replayed record needs.
            let from = from.min(parts.len() - 1);
            for start in values.iter().skip(from) {
                let mut value = start.clone();
                for _ in 0..2 {
                    for record in records.iter().skip(from) {
                        value = resolve(record, &value);
                    }
                    prop_assert_eq!(&value, result);
                }
            }
        }

        #[test]
        fn decoding_any_bytes_does_not_panic(body: Vec<u8>) {
            if let Some(record) = AppendRecord::decode(&body) {
                let mut again = Vec::new();
                record.encode(&mut again);
                prop_assert_eq!(again, body);
            }
        }
    }

    #[test]
    fn decoding_undoes_encoding() {
        let mut body = Vec::new();
        record(b"before", b"added").encode(&mut body);
        let read = AppendRecord::decode(&body).unwrap();
        assert_eq!(resolve(&read, b"before"), b"beforeadded");
        assert!(AppendRecord::decode(body.split_last().unwrap().1).is_none());
    }

    #[test]
    fn append_to_a_lost_value_adds_once() {
        let record = record(b"lost", b"added");
        assert_eq!(resolve(&record, b"other"), b"otheradded");
        assert_eq!(resolve(&record, b"otheradded"), b"otheradded");
        assert_eq!(resolve(&record, b""), b"added");
    }
}
