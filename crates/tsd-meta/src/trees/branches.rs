//! Reads a branch: its leaves with their names, and the branches directly below it.

use bytes::Bytes;
use tsd_model::{BRANCH_QUALIFIER, Branch, Family, Leaf, Row, TreeColumn, TreeId, from_hex};
use tsd_storage::{Get, Scan, prefix_end};

use super::{TreeError, Trees};

/// Bytes of a row key for each level below the root.
const LEVEL_BYTES: usize = 4;
/// Rows per batch of the scan.
const BATCH_ROWS: usize = 128;
/// Most leaves, and most child branches, of a branch that is read.
const MAX_ENTRIES: usize = 262_144;

/// A branch, with its leaves and the branches directly below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchContents {
    /// The tree.
    pub tree: TreeId,
    /// The branch.
    pub branch: Branch,
    /// Leaves whose UIDs have names, in the order of their columns.
    pub leaves: Vec<TreeLeaf>,
    /// Branches directly below, in the order of their rows.
    pub children: Vec<Branch>,
}

/// A leaf with the names of its series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLeaf {
    /// The leaf.
    pub leaf: Leaf,
    /// Metric.
    pub metric: String,
    /// Tags, in order of the UIDs of their keys.
    pub tags: Vec<(String, String)>,
}

impl Trees {
    /// The branch with this row key; `None` if it does not exist.
    pub async fn branch(&self, row: &[u8]) -> Result<Option<BranchContents>, TreeError> {
        let [a, b, ..] = *row else { return Ok(None) };
        let Some(tree) = TreeId::try_new(u16::from_be_bytes([a, b])) else { return Ok(None) };
        let get = Get {
            row: Bytes::copy_from_slice(row),
            family: Some(Family::T),
            qualifiers: Vec::new(),
            reads_past_losses: false,
        };
        let Some(found) = self.storage().get(&self.table, get).await? else { return Ok(None) };
        let Some(branch) = branch_of(&found) else { return Ok(None) };
        let branch = Branch::from_json(branch)?;
        let leaves = self.named_leaves(&found).await?;
        let children = self.children(row).await?;
        Ok(Some(BranchContents { tree, branch, leaves, children }))
    }

    async fn named_leaves(&self, row: &Row) -> Result<Vec<TreeLeaf>, TreeError> {
        let leaves: Vec<(Leaf, Bytes)> = row
            .cells
            .iter()
            .filter(|cell| matches!(TreeColumn::decode(&cell.qualifier), Some(TreeColumn::Leaf(_))))
            .filter_map(|cell| {
                let leaf = Leaf::from_json(&cell.value).ok();
                let tsuid = leaf.as_ref().and_then(|leaf| from_hex(leaf.tsuid.as_bytes()));
                if tsuid.is_none() {
                    tracing::warn!(row = ?row.key, "ignored an invalid leaf");
                }
                Some((leaf?, tsuid?.into()))
            })
            .collect();
        if leaves.len() > MAX_ENTRIES {
            return Err(TreeError::TooMany { what: "leaves of a branch", most: MAX_ENTRIES });
        }
        let tsuids: Vec<Bytes> = leaves.iter().map(|(_, tsuid)| tsuid.clone()).collect();
        let series = self.series(&tsuids, false).await?;
        let named = leaves.into_iter().zip(series).filter_map(|((leaf, _), series)| {
            let series = series?;
            let tags = series.tags.into_iter().map(|(tagk, tagv)| (tagk.name, tagv.name));
            Some(TreeLeaf { leaf, metric: series.metric.name, tags: tags.collect() })
        });
        Ok(named.collect())
    }

    /// The branches directly below a row. The scan also meets all deeper branches; if a whole batch is below one
    /// child, it continues after that child.
    async fn children(&self, row: &[u8]) -> Result<Vec<Branch>, TreeError> {
        let stop = prefix_end(row);
        let length = row.len() + LEVEL_BYTES;
        let mut children = Vec::new();
        // The first key after the row itself.
        let mut start = Bytes::from([row, &[0]].concat());
        'scan: loop {
            let scan = Scan {
                start: start.clone(),
                stop: stop.clone(),
                family: Some(Family::T),
                qualifier: Some(Bytes::from_static(BRANCH_QUALIFIER.as_bytes())),
                batch_rows: Some(BATCH_ROWS),
                ..Scan::default()
            };
            let mut rows = self.storage().scan(&self.table, scan);
            while let Some(batch) = rows.next_rows().await? {
                for child in batch.iter().filter(|child| child.key.len() == length) {
                    children.extend(branch_of(child).map(Branch::from_json).transpose()?);
                }
                if children.len() > MAX_ENTRIES {
                    let what = "branches of a branch";
                    return Err(TreeError::TooMany { what, most: MAX_ENTRIES });
                }
                let parent_of = |row: &Row| row.key.get(..length).map(<[u8]>::to_vec);
                if let (Some(first), Some(last)) = (batch.first(), batch.last())
                    && let Some(child) = parent_of(last)
                    && parent_of(first).as_ref() == Some(&child)
                {
                    start = prefix_end(&child);
                    if start.is_empty() || (!stop.is_empty() && start >= stop) {
                        break 'scan;
                    }
                    continue 'scan;
                }
            }
            break;
        }
        Ok(children)
    }
}

/// The value of the cell of a branch.
fn branch_of(row: &Row) -> Option<&[u8]> {
    let cell = row.cells.iter().find(|cell| cell.qualifier == BRANCH_QUALIFIER.as_bytes());
    cell.map(|cell| &*cell.value)
}
