//! What only a log in local files has: a directory, and the records of what is in it.

use std::sync::Arc;

use crate::{files::LogDir, log_tie::LogTie};

/// Directory of a log, its state and the mark of the store. Survivor files and dead-letter files are in
/// it too.
#[derive(Clone, Debug)]
pub(crate) struct LocalFiles {
    pub(crate) dir: Arc<dyn LogDir>,
    pub(crate) tie: Arc<LogTie>,
}

impl LocalFiles {
    pub(crate) fn new(dir: Arc<dyn LogDir>) -> Self {
        let tie = Arc::new(LogTie::new(Arc::clone(&dir)));
        Self { dir, tie }
    }
}
