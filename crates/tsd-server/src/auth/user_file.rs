//! Authenticates by the users of a file.
//!
//! The caller reads and follows the file, and replaces the users when it changes. Passwords are
//! verified on threads for blocking work, few at a time: each takes tens of milliseconds and megabytes,
//! and anybody can request it. If too many requests wait, further requests are rejected as busy.

mod signed_tokens;

use parking_lot::RwLock;
use std::{
    fmt, mem,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use jiff::Timestamp;
use metrics::Counter;
use tokio::{sync::Semaphore, time::Instant};
use tsd_engine::{Clock, MemoryConsumer, ProcessMemory};
use tsd_protocol::Credentials;

use super::{
    AuthError, Authenticator, Identity, TokenError, TokenOrigin, TokenRules, Users, UsersChange,
    failure_limit::FailureLimit,
    jwt::{self, KeySet},
    secrets::HashError,
    verified_cache::VerifiedCache,
};

/// Maximum concurrent verifications of passwords.
const VERIFICATIONS: usize = 2;
/// Maximum requests that wait for a verification. Most of them wait for a verification that another
/// request of the same user started.
const MAX_WAITING: usize = 1_024;
/// How long the verification of a password is remembered.
const PASSWORD_REMEMBERED: Duration = Duration::from_mins(5);

/// Authenticates clients by a file of users, and by the keys of an identity provider.
pub struct UserFileAuthenticator {
    current: RwLock<Arc<UsersVersion>>,
    /// What signed tokens must claim; `None` if they are not accepted.
    token_rules: Option<TokenRules>,
    epoch: AtomicU64,
    /// Key of the caches.
    secret: [u8; 32],
    verifications: Arc<Semaphore>,
    waiting: Semaphore,
    failures: Arc<FailureLimit>,
    memory: ProcessMemory,
    clock: Arc<dyn Clock>,
    metrics: AuthMetrics,
}

/// One version of the users and of the keys, and the passwords and tokens verified with it.
#[derive(Debug)]
struct UsersVersion {
    users: Arc<Users>,
    /// Right passwords only: at most one entry for each user, and never an answer for a wrong password.
    verified: Arc<VerifiedCache<Identity, Instant>>,
    /// Keys of signed tokens.
    keys: Option<Arc<KeySet>>,
    tokens: VerifiedCache<Result<Identity, AuthError>, Timestamp>,
}

impl UsersVersion {
    /// Gives a user of a signed token the current line of its role.
    fn user_of_token(&self, name: &str, origin: TokenOrigin, now: Timestamp) -> Option<Identity> {
        let line = self.users.with_claims(origin.roles.iter().map(String::as_str), now)?;
        Some(Identity::of_token(name, line, origin))
    }

    /// Returns the current version of a user of a signed token; `None` if its key or its role is gone.
    fn renew_token(&self, name: &str, origin: &TokenOrigin, now: Timestamp) -> Option<Identity> {
        let has_key = self.keys.as_ref().is_some_and(|keys| keys.contains(&origin.key));
        if has_key { self.user_of_token(name, origin.clone(), now) } else { None }
    }
}

tsd_engine::metrics_table! {
    #[derive(Clone, Debug)]
    pub(crate) struct AuthMetrics {
        counters by label {
            "tsd_auth_credentials_total" by "outcome",
                "Credentials that clients sent, by outcome: verified (a password or a signed token), cached (verified before, or a token of the file of users, or a client certificate), invalid, expired, limited (rejected after too many wrong attempts of the peer), busy (too many verifications in progress)."
                => Counter {
                    verified: "verified", cached: "cached", invalid: "invalid", expired: "expired",
                    limited: "limited", busy: "busy",
                }
            "tsd_auth_tokens_refused_total" by "reason",
                "Signed tokens that were refused, by reason: form (malformed, or an algorithm that is not accepted), key (not in the key set), signature, expired, time (not valid yet, or issued in the future), issuer, audience, claims (missing or malformed), role (none with a line in the file of users)."
                => Counter {
                    token_form: "form", token_key: "key", token_signature: "signature",
                    token_expired: "expired", token_time: "time", token_issuer: "issuer",
                    token_audience: "audience", token_claims: "claims", token_role: "role",
                }
        }
        gauges {
            next_expiry: "tsd_auth_next_expiry_seconds", Seconds,
                "Unix time at which the next credential of the file of users expires; 0 if none will.";
            expired_credentials: "tsd_auth_expired_credentials", Count,
                "Credentials of the file of users that have expired.";
            cached_tokens: "tsd_auth_cached_tokens", Count,
                "Signed tokens whose verification is remembered, at most 10000: accepted ones until they expire or the users or the keys change, refused ones with a right signature for a minute.";
        }
    }
}

impl fmt::Debug for UserFileAuthenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserFileAuthenticator").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl UserFileAuthenticator {
    /// Creates an authenticator of these users. Verifications reserve their memory from `memory`, and `clock` tells
    /// which credentials have expired.
    pub fn new(
        users: Users,
        memory: ProcessMemory,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, HashError> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)?;
        let metrics = AuthMetrics::with_labels(&[]);
        let version = UsersVersion {
            users: Arc::new(users),
            verified: Arc::new(VerifiedCache::new(secret)),
            keys: None,
            tokens: VerifiedCache::new(secret),
        };
        Ok(Self {
            current: RwLock::new(Arc::new(version)),
            token_rules: None,
            epoch: AtomicU64::new(0),
            secret,
            verifications: Arc::new(Semaphore::new(VERIFICATIONS)),
            waiting: Semaphore::new(MAX_WAITING),
            failures: Arc::default(),
            memory,
            clock,
            metrics,
        })
    }

    /// Accepts tokens that fulfil these rules and are signed by a key of the set.
    #[must_use]
    pub fn with_tokens(mut self, rules: TokenRules, keys: KeySet) -> Self {
        self.token_rules = Some(rules);
        self.replace_keys(keys);
        self
    }

    /// Replaces the users and clears the caches of verified passwords and tokens. Connections get the current
    /// permissions of their users. Returns what changed.
    pub fn replace(&self, users: Users) -> UsersChange {
        let users = Arc::new(users);
        let former = self.change(|former| UsersVersion {
            users: Arc::clone(&users),
            verified: Arc::new(VerifiedCache::new(self.secret)),
            keys: former.keys.clone(),
            tokens: VerifiedCache::new(self.secret),
        });
        users.change_from(&former.users)
    }

    /// Replaces the keys and clears the cache of verified tokens. Users whose token was signed by a key that is gone
    /// must sign in again.
    pub fn replace_keys(&self, keys: KeySet) {
        let keys = Arc::new(keys);
        self.change(|former| UsersVersion {
            users: Arc::clone(&former.users),
            verified: Arc::clone(&former.verified),
            keys: Some(Arc::clone(&keys)),
            tokens: VerifiedCache::new(self.secret),
        });
    }

    /// Replaces the version, and returns the former one.
    fn change(&self, next: impl FnOnce(&UsersVersion) -> UsersVersion) -> Arc<UsersVersion> {
        let mut current = self.current.write();
        let version = Arc::new(next(&current));
        let former = mem::replace(&mut *current, version);
        drop(current);
        self.epoch.fetch_add(1, Ordering::Release);
        former
    }

    fn current(&self) -> Arc<UsersVersion> {
        Arc::clone(&self.current.read())
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.clock.now_ms()).unwrap_or(Timestamp::MAX)
    }

    /// Fails for right credentials whose time is over.
    fn check_expiry(&self, identity: Identity) -> Result<Identity, AuthError> {
        match identity.expires() {
            Some(at) if at <= self.now() => {
                self.metrics.expired.increment(1);
                Err(if identity.token.is_some() {
                    self.metrics.token_expired.increment(1);
                    TokenError::Expired.into()
                } else {
                    AuthError::Expired { at }
                })
            }
            _ => Ok(identity),
        }
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

    fn busy(&self) -> AuthError {
        self.metrics.busy.increment(1);
        AuthError::Busy
    }

    fn by_token(&self, peer: IpAddr, token: &[u8]) -> Result<Identity, AuthError> {
        let current = self.current();
        if let (Some(rules), Some(keys)) = (&self.token_rules, &current.keys)
            && jwt::is_signed_token(token)
        {
            return self.by_signed_token(peer, token, &current, (rules, keys));
        }
        if let Some(identity) = current.users.with_token(token) {
            self.metrics.cached.increment(1);
            return Ok(identity.clone());
        }
        self.check_failures(peer)?;
        Err(invalid(&self.metrics, &self.failures, peer))
    }

    fn by_certificate(&self, name: &str) -> Result<Identity, AuthError> {
        if let Some(identity) = self.current().users.with_certificate(name) {
            self.metrics.cached.increment(1);
            return Ok(identity.clone());
        }
        self.metrics.invalid.increment(1);
        Err(AuthError::UnknownCertificate)
    }

    async fn by_password(
        &self,
        peer: IpAddr,
        name: &str,
        password: &[u8],
    ) -> Result<Identity, AuthError> {
        let version = self.current();
        let key = version.verified.key(&[name.as_bytes(), password]);
        if let Some(identity) = version.verified.find(&key, &Instant::now()) {
            self.metrics.cached.increment(1);
            return Ok(identity);
        }
        self.check_failures(peer)?;
        let Ok(_waiting) = self.waiting.try_acquire() else { return Err(self.busy()) };
        let Ok(permit) = Arc::clone(&self.verifications).acquire_owned().await else {
            return Err(self.busy());
        };
        // During the wait another request may have verified it, or the peer may have reached its limit.
        if let Some(identity) = version.verified.find(&key, &Instant::now()) {
            self.metrics.cached.increment(1);
            return Ok(identity);
        }
        self.check_failures(peer)?;
        let user = version.users.with_password(name);
        let stored = user.map_or_else(|| version.users.decoy(), |user| &user.password).clone();
        let identity = user.map(|user| user.identity.clone());
        let memory = self.memory.try_reserve(MemoryConsumer::Connections, stored.memory_bytes());
        let Some(memory) = memory else {
            self.memory.record_refusal(MemoryConsumer::Connections);
            return Err(self.busy());
        };
        let password = password.to_vec();
        let (metrics, failures) = (self.metrics.clone(), Arc::clone(&self.failures));
        // The verification continues if its request is dropped. So it counts a wrong password itself,
        // before another request gets the permit.
        let verification = tokio::task::spawn_blocking(move || {
            let is_right = stored.verify(&password);
            let verified = match identity.filter(|_| is_right) {
                Some(identity) => {
                    metrics.verified.increment(1);
                    let now = Instant::now();
                    let until = now + PASSWORD_REMEMBERED;
                    version.verified.insert(key, identity.clone(), until, &now);
                    Ok(identity)
                }
                None => Err(invalid(&metrics, &failures, peer)),
            };
            drop((permit, memory));
            verified
        });
        // An error means that the runtime shuts down.
        verification.await.unwrap_or_else(|_| Err(self.busy()))
    }
}

