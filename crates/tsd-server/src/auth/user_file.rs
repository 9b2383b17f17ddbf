//! Authenticates by the users of a file.
//!
//! Reading and following the file is up to the caller, who replaces the users when it has changed.
//! Passwords are verified on threads for blocking work, few at a time: each takes tens of milliseconds
//! and megabytes, and anybody can ask for it. Requests beyond those that may wait are refused as busy.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use tokio::sync::Semaphore;
use tsd_engine::{MemoryPart, ProcessMemory};

use super::{
    AuthError, Authenticator, Credentials, Identity, Users, failure_limit::FailureLimit,
    users::HashError, verified_cache::VerifiedCache,
};

/// Passwords that are verified at a time.
const VERIFICATIONS: usize = 2;
/// Requests that may wait for the verification of their password. Most wait for one that another
/// request of the same user has begun.
const MAX_WAITING: usize = 1_024;

/// The authenticator.
pub struct UserFileAuthenticator {
    current: RwLock<Arc<UsersVersion>>,
    epoch: AtomicU64,
    /// Key of the cache.
    secret: [u8; 32],
    verifications: Arc<Semaphore>,
    waiting: Semaphore,
    failures: FailureLimit,
    memory: ProcessMemory,
    metrics: AuthMetrics,
}

/// One version of the file, and what was verified with it.
#[derive(Debug)]
struct UsersVersion {
    users: Users,
    verified: VerifiedCache,
}

#[derive(Debug)]
struct AuthMetrics {
    users: Gauge,
    verified: Counter,
    cached: Counter,
    invalid: Counter,
    limited: Counter,
    busy: Counter,
    seconds: Histogram,
}

impl Default for AuthMetrics {
    fn default() -> Self {
        let outcome =
            |outcome: &'static str| counter!("tsd_auth_credentials_total", "outcome" => outcome);
        Self {
            users: gauge!("tsd_auth_users"),
            verified: outcome("verified"),
            cached: outcome("cached"),
            invalid: outcome("invalid"),
            limited: outcome("limited"),
            busy: outcome("busy"),
            seconds: histogram!("tsd_auth_verification_seconds"),
        }
    }
}

/// Describes the metrics of this module.
pub(crate) fn describe_metrics() {
    describe_gauge!(
        "tsd_auth_users",
        Unit::Count,
        "Passwords and tokens in the file of users (tsd.core.authentication.users_file)."
    );
    describe_counter!(
        "tsd_auth_credentials_total",
        Unit::Count,
        "Credentials that clients have sent, by outcome: verified, cached (verified a short time ago, or a \
         token), invalid, limited (refused after too many wrong ones of the peer), busy (too many are being \
         verified)."
    );
    describe_histogram!(
        "tsd_auth_verification_seconds",
        Unit::Seconds,
        "Time of a verification of a password, on its thread."
    );
}

