//! An open store of any engine, its purpose, and its closing. `store.rs` opens it.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use tracing::warn;
use tsd_model::TableSchema;
use tsd_storage::{Retention, Storage};

use super::{log_types::EmbeddedLog, on_hbase::OnHBase};
use crate::data_directory::DataDirectory;

/// An open store and its properties.
#[derive(Debug)]
pub(crate) struct OpenStore {
    /// The store.
    pub(crate) storage: Arc<dyn Storage>,
    /// UID widths and salting of its keys.
    pub(crate) schema: TableSchema,
    /// Its directory, if it is on disk; locked until dropped.
    pub(crate) directory: Option<DataDirectory>,
    /// Cells and bytes replayed from its log.
    pub(crate) replayed: Replayed,
    /// The log of the embedded store.
    pub(crate) log: Option<Arc<EmbeddedLog>>,
    /// Properties of a store on HBase.
    pub(crate) hbase: Option<OnHBase>,
    /// The retention of its points, if any.
    pub(crate) retention: Option<Arc<Retention>>,
}

impl OpenStore {
    /// A store without a directory or a log.
    pub(super) fn new(storage: Arc<dyn Storage>, schema: TableSchema) -> Self {
        Self {
            storage,
            schema,
            directory: None,
            replayed: Replayed::default(),
            log: None,
            hbase: None,
            retention: None,
        }
    }

    /// Closes the store. Rows that cannot be flushed stay in its log, if it has one; on HBase they stay
    /// there if the flush takes longer than `limit`.
    pub(crate) async fn close(&self, limit: Duration) -> anyhow::Result<()> {
        if let Some(hbase) = &self.hbase {
            return hbase.close(&*self.storage, limit).await;
        }
        let Some(log) = &self.log else {
            return self.storage.close().await.context("cannot close the store");
        };
        if let Some((rows, error)) = log.close_with_log().await.context("cannot close the store")? {
            warn!(rows, %error, "rows stay in the log; the next start replays them");
        }
        Ok(())
    }
}

/// The purpose of an open store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A daemon.
    Daemon,
    /// A tool that reads.
    Query,
    /// A tool that writes.
    Import {
        /// Creates a missing data directory.
        create: bool,
    },
    /// A copy, which puts cells unchanged.
    Copy {
        /// Creates a missing data directory.
        create: bool,
    },
}

/// Cells and bytes replayed from the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replayed {
    pub(crate) cells: u64,
    pub(crate) bytes: u64,
}
