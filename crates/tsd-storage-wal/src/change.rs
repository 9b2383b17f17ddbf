//! Changes of a table and their encoding as record bodies.
//!
//! The log contains results, not conditions, so a replay is idempotent. An append, an increment or a
//! compare-and-swap is logged as the put that results.

use bytes::Bytes;
use tsd_model::Family;
use tsd_storage::{CellBatch, MAX_DELTA_BATCH_BYTES, decode_family};

/// A change of rows, applied atomically.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Puts cells.
    Put(CellBatch),
    /// Deletes a row.
    DeleteRow(Bytes),
    /// Deletes columns of a row.
    DeleteColumns { row: Bytes, columns: Vec<(Family, Bytes)> },
    /// A row compaction. The put is applied before the deletes.
    Rewrite { row: Bytes, put: CellBatch, delete: Vec<(Family, Bytes)> },
}

// Kinds of records.
const PUT: u8 = 1;
const DELETE_ROW: u8 = 2;
const DELETE_COLUMNS: u8 = 3;
const REWRITE: u8 = 4;
// 5 is an append.
const DELTA_PUT: u8 = 6;

impl Change {
    /// True if the change frees space. A rewrite does: the columns that it deletes contain what it puts.
    pub(crate) const fn frees_space(&self) -> bool {
        match self {
            Self::Put(_) => false,
            Self::DeleteRow(_) | Self::DeleteColumns { .. } => true,
            Self::Rewrite { delete, .. } => !delete.is_empty(),
        }
    }

    /// Number of put cells and deleted columns. A deleted row counts as one.
    pub(crate) const fn cell_count(&self) -> usize {
        match self {
            Self::Put(batch) => batch.cell_count(),
            Self::DeleteRow(_) => 1,
            Self::DeleteColumns { columns, .. } => columns.len(),
            Self::Rewrite { put, delete, .. } => put.cell_count() + delete.len(),
        }
    }

    /// True if the change touches the row.
    pub(crate) fn touches(&self, key: &[u8]) -> bool {
        match self {
            Self::Put(batch) => batch.rows().any(|row| row.key == key),
            Self::DeleteRow(row) | Self::DeleteColumns { row, .. } | Self::Rewrite { row, .. } => {
                row == key
            }
        }
    }

    /// Encodes the record body at the end of `out` and returns the kind of the record.
    ///
    /// ```text
    /// put             batch
    /// delta put       batch as the differences between its parts, if that is shorter
    /// delete row      key
    /// delete columns  key length u16 | key | count u32 | column *
    /// rewrite         as delete columns, then the batch that is put
    /// column          family u8 | qualifier length u16 | qualifier          (big-endian)
    /// ```
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> u8 {
        match self {
            Self::Put(batch) if batch.byte_len() > MAX_DELTA_BATCH_BYTES => {
                out.extend_from_slice(batch.as_bytes());
                PUT
            }
            Self::Put(batch) => {
                let start = out.len();
                batch.encode_delta(out);
                if out.len() - start < batch.byte_len() {
                    return DELTA_PUT;
                }
                out.truncate(start);
                out.extend_from_slice(batch.as_bytes());
                PUT
            }
            Self::DeleteRow(row) => {
                out.extend_from_slice(row);
                DELETE_ROW
            }
            Self::DeleteColumns { row, columns } => {
                encode_columns(row, columns, out);
                DELETE_COLUMNS
            }
            Self::Rewrite { row, put, delete } => {
                encode_columns(row, delete, out);
                out.extend_from_slice(put.as_bytes());
                REWRITE
            }
        }
    }

