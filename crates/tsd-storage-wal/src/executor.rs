//! Runs a backend's futures on our own threads.

use std::{future::Future, io};

use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tsd_storage::StorageError;

/// Where futures run that a thread of ours waits for.
#[derive(Clone, Debug)]
pub(crate) enum Executor {
    /// The runtime the store was opened in: what a backend spawns lives on there.
    Caller(Handle),
    /// A runtime for each call, where the caller has none that runs by itself. Calls are few: one
    /// a table and flush.
    OneCall,
}

impl Executor {
    /// The executor for a store that is opened here.
    pub(crate) fn here() -> Self {
        match Handle::try_current() {
            Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => {
                Self::Caller(handle)
            }
            _ => Self::OneCall,
        }
    }

    /// Waits for a call of the backend.
    pub(crate) fn wait<T>(
        &self,
        call: impl Future<Output = Result<T, StorageError>>,
    ) -> Result<T, StorageError> {
        let io = |e: io::Error| StorageError::io("cannot start a runtime", e);
        match self {
            Self::Caller(handle) => handle.block_on(call),
            Self::OneCall => {
                Builder::new_current_thread().enable_all().build().map_err(io)?.block_on(call)
            }
        }
    }
}
