//! Runs futures of the backend on threads of this layer.

use std::{future::Future, io};

use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tsd_storage::StorageError;

/// The runtime that runs a future while a thread blocks on it.
#[derive(Clone, Debug)]
pub(crate) enum Executor {
    /// The runtime in which the store was opened. Tasks that the backend spawns continue there.
    Caller(Handle),
    /// A new runtime for each call, if the caller has no multi-threaded runtime. There is one call per table and
    /// flush.
    OneCall,
}

impl Executor {
    /// The executor of a store that is opened in the current runtime.
    pub(crate) fn current() -> Self {
        match Handle::try_current() {
            Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => {
                Self::Caller(handle)
            }
            _ => Self::OneCall,
        }
    }

    /// Runs a call of the backend and blocks until it completes.
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
