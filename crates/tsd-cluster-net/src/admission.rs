//! Admission of a joining node, before it serves.
//!
//! The node first reaches itself at its published address. Then it and each other node connect to each other: all
//! members, and the nodes that join and are older; with fewer than two members all nodes that join. If others could
//! not reach that address, every read would wait for a node that responds to nobody. The same exchange compares the
//! clocks ([`crate::clocks`]).
//!
//! If a link is broken, the rule of [`tsd_cluster::unreachable_nodes`] says which of its ends does not join. The node
//! waits some seconds for what the others report: the fault may be on the other side.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tsd_cluster::{Member, MemberState};

use crate::{
    client::PeerClient,
    clock_offset::{ClockOffset, ahead_of_median, is_skewed},
    config::{NetConfig, NodeIdentity},
    error::PeerError,
    links::LinkWatch,
    peers::{Peers, now_ms},
    reach::reach,
};

/// How long another node dials back, in multiples of the connect timeout.
pub(crate) const DIAL_BACK_LIMIT: u32 = 2;
/// How long the joining node waits for the response, in multiples of the connect timeout.
const RESPONSE_LIMIT: u32 = 3;
/// Time after which a node gives up if a link is broken all along. A node that waited longer would be asked to flush by
/// every delete, and would not answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// Pause between two looks at the other nodes.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// Why a node must not join.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmissionError {
    /// A node cannot connect to the joining node.
    #[error("node {by} cannot reach this one at {address}: {reason}")]
    Unreachable {
        /// The published address of this node.
        address: String,
        /// The other node, or this one.
        by: String,
        /// The reason.
        reason: String,
    },
    /// The joining node cannot connect to another node.
    #[error("this node cannot reach node {node}: {reason}")]
    CannotReach {
        /// The other node.
        node: String,
        /// The reason, with the address.
        reason: String,
    },
    /// The joining and another node disagree on encryption or certificates.
    #[error("node {by}: {error}")]
    Tls {
        /// The other node.
        by: String,
        /// The error.
        error: PeerError,
    },
    /// The joining node accepts fewer connections than the other nodes need.
    #[error(
        "tsd.cluster.max_connections is {limit}; with {nodes} nodes it must be at least {}", 2 * nodes
    )]
    Connections {
        /// Number of connections that the node accepts.
        limit: usize,
        /// Number of nodes, with the joining one.
        nodes: usize,
    },
    /// The clock of the joining node differs from the clocks of the others.
    #[error(
        "the clock differs from the median of {nodes} other nodes by {} ms: it shows {own_ms}, and theirs \
         {}, milliseconds since 1970", ahead_ms.unsigned_abs(), own_ms - ahead_ms
    )]
    Clock {
        /// How far the clock is ahead, milliseconds; negative if it is behind.
        ahead_ms: i64,
        /// The time that it shows, epoch milliseconds.
        own_ms: i64,
        /// Number of the other nodes.
        nodes: usize,
    },
}

/// Conditions of an admission.
#[derive(Clone, Debug)]
pub struct AdmissionConfig {
    /// The published address of this node.
    pub address: String,
    /// How far the clock may differ from the median of the others.
    pub max_skew: Duration,
    /// For a node that was removed: how long its links must have held.
    pub held_for: Option<Duration>,
}

/// A node that joins.
struct Joiner<'a> {
    peers: &'a Peers,
    links: &'a LinkWatch,
    config: AdmissionConfig,
    /// Response of each node that was asked.
    asked: BTreeMap<u64, Exchange>,
    /// Since when no link is broken.
    good_since: Option<Instant>,
}

/// What this node and another one have found out by connecting to each other.
struct Exchange {
    by: String,
    offset: Result<ClockOffset, PeerError>,
    reached: Result<(), PeerError>,
}

impl Exchange {
    const fn is_good(&self) -> bool {
        self.offset.is_ok() && self.reached.is_ok()
    }

    /// Returns what is wrong with the link.
    fn error(&self, address: &str) -> Option<AdmissionError> {
        let by = self.by.clone();
        match (&self.reached, &self.offset) {
            (Err(error @ PeerError::Tls { .. }), _) | (_, Err(error @ PeerError::Tls { .. })) => {
                Some(AdmissionError::Tls { by, error: error.clone() })
            }
            (Err(PeerError::Failed(reason)), _) => {
                let (address, reason) = (address.to_owned(), reason.to_string());
                Some(AdmissionError::Unreachable { address, by, reason })
            }
            (Err(error), _) | (_, Err(error)) => {
                Some(AdmissionError::CannotReach { node: by, reason: error.to_string() })
            }
            (Ok(()), Ok(_)) => None,
        }
    }
}

/// Waits until this node may join. The other nodes log a refusal.
///
/// # Errors
///
/// If it must not join.
pub async fn admit(
    peers: &Peers,
    links: &LinkWatch,
    config: AdmissionConfig,
) -> Result<(), AdmissionError> {
    let asked = BTreeMap::new();
    let mut joiner = Joiner { peers, links, config, asked, good_since: None };
    let admitted = joiner.admit().await;
    links.forget_connects();
    if let Err(error) = &admitted {
        let others = peers.membership().to_reach();
        note_refusal(peers.identity(), peers.config(), &others, &error.to_string()).await;
    }
    admitted
}

