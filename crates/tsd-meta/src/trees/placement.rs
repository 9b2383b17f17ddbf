//! Places a batch of series in trees: writes missing branches and leaves, and records failures.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tsd_model::{BRANCH_QUALIFIER, Branch, Family, Leaf, Row, TreeColumn, TreeId, from_hex};
use tsd_storage::{CellBatch, CellRef, Column, Get, StorageExt};

use super::{
    MAX_ATTEMPTS, TreeError, TreeFailureKind, Trees, definition_cache::ActiveTree,
    rule_match::TestMessages, series::TreeSeries,
};

/// Rows read at once.
const ROWS_PER_READ: usize = 256;
/// Cells that are written concurrently.
const CONCURRENT_WRITES: usize = 32;

/// Outcomes of placing series, counted once for each tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementCounts {
    /// New leaves.
    pub leaves: u64,
    /// Existing leaves.
    pub existing: u64,
    /// Series whose leaf belongs to another series.
    pub collisions: u64,
    /// Series that a strict tree rejects.
    pub not_matched: u64,
    /// Series without a leaf below a branch, because no rule matched or only one level did.
    pub without_place: u64,
    /// Series whose path is too long or whose leaf is invalid.
    pub failed: u64,
}

impl PlacementCounts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.leaves += other.leaves;
        self.existing += other.existing;
        self.collisions += other.collisions;
        self.not_matched += other.not_matched;
        self.without_place += other.without_place;
        self.failed += other.failed;
    }
}

/// Row and qualifier of a leaf.
type LeafKey = (Bytes, Bytes);

/// A leaf that a series needs.
struct LeafPlan<'p> {
    tree: TreeId,
    name: &'p str,
    tsuid: &'p str,
    store_failures: bool,
}

/// Cells that the tree table has already.
#[derive(Default)]
struct ExistingCells {
    branches: BTreeSet<Bytes>,
    leaves: BTreeMap<LeafKey, Bytes>,
}

/// A series that is not in a tree, with the cause.
struct FailedSeries {
    tree: TreeId,
    kind: TreeFailureKind,
    tsuid: String,
    reason: String,
}

/// The path of a series in a tree, and its leaf.
struct PlacedSeries<'s> {
    tree: &'s ActiveTree,
    series: &'s TreeSeries,
    path: Vec<String>,
    /// `None` if no leaf of the series is stored.
    leaf: Option<String>,
}

impl Trees {
    /// Places series in the enabled trees. A series with an unnamed UID counts as failed.
    pub async fn place_by_tsuid(&self, tsuids: &[Bytes]) -> Result<PlacementCounts, TreeError> {
        let _no_deletion = self.deletion.read().await;
        let active = self.active().await?;
        if active.is_empty() {
            return Ok(PlacementCounts::default());
        }
        let with_custom_fields = active.iter().any(|tree| tree.builder.needs_custom_fields());
        let named = self.series(tsuids, with_custom_fields).await?;
        let series: Vec<_> = named.into_iter().flatten().collect();
        let mut counts = self.place(&active, &series).await?;
        let nameless = tsuids.len() - series.len();
        if nameless > 0 {
            counts.failed += nameless as u64;
            tracing::warn!(series = nameless, "series with a UID without a name are in no tree");
        }
        Ok(counts)
    }
}

impl Trees {
    /// Places series in each of the trees. The caller must hold the permit of [`Trees::deletion`], and must have read
    /// the trees while it held the permit.
    pub(super) async fn place(
        &self,
        trees: &[ActiveTree],
        series: &[TreeSeries],
    ) -> Result<PlacementCounts, TreeError> {
        let mut counts = PlacementCounts::default();
        let mut failures = Vec::new();
        let placed = place_all(trees, series, &mut counts, &mut failures);
        let mut branches: BTreeMap<Bytes, &[String]> = BTreeMap::new();
        let mut leaves: BTreeMap<LeafKey, Vec<LeafPlan<'_>>> = BTreeMap::new();
        for PlacedSeries { tree, series, path, leaf } in &placed {
            let id = tree.builder.id();
            for depth in 1..=path.len() {
                let path = path.get(..depth).unwrap_or_default();
                let row = branch_row(id, path);
                branches.entry(row).or_insert(path);
            }
            if let Some(name) = leaf {
                let qualifier = Bytes::from(TreeColumn::leaf(name).qualifier());
                let plan = LeafPlan {
                    tree: id,
                    name,
                    tsuid: &series.tsuid,
                    store_failures: tree.store_failures,
                };
                leaves.entry((branch_row(id, path), qualifier)).or_default().push(plan);
            }
        }
        let existing = self.read_existing(&branches, &leaves).await?;
        self.write_branches(&branches, &existing).await?;
        let writes: Vec<_> = leaves
            .iter()
            .map(|(place, plans)| self.write_leaf(place, plans, existing.leaves.get(place)))
            .collect();
        let mut written = stream::iter(writes).buffered(CONCURRENT_WRITES);
        while let Some(outcome) = written.next().await {
            let (of_leaf, collisions) = outcome?;
            counts.add(&of_leaf);
            failures.extend(collisions);
        }
        self.record_failures(&failures).await?;
        Ok(counts)
    }

