//! Runs futures of the backend from the layer's own threads.

use std::{future::Future, io};

use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tsd_storage::StorageError;

/// The runtime for futures that a blocking thread waits for.
#[derive(Clone, Debug)]
pub(crate) enum Executor {
    /// The runtime in which the store was opened. Tasks spawned by the backend continue there.
    Caller(Handle),
    /// A runtime per call, if the caller has no multi-threaded one. There is one call per table and
    /// flush.
    OneCall,
}

impl Executor {
    /// The executor for a store that is opened in the current runtime.
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
