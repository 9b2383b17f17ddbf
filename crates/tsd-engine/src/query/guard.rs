//! What is held until an answer was written.

use std::time::Duration;

use super::{QueryId, QueryStages, registry::Registered};

/// Keeps a query among the running ones, and its memory taken, until its answer was written or
/// dropped.
///
/// Dropping it says that the answer was not written to its end.
#[derive(Debug, Default)]
pub struct AnswerGuard(Option<Registered>);

impl AnswerGuard {
    pub(crate) const fn new(registered: Registered) -> Self {
        Self(Some(registered))
    }

    /// Number of the query.
    #[must_use]
    pub fn id(&self) -> QueryId {
        self.0.as_ref().map(|registered| registered.run().id).unwrap_or_default()
    }

    /// Where the time of the query went so far.
    #[must_use]
    pub fn stages(&self) -> QueryStages {
        self.0.as_ref().map(Registered::stages).unwrap_or_default()
    }

    /// Whether an operator cancelled the query; writing its answer should then end.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|registered| registered.run().stop.is_cancelled())
    }

    /// The answer was written to its end, with this HTTP status; writing it took `serialization`.
    pub fn sent(self, status: u16, serialization: Duration) {
        if let Some(registered) = self.0 {
            registered.sent(status, serialization);
        }
    }
}
