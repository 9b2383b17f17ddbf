//! The client's tickets: one login at a time, shared by all connections.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use hbase_gss::{Credentials, Error};
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::{info, warn};

use super::{
    backoff::{FailureCost, LoginBackoff},
    explain::{Explanation, ServiceTarget, cost},
    pool::Pool,
    services::{ServiceFailure, Services},
};
use crate::{
    random::random,
    security::KerberosLogin,
    stats::LoginStats,
    transport::{TransportError, TransportErrorKind},
};

/// Tickets of a keytab that are good for less than this are renewed before they are used.
const MIN_LIFETIME: Duration = Duration::from_mins(1);

/// Age at which the gauge of a cache is read again.
const CACHE_AGE: Duration = Duration::from_mins(1);

/// Tickets of the client.
#[derive(Debug)]
pub(super) struct Login {
    credentials: Credentials,
    /// Differs for tickets that were obtained anew.
    number: u64,
    /// When the library was asked.
    asked: Instant,
    /// Lifetime of the tickets when they were new, or first seen.
    total: Duration,
}

impl Login {
    pub(super) const fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn principal(&self) -> &str {
        self.credentials.principal()
    }

    /// True in the last third of the tickets' life. The library renews them after half of it, by the KDC's clock.
    fn is_old(&self) -> bool {
        self.credentials.lifetime() < self.total / 3
    }
}

/// Owns the tickets and decides when to get others.
#[derive(Debug)]
pub(super) struct LoginKeeper {
    source: KerberosLogin,
    tickets: Mutex<Tickets>,
    /// Changes when a login ends.
    ended: watch::Sender<()>,
    services: Mutex<Services>,
    pool: Pool,
    logins: AtomicU64,
    failures: AtomicU64,
    /// True after the first service ticket.
    had_service: AtomicBool,
}

#[derive(Debug, Default)]
struct Tickets {
    current: Option<Arc<Login>>,
    /// The last number of a login.
    number: u64,
    /// Changes when tickets are discarded, so that a login that has begun before is discarded too.
    epoch: u64,
    failure: Option<TransportError>,
    backoff: LoginBackoff,
    is_pending: bool,
    /// True if the end of the current tickets was logged.
    is_warned: bool,
}

/// What a caller does now.
#[derive(Debug)]
enum Advice {
    Use(Arc<Login>),
    /// The same, and other tickets are needed soon.
    UseAndRenew(Arc<Login>),
    Fail(TransportError),
    Wait,
}

impl Tickets {
    /// Advises a caller that came at `since`.
    fn advise(&self, has_keytab: bool, since: Instant, now: Instant) -> Advice {
        let good = self.current.as_ref().filter(|login| !login.credentials.lifetime().is_zero());
        let is_pausing = self.backoff.is_pausing(now);
        match (good, &self.failure) {
            (Some(login), _) if !has_keytab => {
                if login.asked >= since || is_pausing {
                    Advice::Use(Arc::clone(login))
                } else {
                    Advice::Wait
                }
            }
            (Some(login), _) if !login.is_old() || is_pausing => Advice::Use(Arc::clone(login)),
            (Some(login), _) if login.credentials.lifetime() > MIN_LIFETIME => {
                Advice::UseAndRenew(Arc::clone(login))
            }
            (None, Some(failure)) if is_pausing => Advice::Fail(failure.clone()),
            _ => Advice::Wait,
        }
    }
}

impl LoginKeeper {
    pub(super) fn new(source: KerberosLogin) -> Self {
        Self {
            source,
            tickets: Mutex::default(),
            ended: watch::Sender::new(()),
            services: Mutex::default(),
            pool: Pool::new(),
            logins: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            had_service: AtomicBool::new(false),
        }
    }

    /// Explains why there is no service ticket.
    pub(super) fn explain_service(&self, error: &Error, target: &ServiceTarget) -> TransportError {
        let had_success = self.had_service.load(Ordering::Relaxed);
        Explanation { login: &self.source, had_success }.service(error, target)
    }