/// Counts wrong credentials of a peer.
fn invalid(metrics: &AuthMetrics, failures: &FailureLimit, peer: IpAddr) -> AuthError {
    metrics.invalid.increment(1);
    failures.count(peer);
    AuthError::Invalid
}

impl Authenticator for UserFileAuthenticator {
    fn authenticate(
        &self,
        peer: IpAddr,
        credentials: Option<Credentials>,
    ) -> BoxFuture<'_, Result<Identity, AuthError>> {
        async move {
            let identity = match credentials {
                None => Err(AuthError::Missing),
                Some(Credentials::Certificate(name)) => self.by_certificate(&name),
                Some(Credentials::Bearer(token)) => self.by_token(peer, token.bytes()),
                Some(Credentials::Basic { user, password }) => {
                    self.by_password(peer, &user, password.bytes()).await
                }
            };
            self.check_expiry(identity?)
        }
        .boxed()
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    fn renew(&self, identity: &Identity) -> Option<Identity> {
        let current = self.current();
        let renewed = match &identity.token {
            Some(origin) => current.renew_token(identity.name(), origin, self.now())?,
            None => current.users.renew(identity).cloned()?,
        };
        self.check_expiry(renewed).ok()
    }

    fn decides_administration(&self) -> bool {
        true
    }