impl Joiner<'_> {
    async fn admit(&mut self) -> Result<(), AdmissionError> {
        self.reach_itself().await?;
        let mut last_good = Instant::now();
        loop {
            // If HBase does not respond, the last look counts. No node is admitted without a later heartbeat.
            let limit = self.peers.config().connect_timeout;
            let looked = self.peers.look(Instant::now() + limit).await.is_ok();
            self.check_connections()?;
            let others = self.peers.membership().to_reach();
            self.exchange(&others).await;
            self.check_clock()?;
            let error = self.broken_link(&others)?;
            let is_good = error.is_none() && looked;
            if is_good {
                last_good = Instant::now();
                let since = *self.good_since.get_or_insert(last_good);
                // Without a member that stays, nobody would serve meanwhile.
                let held_for = self.config.held_for.filter(|_| self.has_members(&others));
                if since.elapsed() >= held_for.unwrap_or_default() {
                    return Ok(());
                }
            } else {
                self.good_since = None;
            }
            match error {
                Some(error) if last_good.elapsed() >= PATIENCE => return Err(error),
                _ => sleep(LOOK_PAUSE).await,
            }
        }
    }

    /// True if one of the nodes serves and does not have to go.
    fn has_members(&self, others: &[Member]) -> bool {
        let going = self.peers.membership().unreachable(&self.links.unreached());
        others.iter().any(|member| {
            member.state == MemberState::Serving && !going.contains(&member.incarnation)
        })
    }

    /// Connects to this node at its published address.
    async fn reach_itself(&self) -> Result<(), AdmissionError> {
        let (this, net) = (self.peers.identity(), self.peers.config());
        let address = &self.config.address;
        let deadline = Instant::now() + net.connect_timeout * RESPONSE_LIMIT;
        let by = || this.name.clone();
        match reach(address, this.incarnation, this, net, deadline).await {
            Ok(()) => Ok(()),
            Err(error @ PeerError::Tls { .. }) => Err(AdmissionError::Tls { by: by(), error }),
            Err(error) => {
                let (address, reason) = (address.clone(), error.to_string());
                Err(AdmissionError::Unreachable { address, by: by(), reason })
            }
        }
    }

    /// Connects to the nodes, and lets them connect to this one, unless that has succeeded before.
    async fn exchange(&mut self, others: &[Member]) {
        let limit = self.peers.config().connect_timeout * RESPONSE_LIMIT;
        let (peers, address) = (self.peers, &self.config.address);
        let ask = |member: Member| async move {
            let client = peers.client(&member);
            let (offset, reached) = tokio::join!(
                peers.clock_offset(&member, limit),
                client.dial_back(address, Instant::now() + limit),
            );
            (member.incarnation, Exchange { by: member.name, offset, reached })
        };
        let is_left = |other: &&Member| {
            self.asked.get(&other.incarnation).is_none_or(|exchange| !exchange.is_good())
        };
        let left: Vec<Member> = others.iter().filter(is_left).cloned().collect();
        for (node, exchange) in join_all(left.into_iter().map(ask)).await {
            let connects = !matches!(exchange.reached, Err(PeerError::Failed(_)));
            self.links.note_connects(node, connects);
            self.asked.insert(node, exchange);
        }
    }

    /// Each node connects to each other one, and replaces a connection before the former one has ended.
    fn check_connections(&self) -> Result<(), AdmissionError> {
        let mut members = self.peers.membership().members();
        members.retain(|member| member.state != MemberState::Left);
        let (limit, nodes) = (self.peers.config().max_connections, members.len());
        if limit < 2 * nodes {
            return Err(AdmissionError::Connections { limit, nodes });
        }
        Ok(())
    }

    fn check_clock(&self) -> Result<(), AdmissionError> {
        let known = self.asked.values().filter_map(|exchange| exchange.offset.as_ref().ok());
        let known: Vec<ClockOffset> = known.copied().collect();
        let ahead_ms = ahead_of_median(&known);
        if is_skewed(ahead_ms, self.config.max_skew) {
            return Err(AdmissionError::Clock { ahead_ms, own_ms: now_ms(), nodes: known.len() });
        }
        Ok(())
    }

    /// Returns the broken link for which this node must not join now; `None` if all others are reached, or those go
    /// that are not. Fails if waiting does not help.
    fn broken_link(&self, others: &[Member]) -> Result<Option<AdmissionError>, AdmissionError> {
        let of = |member: &Member| self.asked.get(&member.incarnation);
        let is_broken = |member: &&Member| of(member).is_none_or(|exchange| !exchange.is_good());
        let mut unreached: BTreeSet<u64> =
            others.iter().filter(is_broken).map(|member| member.incarnation).collect();
        unreached.extend(self.links.unreached());
        let going = self.peers.membership().unreachable(&unreached);
        let this = self.peers.identity().incarnation;
        let mut error = None;
        for member in others.iter().filter(|member| !going.contains(&member.incarnation)) {
            let found = of(member).and_then(|exchange| exchange.error(&self.config.address));
            match found {
                Some(error @ AdmissionError::Tls { .. }) => return Err(error),
                found => error = error.or(found),
            }
        }
        if error.is_none() && going.contains(&this) {
            error = Some(self.reported_link(others, &going));
        }
        Ok(error)
    }

    /// Returns the error for a link that another node reports as broken.
    fn reported_link(&self, others: &[Member], going: &BTreeSet<u64>) -> AdmissionError {
        let this = self.peers.identity().incarnation;
        let stays = |member: &&Member| !going.contains(&member.incarnation);
        let reports = others.iter().filter(stays).find(|member| member.unreached.contains(&this));
        if let Some(member) = reports {
            let (address, by) = (self.config.address.clone(), member.name.clone());
            return AdmissionError::Unreachable {
                address,
                by,
                reason: "it gets no response".to_owned(),
            };
        }
        let other = others.iter().find(stays).or(others.first());
        let node = other.map_or_else(|| "that joins, too".to_owned(), |of| of.name.clone());
        AdmissionError::CannotReach { node, reason: "no response in a second".to_owned() }
    }
}