impl fmt::Debug for UserFileAuthenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserFileAuthenticator").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl UserFileAuthenticator {
    /// Authenticates these users. Verifications draw on `memory`.
    pub fn new(users: Users, memory: ProcessMemory) -> Result<Self, HashError> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)?;
        let metrics = AuthMetrics::default();
        metrics.users.set(users.len() as f64);
        let verified = VerifiedCache::new(secret);
        Ok(Self {
            current: RwLock::new(Arc::new(UsersVersion { users, verified })),
            epoch: AtomicU64::new(0),
            secret,
            verifications: Arc::new(Semaphore::new(VERIFICATIONS)),
            waiting: Semaphore::new(MAX_WAITING),
            failures: FailureLimit::default(),
            memory,
            metrics,
        })
    }

    /// Replaces the users. What was verified is forgotten; connections get the permissions that
    /// their users have now.
    pub fn replace(&self, users: Users) {
        self.metrics.users.set(users.len() as f64);
        let verified = VerifiedCache::new(self.secret);
        let version = Arc::new(UsersVersion { users, verified });
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = version;
        self.epoch.fetch_add(1, Ordering::Release);
    }

    fn current(&self) -> Arc<UsersVersion> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn check_failures(&self, peer: IpAddr) -> Result<(), AuthError> {
        match self.failures.wait(peer) {
            None => Ok(()),
            Some(wait) => {
                self.metrics.limited.increment(1);
                Err(AuthError::TooManyFailures { retry_after_secs: wait.as_secs() + 1 })
            }
        }
    }

    fn invalid(&self, peer: IpAddr) -> AuthError {
        self.metrics.invalid.increment(1);
        self.failures.count(peer);
        AuthError::Invalid
    }

    fn busy(&self) -> AuthError {
        self.metrics.busy.increment(1);
        AuthError::Busy
    }

    fn by_token(&self, peer: IpAddr, token: &[u8]) -> Result<Identity, AuthError> {
        if let Some(identity) = self.current().users.with_token(token) {
            self.metrics.cached.increment(1);
            return Ok(identity.clone());
        }
        self.check_failures(peer)?;
        Err(self.invalid(peer))
    }

    async fn by_password(
        &self,
        peer: IpAddr,
        name: &str,
        password: &[u8],
    ) -> Result<Identity, AuthError> {
        let version = self.current();
        let key = version.verified.key(name, password);
        if let Some(identity) = version.verified.find(&key) {
            self.metrics.cached.increment(1);
            return Ok(identity);
        }
        self.check_failures(peer)?;
        let Ok(_waiting) = self.waiting.try_acquire() else { return Err(self.busy()) };
        let Ok(permit) = Arc::clone(&self.verifications).acquire_owned().await else {
            return Err(self.busy());
        };
        // Another request may have verified it, or the peer may have guessed, during the wait.
        if let Some(identity) = version.verified.find(&key) {
            self.metrics.cached.increment(1);
            return Ok(identity);
        }
        self.check_failures(peer)?;
        let user = version.users.with_password(name);
        let stored = user.map_or_else(|| version.users.decoy(), |user| &user.password).clone();
        let memory = self.memory.try_reserve(MemoryPart::Connections, stored.memory_bytes());
        let Some(memory) = memory else {
            self.memory.record_refusal(MemoryPart::Connections);
            return Err(self.busy());
        };
        let (password, seconds) = (password.to_vec(), self.metrics.seconds.clone());
        let verification = tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            let is_right = stored.verify(&password);
            seconds.record(started.elapsed());
            // Held by the work, which goes on if its request is dropped.
            drop((permit, memory));
            is_right
        });
        // An error is a shutdown of the runtime.
        let Ok(is_right) = verification.await else { return Err(self.busy()) };
        match user {
            Some(user) if is_right => {
                self.metrics.verified.increment(1);
                version.verified.insert(key, user.identity.clone());
                Ok(user.identity.clone())
            }
            _ => Err(self.invalid(peer)),
        }
    }
}

impl Authenticator for UserFileAuthenticator {
    fn authenticate(
        &self,
        peer: IpAddr,
        credentials: Option<Credentials>,
    ) -> BoxFuture<'_, Result<Identity, AuthError>> {
        async move {
            match credentials {
                None => Err(AuthError::Missing),
                Some(Credentials::Bearer(token)) => self.by_token(peer, token.bytes()),
                Some(Credentials::Basic { user, password }) => {
                    self.by_password(peer, &user, password.bytes()).await
                }
            }
        }
        .boxed()
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    fn renew(&self, identity: &Identity) -> Option<Identity> {
        self.current().users.renew(identity).cloned()
    }

    fn decides_administration(&self) -> bool {
        true
    }

