//! Spans of operations and of their attempts, for subscribers of `tracing`, at level debug.
//!
//! ```text
//! operation{operation table deadline_ms outcome}
//!   └─ attempt{method server region regions attempt outcome}
//! ```
//!
//! An operation that succeeds has no outcome; its last attempt has. Without a subscriber that wants them, a span costs
//! a comparison, and no field is rendered. Buffered mutations have no spans; the calls that carry them have.

use tokio::time::Instant;
use tracing::{
    Instrument, Span, debug_span,
    field::{Empty, display},
    span::Id,
};

use crate::{
    connection::CallError, region::info::Region, server_name::ServerName, table_name::TableName,
};

/// Returns the span of an operation, which is a child of the caller's span.
pub(crate) fn operation(name: &str, table: Option<&TableName>, deadline: Instant) -> Span {
    debug_span!(
        target: "hbase_rs",
        "operation",
        operation = name,
        table = table.map(display),
        deadline_ms = deadline.saturating_duration_since(Instant::now()).as_millis() as u64,
        outcome = Empty,
    )
}

/// One call of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// Span of the operation; `None` without a subscriber, and for calls that many operations share.
    pub(crate) operation: Option<Id>,
    /// Number of the attempt, from 1.
    pub(crate) number: usize,
    /// Number of regions.
    pub(crate) regions: usize,
}

impl Default for Attempt {
    fn default() -> Self {
        Self { operation: None, number: 1, regions: 1 }
    }
}

impl Attempt {
    /// Makes the call in its span, and records its outcome.
    pub(crate) async fn run<T>(
        self,
        method: &'static str,
        server: &ServerName,
        region: Option<&Region>,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let span = debug_span!(
            target: "hbase_rs",
            parent: self.operation,
            "attempt",
            method,
            %server,
            region = region.filter(|_| self.regions == 1).map(display),
            regions = self.regions,
            attempt = self.number,
            outcome = Empty,
        );
        let result = call.instrument(span.clone()).await;
        match &result {
            Ok(_) => span.record("outcome", "answered"),
            Err(error) => span.record("outcome", display(error)),
        };
        result
    }
}
