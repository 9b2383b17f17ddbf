//! Limits how often a peer may send wrong credentials.
//!
//! Slows guesses down to one in a few seconds per peer. Recently verified credentials are still
//! accepted, so that an attacker does not lock out clients that share its address.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use tokio::time::Instant;

/// Wrong attempts that a peer may make at once.
const BURST: u32 = 10;
/// Time after which one more attempt is allowed.
const REFILL: Duration = Duration::from_secs(3);
/// Maximum number of tracked peers.
const CAPACITY: usize = 4_096;

/// Wrong attempts of all peers.
#[derive(Debug, Default)]
pub(super) struct FailureLimit {
    /// By peer, the time at which all of its attempts are forgotten: [`REFILL`] for each attempt.
    forgotten_at: Mutex<HashMap<IpAddr, Instant>>,
}

/// Returns the address under which a peer is counted: the whole network for IPv6, since its hosts
/// choose their own addresses.
fn counted(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl FailureLimit {
    /// Returns how long the peer must wait before its next attempt; `None` if it may try now.
    pub(super) fn wait(&self, peer: IpAddr) -> Option<Duration> {
        let forgotten_at = self.forgotten_at.lock();
        let left = forgotten_at.get(&counted(peer))?.saturating_duration_since(Instant::now());
        let excess = left.checked_sub(REFILL * (BURST - 1))?;
        (!excess.is_zero()).then_some(excess)
    }

    /// Counts a wrong attempt.
    pub(super) fn count(&self, peer: IpAddr) {
        let now = Instant::now();
        let mut forgotten_at = self.forgotten_at.lock();
        if forgotten_at.len() >= CAPACITY {
            forgotten_at.retain(|_, at| now < *at);
        }
        let peer = counted(peer);
        if forgotten_at.len() >= CAPACITY && !forgotten_at.contains_key(&peer) {
            // Evicts the peer with the fewest recent attempts.
            let first = forgotten_at.iter().min_by_key(|(_, at)| **at).map(|(peer, _)| *peer);
            if let Some(first) = first {
                forgotten_at.remove(&first);
            }
        }
        let at = forgotten_at.entry(peer).or_insert(now);
        // Limited, since concurrent attempts may all fail.
        *at = ((*at).max(now) + REFILL).min(now + REFILL * BURST);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_burst_one_attempt_is_allowed_at_a_time() {
        let limit = FailureLimit::default();
        let peer = ip("10.0.0.1");
        for _ in 0..BURST {
            assert_eq!(limit.wait(peer), None);
            limit.count(peer);
        }
        assert_eq!(limit.wait(peer), Some(REFILL));
        assert_eq!(limit.wait(ip("::ffff:10.0.0.1")), Some(REFILL), "the same peer");
        assert_eq!(limit.wait(ip("10.0.0.2")), None);
        tokio::time::advance(REFILL).await;
        assert_eq!(limit.wait(peer), None);
        limit.count(peer);
        assert!(limit.wait(peer).is_some());
        for _ in 0..100 {
            limit.count(peer);
        }
        tokio::time::advance(REFILL * BURST).await;
        assert_eq!(limit.wait(peer), None, "what is remembered is bounded");
    }

    #[tokio::test(start_paused = true)]
    async fn an_ipv6_network_is_one_peer_and_the_table_is_bounded() {
        let limit = FailureLimit::default();
        for host in 1..=BURST {
            limit.count(ip(&format!("2001:db8::{host:x}")));
        }
        assert!(limit.wait(ip("2001:db8::ffff:1")).is_some());
        assert!(limit.wait(ip("2001:db8:0:1::1")).is_none());
        for n in 0..CAPACITY as u32 {
            limit.count(std::net::Ipv4Addr::from_bits(n).into());
        }
        assert_eq!(limit.forgotten_at.lock().len(), CAPACITY);
        assert!(limit.wait(ip("2001:db8::1")).is_some(), "who guesses most is kept");
    }
}
