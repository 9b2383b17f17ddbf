//! What a node that joins asks of those that are alive, before it serves.
//!
//! A live node connects back to the address that the joining one has published: an address that others cannot
//! reach would make every read wait for a node that answers nobody. And clocks are compared ([`crate::clocks`]).
//! A node that does not answer has no say: whether it is alive is decided in the log table.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::Instant;
use tsd_cluster::{Member, MemberState};

use crate::{
    client::PeerClient,
    clocks::{ClockOffset, ahead_of_median, is_skewed},
    config::{NetConfig, NodeIdentity},
    error::PeerError,
    peers::{Peers, now_ms},
};

/// How long a live node tries to connect back, in times that one connection may take.
pub(crate) const DIAL_BACK_LIMIT: u32 = 5;
/// How long its answer is waited for, in such times.
const ANSWER_LIMIT: u32 = 7;

/// Why a node must not join.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmissionError {
    /// A live node cannot connect to it.
    #[error("node {by} cannot reach this one at {address}: {reason}")]
    Unreachable {
        /// Where this node says that it is.
        address: String,
        /// The live node.
        by: String,
        /// Why not.
        reason: String,
    },
    /// It and a live node do not agree on encryption, or on certificates.
    #[error("node {by}: {error}")]
    Tls {
        /// The live node.
        by: String,
        /// What is wrong.
        error: PeerError,
    },
    /// Its clock differs from those of the others.
    #[error(
        "the clock differs from the median of {nodes} other nodes by {} ms: it shows {own_ms}, and theirs \
         {}, milliseconds since 1970", ahead_ms.unsigned_abs(), own_ms - ahead_ms
    )]
    Clock {
        /// How far it is ahead; negative if it is behind.
        ahead_ms: i64,
        /// What it shows, epoch milliseconds.
        own_ms: i64,
        /// Number of the others.
        nodes: usize,
    },
}

/// What a live node has said to a joining one.
struct LiveAnswer {
    by: String,
    offset: Result<ClockOffset, PeerError>,
    reached: Result<(), PeerError>,
}

/// Asks the live nodes whether a node at `address` may join. They note a refusal in their logs.
///
/// # Errors
///
/// If it must not.
pub async fn admit(peers: &Peers, address: &str, max_skew: Duration) -> Result<(), AdmissionError> {
    let mut others = peers.others();
    others.retain(|member| member.state == MemberState::Serving);
    let limit = peers.config().connect_timeout * ANSWER_LIMIT;
    let ask = |member: Member| async move {
        let client = peers.client(&member);
        let (offset, reached) = tokio::join!(
            peers.clock_offset(&member, limit),
            client.dial_back(address, Instant::now() + limit),
        );
        LiveAnswer { by: member.name, offset, reached }
    };
    let answers = join_all(others.iter().cloned().map(ask)).await;
    let judged = judge(&answers, address, max_skew);
    if let Err(error) = &judged {
        note_refusal(peers.identity(), peers.config(), &others, &error.to_string()).await;
    }
    judged
}

fn judge(answers: &[LiveAnswer], address: &str, max_skew: Duration) -> Result<(), AdmissionError> {
    for LiveAnswer { by, reached, .. } in answers {
        match reached {
            Ok(()) => {}
            Err(PeerError::Failed(reason)) => {
                let (by, reason) = (by.clone(), reason.to_string());
                return Err(AdmissionError::Unreachable {
                    address: address.to_owned(),
                    by,
                    reason,
                });
            }
            Err(error @ PeerError::Tls { .. }) => {
                return Err(AdmissionError::Tls { by: by.clone(), error: error.clone() });
            }
            Err(error) => {
                tracing::warn!(node = by, %error, "a node has not said whether it reaches this one");
            }
        }
    }
    let known = answers.iter().filter_map(|answer| answer.offset.as_ref().ok().copied());
    let known: Vec<ClockOffset> = known.collect();
    let ahead_ms = ahead_of_median(&known);
    if is_skewed(ahead_ms, max_skew) {
        return Err(AdmissionError::Clock { ahead_ms, own_ms: now_ms(), nodes: known.len() });
    }
    Ok(())
}

/// Has nodes that are alive note in their logs why this one does not join.
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
                tracing::debug!(%error, "a node does not know that this one has not joined");
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

    /// A node that joins beside two others; the clock of the first is off by this.
    async fn join(ahead_ms: i64, reachable: bool) -> Result<(), AdmissionError> {
        let others = [FakeNode::start(2, patient()).await, FakeNode::start(3, patient()).await];
        for other in &others {
            other.control.set_clock_ahead(ahead_ms);
        }
        let joining = FakeNode::start(4, patient()).await;
        let membership = FakeMembership::new(4);
        let members = others.iter().map(FakeNode::member).chain([member(4, "")]);
        *membership.members.lock().unwrap() = members.collect();
        let membership: Arc<dyn Membership> = membership;
        let peers = Peers::new(identity(4), patient(), membership);
        let address =
            if reachable { joining.member().address.unwrap() } else { "127.0.0.1:1".into() };
        let admitted = admit(&peers, &address, SKEW).await;
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
    async fn an_address_that_others_do_not_reach_is_refused() {
        let error = join(0, false).await.unwrap_err();
        let AdmissionError::Unreachable { address, by, reason } = &error else { panic!("{error}") };
        assert_eq!((address.as_str(), by.as_str()), ("127.0.0.1:1", "node2"));
        assert!(reason.contains("refused"), "{reason}");
    }
}
