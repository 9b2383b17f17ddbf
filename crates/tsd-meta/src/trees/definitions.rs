//! Reads, creates and edits definitions of trees.
//!
//! Trees are numbered from 1, so their rows are read directly, several concurrently. A scan would read every branch
//! between them.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use tsd_model::{Cell, Family, Row, TREE_QUALIFIER, Tree, TreeDefinition, TreeEdit, TreeId};
use tsd_storage::{Column, Get, Scan, StorageExt};

use super::{MAX_ATTEMPTS, TreeError, Trees, builder::TreeBuilder, definition_cache::ActiveTree};

/// Rows read at once.
const IDS_PER_READ: u32 = 64;
/// Most bytes of all definitions and rules.
const MAX_BYTES: usize = 64 << 20;

/// Result of an edit of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeEditOutcome {
    /// The tree as stored now.
    Stored(Tree),
    /// The edit sets no field, so nothing was written.
    Unchanged,
    /// There is no such tree.
    NotFound,
}

impl Trees {
    /// A tree with its rules. As in OpenTSDB, a row with any cell is a tree.
    pub async fn get(&self, id: TreeId) -> Result<Option<Tree>, TreeError> {
        let row = self.read_row(id).await?;
        row.map(|row| Tree::from_row(id, &row).map_err(TreeError::from)).transpose()
    }

    /// All trees that have a definition, by number. An unreadable tree is omitted and logged, so that the others can
    /// be used.
    pub async fn all(&self) -> Result<Vec<Tree>, TreeError> {
        let mut trees = Vec::new();
        let mut bytes = 0;
        self.visit_rows(&[], |id, row| {
            bytes += row.cells.iter().map(|cell| cell.value.len()).sum::<usize>();
            if bytes > MAX_BYTES {
                return Err(TreeError::TooMany { what: "bytes of all trees", most: MAX_BYTES });
            }
            match Tree::from_row(id, &row) {
                Ok(tree) if tree.is_defined => trees.push(tree),
                Ok(_) => {}
                Err(error) => tracing::error!(tree = id.number(), %error, "a tree is invalid"),
            }
            Ok(())
        })
        .await?;
        Ok(trees)
    }

    /// Creates a tree with the number after the highest one.
    pub async fn create(&self, edit: &TreeEdit, created: i64) -> Result<Tree, TreeError> {
        if edit.name.as_ref().is_none_or(String::is_empty) {
            return Err(TreeError::NoName);
        }
        let definition = TreeDefinition { created, ..TreeDefinition::default() };
        let definition = edit.merged(definition, false);
        let value = Bytes::from(definition.to_json());
        for _ in 0..MAX_ATTEMPTS {
            let mut highest = 0;
            let definitions = [Bytes::from_static(TREE_QUALIFIER.as_bytes())];
            self.visit_rows(&definitions, |id, _| {
                highest = id.number();
                Ok(())
            })
            .await?;
            let next = highest.checked_add(1).and_then(TreeId::try_new);
            let id = next.ok_or(TreeError::NoIdLeft)?;
            let swapped = self.storage().compare_and_set(
                &self.table,
                definition_column(id),
                None,
                value.clone(),
            );
            if swapped.await? {
                self.definitions.invalidate();
                return Ok(self.get(id).await?.unwrap_or_else(|| Tree::new(id, definition)));
            }
        }
        Err(TreeError::Contended)
    }

    /// Sets fields of the definition of a tree, or replaces it.
    pub async fn edit(
        &self,
        id: TreeId,
        edit: &TreeEdit,
        replace: bool,
    ) -> Result<TreeEditOutcome, TreeError> {
        for _ in 0..MAX_ATTEMPTS {
            let Some(row) = self.read_row(id).await? else {
                return Ok(TreeEditOutcome::NotFound);
            };
            if edit.is_empty() {
                return Ok(TreeEditOutcome::Unchanged);
            }
            let tree = Tree::from_row(id, &row)?;
            let cell = definition_cell(&row);
            let definition = edit.merged(tree.definition.clone(), replace);
            let swapped = self.storage().compare_and_set(
                &self.table,
                definition_column(id),
                cell.map(|cell| cell.value.clone()),
                Bytes::from(definition.to_json()),
            );
            if swapped.await? {
                self.definitions.invalidate();
                return Ok(TreeEditOutcome::Stored(Tree { definition, is_defined: true, ..tree }));
            }
        }
        Err(TreeError::Contended)
    }

