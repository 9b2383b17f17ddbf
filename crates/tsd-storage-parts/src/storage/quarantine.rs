//! The quarantine of a store of parts.

use std::{collections::BTreeMap, sync::Arc};

use tsd_storage::{LossExtent, Quarantine, QuarantinedFile, StorageError, Table};

use super::table::PartTable;
use crate::salvage::SectionLoss;

/// Quarantined parts of all tables, named by table and file.
#[derive(Debug)]
pub(crate) struct PartQuarantine {
    tables: BTreeMap<Table, Arc<PartTable>>,
}

impl PartQuarantine {
    pub(crate) const fn new(tables: BTreeMap<Table, Arc<PartTable>>) -> Self {
        Self { tables }
    }
}

impl Quarantine for PartQuarantine {
    fn files(&self) -> Vec<QuarantinedFile> {
        let of_table = |(table, parts): (&Table, &Arc<PartTable>)| {
            let quarantined = parts.store().quarantined();
            let table = table.clone();
            let store = Arc::clone(parts.store());
            quarantined.into_iter().map(move |part| QuarantinedFile {
                lost: store.lost_rows(&part.name),
                extent: store.loss_of(&part.name).map(extent),
                name: part.name,
                file: part.file,
                table: table.clone(),
                what: part.what,
                bytes: part.bytes,
                since_ms: part.since_ms,
            })
        };
        self.tables.iter().flat_map(of_table).collect()
    }

    fn accept(&self, name: &str) -> Result<bool, StorageError> {
        for parts in self.tables.values() {
            if parts.store().accept_loss(name)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Tables of points have no data that is derived from their cells.
    fn has_unchecked_loss(&self, _: &Table) -> bool {
        false
    }

    fn loss_checked(&self, _: &Table) -> Result<(), StorageError> {
        Ok(())
    }

    fn note_loss(&self) -> Result<(), StorageError> {
        Ok(())
    }
}

const fn extent(loss: SectionLoss) -> LossExtent {
    let SectionLoss { points, all_points, blocks, all_blocks } = loss;
    LossExtent { points, all_points, blocks, all_blocks }
}
