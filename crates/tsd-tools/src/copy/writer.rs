//! Puts rows into the target, and counts cells that the target rejects.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use tokio::time::sleep;
use tsd_model::{Cell, Family, to_hex};
use tsd_storage::{
    BoxFuture, CellBatch, CellRef, Get, Recovery, Storage, StorageError, StorageExt, Table,
};

use super::{context::CopyContext, error::CopyError, report::CopiedRows};

/// Most bytes of one call.
const PUT_BYTES: usize = 1 << 20;
/// Attempts of a call with transient failures, and the pause before the second attempt; it doubles.
const MAX_ATTEMPTS: u32 = 7;
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// A row to put.
#[derive(Clone, Debug)]
pub(super) struct CopiedRow {
    pub(super) key: Bytes,
    pub(super) cells: Vec<Cell>,
}

impl CopyContext {
    /// Puts rows, durable when it returns.
    pub(super) async fn put_rows(
        &self,
        table: &Table,
        mut rows: Vec<CopiedRow>,
        copied: &mut CopiedRows,
    ) -> Result<(), CopyError> {
        if self.run.dry_run {
            return Ok(());
        }
        if self.run.keeps_newer {
            let kept = leave_newer(&**self.to.storage(), table, &mut rows).await;
            copied.kept_cells += kept.map_err(CopyError::target(table))?;
        }
        let mut batch = Vec::new();
        let (mut cells, mut bytes) = (0, 0);
        for row in rows {
            for cell in &row.cells {
                bytes += row.key.len() + cell.qualifier.len() + cell.value.len();
            }
            cells += row.cells.len();
            batch.push(row);
            if bytes >= PUT_BYTES {
                self.pace.wait(cells as u64, bytes as u64, &self.stop).await;
                self.put_or_divide(table, &batch, copied).await?;
                batch.clear();
                (cells, bytes) = (0, 0);
            }
        }
        self.pace.wait(cells as u64, bytes as u64, &self.stop).await;
        self.put_or_divide(table, &batch, copied).await
    }

    /// Puts rows. If the target permanently rejects a batch, puts every cell that it accepts.
    fn put_or_divide<'a>(
        &'a self,
        table: &'a Table,
        rows: &'a [CopiedRow],
        copied: &'a mut CopiedRows,
    ) -> BoxFuture<'a, Result<(), CopyError>> {
        Box::pin(async move {
            match self.put_all(table, rows).await {
                Ok(()) => return Ok(()),
                Err(error) if !error.is_permanent() => {
                    return Err(CopyError::target(table)(error));
                }
                Err(error) => {
                    if let [row] = rows
                        && let [cell] = &row.cells[..]
                    {
                        copied.refused_cells += 1;
                        let (key, qualifier) = (to_hex(&row.key), to_hex(&cell.qualifier));
                        let text = format!("row {key} column {qualifier}: not copied: {error}");
                        self.observer.found(table, &text);
                        return Ok(());
                    }
                }
            }
            if let [row] = rows {
                let middle = row.cells.len() / 2;
                let (first, last) = row.cells.split_at(middle);
                for cells in [first, last] {
                    let half = CopiedRow { key: row.key.clone(), cells: cells.to_vec() };
                    self.put_or_divide(table, &[half], copied).await?;
                }
                return Ok(());
            }
            let (first, last) = rows.split_at(rows.len() / 2);
            self.put_or_divide(table, first, copied).await?;
            self.put_or_divide(table, last, copied).await
        })
    }

    async fn put_all(&self, table: &Table, rows: &[CopiedRow]) -> Result<(), StorageError> {
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            let batch = encode(rows)?;
            if batch.is_empty() {
                return Ok(());
            }
            match self.to.storage().put(table, batch).await {
                Err(error)
                    if error.recovery() == Recovery::RetryLater
                        && attempt < MAX_ATTEMPTS
                        && !self.is_stopped() =>
                {
                    tracing::warn!(%table, %error, "the target does not accept cells; retrying");
                    sleep(pause).await;
                    pause *= 2;
                }
                put => return put,
            }
        }
        Ok(())
    }
}

/// Encodes rows as one batch.
pub(super) fn encode(rows: &[CopiedRow]) -> Result<CellBatch, StorageError> {
    let mut batch = CellBatch::new();
    for row in rows.iter().filter(|row| !row.cells.is_empty()) {
        batch.begin_row(&row.key)?;
        for cell in &row.cells {
            let timestamp_ms = Some(cell.timestamp_ms);
            let (family, qualifier, value) = (cell.family, &cell.qualifier[..], &cell.value[..]);
            batch.push(CellRef { family, qualifier, value, timestamp_ms })?;
        }
    }
    Ok(batch)
}

/// Removes cells whose column is newer or equal in the target. Returns their number.
async fn leave_newer(
    target: &dyn Storage,
    table: &Table,
    rows: &mut Vec<CopiedRow>,
) -> Result<u64, StorageError> {
    let gets = rows.iter().map(|row| Get::row(row.key.clone())).collect();
    let stored = target.multi_get(table, gets).await?;
    let mut kept = 0;
    for (row, stored) in rows.iter_mut().zip(stored) {
        let Some(stored) = stored else { continue };
        let stored: HashMap<(Family, Bytes), (i64, Bytes)> = stored
            .into_cells()?
            .into_iter()
            .map(|cell| ((cell.family, cell.qualifier), (cell.timestamp_ms, cell.value)))
            .collect();
        row.cells.retain(|cell| {
            let of_target = stored.get(&(cell.family, cell.qualifier.clone()));
            let is_copied = of_target.is_none_or(|(timestamp_ms, value)| {
                *timestamp_ms < cell.timestamp_ms
                    || *timestamp_ms == cell.timestamp_ms && *value != cell.value
            });
            kept += u64::from(!is_copied);
            is_copied
        });
    }
    rows.retain(|row| !row.cells.is_empty());
    Ok(kept)
}
