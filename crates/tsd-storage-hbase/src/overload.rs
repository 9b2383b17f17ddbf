//! Rejections by which HBase slows the daemon down, as health problems: quotas, full memstores, full call queues.
//!
//! The client waits and repeats such calls, so without these problems an operator would see only slow writes and reads.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

use hbase_rs::{errors::ExceptionClass, stats::RetryReason};
use tsd_storage::{HealthImpact, HealthProblem, StoreComponent};

/// A problem ends after this time without a rejection. Waits of quotas are seconds, and of the client at most five.
const END_AFTER: Duration = Duration::from_secs(30);

/// A kind of rejection: its exceptions, and what an operator should know.
const KINDS: [(&[ExceptionClass], &str); 3] = [
    (
        &[ExceptionClass::Throttling],
        "HBase throttles this daemon by a quota (RpcThrottlingException): its calls wait as long as HBase says; \
         `list_quotas` in HBase's shell shows the quotas",
    ),
    (
        &[ExceptionClass::RegionTooBusy],
        "a region of HBase rejects writes (RegionTooBusyException), most likely because its memstore fills faster than \
         it is flushed: the daemon repeats them",
    ),
    (
        &[ExceptionClass::CallQueueTooBig, ExceptionClass::CallDropped],
        "a region server of HBase is overloaded (CallQueueTooBigException or CallDroppedException): the daemon repeats \
         its calls",
    ),
];

/// What was seen of a kind.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    retries: u64,
    /// When the number of retries has last been found higher than before.
    at: Option<Instant>,
}

/// Compares the numbers of retries with those of the last look.
#[derive(Debug, Default)]
pub(crate) struct OverloadWatch {
    seen: Mutex<[Seen; KINDS.len()]>,
}

impl OverloadWatch {
    /// Returns the problems, given the client's retries by reason.
    pub(crate) fn problems(&self, retries: &[(RetryReason, u64)]) -> Vec<HealthProblem> {
        self.problems_at(retries, Instant::now())
    }

    fn problems_at(&self, retries: &[(RetryReason, u64)], now: Instant) -> Vec<HealthProblem> {
        let mut problems = Vec::new();
        for (seen, (classes, text)) in self.seen.lock().iter_mut().zip(KINDS) {
            let is_of_kind = |reason: &RetryReason| matches!(reason, RetryReason::Exception(class) if classes.contains(class));
            let of_kind = retries.iter().filter(|(reason, _)| is_of_kind(reason));
            let count = of_kind.map(|(_, count)| *count).sum();
            if count > seen.retries {
                *seen = Seen { retries: count, at: Some(now) };
            }
            if seen.at.is_some_and(|at| now.saturating_duration_since(at) < END_AFTER) {
                let impact = HealthImpact::Degraded;
                problems.push(HealthProblem::new(StoreComponent::Backend, impact, text));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_lasts_until_half_a_minute_after_the_last_rejection() {
        let watch = OverloadWatch::default();
        let start = Instant::now();
        let check = |retries: &[(ExceptionClass, u64)], secs: u64, words: &[&str]| {
            let retries: Vec<_> = retries
                .iter()
                .map(|(class, count)| (RetryReason::Exception(*class), *count))
                .collect();
            let problems = watch.problems_at(&retries, start + Duration::from_secs(secs));
            assert_eq!(problems.len(), words.len(), "{problems:?}");
            for (problem, word) in problems.iter().zip(words) {
                assert!(problem.reason.contains(word), "{problem:?}");
            }
        };
        let (quota, busy) = (ExceptionClass::Throttling, ExceptionClass::RegionTooBusy);
        check(&[], 0, &[]);
        check(&[(ExceptionClass::NotServingRegion, 9)], 0, &[]);
        check(&[(quota, 1)], 1, &["quota"]);
        check(&[(quota, 1), (busy, 5)], 20, &["quota", "memstore"]);
        check(&[(quota, 2), (busy, 5)], 30, &["quota", "memstore"]);
        check(&[(quota, 2), (busy, 5)], 55, &["quota"]);
        check(&[(quota, 2), (busy, 5)], 60, &[]);
        let (full, dropped) = (ExceptionClass::CallQueueTooBig, ExceptionClass::CallDropped);
        check(&[(full, 1)], 61, &["overloaded"]);
        check(&[(full, 1), (dropped, 1)], 90, &["overloaded"]);
    }
}