    /// Decodes the body of a record of this kind; `None` if it is invalid.
    pub(crate) fn decode(kind: u8, body: &[u8]) -> Option<Self> {
        match kind {
            PUT => Some(Self::Put(CellBatch::from_bytes(body.to_vec()).ok()?)),
            DELTA_PUT => Some(Self::Put(CellBatch::from_delta(body).ok()?)),
            DELETE_ROW => (!body.is_empty()).then(|| Self::DeleteRow(Bytes::copy_from_slice(body))),
            DELETE_COLUMNS => {
                let (row, columns, rest) = decode_columns(body)?;
                rest.is_empty().then_some(Self::DeleteColumns { row, columns })
            }
            REWRITE => {
                let (row, delete, rest) = decode_columns(body)?;
                let put = CellBatch::from_bytes(rest.to_vec()).ok()?;
                Some(Self::Rewrite { row, put, delete })
            }
            _ => None,
        }
    }
}

fn encode_columns(row: &[u8], columns: &[(Family, Bytes)], out: &mut Vec<u8>) {
    out.extend_from_slice(&(row.len() as u16).to_be_bytes());
    out.extend_from_slice(row);
    out.extend_from_slice(&(columns.len() as u32).to_be_bytes());
    for (family, qualifier) in columns {
        out.push(*family as u8);
        out.extend_from_slice(&(qualifier.len() as u16).to_be_bytes());
        out.extend_from_slice(qualifier);
    }
}

type RowColumns<'a> = (Bytes, Vec<(Family, Bytes)>, &'a [u8]);

fn decode_columns(body: &[u8]) -> Option<RowColumns<'_>> {
    let (row, rest) = decode_short(body)?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut columns = Vec::new();
    for _ in 0..u32::from_be_bytes(*count) {
        let family = decode_family(*rest.split_off_first()?)?;
        let (qualifier, after) = decode_short(rest)?;
        columns.push((family, qualifier));
        rest = after;
    }
    (!row.is_empty()).then_some((row, columns, rest))
}

fn decode_short(bytes: &[u8]) -> Option<(Bytes, &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    let (bytes, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    Some((Bytes::copy_from_slice(bytes), rest))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;
    use tsd_storage::CellRef;

    use super::*;

    fn changes() -> Vec<Change> {
        let row = Bytes::from_static(b"row");
        let columns = vec![(Family::Id, Bytes::new()), (Family::T, Bytes::from_static(b"\0\xff"))];
        let cell =
            CellRef { family: Family::T, qualifier: b"q", value: b"v", timestamp_ms: Some(-1) };
        let batch = CellBatch::single(b"row", cell).unwrap();
        vec![
            Change::Put(batch.clone()),
            Change::Put(CellBatch::new()),
            Change::DeleteRow(row.clone()),
            Change::DeleteColumns { row: row.clone(), columns: columns.clone() },
            Change::DeleteColumns { row: row.clone(), columns: Vec::new() },
            Change::Rewrite { row: row.clone(), put: batch, delete: columns.clone() },
            Change::Rewrite { row, put: CellBatch::new(), delete: columns },
        ]
    }

    #[test]
    fn decoding_undoes_encoding() {
        for change in changes() {
            let mut body = Vec::new();
            let kind = change.encode(&mut body);
            let read = Change::decode(kind, &body).unwrap();
            let mut again = Vec::new();
            assert_eq!(read.encode(&mut again), kind);
            assert_eq!(again, body);
            assert_eq!(read.cell_count(), change.cell_count());
        }
    }

    #[test]
    fn truncated_body_is_invalid() {
        for change in changes() {
            let mut body = Vec::new();
            let kind = change.encode(&mut body);
            if body.is_empty() || matches!(change, Change::DeleteRow(_)) {
                continue;
            }
            let cut = body.split_off(body.len() - 1);
            assert!(!cut.is_empty());
            assert!(Change::decode(kind, &body).is_none(), "{change:?}");
        }
    }

    proptest! {
        #[test]
        fn decoding_any_bytes_does_not_panic(kind in 0..7_u8, body: Vec<u8>) {
            if let Some(change) = Change::decode(kind, &body) {
                let mut again = Vec::new();
                let kind = change.encode(&mut again);
                let read = Change::decode(kind, &again);
                prop_assert_eq!(read.map(|c| c.cell_count()), Some(change.cell_count()));
            }
        }
    }
}
