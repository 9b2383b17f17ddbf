//! What is known about the services of single servers.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::backoff::{FailureCost, LoginBackoff};
use crate::transport::TransportError;

/// Bound of the services with failures; more are forgotten.
const MAX_FAILURES: usize = 4096;

/// Time in which a service that rejects tickets causes one login.
const REJECTION_PAUSE: Duration = Duration::from_mins(1);

/// Failures and rejections by principal of the service.
#[derive(Debug, Default)]
pub(super) struct Services {
    failures: HashMap<String, (ServiceFailure, LoginBackoff)>,
    rejections: HashMap<String, Rejection>,
}

/// There was no ticket for a service.
#[derive(Debug)]
pub(super) struct ServiceFailure {
    pub(super) error: TransportError,
    pub(super) cost: FailureCost,
    /// Number of the login whose tickets were used.
    pub(super) login: u64,
}

/// A service has rejected a ticket.
#[derive(Debug)]
struct Rejection {
    at: Instant,
    /// Number of the login that replaces the tickets.
    replacement: u64,
}

impl Services {
    /// Returns the last failure with the tickets of a login, during its pause.
    pub(super) fn failure(
        &self,
        service: &str,
        login: u64,
        now: Instant,
    ) -> Option<TransportError> {
        let (failure, backoff) = self.failures.get(service)?;
        let applies = failure.login == login && backoff.is_pausing(now);
        applies.then(|| failure.error.clone())
    }

    /// Begins a pause. `random` is any number, for its jitter.
    pub(super) fn failed(
        &mut self,
        service: &str,
        failure: ServiceFailure,
        now: Instant,
        random: u64,
    ) {
        if self.failures.len() >= MAX_FAILURES {
            self.failures.retain(|_, (_, backoff)| !backoff.is_over(now));
        }
        if self.failures.len() >= MAX_FAILURES {
            self.failures.clear();
        }
        let former = self.failures.remove(service);
        let mut backoff = former.map(|(_, backoff)| backoff).unwrap_or_default();
        backoff.failed(now, failure.cost, random);
        self.failures.insert(service.to_owned(), (failure, backoff));
    }

    /// Forgets the failures of a service.
    pub(super) fn succeeded(&mut self, service: &str) {
        self.failures.remove(service);
    }

    /// Records that a service rejected the tickets of a login. Returns false if they had replaced rejected tickets of
    /// a short time ago.
    pub(super) fn rejected(&mut self, service: &str, login: u64, now: Instant) -> bool {
        self.rejections.retain(|_, rejection| now < rejection.at + REJECTION_PAUSE);
        if self.rejections.get(service).is_some_and(|former| login >= former.replacement) {
            return false;
        }
        let rejection = Rejection { at: now, replacement: login + 1 };
        self.rejections.insert(service.to_owned(), rejection);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::TransportErrorKind;

    fn failure() -> ServiceFailure {
        let error = TransportError::new(TransportErrorKind::Transient, "no KDC");
        ServiceFailure { error, cost: FailureCost::Network, login: 1 }
    }

    #[test]
    fn failures_are_of_one_service_and_login() {
        let (mut services, now) = (Services::default(), Instant::now());
        services.failed("a", failure(), now, 20);
        assert!(services.failure("a", 1, now).is_some());
        assert!(services.failure("a", 2, now).is_none());
        assert!(services.failure("b", 1, now).is_none());
        assert!(services.failure("a", 1, now + Duration::from_secs(1)).is_none());
        services.failed("a", failure(), now, 20);
        assert!(services.failure("a", 1, now + Duration::from_secs(1)).is_some(), "it is longer");
        services.succeeded("a");
        assert!(services.failure("a", 1, now).is_none());
    }

    #[test]
    fn failures_are_bounded() {
        let (mut services, now) = (Services::default(), Instant::now());
        for number in 0..MAX_FAILURES {
            services.failed(&number.to_string(), failure(), now, 20);
        }
        assert_eq!(services.failures.len(), MAX_FAILURES);
        services.failed("a", failure(), now, 20);
        assert_eq!(services.failures.len(), 1);
        assert!(services.failure("a", 1, now).is_some());
    }

    #[test]
    fn each_rejection_replaces_tickets_once() {
        let (mut services, now) = (Services::default(), Instant::now());
        assert!(services.rejected("a", 1, now));
        assert!(services.rejected("a", 1, now), "another connection with the same tickets");
        assert!(services.rejected("b", 2, now), "another service");
        assert!(!services.rejected("a", 2, now));
        assert!(!services.rejected("a", 5, now));
        assert!(services.rejected("a", 5, now + REJECTION_PAUSE), "its keys may be others now");
        assert!(!services.rejected("a", 6, now + REJECTION_PAUSE));
    }
}