    /// The enabled trees.
    pub(crate) async fn active(&self) -> Result<Arc<[ActiveTree]>, TreeError> {
        let epoch = self.definitions.epoch();
        if let Some(trees) = self.definitions.fresh(epoch) {
            return Ok(trees);
        }
        let read_at = Instant::now();
        let mut active = Vec::new();
        for tree in self.all().await?.iter().filter(|tree| tree.definition.enabled) {
            match TreeBuilder::try_new(tree) {
                Ok(builder) => {
                    let store_failures = tree.definition.store_failures;
                    active.push(ActiveTree { builder, store_failures });
                }
                Err(error) => {
                    let tree = tree.id.number();
                    tracing::error!(tree, %error, "a tree is not built: it has an invalid rule");
                }
            }
        }
        let trees: Arc<[ActiveTree]> = active.into();
        self.definitions.keep(epoch, read_at, Arc::clone(&trees));
        Ok(trees)
    }

    /// All cells of the row of a tree.
    pub(super) async fn read_row(&self, id: TreeId) -> Result<Option<Row>, TreeError> {
        Ok(self.storage().get(&self.table, row_get(id, &[])).await?)
    }

    /// Calls `visit` with the row of each tree, by number. Reads only these columns; an empty list reads all columns.
    async fn visit_rows(
        &self,
        qualifiers: &[Bytes],
        mut visit: impl FnMut(TreeId, Row) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        let mut next = 1;
        while let Some(first) = self.first_from(next).await? {
            let last = (first + IDS_PER_READ - 1).min(u16::MAX.into());
            let ids: Vec<TreeId> =
                (first..=last).filter_map(|id| TreeId::from_number(id.into())).collect();
            let gets = ids.iter().map(|id| row_get(*id, qualifiers)).collect();
            let rows = self.storage().multi_get(&self.table, gets).await?;
            for (id, row) in ids.into_iter().zip(rows) {
                if let Some(row) = row {
                    visit(id, row)?;
                }
            }
            next = last + 1;
        }
        Ok(())
    }

    /// Number of the first tree, from `number` on, that has a row of any kind.
    async fn first_from(&self, number: u32) -> Result<Option<u32>, TreeError> {
        let Ok(start) = u16::try_from(number) else { return Ok(None) };
        let scan = Scan {
            start: Bytes::copy_from_slice(&start.to_be_bytes()),
            family: Some(Family::T),
            limit: Some(1),
            batch_rows: Some(1),
            ..Scan::default()
        };
        let mut rows = self.storage().scan(&self.table, scan);
        let row = rows.next_rows().await?.and_then(|batch| batch.into_iter().next());
        Ok(row.and_then(|row| match *row.key {
            [a, b, ..] => Some(u16::from_be_bytes([a, b]).into()),
            _ => None,
        }))
    }
}

fn row_get(id: TreeId, qualifiers: &[Bytes]) -> Get {
    Get {
        row: Bytes::copy_from_slice(&id.row()),
        family: Some(Family::T),
        qualifiers: qualifiers.to_vec(),
        reads_past_losses: false,
    }
}

fn definition_column(id: TreeId) -> Column {
    Column {
        row: Bytes::copy_from_slice(&id.row()),
        family: Family::T,
        qualifier: Bytes::from_static(TREE_QUALIFIER.as_bytes()),
    }
}

fn definition_cell(row: &Row) -> Option<&Cell> {
    row.cells.iter().find(|cell| cell.qualifier == TREE_QUALIFIER.as_bytes())
}