    fn accepts_anything(&self) -> bool {
        false
    }

    fn set_gauges(&self) {
        let (expired, next) = self.current().users.expiries(self.now());
        self.metrics.cached_tokens.set(self.current().tokens.len() as f64);
        self.metrics.expired_credentials.set(expired as f64);
        self.metrics.next_expiry.set(next.map_or(0.0, |at| at.as_second() as f64));
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::sync::atomic::AtomicI64;

    use tsd_engine::SystemClock;
    use tsd_protocol::parse_telnet_credentials;

    use super::*;
    use crate::auth::secrets::{hash_token, tests::cheap_hash};

    const PEER: &str = "10.0.0.1";

    async fn log_in(
        authenticator: &UserFileAuthenticator,
        peer: &str,
        line: &str,
    ) -> Result<String, AuthError> {
        let credentials = parse_telnet_credentials(format!("auth {line}").as_bytes()).unwrap();
        let identity = authenticator.authenticate(peer.parse().unwrap(), Some(credentials)).await;
        identity.map(|identity| identity.name().to_owned())
    }

    fn authenticator(text: &str) -> UserFileAuthenticator {
        let users = Users::parse(text).unwrap();
        let clock = Arc::new(SystemClock);
        UserFileAuthenticator::new(users, ProcessMemory::unlimited(), clock).unwrap()
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

    /// A client that reset its connections could guess as fast as the daemon hashes.
    #[tokio::test(start_paused = true)]
    async fn guesses_count_whose_request_is_dropped() {
        let file = authenticator(&alice());
        for guess in 0..12 {
            let line = format!("basic alice guess{guess}");
            // One poll starts the verification; the drop simulates a closed connection.
            drop(log_in(&file, PEER, &line).now_or_never());
            // The verification holds its permit until it has counted.
            let _all = file.verifications.acquire_many(VERIFICATIONS as u32).await.unwrap();
        }
        // On a slow machine, the limit may allow another guess meanwhile.
        let mut last = Ok(String::new());
        for _ in 0..3 {
            last = log_in(&file, PEER, "basic alice guess").await;
        }
        assert!(matches!(last, Err(AuthError::TooManyFailures { .. })), "{last:?}");
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
        let credentials = || parse_telnet_credentials(b"auth basic alice secret").ok();
        let identity = file.authenticate(peer, credentials()).await.unwrap();
        let epoch = file.epoch();
        let change =
            file.replace(Users::parse(&format!("alice {} READER", cheap_hash("new"))).unwrap());
        assert_eq!((change.changed, change.removed), (vec!["alice".into()], vec!["agent".into()]));
        assert_ne!(file.epoch(), epoch);
        assert_eq!(file.renew(&identity), None);
        assert_eq!(file.authenticate(peer, credentials()).await, Err(AuthError::Invalid));
        assert!(log_in(&file, PEER, "basic alice new").await.is_ok());
    }

    #[tokio::test]
    async fn without_memory_no_password_is_verified() {
        let memory = ProcessMemory::new(1 << 10, Vec::new());
        let users = Users::parse(&alice()).unwrap();
        let file = UserFileAuthenticator::new(users, memory, Arc::new(SystemClock)).unwrap();
        assert_eq!(log_in(&file, PEER, "basic alice secret").await, Err(AuthError::Busy));
        assert!(log_in(&file, PEER, "bearer t0k3n").await.is_ok());
    }

    #[derive(Debug, Default)]
    struct SetClock(AtomicI64);

    impl Clock for SetClock {
        fn now_ms(&self) -> i64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[tokio::test]
    async fn expired_credentials_are_refused_with_the_reason_and_only_if_right() {
        let text = format!(
            "alice {} READER expires=1970-01-01T00:00:10Z\nagent {} PUTONLY expires=1970-01-02\n",
            cheap_hash("secret"),
            hash_token("t0k3n")
        );
        let clock = Arc::new(SetClock::default());
        let users = Users::parse(&text).unwrap();
        let (memory, shared) = (ProcessMemory::unlimited(), Arc::clone(&clock) as _);
        let file = UserFileAuthenticator::new(users, memory, shared).unwrap();
        let credentials = parse_telnet_credentials(b"auth basic alice secret").ok();
        let alice = file.authenticate(PEER.parse().unwrap(), credentials).await.unwrap();
        assert!(file.renew(&alice).is_some());
        clock.0.store(10_000, Ordering::Relaxed);
        let at = Timestamp::from_second(10).unwrap();
        let expired = log_in(&file, PEER, "basic alice secret").await;
        assert_eq!(expired, Err(AuthError::Expired { at }));
        assert_eq!(file.renew(&alice), None);
        // A guess does not learn that the password has expired.
        assert_eq!(log_in(&file, PEER, "basic alice guess").await, Err(AuthError::Invalid));
        assert!(log_in(&file, PEER, "bearer t0k3n").await.is_ok());
        clock.0.store(86_400_000, Ordering::Relaxed);
        let at = Timestamp::from_second(86_400).unwrap();
        let expired = log_in(&file, PEER, "bearer t0k3n").await;
        assert_eq!(expired, Err(AuthError::Expired { at }));
    }
}
