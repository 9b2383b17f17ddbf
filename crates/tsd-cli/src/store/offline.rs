//! Verification of a data directory that no daemon has open.

use std::sync::Arc;

use tsd_files::DiskSpace;
use tsd_storage::{
    DirectBackend as _, RepairAction, StorageError, Verifier, VerifyFinding, VerifyRun,
};
use tsd_storage_embedded::{
    EmbeddedTables, accept_older_table, forget_table, rebuild_manifest, recorded_log_mark,
    unknown_version, verify_directory,
};
use tsd_storage_wal::verify_log;

use crate::{
    config::{Config, EngineKind, Settings},
    data_directory::DataDirectory,
    store::{embedded_config, unknown_in_log},
};

/// Verifies the files unchanged. It does not open the store, because opening restores and quarantines files.
#[derive(Debug)]
pub(crate) struct DirectoryVerifier {
    settings: Settings,
    // Locked until it is dropped.
    directory: DataDirectory,
}

impl DirectoryVerifier {
    /// Locks the data directory.
    pub(crate) fn open(config: &Config, settings: &Settings) -> anyhow::Result<Self> {
        match settings.storage.engine {
            EngineKind::Embedded => {}
            EngineKind::Memory => anyhow::bail!("the store in memory has no files"),
            EngineKind::HBase => anyhow::bail!(
                "the points are in HBase, which has its own tools (hbase hbck); tsdb verify is for the embedded store"
            ),
        }
        let directory = DataDirectory::prepare(&settings.storage, config, false)?;
        Ok(Self { settings: settings.clone(), directory })
    }

    /// Opens the store without its log, for repairs. Manifests without a readable copy must be rebuilt first.
    pub(crate) fn open_store(&self) -> Result<OpenedStore, StorageError> {
        let reserve = self.settings.storage.reserve_bytes;
        let space = Arc::new(DiskSpace::new(self.directory.path(), reserve));
        let tables =
            EmbeddedTables::open(&embedded_config(&self.settings, &self.directory, &space))?;
        Ok(OpenedStore { tables })
    }
}

impl Verifier for DirectoryVerifier {
    fn verify(&self, run: &VerifyRun) -> Result<(), StorageError> {
        let (store, data) = (self.directory.store(), &self.settings.engine.tables.data);
        let unknown = match unknown_in_log(&self.directory)? {
            None => unknown_version(&store)?,
            unknown => unknown,
        };
        // Stops here, because files of another release may look damaged.
        if let Some(unknown) = unknown {
            run.report(VerifyFinding {
                file: unknown.file().to_owned(),
                what: unknown.to_string(),
                cost: "nothing; this release does not start with the file, whatever is accepted"
                    .to_owned(),
                action: None,
            });
            return Ok(());
        }
        verify_log(&self.directory.log(), &recorded_log_mark(&store)?, run)?;
        verify_directory(&store, data, self.directory.schema(), run)
    }

    /// Makes only the repairs that must precede the opening of the store. The open store makes the others.
    fn repair(&self, action: &RepairAction) -> Result<(), StorageError> {
        let store = self.directory.store();
        match action {
            RepairAction::RebuildManifest { table } => rebuild_manifest(&store, table),
            RepairAction::ForgetTable { table } => forget_table(&store, table),
            RepairAction::AcceptOlderTable { table } => accept_older_table(&store, table),
            _ => Ok(()),
        }
    }
}

/// The store without its log.
#[derive(Debug)]
pub(crate) struct OpenedStore {
    tables: EmbeddedTables,
}

impl OpenedStore {
    /// The verifier, which also repairs.
    pub(crate) fn verifier(&self) -> Arc<dyn Verifier> {
        self.tables.verifier()
    }
}

impl Drop for OpenedStore {
    fn drop(&mut self) {
        self.tables.stop();
        // The end of the process also unlocks the files.
        let _ = self.tables.release();
    }
}