    /// Reads which branches and leaves exist.
    async fn read_existing(
        &self,
        branches: &BTreeMap<Bytes, &[String]>,
        leaves: &BTreeMap<LeafKey, Vec<LeafPlan<'_>>>,
    ) -> Result<ExistingCells, TreeError> {
        let mut qualifiers: BTreeMap<&Bytes, Vec<Bytes>> = BTreeMap::new();
        for row in branches.keys() {
            let branch = Bytes::from_static(BRANCH_QUALIFIER.as_bytes());
            qualifiers.entry(row).or_default().push(branch);
        }
        for (row, qualifier) in leaves.keys() {
            qualifiers.entry(row).or_default().push(qualifier.clone());
        }
        let gets: Vec<Get> = qualifiers
            .into_iter()
            .map(|(row, qualifiers)| Get {
                family: Some(Family::T),
                qualifiers,
                ..Get::row(row.clone())
            })
            .collect();
        let mut existing = ExistingCells::default();
        for chunk in gets.chunks(ROWS_PER_READ) {
            let rows = self.storage().multi_get(&self.table, chunk.to_vec()).await?;
            for Row { key, cells, .. } in rows.into_iter().flatten() {
                for cell in cells {
                    if cell.qualifier == BRANCH_QUALIFIER.as_bytes() {
                        existing.branches.insert(key.clone());
                    } else {
                        existing.leaves.insert((key.clone(), cell.qualifier), cell.value);
                    }
                }
            }
        }
        Ok(existing)
    }

    /// Writes missing branches, parents first, so that the tree is connected at any moment.
    async fn write_branches(
        &self,
        branches: &BTreeMap<Bytes, &[String]>,
        existing: &ExistingCells,
    ) -> Result<(), TreeError> {
        let mut by_depth: BTreeMap<usize, Vec<(&Bytes, &[String])>> = BTreeMap::new();
        for (row, path) in branches {
            if !existing.branches.contains(row) {
                by_depth.entry(row.len()).or_default().push((row, path));
            }
        }
        for level in by_depth.into_values() {
            let writes = level.into_iter().map(|(row, path)| {
                let column = Column {
                    row: row.clone(),
                    family: Family::T,
                    qualifier: Bytes::from_static(BRANCH_QUALIFIER.as_bytes()),
                };
                let branch = Branch {
                    path: path.to_vec(),
                    display_name: path.last().cloned().unwrap_or_default(),
                };
                let value = Bytes::from(branch.to_json());
                // False if another writer was first, with the same value.
                self.storage().compare_and_set(&self.table, column, None, value)
            });
            let writes: Vec<_> = writes.collect();
            let mut written = stream::iter(writes).buffer_unordered(CONCURRENT_WRITES);
            while let Some(result) = written.next().await {
                result?;
            }
        }
        Ok(())
    }