    fn accepts_anything(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::auth::{
        credentials::from_telnet,
        users::{hash_token, tests::cheap_hash},
    };

    const PEER: &str = "10.0.0.1";

    async fn log_in(
        authenticator: &UserFileAuthenticator,
        peer: &str,
        line: &str,
    ) -> Result<String, AuthError> {
        let credentials = from_telnet(format!("auth {line}").as_bytes()).unwrap();
        let identity = authenticator.authenticate(peer.parse().unwrap(), Some(credentials)).await;
        identity.map(|identity| identity.name().to_owned())
    }

    fn authenticator(text: &str) -> UserFileAuthenticator {
        let users = Users::parse(text).unwrap();
        UserFileAuthenticator::new(users, ProcessMemory::unlimited()).unwrap()
    }

    fn alice() -> String {
        format!("alice {} READER\nagent {} PUTONLY\n", cheap_hash("secret"), hash_token("t0k3n"))
    }

    #[tokio::test]
    async fn passwords_and_tokens_name_their_users() {
        let file = authenticator(&alice());
        for _ in 0..2 {
            assert_eq!(log_in(&file, PEER, "basic alice secret").await, Ok("alice".to_owned()));
            assert_eq!(log_in(&file, PEER, "bearer t0k3n").await, Ok("agent".to_owned()));
        }
        for wrong in ["basic alice Secret", "basic bob secret", "basic agent t0k3n", "bearer x"] {
            assert_eq!(log_in(&file, PEER, wrong).await, Err(AuthError::Invalid), "{wrong}");
        }
        let peer = PEER.parse().unwrap();
        assert_eq!(file.authenticate(peer, None).await, Err(AuthError::Missing));
    }

    #[tokio::test(start_paused = true)]
    async fn who_guesses_is_slowed_down_and_others_are_not() {
        let file = authenticator(&alice());
        assert!(log_in(&file, PEER, "basic alice secret").await.is_ok());
        let mut invalid = 0;
        while log_in(&file, PEER, "basic alice guess").await == Err(AuthError::Invalid) {
            invalid += 1;
        }
        assert_eq!(invalid, 10);
        let limited = log_in(&file, PEER, "basic alice guess").await;
        assert!(matches!(limited, Err(AuthError::TooManyFailures { retry_after_secs: 1..=4 })));
        // Verified before, or cheap to verify.
        assert!(log_in(&file, PEER, "basic alice secret").await.is_ok());
        assert!(log_in(&file, PEER, "bearer t0k3n").await.is_ok());
        let other = log_in(&file, "10.0.0.2", "basic alice guess").await;
        assert_eq!(other, Err(AuthError::Invalid));
        tokio::time::advance(std::time::Duration::from_secs(4)).await;
        assert_eq!(log_in(&file, PEER, "basic bob guess").await, Err(AuthError::Invalid));
    }

    #[tokio::test]
    async fn many_clients_of_one_user_share_a_verification() {
        let file = Arc::new(authenticator(&alice()));
        let clients: Vec<_> = (0..500)
            .map(|_| {
                let file = Arc::clone(&file);
                tokio::spawn(async move { log_in(&file, PEER, "basic alice secret").await })
            })
            .collect();
        for client in clients {
            assert_eq!(client.await.unwrap(), Ok("alice".to_owned()));
        }
    }

    #[tokio::test]
    async fn replaced_users_count_at_once() {
        let file = authenticator(&alice());
        let peer = PEER.parse().unwrap();
        let credentials = || from_telnet(b"auth basic alice secret").ok();
        let identity = file.authenticate(peer, credentials()).await.unwrap();
        let epoch = file.epoch();
        file.replace(Users::parse(&format!("alice {} READER", cheap_hash("new"))).unwrap());
        assert_ne!(file.epoch(), epoch);
        assert_eq!(file.renew(&identity), None);
        assert_eq!(file.authenticate(peer, credentials()).await, Err(AuthError::Invalid));
        assert!(log_in(&file, PEER, "basic alice new").await.is_ok());
    }

    #[tokio::test]
    async fn without_memory_no_password_is_verified() {
        let memory = ProcessMemory::new(1 << 10, Vec::new());
        let users = Users::parse(&alice()).unwrap();
        let file = UserFileAuthenticator::new(users, memory).unwrap();
        assert_eq!(log_in(&file, PEER, "basic alice secret").await, Err(AuthError::Busy));
        assert!(log_in(&file, PEER, "bearer t0k3n").await.is_ok());
    }
}