/// Makes live nodes log why this node does not join.
pub async fn note_refusal(
    this: &Arc<NodeIdentity>,
    config: &NetConfig,
    others: &[Member],
    reason: &str,
) {
    let note = |member: &Member| {
        let address = member.address.as_deref().unwrap_or_default();
        let client = PeerClient::new(address, member.incarnation, Arc::clone(this), config.clone());
        async move {
            let deadline = Instant::now() + config.connect_timeout;
            if let Err(error) = client.note_refusal(reason, deadline).await {
                tracing::debug!(%error, "cannot tell a node that this one did not join");
            }
        }
    };
    join_all(others.iter().map(note)).await;
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tsd_cluster::Membership;

    use super::*;
    use crate::fakes::{FakeMembership, FakeNode, identity, member, patient};

    const SKEW: Duration = Duration::from_millis(500);

    /// Lets a node join two others whose clocks are ahead by `ahead_ms`.
    async fn join(ahead_ms: i64, reachable: bool) -> Result<(), AdmissionError> {
        join_with(ahead_ms, reachable, patient()).await
    }

    async fn join_with(
        ahead_ms: i64,
        reachable: bool,
        config: NetConfig,
    ) -> Result<(), AdmissionError> {
        let others = [FakeNode::start(2, patient()).await, FakeNode::start(3, patient()).await];
        for other in &others {
            other.control.set_clock_ahead(ahead_ms);
        }
        let joining = FakeNode::start(4, patient()).await;
        let membership = FakeMembership::new(4);
        let members = others.iter().map(FakeNode::member).chain([member(4, "")]);
        *membership.members.lock() = members.collect();
        let membership: Arc<dyn Membership> = membership;
        let peers = Peers::new(identity(4), config, membership);
        let address =
            if reachable { joining.member().address.unwrap() } else { "127.0.0.1:1".into() };
        let peers = Arc::new(peers);
        let links = LinkWatch::start(Arc::clone(&peers));
        let config = AdmissionConfig { address, max_skew: SKEW, held_for: None };
        let admitted = admit(&peers, &links, config).await;
        let noted: Vec<String> =
            others.iter().flat_map(|other| other.control.noted_refusals()).collect();
        let expected = admitted.as_ref().err().map(|error| vec![error.to_string(); 2]);
        assert_eq!(noted, expected.unwrap_or_default());
        admitted
    }

    #[tokio::test]
    async fn a_node_that_is_reached_and_whose_clock_agrees_joins() {
        join(0, true).await.unwrap();
    }

    #[tokio::test]
    async fn a_clock_that_differs_is_refused_with_both_times() {
        let error = join(60_000, true).await.unwrap_err();
        let AdmissionError::Clock { ahead_ms, own_ms, nodes } = error else { panic!("{error}") };
        assert!((-60_000..-50_000).contains(&ahead_ms), "{ahead_ms}");
        assert_eq!(nodes, 2);
        let text = error.to_string();
        assert!(text.contains(&own_ms.to_string()), "{text}");
        assert!(text.contains(&(own_ms - ahead_ms).to_string()), "{text}");
    }

    #[tokio::test]
    async fn a_node_accepts_at_least_twice_as_many_connections_as_there_are_nodes() {
        join_with(0, true, NetConfig { max_connections: 6, ..patient() }).await.unwrap();
        let few = NetConfig { max_connections: 5, ..patient() };
        let error = join_with(0, true, few).await.unwrap_err();
        let expected = "tsd.cluster.max_connections is 5; with 3 nodes it must be at least 6";
        assert_eq!(error.to_string(), expected);
    }

    #[tokio::test]
    async fn an_address_that_others_do_not_reach_is_refused() {
        let error = join(0, false).await.unwrap_err();
        let AdmissionError::Unreachable { address, by, reason } = &error else { panic!("{error}") };
        assert_eq!((address.as_str(), by.as_str()), ("127.0.0.1:1", "node4"), "not even itself");
        assert!(reason.contains("refused"), "{reason}");
    }
}
