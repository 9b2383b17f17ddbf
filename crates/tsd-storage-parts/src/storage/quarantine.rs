//! Quarantined parts of a store.

use std::{collections::BTreeMap, sync::Arc};

use tsd_storage::{LossExtent, LostRows, Quarantine, QuarantinedFile, StorageError, Table};

use super::table::PartTable;
use crate::salvage::SectionLoss;

/// The quarantined parts of all tables, named by table and file.
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
            let span_secs = parts.store().layout().span_secs();
            let store = Arc::clone(parts.store());
            quarantined.into_iter().map(move |part| QuarantinedFile {
                lost: lost_rows(&part.spans, span_secs),
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

    /// Nothing is derived from the cells of tables of points.
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

/// The rows of spans, by their time: those of a span are not adjacent in the order of keys. Spans that
/// follow one another are one range.
fn lost_rows(spans: &[u32], span_secs: u32) -> Vec<LostRows> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &span in spans {
        let (start, end) = (u64::from(span), u64::from(span) + u64::from(span_secs));
        match ranges.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => ranges.push((start, end)),
        }
    }
    let rows = |range| LostRows { time_secs: Some(range), ..LostRows::default() };
    ranges.into_iter().map(rows).collect()
}
