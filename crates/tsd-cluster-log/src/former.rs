//! The groups of an earlier owner's log, read segment by segment.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use tokio::time::Instant;
use tsd_cluster::{GroupAssembler, LogRecord};
use tsd_storage::StorageError;

use crate::log::{LogInner, SharedRecovery};

/// Reads a log whose segments are all fenced.
pub(crate) struct FormerGroups {
    log: Arc<LogInner>,
    recovery: SharedRecovery,
    /// One assembler for each stream.
    assemblers: Vec<GroupAssembler>,
    ready: VecDeque<Bytes>,
    is_over: bool,
}

impl FormerGroups {
    pub(crate) fn new(log: Arc<LogInner>, recovery: SharedRecovery) -> Self {
        let (assemblers, ready) = (Vec::new(), VecDeque::new());
        Self { log, recovery, assemblers, ready, is_over: false }
    }

    /// Reads the next segment.
    fn load(&mut self) -> Result<(), StorageError> {
        let (log, recovery) = (Arc::clone(&self.log), Arc::clone(&self.recovery));
        let Some(records) = self.log.wait(read_segment(log, recovery))? else {
            self.is_over = true;
            return Ok(());
        };
        for (stream, record) in records {
            let stream = usize::from(stream);
            if self.assemblers.len() <= stream {
                self.assemblers.resize_with(stream + 1, GroupAssembler::default);
            }
            let assembler = self.assemblers.get_mut(stream);
            self.ready.extend(assembler.and_then(|assembler| assembler.push(&record)));
        }
        Ok(())
    }
}

/// Returns the records of the next segment that are next in order; `None` after the last segment.
async fn read_segment(
    log: Arc<LogInner>,
    recovery: SharedRecovery,
) -> Result<Option<Vec<(u8, LogRecord)>>, StorageError> {
    let mut recovery = recovery.lock().await;
    let Some(request) = recovery.request() else { return Ok(None) };
    let deadline = Instant::now() + log.config.start_timeout;
    let reply = log.table.ask(&request, deadline).await?;
    recovery.reply(reply).map_err(|error| log.recovery_error(&error))?;
    Ok(Some(recovery.take_records()))
}

impl Iterator for FormerGroups {
    type Item = Result<Bytes, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(group) = self.ready.pop_front() {
                return Some(Ok(group));
            }
            if self.is_over {
                return None;
            }
            if let Err(error) = self.load() {
                self.is_over = true;
                return Some(Err(error));
            }
        }
    }
}
