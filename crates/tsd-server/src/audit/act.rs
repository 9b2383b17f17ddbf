//! An act from its begin to its outcome.

use std::sync::Arc;

use super::{
    AuditLog,
    line::{ActOutcome, AuditLine},
};

/// An act cannot be logged, and `tsd.audit.required` refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the audit log cannot be written, and this request needs it (tsd.audit.required)")]
pub(crate) struct NotAudited;

/// An act in progress. Dropped without an outcome, it writes that the outcome is unknown.
#[derive(Debug)]
pub(crate) struct OpenAct {
    log: Arc<AuditLog>,
    /// `None` once the outcome is written.
    line: Option<AuditLine>,
}

impl AuditLog {
    /// Begins an act: with `tsd.audit.required`, writes a line, and fails if it cannot be written.
    pub(crate) async fn begin(self: &Arc<Self>, line: AuditLine) -> Result<OpenAct, NotAudited> {
        let is_written = !self.required || self.write(line.started()).await;
        self.opened(line, is_written)
    }

    /// As [`Self::begin`], but blocks. For handlers that find out late that a request is an act.
    pub(crate) fn begin_now(self: &Arc<Self>, line: AuditLine) -> Result<OpenAct, NotAudited> {
        let is_written = !self.required || self.write_now(&line.started());
        self.opened(line, is_written)
    }

    fn opened(self: &Arc<Self>, line: AuditLine, is_written: bool) -> Result<OpenAct, NotAudited> {
        if is_written {
            return Ok(OpenAct::new(Arc::clone(self), line));
        }
        self.metrics.blocked.increment(1);
        Err(NotAudited)
    }
}

impl OpenAct {
    const fn new(log: Arc<AuditLog>, line: AuditLine) -> Self {
        Self { log, line: Some(line) }
    }

    /// Writes the outcome.
    pub(crate) async fn end(mut self, outcome: ActOutcome) {
        let Some(line) = self.line.take() else { return };
        let line = line.ended(&outcome);
        if matches!(outcome, ActOutcome::Refused { .. }) {
            self.log.write_refusal(line).await;
        } else {
            self.log.write(line).await;
        }
    }
}

impl Drop for OpenAct {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            self.log.write_now(&line.ended(&ActOutcome::Unknown));
        }
    }
}
