//! Watches whether this node reaches the other nodes, and shows them the ones that it does not reach.
//!
//! Up to 32 other nodes, each is asked for a sign of life twice a second, by a connection to its published address. A node
//! that has given none for a second is unreached. Of more nodes, 32 are asked each time: first those that did not respond
//! to the last probe or request, then those whose last sign of life is the oldest. If more than 16 do not respond, all are
//! asked. So a node to which this one sends requests is noticed as soon as in a small cluster, and a node without requests
//! after at most n / 64 s more. Any response counts as a sign of life. Only time in which this node itself runs counts: on a
//! machine that gives
//! it no processor, responses wait in its sockets. The oldest node decides who has to leave when a link stays broken
//! ([`tsd_cluster::unreachable_nodes`]).

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;
use tsd_cluster::{Member, MemberState};

use crate::peers::Peers;

/// Time between two probes of a node.
const INTERVAL: Duration = Duration::from_millis(500);
/// Time without a response after which a node is unreached, and the limit of a probe.
const SILENCE: Duration = Duration::from_secs(1);
/// Number of nodes that are probed in an interval.
const PROBES: usize = 32;
/// How late a tick may be before the time since the last one does not count as silence.
const LATE: Duration = Duration::from_millis(250);

/// Probes all other nodes, until it is dropped.
#[derive(Debug)]
pub struct LinkWatch {
    links: Arc<Links>,
    _watching: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Links {
    peers: Arc<Peers>,
    known: Mutex<BTreeMap<u64, LinkState>>,
    /// Nodes that cannot connect to this one, as they have said themselves.
    cannot_connect: Mutex<BTreeSet<u64>>,
}

/// What is known about the link to a node.
#[derive(Clone, Copy, Debug)]
struct LinkState {
    /// Time of the last response. At first, when the node became known.
    heard_at: Instant,
    /// Start of the first probe since then.
    unanswered_since: Option<Instant>,
    /// Start of the last probe.
    probed_at: Option<Instant>,
    is_probed: bool,
}

impl LinkState {
    const fn new(now: Instant) -> Self {
        Self { heard_at: now, unanswered_since: None, probed_at: None, is_probed: false }
    }

    fn heard(&mut self, at: Instant) {
        self.heard_at = self.heard_at.max(at);
        self.unanswered_since.take_if(|since| *since <= at);
    }

    fn begin_probe(&mut self, now: Instant) {
        self.is_probed = true;
        self.probed_at = Some(now);
        self.unanswered_since.get_or_insert(now);
    }

    /// True if probes have had no response for a while. A node that was not probed is not silent.
    fn is_silent(&self, now: Instant) -> bool {
        self.unanswered_since.is_some_and(|since| {
            let silent_since = self.heard_at.max(since - INTERVAL);
            now.saturating_duration_since(silent_since) > SILENCE
        })
    }

    /// True if the last request, or probe, has had no response for an interval.
    fn is_doubtful(&self, asked_at: Option<Instant>, now: Instant) -> bool {
        let is_unanswered = asked_at.is_some_and(|asked_at| asked_at > self.heard_at);
        is_unanswered && now.saturating_duration_since(self.heard_at) >= INTERVAL
    }
}

/// A node that may be probed now.
#[derive(Clone, Copy, Debug)]
struct ProbeCandidate {
    node: u64,
    is_doubtful: bool,
    /// Time of the last response or probe.
    checked_at: Instant,
}

/// Returns the nodes that are probed now.
fn chosen(mut candidates: Vec<ProbeCandidate>) -> BTreeSet<u64> {
    let doubtful = candidates.iter().filter(|of| of.is_doubtful).count();
    // Who has to leave depends on all broken links. Most of them must be found at the same time.
    if doubtful <= PROBES / 2 {
        candidates.sort_unstable_by_key(|of| (!of.is_doubtful, of.checked_at, of.node));
        candidates.truncate(PROBES);
    }
    candidates.into_iter().map(|of| of.node).collect()
}

impl LinkWatch {
    /// Starts to probe. The members learn at once which nodes are unreached.
    #[must_use]
    pub fn start(peers: Arc<Peers>) -> Self {
        let links =
            Arc::new(Links { peers, known: Mutex::default(), cannot_connect: Mutex::default() });
        let watching = tokio::spawn(watch(Arc::downgrade(&links)));
        Self { links, _watching: AbortOnDropHandle::new(watching) }
    }

