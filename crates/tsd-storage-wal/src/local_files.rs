//! The directory of a log in local files, and the records about its contents.

use std::sync::Arc;

use crate::{files::LogDir, log_tie::LogTie};

/// Directory of a log, the state of the log and the mark of the store. Survivor files and dead-letter files are
/// in the directory, too.
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