    const fn has_keytab(&self) -> bool {
        matches!(self.source, KerberosLogin::Keytab { .. })
    }

    /// Queues a job on the threads for calls of the library.
    pub(super) fn submit(&self, job: impl FnOnce() + Send + 'static) -> Result<(), TransportError> {
        if self.pool.submit(job) { Ok(()) } else { Err(interrupted()) }
    }

    /// Returns good tickets, after one login of all callers if it is needed.
    pub(super) async fn login(self: &Arc<Self>) -> Result<Arc<Login>, TransportError> {
        let since = Instant::now();
        // A login that ends between the advice and the wait is seen.
        let mut ended = self.ended.subscribe();
        loop {
            let advice = self.tickets.lock().advise(self.has_keytab(), since, Instant::now());
            match advice {
                Advice::Use(login) => return Ok(login),
                Advice::UseAndRenew(login) => {
                    // The tickets are good without the renewal.
                    let _ = self.begin();
                    return Ok(login);
                }
                Advice::Fail(failure) => return Err(failure),
                Advice::Wait => self.begin()?,
            }
            ended.changed().await.map_err(|_| interrupted())?;
        }
    }

    /// Begins a login on the pool, unless one is pending.
    fn begin(self: &Arc<Self>) -> Result<(), TransportError> {
        let (current, epoch) = {
            let mut tickets = self.tickets.lock();
            if tickets.is_pending {
                return Ok(());
            }
            tickets.is_pending = true;
            (tickets.current.clone(), tickets.epoch)
        };
        let pending = PendingLogin(Arc::clone(self));
        self.submit(move || {
            let asked = Instant::now();
            let result = match &current {
                Some(login) => login.credentials.renewed(),
                None => pending.0.acquire(),
            };
            pending.0.end(result, asked, epoch);
        })
    }

    fn acquire(&self) -> Result<Credentials, Error> {
        match &self.source {
            KerberosLogin::Keytab { file, principal } => {
                Credentials::keytab(file, principal.as_deref())
            }
            KerberosLogin::Cache { file } => Credentials::cache(file.as_deref()),
        }
    }

