//! Admission of a joining node by the live nodes, before it serves.
//!
//! Each live node dials back: it connects to the address that the joining node has published. If other nodes
//! could not reach that address, every read would wait for a node that responds to nobody. The nodes also compare
//! their clocks ([`crate::clocks`]). A node that does not respond is ignored, because the log table decides
//! whether it is alive.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::Instant;
use tsd_cluster::{Member, MemberState};

use crate::{
    client::PeerClient,
    clock_offset::{ClockOffset, ahead_of_median, is_skewed},
    config::{NetConfig, NodeIdentity},
    error::PeerError,
    peers::{Peers, now_ms},
};

/// How long a live node dials back, in multiples of the connect timeout.
pub(crate) const DIAL_BACK_LIMIT: u32 = 5;
/// How long the joining node waits for the response, in multiples of the connect timeout.
const RESPONSE_LIMIT: u32 = 7;

/// Why a node must not join.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmissionError {
    /// A live node cannot connect to the joining node.
    #[error("node {by} cannot reach this one at {address}: {reason}")]
    Unreachable {
        /// The published address of this node.
        address: String,
        /// The live node.
        by: String,
        /// The reason.
        reason: String,
    },
    /// The joining and a live node disagree on encryption or certificates.
    #[error("node {by}: {error}")]
    Tls {
        /// The live node.
        by: String,
        /// The error.
        error: PeerError,
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

/// Response of a live node to a joining node.
struct LiveResponse {
    by: String,
    offset: Result<ClockOffset, PeerError>,
    reached: Result<(), PeerError>,
}

/// Asks the live nodes whether a node at `address` may join. They log a refusal.
///
/// # Errors
///
/// If it must not join.
pub async fn admit(peers: &Peers, address: &str, max_skew: Duration) -> Result<(), AdmissionError> {
    let mut others = peers.others();
    others.retain(|member| member.state == MemberState::Serving);
    let limit = peers.config().connect_timeout * RESPONSE_LIMIT;
    let ask = |member: Member| async move {
        let client = peers.client(&member);
        let (offset, reached) = tokio::join!(
            peers.clock_offset(&member, limit),
            client.dial_back(address, Instant::now() + limit),
        );
        LiveResponse { by: member.name, offset, reached }
    };
    let responses = join_all(others.iter().cloned().map(ask)).await;
    let judged = judge(&responses, address, max_skew);
    if let Err(error) = &judged {
        note_refusal(peers.identity(), peers.config(), &others, &error.to_string()).await;
    }
    judged
}

fn judge(
    responses: &[LiveResponse],
    address: &str,
    max_skew: Duration,
) -> Result<(), AdmissionError> {
    for LiveResponse { by, reached, .. } in responses {
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
                tracing::warn!(node = by, %error, "a node did not answer whether it reaches this one");
            }
        }
    }
    let known = responses.iter().filter_map(|response| response.offset.as_ref().ok().copied());
    let known: Vec<ClockOffset> = known.collect();
    let ahead_ms = ahead_of_median(&known);
    if is_skewed(ahead_ms, max_skew) {
        return Err(AdmissionError::Clock { ahead_ms, own_ms: now_ms(), nodes: known.len() });
    }
    Ok(())
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
        let others = [FakeNode::start(2, patient()).await, FakeNode::start(3, patient()).await];
        for other in &others {
            other.control.set_clock_ahead(ahead_ms);
        }
        let joining = FakeNode::start(4, patient()).await;
        let membership = FakeMembership::new(4);
        let members = others.iter().map(FakeNode::member).chain([member(4, "")]);
        *membership.members.lock() = members.collect();
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
