//! The identities whose use is remembered.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use metrics::gauge;
use parking_lot::Mutex;
use tokio::time::Instant;
use tsd_engine::Clock;

use super::{
    IdentityLimits, metrics::IdentityMetrics, sender::LimitedSender, usage::IdentityUsage,
};
use crate::auth::Identity;

/// Most identities whose use is remembered.
const CAPACITY: usize = 4_096;
/// Most identities with metrics of their own.
const LABELS: usize = 100;
/// Label of all other identities.
const OTHERS: &str = "(others)";
/// Interval at which identities that are like new ones are forgotten.
const SWEEP_INTERVAL: Duration = Duration::from_mins(10);

/// The use of all identities.
#[derive(Debug)]
pub(crate) struct IdentityTable {
    defaults: IdentityLimits,
    clock: Arc<dyn Clock>,
    tracked: Mutex<TrackedIdentities>,
}

/// An identity: a user, or the network of a client without a user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum IdentityKey {
    User(Arc<str>),
    Network(IpAddr),
}

#[derive(Debug)]
struct TrackedIdentities {
    by_key: HashMap<IdentityKey, TrackedIdentity>,
    /// Identities with metrics of their own.
    labels: HashSet<String>,
    swept: Instant,
}

#[derive(Debug)]
struct TrackedIdentity {
    usage: Arc<IdentityUsage>,
    last_used: Instant,
}

impl IdentityTable {
    pub(crate) fn new(defaults: IdentityLimits, clock: Arc<dyn Clock>) -> Self {
        let tracked = TrackedIdentities {
            by_key: HashMap::new(),
            labels: HashSet::new(),
            swept: Instant::now(),
        };
        Self { defaults, clock, tracked: Mutex::new(tracked) }
    }

    /// Returns the sender of a request; `None` if its identity has no limits and is not counted. Without a user, the
    /// network of the peer is the identity.
    pub(crate) fn sender(&self, user: Option<&Identity>, peer: IpAddr) -> Option<LimitedSender> {
        let own = user.map(Identity::limits).filter(|own| !own.are_unset());
        if own.is_none() && self.defaults.are_off() {
            return None;
        }
        let key = user.map_or_else(
            || IdentityKey::Network(network(peer)),
            |user| IdentityKey::User(user.shared_name()),
        );
        let limits = own.map_or(self.defaults, |own| self.defaults.with(own));
        let usage = self.tracked.lock().usage(key, Instant::now());
        Some(LimitedSender { usage, limits, clock: Arc::clone(&self.clock) })
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.tracked.lock().by_key.len()
    }
}

impl TrackedIdentities {
    fn usage(&mut self, key: IdentityKey, now: Instant) -> Arc<IdentityUsage> {
        if let Some(tracked) = self.by_key.get_mut(&key) {
            tracked.last_used = now;
            return Arc::clone(&tracked.usage);
        }
        if self.by_key.len() >= CAPACITY || now - self.swept >= SWEEP_INTERVAL {
            self.sweep(now);
        }
        let label = key.label();
        let shown = match &key {
            IdentityKey::User(name) => format!("user {name:?}"),
            IdentityKey::Network(_) => format!("the network {label}"),
        };
        let usage = Arc::new(IdentityUsage::new(shown, self.metrics(label), now));
        let tracked = TrackedIdentity { usage: Arc::clone(&usage), last_used: now };
        self.by_key.insert(key, tracked);
        gauge!("tsd_identity_tracked").set(self.by_key.len() as f64);
        usage
    }

    /// Forgets identities that are like new ones. If the table stays full, forgets the quarter that was not used for
    /// longest, even if they owe something: a client with many networks must not fill the memory.
    fn sweep(&mut self, now: Instant) {
        self.swept = now;
        self.by_key.retain(|_, tracked| tracked.is_in_use() || !tracked.usage.is_at_rest(now));
        if self.by_key.len() < CAPACITY {
            return;
        }
        let mut by_age: Vec<_> =
            self.by_key.iter().map(|(key, tracked)| (tracked.age_key(), key.clone())).collect();
        by_age.sort_unstable_by_key(|(age, _)| *age);
        for (_, key) in by_age.into_iter().take(CAPACITY / 4) {
            self.by_key.remove(&key);
        }
    }

    /// Metrics of an identity: its own for the first ones, and shared ones for all others.
    fn metrics(&mut self, label: String) -> Arc<IdentityMetrics> {
        let has_own = self.labels.contains(&label) || self.labels.len() < LABELS;
        let label = if has_own { label } else { OTHERS.to_owned() };
        let metrics = IdentityMetrics::with_labels(&[("identity", label.clone())]);
        if has_own {
            self.labels.insert(label);
        }
        Arc::new(metrics)
    }
}

impl TrackedIdentity {
    /// Returns true if a connection or a request of the identity is in progress.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.usage) > 1
    }

    /// Orders identities by when they may be forgotten.
    fn age_key(&self) -> (bool, Instant) {
        (self.is_in_use(), self.last_used)
    }
}

impl IdentityKey {
    fn label(&self) -> String {
        match self {
            Self::User(name) => (**name).to_owned(),
            Self::Network(network @ IpAddr::V4(_)) => format!("{network}/24"),
            Self::Network(network @ IpAddr::V6(_)) => format!("{network}/64"),
        }
    }
}

/// Returns the network of a client: a site often has many hosts with IPv4 addresses of one /24, and a host chooses any
/// address of its IPv6 /64.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & !0xff).into(),
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
    }
}
