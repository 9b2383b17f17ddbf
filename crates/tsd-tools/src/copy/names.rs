//! Copies the UID table.
//!
//! If keys are the same, the cells of the table are copied. Both stores must then agree on every mapping, which is
//! checked before anything is written, and counters never decrease. If keys are rebuilt, each name gets a UID of the
//! target, and its meta object goes to that UID.

use std::collections::BTreeSet;

use bytes::Bytes;
use tsd_model::{
    Cell, Family, UID_COUNTER_ROW, Uid, UidKind, decode_counter, decode_latin1, encode_counter,
    to_hex,
};
use tsd_storage::{Column, Get, StorageError, StorageExt};

use super::{
    context::CopyContext,
    error::CopyError,
    key_map::{KeyMap, Untranslated},
    range_rows::RangeRows,
    ranges::TableRange,
    report::CopiedRows,
    tables::CopiedTable,
    writer::CopiedRow,
};

/// Most attempts to raise a counter that others change.
const MAX_ATTEMPTS: usize = 100;

/// Fails if a name has another UID in the target, or a UID has another name. An older copy of a mapping that was
/// renamed in the source is allowed.
pub(super) async fn check(context: &CopyContext, table: &CopiedTable) -> Result<(), CopyError> {
    let range = TableRange::whole(table);
    let mut rows = RangeRows::new(&context.source, &range, None, &Bytes::new());
    while let Some(batch) = rows.next().await? {
        let gets = batch.iter().map(|row| Get::row(row.key.clone())).collect();
        let stored = context.to.storage().multi_get(&table.to, gets).await;
        let stored = stored.map_err(CopyError::target(&table.to))?;
        for (row, stored) in batch.iter().zip(stored) {
            let Some(stored) = stored else { continue };
            for cell in &row.cells {
                let other = stored.cells.iter().find(|other| same_column(cell, other));
                if let Some(other) = other
                    && let Some(what) = contradiction(context, &row.key, cell, other)
                {
                    return Err(CopyError::NamesContradict { what });
                }
            }
        }
    }
    Ok(())
}

fn same_column(cell: &Cell, other: &Cell) -> bool {
    cell.family == other.family && cell.qualifier == other.qualifier
}

/// The contradiction between two cells of a column, if there is one.
fn contradiction(context: &CopyContext, key: &Bytes, cell: &Cell, other: &Cell) -> Option<String> {
    let kind = kind_of(cell, UidKind::as_str)?;
    let is_copy = context.run.copied_before_ms.is_some_and(|time| other.timestamp_ms < time);
    if key.as_ref() == UID_COUNTER_ROW && cell.family == Family::Id
        || cell.value == other.value
        || is_copy && other.timestamp_ms <= cell.timestamp_ms
    {
        return None;
    }
    let texts = if cell.family == Family::Id {
        (decode_latin1(key), to_hex(&cell.value), to_hex(&other.value))
    } else {
        (to_hex(key), decode_latin1(&cell.value), decode_latin1(&other.value))
    };
    let (of, source, target) = texts;
    Some(format!("{kind} {of} is {source} in the source and {target} in the target"))
}

/// The kind of a column; `name` returns the column name of a kind.
fn kind_of(cell: &Cell, name: fn(UidKind) -> &'static str) -> Option<UidKind> {
    UidKind::ALL.into_iter().find(|kind| name(*kind).as_bytes() == cell.qualifier)
}

/// Copies rows of the UID table.
pub(super) async fn copy(
    context: &CopyContext,
    range: &TableRange,
    rows: Vec<CopiedRow>,
    copied: &mut CopiedRows,
) -> Result<(), CopyError> {
    match &context.map {
        Some(map) => copy_by_name(context, map, range, rows, copied).await,
        None => copy_cells(context, range, rows, copied).await,
    }
}