    /// Writes a leaf for the first series that needs it, unless the leaf exists. The other series collide.
    async fn write_leaf(
        &self,
        (row, qualifier): &LeafKey,
        plans: &[LeafPlan<'_>],
        existing: Option<&Bytes>,
    ) -> Result<(PlacementCounts, Vec<FailedSeries>), TreeError> {
        let mut counts = PlacementCounts::default();
        let Some(first) = plans.first() else { return Ok((counts, Vec::new())) };
        let mut stored = existing.cloned();
        for _ in 0..MAX_ATTEMPTS {
            if stored.is_some() {
                break;
            }
            let leaf = Leaf { display_name: first.name.to_owned(), tsuid: first.tsuid.to_owned() };
            let value = Bytes::from(leaf.to_json());
            let column =
                Column { row: row.clone(), family: Family::T, qualifier: qualifier.clone() };
            let swapped = self.storage().compare_and_set(&self.table, column, None, value.clone());
            if swapped.await? {
                counts.leaves += 1;
                stored = Some(value);
                continue;
            }
            let get = Get::column(row.clone(), Family::T, qualifier.clone());
            let found = self.storage().get(&self.table, get).await?;
            stored = found.and_then(|row| row.cells.into_iter().next()).map(|cell| cell.value);
        }
        let owner = stored.ok_or(TreeError::Contended)?;
        let Ok(owner) = Leaf::from_json(&owner) else {
            tracing::error!(?row, "a stored leaf is invalid");
            counts.failed += plans.len() as u64;
            return Ok((counts, Vec::new()));
        };
        let mut collisions = Vec::new();
        for plan in plans {
            if plan.tsuid == owner.tsuid {
                counts.existing += 1;
                continue;
            }
            counts.collisions += 1;
            tracing::debug!(
                tree = plan.tree.number(),
                tsuid = plan.tsuid,
                owner = owner.tsuid,
                leaf = plan.name,
                "a series has the leaf of another one"
            );
            if plan.store_failures {
                collisions.push(FailedSeries {
                    tree: plan.tree,
                    kind: TreeFailureKind::Collision,
                    tsuid: plan.tsuid.to_owned(),
                    reason: owner.tsuid.clone(),
                });
            }
        }
        // The series with the new leaf was counted as existing too.
        counts.existing = counts.existing.saturating_sub(counts.leaves);
        Ok((counts, collisions))
    }

    async fn record_failures(&self, failures: &[FailedSeries]) -> Result<(), TreeError> {
        let mut batch = CellBatch::new();
        for FailedSeries { tree, kind, tsuid, reason } in failures {
            // Cannot fail: the text was made from bytes.
            let Some(tsuid) = from_hex(tsuid.as_bytes()) else { continue };
            batch.begin_row(&kind.row(*tree)).map_err(tsd_storage::StorageError::from)?;
            let qualifier = kind.qualifier(&tsuid);
            let cell = CellRef {
                family: Family::T,
                qualifier: &qualifier,
                value: reason.as_bytes(),
                timestamp_ms: None,
            };
            batch.push(cell).map_err(tsd_storage::StorageError::from)?;
        }
        if batch.is_empty() {
            return Ok(());
        }
        Ok(self.storage().put(&self.table, batch).await?)
    }
}

/// Applies the rules of every tree to every series.
fn place_all<'s>(
    trees: &'s [ActiveTree],
    series: &'s [TreeSeries],
    counts: &mut PlacementCounts,
    failures: &mut Vec<FailedSeries>,
) -> Vec<PlacedSeries<'s>> {
    let mut placed = Vec::new();
    for tree in trees {
        let mut first_error = None;
        for series in series {
            // The root exists as soon as a series was seen.
            let mut of_series =
                PlacedSeries { tree, series, path: vec![Branch::ROOT.to_owned()], leaf: None };
            match tree.builder.place(series, &mut TestMessages::none()) {
                Err(error) => {
                    counts.failed += 1;
                    first_error.get_or_insert((error, &series.tsuid));
                }
                Ok(placement) if tree.builder.rejects(&placement) => {
                    counts.not_matched += 1;
                    if tree.store_failures {
                        failures.push(FailedSeries {
                            tree: tree.builder.id(),
                            kind: TreeFailureKind::NotMatched,
                            tsuid: series.tsuid.clone(),
                            reason: placement.not_matched,
                        });
                    }
                }
                // OpenTSDB stores no leaves of the root.
                Ok(placement) if placement.branches.is_empty() => counts.without_place += 1,
                Ok(placement) => {
                    of_series.path = placement.path();
                    of_series.leaf = placement.leaf;
                }
            }
            placed.push(of_series);
        }
        if let Some((error, tsuid)) = first_error {
            let tree = tree.builder.id().number();
            tracing::warn!(tree, tsuid, %error, "series were not placed in a tree");
        }
    }
    placed
}

/// Row of a branch, given its path from the root down.
fn branch_row(tree: TreeId, path: &[String]) -> Bytes {
    tree.branch_row(path.get(1..).unwrap_or_default()).into()
}