    /// Takes the result of a login that began in this epoch.
    fn end(&self, result: Result<Credentials, Error>, asked: Instant, epoch: u64) {
        let mut tickets = self.tickets.lock();
        if tickets.epoch != epoch {
            return;
        }
        match result {
            Ok(credentials) => self.take(&mut tickets, credentials, asked),
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                let explanation =
                    Explanation { login: &self.source, had_success: tickets.number > 0 };
                let failure = explanation.login(&error);
                tickets.backoff.failed(Instant::now(), cost(&error), random());
                let left = tickets.current.as_ref().map(|login| login.credentials.lifetime());
                if let Some(left) = left.filter(|left| !left.is_zero()) {
                    warn!(error = %failure, seconds_left = left.as_secs(), "Kerberos tickets not renewed");
                }
                tickets.failure = Some(failure);
            }
        }
    }

    fn take(&self, tickets: &mut Tickets, credentials: Credentials, asked: Instant) {
        let left = credentials.lifetime();
        let former = tickets.current.as_ref().filter(|former| {
            // The same tickets, as the clock allows.
            left <= former.credentials.lifetime() + Duration::from_secs(1)
                && credentials.principal() == former.principal()
        });
        let (number, total) = match former {
            None => (tickets.number + 1, left),
            Some(former) => (former.number, former.total),
        };
        if former.is_some() && self.has_keytab() {
            // The library keeps good tickets if the KDC does not answer.
            self.failures.fetch_add(1, Ordering::Relaxed);
            tickets.backoff.failed(Instant::now(), FailureCost::Network, random());
            warn!(
                seconds_left = left.as_secs(),
                "Kerberos tickets not renewed: no answer of a KDC"
            );
            return;
        }
        if former.is_none() {
            info!(
                principal = credentials.principal(),
                seconds_left = left.as_secs(),
                "Kerberos login"
            );
            tickets.is_warned = false;
        }
        self.logins.fetch_add(1, Ordering::Relaxed);
        tickets.number = number;
        tickets.backoff = LoginBackoff::default();
        tickets.failure = None;
        let login = Login { credentials, number, asked, total };
        if !self.has_keytab() && left < total / 10 && !tickets.is_warned {
            tickets.is_warned = true;
            warn!(
                principal = login.principal(),
                seconds_left = left.as_secs(),
                "the Kerberos ticket cache expires soon, and nothing has renewed it"
            );
        }
        tickets.current = Some(Arc::new(login));
    }

    /// Discards tickets that were found expired. Returns false if they cannot be replaced.
    pub(super) fn replace(&self, login: &Login) -> bool {
        if self.has_keytab() {
            self.tickets.lock().discard(login.number);
        }
        self.has_keytab()
    }

    /// Discards tickets that a service has rejected. Returns false if they cannot be replaced, or had replaced rejected
    /// ones.
    pub(super) fn replace_rejected(&self, service: &str, login: &Login) -> bool {
        let is_replaced = self.has_keytab()
            && self.services.lock().rejected(service, login.number, Instant::now());
        if is_replaced {
            self.tickets.lock().discard(login.number);
        }
        is_replaced
    }

    /// Returns the last failure of a service with these tickets, during its pause.
    pub(super) fn service_failure(&self, service: &str, login: u64) -> Option<TransportError> {
        self.services.lock().failure(service, login, Instant::now())
    }

    /// Records whether a service ticket was obtained.
    pub(super) fn service_outcome(
        &self,
        target: &ServiceTarget,
        login: u64,
        error: Option<&Error>,
    ) {
        let Some(error) = error else {
            self.services.lock().succeeded(&target.service);
            self.had_service.store(true, Ordering::Relaxed);
            return;
        };
        self.failures.fetch_add(1, Ordering::Relaxed);
        let failure =
            ServiceFailure { error: self.explain_service(error, target), cost: cost(error), login };
        self.services.lock().failed(&target.service, failure, Instant::now(), random());
    }

    /// Returns counters and gauges, and keeps the tickets fresh while somebody looks.
    pub(super) fn stats(self: &Arc<Self>) -> LoginStats {
        let (current, is_pausing) = {
            let tickets = self.tickets.lock();
            (tickets.current.clone(), tickets.backoff.is_pausing(Instant::now()))
        };
        let is_due = current.as_ref().is_some_and(|login| {
            if self.has_keytab() { login.is_old() } else { login.asked.elapsed() > CACHE_AGE }
        });
        if is_due && !is_pausing {
            // Without a thread for it, the gauge shows the present tickets.
            let _ = self.begin();
        }
        LoginStats {
            logins: self.logins.load(Ordering::Relaxed),
            login_failures: self.failures.load(Ordering::Relaxed),
            ticket_seconds_left: current.map(|login| login.credentials.lifetime().as_secs()),
        }
    }
}

impl Tickets {
    /// Discards tickets, unless others have replaced them.
    fn discard(&mut self, number: u64) {
        if self.current.as_ref().is_some_and(|login| login.number == number) {
            self.current = None;
            self.epoch += 1;
        }
    }
}

/// A login that is pending until this is dropped, whether its job has run or not.
struct PendingLogin(Arc<LoginKeeper>);

impl Drop for PendingLogin {
    fn drop(&mut self) {
        self.0.tickets.lock().is_pending = false;
        self.0.ended.send_replace(());
    }
}

/// The threads for calls of the library are too busy.
pub(super) fn interrupted() -> TransportError {
    TransportError::new(
        TransportErrorKind::Transient,
        "too many Kerberos logins wait, because the KDC does not answer",
    )
}
