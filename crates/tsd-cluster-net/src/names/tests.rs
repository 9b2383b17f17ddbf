//! Nodes on loopback whose caches forget names.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use bytes::Bytes;
use tokio::net::TcpListener;
use tsd_cluster::{Membership, ProofError, Settlement};
use tsd_model::{Uid, UidKind};

use super::*;
use crate::fakes::{FakeMembership, FakeNode, identity, member, patient};

const LIMIT: Duration = Duration::from_mins(1);

fn renamed() -> ForgottenNames {
    let names = vec![Bytes::from_static(b"old"), Bytes::from_static(&[0xe9, 0xff])];
    ForgottenNames { kind: UidKind::Tagv, names, uids: vec![Uid::from_number(7, 3).unwrap()] }
}

/// Returns the peers of node 1.
fn peers(members: Vec<Member>) -> (Peers, Arc<FakeMembership>) {
    let membership = FakeMembership::new(1);
    let dyn_membership: Arc<dyn Membership> = Arc::<FakeMembership>::clone(&membership);
    *membership.members.lock() = members;
    (Peers::new(identity(1), patient(), dyn_membership), membership)
}

/// A node that accepts connections and never responds.
async fn silent_node(incarnation: u64) -> (TcpListener, Member) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, member(incarnation, &address))
}

#[tokio::test]
async fn all_other_nodes_forget_also_those_that_have_just_joined() {
    let [known, joined] =
        [FakeNode::start(2, patient()).await, FakeNode::start(3, patient()).await];
    let (peers, membership) = peers(vec![member(1, ""), known.member()]);
    let left = Member { state: MemberState::Left, ..member(4, "127.0.0.1:1") };
    // It has not read any names yet.
    let joining = Member { state: MemberState::Joining, ..member(5, "127.0.0.1:1") };
    let newer = vec![member(1, ""), known.member(), joined.member(), left, joining];
    *membership.newer.lock() = Some(newer);
    peers.forget(&renamed(), LIMIT).await.unwrap();
    for node in [&known, &joined] {
        assert_eq!(*node.control.forgotten.lock(), [renamed()]);
    }
}

#[tokio::test]
async fn a_node_that_is_reached_again_is_asked_again() {
    let node = FakeNode::start(2, patient()).await;
    let address = node.member().address.unwrap();
    drop(node);
    let (peers, membership) = peers(vec![member(2, &address)]);
    membership.settlement.send_replace(Some(Settlement::Serves));
    let names = renamed();
    let forgetting = peers.forget(&names, LIMIT);
    let starting = async {
        while membership.suspected.lock().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
        FakeNode::start_at(&address, 2, patient()).await
    };
    let (forgotten, node) = tokio::join!(forgetting, starting);
    forgotten.unwrap();
    assert_eq!(*node.control.forgotten.lock(), [renamed()]);
}

#[tokio::test]
async fn a_silent_node_is_waited_for_until_its_rows_are_stored() {
    let (_listener, paused) = silent_node(2).await;
    let (peers, membership) = peers(vec![paused]);
    let names = renamed();
    let forgetting = peers.forget(&names, LIMIT);
    let recovering = async {
        while membership.suspected.lock().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
        membership.settlement.send_replace(Some(Settlement::Stored));
    };
    let (forgotten, ()) = tokio::join!(forgetting, recovering);
    forgotten.unwrap();
}

#[tokio::test]
async fn a_node_that_stays_silent_is_named() {
    let responding = FakeNode::start(2, patient()).await;
    let (_listener, silent) = silent_node(3).await;
    let (peers, _membership) = peers(vec![responding.member(), silent]);
    let error = peers.forget(&renamed(), Duration::from_millis(300)).await.unwrap_err();
    assert_eq!(error.to_string(), "node node3: no answer in time");
    assert_eq!(responding.control.forgotten.lock().len(), 1);
}

#[tokio::test]
async fn without_a_list_of_the_members_nothing_is_said_to_be_forgotten() {
    let (peers, membership) = peers(vec![member(1, "")]);
    let fenced = ProofError::Fenced("taken over".to_owned());
    membership.look_fails.lock().replace(fenced);
    let error = peers.forget(&renamed(), LIMIT).await.unwrap_err();
    assert_eq!(error.to_string(), "the other nodes are not known: taken over");
}
