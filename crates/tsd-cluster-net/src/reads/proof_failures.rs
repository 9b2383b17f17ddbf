//! What failed of the calls by which reads prove that they see everything, for the health of the node.
//!
//! Only reads make such calls. So a failure counts while reads go on to fail, and for a while after the last one.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tsd_cluster::ProofError;

/// After this time failures are a problem: an answer that is late now and then is none.
const LASTING: Duration = Duration::from_secs(5);
/// After this time without a read a failure says nothing any more.
const FORGOTTEN: Duration = Duration::from_mins(1);

/// A call to the log table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProofCall {
    /// Who the members are.
    Members,
    /// That this node is one of them.
    Own,
}

/// The last failure of each call, until it succeeds.
#[derive(Debug, Default)]
pub(super) struct ProofFailures(Mutex<[Option<ProofFailure>; 2]>);

#[derive(Clone, Debug)]
struct ProofFailure {
    error: ProofError,
    /// The first one of a row of them, and the last one.
    since: Instant,
    last: Instant,
}

impl ProofFailures {
    fn lock(&self) -> MutexGuard<'_, [Option<ProofFailure>; 2]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how a call has ended.
    pub(super) fn note(&self, call: ProofCall, error: Option<&ProofError>) {
        let mut failures = self.lock();
        let Some(known) = failures.get_mut(call as usize) else { return };
        let now = Instant::now();
        let since = known.as_ref().filter(|known| known.last + FORGOTTEN > now);
        let since = since.map_or(now, |known| known.since);
        *known = error.map(|error| ProofFailure { error: error.clone(), since, last: now });
    }

    /// Why this node reads nothing any more.
    pub(super) fn fence(&self) -> Option<Arc<str>> {
        self.lock().iter().flatten().find_map(|failure| match &failure.error {
            ProofError::Fenced(why) => Some(why.as_str().into()),
            _ => None,
        })
    }

    /// Why reads have failed for a while.
    pub(super) fn lasting(&self) -> Option<Arc<str>> {
        let now = Instant::now();
        self.lock().iter().flatten().find_map(|failure| {
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
        failures.note(ProofCall::Members, Some(&unavailable));
        seconds(4).await;
        failures.note(ProofCall::Members, Some(&unavailable));
        assert_eq!(failures.lasting(), None);
        seconds(1).await;
        // The other call succeeds.
        failures.note(ProofCall::Own, None);
        assert!(failures.lasting().is_some_and(|text| text.contains("no answer")));
        assert_eq!(failures.fence(), None);
        failures.note(ProofCall::Members, None);
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