async fn copy_cells(
    context: &CopyContext,
    range: &TableRange,
    mut rows: Vec<CopiedRow>,
    copied: &mut CopiedRows,
) -> Result<(), CopyError> {
    for row in rows.iter_mut().filter(|row| row.key.as_ref() == UID_COUNTER_ROW) {
        let is_counter = |cell: &Cell| cell.family == Family::Id;
        let (counters, others) = std::mem::take(&mut row.cells).into_iter().partition(is_counter);
        row.cells = others;
        let counters: Vec<Cell> = counters;
        for counter in counters {
            if !context.run.dry_run {
                let raised = raise_counter(context, range, counter).await;
                raised.map_err(CopyError::target(&range.to))?;
            }
        }
    }
    context.put_rows(&range.to, rows, copied).await
}

/// Raises a counter of the target to that of the source, unless it is higher already.
async fn raise_counter(
    context: &CopyContext,
    range: &TableRange,
    counter: Cell,
) -> Result<(), StorageError> {
    let row = Bytes::from_static(&UID_COUNTER_ROW);
    let Cell { family, qualifier, .. } = counter;
    let storage = context.to.storage();
    for _ in 0..MAX_ATTEMPTS {
        let get = Get::column(row.clone(), family, qualifier.clone());
        let stored = storage.get(&range.to, get).await?;
        let stored = stored.and_then(|row| row.cells.into_iter().next()).map(|cell| cell.value);
        let value = match (decode_counter(&counter.value), stored.as_deref().map(decode_counter)) {
            (Some(source), Some(Some(target))) if source <= target => return Ok(()),
            (Some(source), _) => Bytes::copy_from_slice(&encode_counter(source)),
            // A damaged counter is copied only if the target lacks the counter.
            (None, None) => counter.value.clone(),
            (None, Some(_)) => return Ok(()),
        };
        let column = Column { row: row.clone(), family, qualifier: qualifier.clone() };
        if storage.compare_and_set(&range.to, column, stored, value).await? {
            return Ok(());
        }
    }
    Err(StorageError::Changed)
}

async fn copy_by_name(
    context: &CopyContext,
    map: &KeyMap,
    range: &TableRange,
    rows: Vec<CopiedRow>,
    copied: &mut CopiedRows,
) -> Result<(), CopyError> {
    let width = |kind: UidKind| kind.width(&context.from.config().schema);
    let mut wanted = BTreeSet::new();
    for row in &rows {
        for cell in &row.cells {
            if cell.family == Family::Name
                && let Some(kind) =
                    kind_of(cell, UidKind::as_str).or(kind_of(cell, UidKind::meta_qualifier))
                && let Ok(uid) = Uid::with_width(&row.key, width(kind))
            {
                wanted.insert((kind, uid));
            }
        }
    }
    // For a selection, the copied rows assign the names that they need.
    let assigns = !context.run.dry_run && context.metrics.is_none();
    let found = map.look_up(wanted, assigns).await?;
    let mut metas = Vec::new();
    for row in rows {
        for cell in row.cells.into_iter().filter(|cell| cell.family == Family::Name) {
            let Some(kind) = kind_of(&cell, UidKind::meta_qualifier) else { continue };
            let uid = Uid::with_width(&row.key, width(kind)).ok();
            match uid.and_then(|uid| found.get(&(kind, uid))) {
                Some(Ok(uid)) => {
                    let key = Bytes::copy_from_slice(uid.as_bytes());
                    metas.push(CopiedRow { key, cells: vec![cell] });
                }
                Some(Err(why @ (Untranslated::Damaged(_) | Untranslated::Unnamed(_)))) => {
                    copied.refused_cells += 1;
                    let (key, why) = (to_hex(&row.key), why.text());
                    let text = format!("row {key}: meta object of {kind} not copied: {why}");
                    context.observer.found(&range.from, &text);
                }
                // Not copied, or of another width, which `tsdb uid fsck` reports.
                Some(Err(Untranslated::Absent(_))) | None => {}
            }
        }
    }
    context.put_rows(&range.to, metas, copied).await
}
