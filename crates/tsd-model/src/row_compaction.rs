//! Row compaction: from the cells of a row to what is put and deleted.
//!
//! The plan is a pure function of the cells, so that every server that plans the same row plans the
//! same thing, and a crash between put and delete leaves a row that reads the same and plans only
//! the rest. Age of the row and whether compaction is on are the caller's to check.

use bytes::Bytes;

use crate::{
    base_time::BaseTime,
    cell::{Cell, Family},
    column_kind::ColumnKind,
    point_column::encode_column,
    row_error::RowError,
    row_merge::{ColumnOrder, DroppedDuplicates, MergeRule, RowPoints},
};

/// What compacting a row comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowCompaction {
    /// The column that holds all points of the row afterwards; `None` where there are no points.
    pub result: Option<Cell>,
    /// What to put first, with its cell timestamp where one must be kept. `None` where the row
    /// holds it already.
    pub put: Option<(Cell, Option<i64>)>,
    /// Columns to delete once the put is done.
    pub delete: Vec<ReplacedColumn>,
    /// Points that the merge left out.
    pub dropped: DroppedDuplicates,
}

/// A column that a row compaction replaces.
///
/// What is written to the column after it was read is not part of the plan, so the deletion must
/// leave it: only versions with a timestamp up to the one that was read go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplacedColumn {
    /// Column family.
    pub family: Family,
    /// Column qualifier.
    pub qualifier: Bytes,
    /// Timestamp of the cell as it was read, epoch milliseconds.
    pub timestamp_ms: i64,
}

impl RowCompaction {
    /// Seconds after the start of a row's hour when the row may be rewritten.
    pub const MIN_AGE_SECS: i64 = BaseTime::SPAN_SECONDS as i64 + 1;

    /// Whether the row needs no write.
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        self.put.is_none() && self.delete.is_empty()
    }

    /// Whether a row of that hour is old enough to be rewritten: nobody should be writing to it.
    #[must_use]
    pub const fn is_due(base: BaseTime, now_secs: i64) -> bool {
        base.as_secs() as i64 <= now_secs - Self::MIN_AGE_SECS
    }
}

/// Plans the compaction of a row from its cells.
///
/// All points go into one column. Columns that hold none (annotations, histograms, unknown ones)
/// are neither read nor touched, and a row with an append column is merged but never written. With
/// `keep_cell_time` (`tsd.storage.use_otsdb_timestamp`) the put carries the newest cell timestamp
/// among what it replaces.
pub fn plan_row_compaction(
    key: &Bytes,
    cells: &[Cell],
    rule: MergeRule,
    keep_cell_time: bool,
) -> Result<RowCompaction, RowError> {
    let points = RowPoints::read(key, cells)?;
    if points.is_empty() {
        return Ok(RowCompaction::default());
    }
    let appended = points.appended;
    let newest_ms = points.newest_ms.unwrap_or_default();
    let untouched = points.column_count() == 1 && points.len() == 1 && !points.fixed;
    let (merged, dropped) = points.merge(key, rule, ColumnOrder::AsStored)?;
    let (qualifier, value) = encode_column(&merged);
    let cell = Cell {
        family: Family::T,
        qualifier: qualifier.into(),
        value: value.into(),
        timestamp_ms: newest_ms,
    };
    // One point under the qualifier it should have: that column is the result, whatever tail its
    // value may have.
    let lone = cells.iter().find(|c| ColumnKind::of(&c.qualifier) == ColumnKind::Point);
    if let Some(lone) = lone.filter(|_| untouched && !appended) {
        return Ok(RowCompaction { result: Some(lone.clone()), dropped, ..Default::default() });
    }
    if appended {
        return Ok(RowCompaction { result: Some(cell), dropped, ..Default::default() });
    }
    let mut present = false;
    let mut delete = Vec::new();
    for old in cells.iter().filter(|c| c.family == Family::T) {
        if !ColumnKind::of(&old.qualifier).is_points() {
            continue;
        }
        if old.qualifier == cell.qualifier {
            present = old.value == cell.value;
        } else {
            delete.push(ReplacedColumn {
                family: old.family,
                qualifier: old.qualifier.clone(),
                timestamp_ms: old.timestamp_ms,
            });
        }
    }
    let put = (!present).then(|| (cell.clone(), keep_cell_time.then_some(newest_ms)));
    Ok(RowCompaction { result: Some(cell), put, delete, dropped })
}

#[cfg(test)]
mod tests;
