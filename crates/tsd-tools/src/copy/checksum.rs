//! Checksum of a row's contents, as a reader gets them.
//!
//! It leaves out cell timestamps and uses the points instead of their columns. So a row has the same checksum before
//! and after its compaction, which either store may do at any time. A checksum is the first 16 bytes of a SHA-256.
//! Checksums of rows are added, so their order does not matter.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tsd_model::{Cell, points_and_other_cells};

use super::{options::CopiedKind, report::TableDigest};

/// The digest of one row under a key.
pub(super) fn row_digest(kind: CopiedKind, key: &Bytes, cells: &[Cell]) -> TableDigest {
    let mut digest = RowDigest::new(key);
    if kind == CopiedKind::Data {
        let (points, others) = points_and_other_cells(key, cells);
        for point in points {
            digest.add(b"p", point.qualifier.as_bytes(), point.value);
        }
        for cell in others {
            digest.add_cell(cell);
        }
    } else {
        for cell in cells {
            digest.add_cell(cell);
        }
    }
    digest.end()
}

/// A digest in progress.
pub(super) struct RowDigest {
    hash: Sha256,
    row: TableDigest,
}

impl RowDigest {
    pub(super) fn new(key: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update((key.len() as u64).to_be_bytes());
        hash.update(key);
        Self { hash, row: TableDigest { rows: 1, ..TableDigest::default() } }
    }

    fn add_cell(&mut self, cell: &Cell) {
        self.add(cell.family.as_str().as_bytes(), &cell.qualifier, &cell.value);
    }

    /// Adds a point or cell, with the lengths of its fields, so that no two rows yield the same bytes.
    pub(super) fn add(&mut self, kind: &[u8], qualifier: &[u8], value: &[u8]) {
        for piece in [kind, qualifier, value] {
            self.hash.update((piece.len() as u64).to_be_bytes());
            self.hash.update(piece);
        }
        self.row.cells += 1;
        self.row.bytes += (qualifier.len() + value.len()) as u64;
    }

    pub(super) fn end(self) -> TableDigest {
        let hash = self.hash.finalize();
        let first = hash.iter().take(16).fold(0_u128, |sum, byte| sum << 8 | u128::from(*byte));
        TableDigest { checksum: first, ..self.row }
    }
}