    /// The nodes at the other ends of broken links.
    pub(crate) fn unreached(&self) -> BTreeSet<u64> {
        self.links.unreached()
    }

    /// Forgets which nodes cannot connect to this one, after its admission: from then on they say so themselves.
    pub(crate) fn forget_connects(&self) {
        self.links.cannot_connect.lock().clear();
        self.links.report();
    }

    /// Records whether a node can connect to this one.
    pub(crate) fn note_connects(&self, node: u64, connects: bool) {
        let mut cannot_connect = self.links.cannot_connect.lock();
        let changed =
            if connects { cannot_connect.remove(&node) } else { cannot_connect.insert(node) };
        drop(cannot_connect);
        if changed {
            self.links.report();
        }
    }
}

async fn watch(links: Weak<Links>) {
    let mut tick = interval(INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = Instant::now();
    loop {
        tick.tick().await;
        let Some(links) = links.upgrade() else { return };
        let since = std::mem::replace(&mut last, Instant::now()).elapsed();
        if since > INTERVAL + LATE {
            links.excuse(since);
        }
        for member in links.to_probe() {
            let links = Arc::downgrade(&links);
            tokio::spawn(probe(links, member));
        }
        links.report();
    }
}

async fn probe(links: Weak<Links>, member: Member) {
    let Some(client) = links.upgrade().map(|links| links.peers.client(&member)) else { return };
    let alive = client.is_alive(Instant::now() + SILENCE).await;
    let Some(links) = links.upgrade() else { return };
    if matches!(alive, Ok(true)) {
        links.peers.membership().note_other_beat();
    }
    // Responses to other requests count, too.
    let heard_at = alive.ok().map(|_| Instant::now()).or_else(|| client.heard_at());
    if let Some(state) = links.known.lock().get_mut(&member.incarnation) {
        state.is_probed = false;
        if let Some(at) = heard_at {
            state.heard(at);
        }
    }
}

impl Links {
    /// Returns the nodes to probe now, and forgets nodes that are gone.
    fn to_probe(&self) -> Vec<Member> {
        let mut others = self.peers.others();
        others.retain(has_link);
        let is_other = |node: u64| others.iter().any(|other| other.incarnation == node);
        let mut known = self.known.lock();
        known.retain(|node, _| is_other(*node));
        self.cannot_connect.lock().retain(|node| is_other(*node));
        let now = Instant::now();
        let mut candidates = Vec::new();
        for Member { incarnation: node, .. } in &others {
            let state = known.entry(*node).or_insert(LinkState::new(now));
            let client = self.peers.known_client(*node);
            client.iter().filter_map(|of| of.heard_at()).for_each(|at| state.heard(at));
            if state.is_probed {
                continue;
            }
            let asked_at = client.and_then(|client| client.asked_at());
            let is_doubtful = state.is_doubtful(asked_at, now);
            let checked_at = state.heard_at.max(state.probed_at.unwrap_or(state.heard_at));
            candidates.push(ProbeCandidate { node: *node, is_doubtful, checked_at });
        }
        let chosen = chosen(candidates);
        others.retain(|other| chosen.contains(&other.incarnation));
        for node in chosen {
            if let Some(state) = known.get_mut(&node) {
                state.begin_probe(now);
            }
        }
        others
    }

    /// Does not count a time in which this node did not run as silence of the others.
    fn excuse(&self, stood_still: Duration) {
        let now = Instant::now();
        for state in self.known.lock().values_mut() {
            state.heard_at = now.min(state.heard_at + stood_still);
            if let Some(since) = &mut state.unanswered_since {
                *since = now.min(*since + stood_still);
            }
        }
    }

    fn unreached(&self) -> BTreeSet<u64> {
        let known = self.known.lock();
        let now = Instant::now();
        let silent = known.iter().filter(|(_, state)| state.is_silent(now));
        let silent: BTreeSet<u64> = silent.map(|(node, _)| *node).collect();
        drop(known);
        silent.union(&self.cannot_connect.lock()).copied().collect()
    }

    fn report(&self) {
        self.peers.membership().report_unreached(self.unreached());
    }
}

/// True for a node that has to be reached: it has an address, and its heartbeats go on.
fn has_link(member: &Member) -> bool {
    member.address.is_some()
        && matches!(
            member.state,
            MemberState::Joining | MemberState::Serving | MemberState::Removed
        )
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use tokio::time::{sleep, timeout};
    use tsd_cluster::Membership;

    use super::*;
    use crate::fakes::{FakeMembership, FakeNode, identity, member, patient};

    /// Waits until this node shows these nodes as unreached.
    async fn reported<const N: usize>(membership: &FakeMembership, expected: [u64; N]) {
        reported_all(membership, &expected.into()).await;
    }

    async fn reported_all(membership: &FakeMembership, expected: &BTreeSet<u64>) {
        let shown = async {
            while *membership.unreached.lock() != *expected {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(30), shown).await.unwrap();
    }

    #[tokio::test]
    async fn nodes_without_a_response_are_shown_until_they_respond() {
        let membership = FakeMembership::new(1);
        let (reached, stops) =
            (FakeNode::start(2, patient()).await, FakeNode::start(3, patient()).await);
        let refuses = member(4, "127.0.0.1:1");
        let mut joins = reached.member();
        joins.state = MemberState::Joining;
        let dead = Member { state: MemberState::Suspected, ..member(5, "127.0.0.1:1") };
        *membership.members.lock() = vec![joins, stops.member(), refuses, dead, member(1, "")];
        let dyn_membership: Arc<dyn Membership> = Arc::<FakeMembership>::clone(&membership);
        let peers = Arc::new(Peers::new(identity(1), patient(), dyn_membership));
        let links = LinkWatch::start(peers);
        reported(&membership, [4]).await;
        drop(stops);
        reported(&membership, [3, 4]).await;
        assert_eq!(links.unreached(), [3, 4].into());
        links.note_connects(2, false);
        reported(&membership, [2, 3, 4]).await;
        links.note_connects(2, true);
        // Only nodes whose heartbeats go on count.
        membership.members.lock().retain(|member| member.incarnation != 3);
        reported(&membership, [4]).await;
    }

    #[test]
    fn of_many_nodes_the_doubtful_and_the_longest_unchecked_ones_are_probed() {
        let now = Instant::now();
        let candidates = |nodes: u64, doubtful: &[u64]| -> Vec<ProbeCandidate> {
            let candidate = |node: u64| ProbeCandidate {
                node,
                is_doubtful: doubtful.contains(&node),
                checked_at: now + Duration::from_millis(node),
            };
            (0..nodes).map(candidate).collect()
        };
        assert_eq!(chosen(candidates(32, &[])), (0..32).collect());
        assert_eq!(chosen(candidates(100, &[])), (0..32).collect());
        assert_eq!(chosen(candidates(100, &[7, 99])), (0..31).chain([99]).collect());
        let many: Vec<u64> = (50..67).collect();
        assert_eq!(chosen(candidates(100, &many)), (0..100).collect());
    }

    #[test]
    fn only_probed_nodes_are_silent() {
        let at = |ms: u64| Duration::from_millis(ms);
        let now = Instant::now();
        let mut state = LinkState::new(now);
        assert!(!state.is_silent(now + at(60_000)));
        assert!(!state.is_doubtful(Some(now + at(100)), now + at(400)));
        assert!(state.is_doubtful(Some(now + at(100)), now + at(500)));
        // In a small cluster the time counts from the last response.
        state.begin_probe(now + at(400));
        assert!(!state.is_silent(now + at(1_000)) && state.is_silent(now + at(1_001)));
        state.heard(now + at(1_100));
        assert!(!state.is_silent(now + at(9_000)));
        // In a large one from the probe.
        state.begin_probe(now + at(9_000));
        assert!(!state.is_silent(now + at(9_500)) && state.is_silent(now + at(9_501)));
    }

    #[tokio::test]
    async fn unreached_nodes_are_found_among_many() {
        let membership = FakeMembership::new(1);
        let reached = FakeNode::start(2, patient()).await;
        let others = (3..103).map(|node| member(node, "127.0.0.1:1"));
        *membership.members.lock() = others.chain([reached.member(), member(1, "")]).collect();
        let dyn_membership: Arc<dyn Membership> = Arc::<FakeMembership>::clone(&membership);
        let peers = Arc::new(Peers::new(identity(1), patient(), dyn_membership));
        let _links = LinkWatch::start(peers);
        let expected: BTreeSet<u64> = (3..103).collect();
        reported_all(&membership, &expected).await;
        *membership.members.lock() = vec![reached.member(), member(1, "")];
        reported(&membership, []).await;
    }
}
