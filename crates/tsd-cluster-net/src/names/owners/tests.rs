//! Nodes on loopback that ask each other for UIDs.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::atomic::Ordering;

use super::*;
use crate::forward::tests::{ForwardNode, SharedRow, nodes, settled};

const LIMIT: Duration = Duration::from_mins(1);

/// Names of different lengths.
fn names(count: usize) -> Vec<Bytes> {
    (1..=count).map(|length| Bytes::from(vec![b'a'; length])).collect()
}

fn uid(name: &Bytes) -> Option<Uid> {
    Uid::from_number(name.len() as u64, 3).ok()
}

async fn settled_nodes(count: u64) -> (Vec<ForwardNode>, Arc<SharedRow>) {
    let row = Arc::<SharedRow>::default();
    let nodes = nodes(count, &row, LIMIT).await;
    settled(&nodes).await;
    (nodes, row)
}

fn owners_of(node: &ForwardNode, limit: Duration) -> NameOwners {
    NameOwners::new(Arc::clone(&node.peers), Arc::clone(&node.slots), limit)
}

fn assigned_by(node: &ForwardNode) -> Vec<Bytes> {
    let mut names = node.control.assigned.lock().clone();
    names.sort();
    names
}

#[tokio::test]
async fn each_name_is_asked_of_the_owner_of_its_slot() {
    let (nodes, _) = settled_nodes(3).await;
    let names = names(60);
    for (number, node) in (1..).zip(&nodes) {
        let owners = owners_of(node, LIMIT);
        let uids = owners.assign(UidKind::Tagv, &names).await;
        for (name, found) in names.iter().zip(uids) {
            let owner = owners.other_owner(UidKind::Tagv, name);
            assert_ne!(owner, Some(number));
            assert_eq!(found, owner.and_then(|_| uid(name)), "{name:?}");
        }
    }
    // Each of the three was asked for its names, by the two others.
    let mut all = Vec::new();
    for node in &nodes {
        let mut asked = assigned_by(node);
        assert_eq!(asked.len() % 2, 0);
        asked.dedup();
        assert!(!asked.is_empty());
        all.extend(asked);
    }
    all.sort_by_key(Bytes::len);
    assert_eq!(all, names);
}

#[tokio::test]
async fn a_name_that_gets_no_uid_is_left_to_the_node_that_asks() {
    let (nodes, row) = settled_nodes(2).await;
    let slot = Slot::of_name("tagk", b"");
    let owner = row.assignment.lock().as_ref().unwrap().slot(slot).owner.unwrap();
    let other = &nodes[usize::from(owner == 1)];
    let owners = owners_of(other, LIMIT);
    assert_eq!(owners.other_owner(UidKind::Tagk, b""), Some(owner));
    assert_eq!(owners.assign(UidKind::Tagk, &[Bytes::new()]).await, [None]);
    // This does not count as a failure of the owner.
    assert_eq!(owners.other_owner(UidKind::Tagk, b""), Some(owner));
}

#[tokio::test]
async fn a_node_alone_asks_nobody() {
    let (nodes, _) = settled_nodes(1).await;
    let owners = owners_of(&nodes[0], LIMIT);
    assert!(names(20).iter().all(|name| owners.other_owner(UidKind::Metric, name).is_none()));
}

/// Checks that a failing owner is asked once, and then not for a while.
async fn check_failing_owner(nodes: &[ForwardNode], limit: Duration) {
    let owners = owners_of(&nodes[0], limit);
    let names = names(20);
    assert!(names.iter().any(|name| owners.other_owner(UidKind::Tagv, name).is_some()));
    for _ in 0..2 {
        assert!(owners.assign(UidKind::Tagv, &names).await.iter().all(Option::is_none));
        assert_eq!(*nodes[0].membership.suspected.lock(), [2], "it has failed once");
    }
}

#[tokio::test]
async fn an_owner_that_does_not_respond_in_time_is_not_asked_again_for_a_while() {
    let (nodes, _) = settled_nodes(2).await;
    nodes[1].control.hangs.store(true, Ordering::Relaxed);
    check_failing_owner(&nodes, Duration::from_millis(50)).await;
}

#[tokio::test]
async fn an_owner_that_is_gone_is_not_asked_again_for_a_while() {
    let (mut nodes, _) = settled_nodes(2).await;
    nodes[1].server = None;
    check_failing_owner(&nodes, LIMIT).await;
}

#[tokio::test]
async fn an_owner_that_leaves_or_is_recovered_is_not_asked() {
    let (nodes, _) = settled_nodes(2).await;
    let owners = owners_of(&nodes[0], LIMIT);
    let names = names(20);
    for member in &mut *nodes[0].membership.members.lock() {
        if member.incarnation == 2 {
            member.state = MemberState::Recovering { by: 1 };
        }
    }
    assert!(owners.assign(UidKind::Tagv, &names).await.iter().all(Option::is_none));
    assert!(assigned_by(&nodes[1]).is_empty());

    nodes[1].slots.stop();
    nodes[0].slots.stop();
    let mut leaving = (*nodes[0].slots.assignment()).clone();
    leaving.generation += 1;
    leaving.leaving.insert(2);
    nodes[0].slots.adopt(std::sync::Arc::new(leaving));
    assert!(names.iter().all(|name| owners.other_owner(UidKind::Tagv, name).is_none()));
}
