//! Series that a tree does not have: collisions, whose leaf belongs to another series, and series that no rule
//! matched.

use bytes::Bytes;
use tsd_model::{Family, TreeColumn, TreeId, decode_latin1, to_hex};
use tsd_storage::Get;

use super::{TreeError, Trees};

/// Cause why a series is not in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeFailureKind {
    /// Another series has its leaf.
    Collision,
    /// A level has no matching rule, and the tree is strict.
    NotMatched,
}

impl TreeFailureKind {
    /// Row of a tree with the failures of this kind.
    pub(super) fn row(self, id: TreeId) -> Bytes {
        Bytes::copy_from_slice(&match self {
            Self::Collision => id.collisions_row(),
            Self::NotMatched => id.not_matched_row(),
        })
    }

    /// Qualifier of a series.
    pub(super) fn qualifier(self, tsuid: &[u8]) -> Bytes {
        let column = match self {
            Self::Collision => TreeColumn::Collision(tsuid.to_vec()),
            Self::NotMatched => TreeColumn::NotMatched(tsuid.to_vec()),
        };
        column.qualifier().into()
    }
}

impl Trees {
    /// TSUIDs of the series that are not in a tree, with the TSUID that has their leaf, or with the rules that failed.
    /// Reads only these series; an empty list reads all series.
    pub async fn failures(
        &self,
        id: TreeId,
        kind: TreeFailureKind,
        tsuids: &[Vec<u8>],
    ) -> Result<Vec<(String, String)>, TreeError> {
        let get = Get {
            row: kind.row(id),
            family: Some(Family::T),
            qualifiers: tsuids.iter().map(|tsuid| kind.qualifier(tsuid)).collect(),
            reads_past_losses: false,
        };
        let row = self.storage().get(&self.table, get).await?;
        let cells = row.map(|row| row.cells).unwrap_or_default();
        let found = cells.iter().filter_map(|cell| {
            let ((TreeFailureKind::Collision, TreeColumn::Collision(tsuid))
            | (TreeFailureKind::NotMatched, TreeColumn::NotMatched(tsuid))) =
                (kind, TreeColumn::decode(&cell.qualifier)?)
            else {
                return None;
            };
            Some((to_hex(&tsuid), decode_latin1(&cell.value)))
        });
        Ok(found.collect())
    }
}
