//! Failures of the calls by which reads prove that they are complete, for the health of the node.
//!
//! Only reads make such calls. So a failure counts while reads continue to fail, and for a while after the last
//! failure.

use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tsd_cluster::ProofError;

/// Failures that last this long are a problem; a response may be late now and then.
const LASTING: Duration = Duration::from_secs(5);
/// Time without a read after which a failure is forgotten.
const FORGOTTEN: Duration = Duration::from_mins(1);

/// A call to the log table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProofCall {
    /// Reads the assignment.
    Assignment,
    /// Proves that this node is a member.
    Own,
}

/// The last failure of each call, until it succeeds.
#[derive(Debug, Default)]
pub(super) struct ProofFailures(Mutex<[Option<ProofFailure>; 2]>);

#[derive(Clone, Debug)]
struct ProofFailure {
    error: ProofError,
    /// Times of the first and the last of consecutive failures.
    since: Instant,
    last: Instant,
}

impl ProofFailures {
    /// Records the result of a call.
    pub(super) fn note(&self, call: ProofCall, error: Option<&ProofError>) {
        let mut failures = self.0.lock();
        let Some(known) = failures.get_mut(call as usize) else { return };
        let now = Instant::now();
        let since = known.as_ref().filter(|known| known.last + FORGOTTEN > now);
        let since = since.map_or(now, |known| known.since);
        *known = error.map(|error| ProofFailure { error: error.clone(), since, last: now });
    }

    /// Returns the reason of a fence, after which this node reads nothing more.
    pub(super) fn fence(&self) -> Option<Arc<str>> {
        self.0.lock().iter().flatten().find_map(|failure| match &failure.error {
            ProofError::Fenced(why) => Some(why.as_str().into()),
            _ => None,
        })
    }

    /// Returns why reads have failed for a while.
    pub(super) fn lasting(&self) -> Option<Arc<str>> {
        let now = Instant::now();
        self.0.lock().iter().flatten().find_map(|failure| {
            let is_lasting = failure.since + LASTING <= now && now < failure.last + FORGOTTEN;
            let text = || format!("reads cannot prove that they see all points: {}", failure.error);
            is_lasting.then(|| text().into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_are_a_problem_while_they_last() {
        let failures = ProofFailures::default();
        let unavailable = ProofError::Unavailable("no answer".to_owned());
        let seconds = |count| tokio::time::advance(Duration::from_secs(count));
        failures.note(ProofCall::Assignment, Some(&unavailable));
        seconds(4).await;
        failures.note(ProofCall::Assignment, Some(&unavailable));
        assert_eq!(failures.lasting(), None);
        seconds(1).await;
        // The other call succeeds.
        failures.note(ProofCall::Own, None);
        assert!(failures.lasting().is_some_and(|text| text.contains("no answer")));
        assert_eq!(failures.fence(), None);
        failures.note(ProofCall::Assignment, None);
        assert_eq!(failures.lasting(), None);

        failures.note(ProofCall::Own, Some(&unavailable));
        seconds(59).await;
        assert!(failures.lasting().is_some());
        seconds(1).await;
        assert_eq!(failures.lasting(), None, "nobody has read for a minute");
        failures.note(ProofCall::Own, Some(&unavailable));
        assert_eq!(failures.lasting(), None, "it is new");
        failures.note(ProofCall::Own, Some(&ProofError::Fenced("by 9".to_owned())));
        assert_eq!(failures.fence().as_deref(), Some("by 9"));
    }
}
