//! Calls that read rows by key.

use bytes::Bytes;
use tsd_model::Row;
use tsd_storage::{FlushTarget, Get, StorageError, Table};

use super::WalStorage;
use crate::{
    memtable::TableId,
    overlay::{RowLogs, overlay},
};

/// Reads of a row that may meet a freeze or the end of a flush before the last one is taken as it is.
const READ_ATTEMPTS: usize = 4;

impl<B: FlushTarget> WalStorage<B> {
    pub(super) async fn read(
        &self,
        table: &Table,
        id: TableId,
        gets: &[Get],
    ) -> Result<Vec<Option<Row>>, StorageError> {
        let mut attempts = 1;
        loop {
            let view = self.shared.memtable.view();
            let logs: Vec<RowLogs> =
                gets.iter().map(|get| self.held(view.logs(id, &get.row))).collect();
            let asked: Vec<Get> = gets
                .iter()
                .zip(&logs)
                .filter(|(get, logs)| self.needs_backend(get, logs))
                .map(|(get, _)| get.clone())
                .collect();
            let mut below = match asked.len() {
                0 => Vec::new(),
                1 => match asked.into_iter().next() {
                    Some(get) => vec![self.backend.get(table, get).await?],
                    None => Vec::new(),
                },
                _ => self.backend.multi_get(table, asked).await?,
            }
            .into_iter();
            // A freeze and a flush between the two reads could pair a row's present cells with
            // older held ones; rare, so it is read again.
            let now = self.shared.memtable.view();
            let moved =
                now.retired != view.retired || now.generations.len() != view.generations.len();
            if moved && attempts < READ_ATTEMPTS {
                attempts += 1;
                continue;
            }
            return gets
                .iter()
                .zip(&logs)
                .map(|(get, logs)| {
                    let below =
                        if self.needs_backend(get, logs) { below.next().flatten() } else { None };
                    if logs.is_empty() {
                        return Ok(below);
                    }
                    overlay(get.row.clone(), below, logs, |f, q, _| get.selects(f, q))
                })
                .collect();
        }
    }

    fn held(&self, logs: Vec<(Bytes, i64)>) -> RowLogs {
        RowLogs::new(logs).by_time(self.shared.config.shared_backend)
    }

    /// Whether what is held of a row does not answer a get.
    fn needs_backend(&self, get: &Get, logs: &RowLogs) -> bool {
        // Others may have written later than what is held.
        if logs.is_empty() || self.shared.config.shared_backend {
            return true;
        }
        let state = logs.state();
        let all_held = get.family.is_some_and(|family| {
            !get.qualifiers.is_empty()
                && get.qualifiers.iter().all(|q| state.column(family, q).is_some())
        });
        state.delete_row.is_none() && !all_held
    }
}
