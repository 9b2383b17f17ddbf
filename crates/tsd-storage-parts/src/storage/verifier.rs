//! Verifies and repairs open tables.

use std::{collections::BTreeMap, sync::Arc};

use tsd_storage::{RepairAction, StorageError, Table, Verifier, VerifyRun};

use super::table::PartTable;
use crate::{
    error::PartError,
    retention::RetentionKeeper,
    store::PartStore,
    verify::{TableCheck, planned_bytes},
};

/// Verifies and repairs all tables.
#[derive(Debug)]
pub(crate) struct PartVerifier {
    tables: BTreeMap<Table, Arc<PartTable>>,
    retention: Option<Arc<RetentionKeeper>>,
}

impl PartVerifier {
    pub(crate) const fn new(
        tables: BTreeMap<Table, Arc<PartTable>>,
        retention: Option<Arc<RetentionKeeper>>,
    ) -> Self {
        Self { tables, retention }
    }

    fn store(&self, table: &Table) -> Result<&Arc<PartStore>, StorageError> {
        let no_table = || StorageError::NoSuchTable(table.clone());
        self.tables.get(table).map(|table| table.store()).ok_or_else(no_table)
    }

    fn check(table: &PartTable, run: &VerifyRun) -> Result<(), StorageError> {
        let store = table.store();
        let series = table.series().filter(|series| series.index.is_complete());
        let check = TableCheck {
            table: store.table(),
            dir: store.dir(),
            resources: store.shared_resources(),
            layout: store.layout(),
            run,
            index: series.map(|series| (&*series.index, series.path())),
            store: Some(store),
        };
        // Quarantined data that can be read again leaves the quarantine first.
        store.recheck_quarantine(&mut || run.read(0).map_err(|_| PartError::Stopped))?;
        if let Some((read, next_number)) = store.read_manifest()? {
            check.manifest(&read, Some(next_number));
        }
        if let Some(series) = table.series().filter(|series| !series.index.is_complete()) {
            let what =
                "the series index is not complete; it is being built, or was lost".to_owned();
            check.index_finding(series.path(), what, "queries scan until it is built");
        }
        if let Some(series) = series {
            if let Some((path, what)) = series.check_file()? {
                check.index_finding(
                    path,
                    what,
                    "nothing while the daemon runs; the next start builds it",
                );
            }
            let wrong = series.index.count_wrong();
            if wrong > 0 {
                let what = format!("{wrong} entries of the series index in memory are wrong");
                check.index_finding(series.path(), what, "queries that select by tags miss points");
            }
        }
        check.files(&store.manifest_state())
    }
}

impl Verifier for PartVerifier {
    fn verify(&self, run: &VerifyRun) -> Result<(), StorageError> {
        for table in self.tables.values() {
            run.plan(planned_bytes(&table.store().manifest_state()));
        }
        if let Some(retention) = &self.retention {
            let failed =
                |source| StorageError::io("reading what is recorded of the retention", source);
            retention.verify(run).map_err(failed)?;
        }
        self.tables.values().try_for_each(|table| Self::check(table, run))
    }

    fn repair(&self, action: &RepairAction) -> Result<(), StorageError> {
        match action {
            RepairAction::AcceptLoss { name } => {
                for table in self.tables.values() {
                    if table.store().accept_loss(name)? {
                        break;
                    }
                }
            }
            RepairAction::SalvageSection { table, file, section, what } => {
                let store = self.store(table)?;
                store.quarantine_section(*file, *section, what)?;
                store.accept_loss(&crate::file_names::loss_name(table, *file))?;
            }
            RepairAction::CopyPart { table, file } => {
                self.store(table)?.copy_part(*file)?;
            }
            RepairAction::RewriteManifest { table } => self.store(table)?.write_manifest()?,
            RepairAction::RebuildIndex { table } => {
                if let Some(table) = self.tables.get(table)
                    && let Some(series) = table.series()
                {
                    crate::series::build::rebuild(table.store(), series)?;
                }
            }
            RepairAction::RewriteRetention => {
                if let Some(retention) = &self.retention {
                    let failed = |source| StorageError::io("recording the retention", source);
                    retention.rewrite().map_err(failed)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
