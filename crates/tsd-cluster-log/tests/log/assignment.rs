//! The assignment of slots in the log table: changes compare its revision, and nodes read the body only after a change.

use std::{sync::Arc, time::Duration};

use hbase_fake::{FaultKind, InjectedFault};
use tsd_cluster::{Assignment, Slot, SlotOwner, SlotTable};

use crate::node::World;

fn next_of(current: &Assignment, writer: u64, owner: u64) -> Assignment {
    let mut next = current.next_generation(writer, 7);
    for slot in Slot::all() {
        next.set(slot, SlotOwner { owner: Some(owner), next: None });
    }
    next
}

#[tokio::test(flavor = "multi_thread")]
async fn the_body_is_read_only_after_a_change_and_one_change_of_a_revision_wins() {
    let world = World::start().await;
    let a = world.open().await;
    let unknown = Arc::<Assignment>::default();
    assert_eq!(a.log.assignment(Arc::clone(&unknown)).await.unwrap(), None);

    let first = next_of(&unknown, 1, 5);
    assert!(a.log.swap_assignment(None, &first).await.unwrap());
    assert!(!a.log.swap_assignment(None, &next_of(&unknown, 2, 6)).await.unwrap());
    let known = a.log.assignment(unknown).await.unwrap().unwrap();
    assert_eq!(*known, first);
    let again = a.log.assignment(Arc::clone(&known)).await.unwrap().unwrap();
    assert!(Arc::ptr_eq(&again, &known), "its revision is known");

    // Another writer's change of the same generation has another revision.
    let (one, other) = (next_of(&first, 1, 8), next_of(&first, 2, 9));
    assert!(a.log.swap_assignment(Some(first.revision()), &other).await.unwrap());
    assert!(!a.log.swap_assignment(Some(first.revision()), &one).await.unwrap());
    let found = a.log.assignment(Arc::new(one)).await.unwrap().unwrap();
    assert_eq!(*found, other);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_executed_late_is_void() {
    let world = World::repeating_after(Duration::from_millis(300)).await;
    let a = world.open().await;
    let first = next_of(&Assignment::default(), 1, 5);
    assert!(a.log.swap_assignment(None, &first).await.unwrap());
    for _ in 0..5 {
        let current = a.log.assignment(Arc::default()).await.unwrap().unwrap();
        let second = next_of(&current, 1, 6);
        // Its answer is lost, and it is repeated.
        world.cluster.inject(InjectedFault::once("Mutate", FaultKind::Late));
        let mut swapped = a.log.swap_assignment(Some(current.revision()), &second).await;
        if swapped.is_err() {
            swapped = a.log.swap_assignment(Some(current.revision()), &second).await;
        }
        assert!(swapped.unwrap());
        let third = next_of(&second, 2, 7);
        assert!(a.log.swap_assignment(Some(second.revision()), &third).await.unwrap());
        world.cluster.execute_late_calls();
        let found = a.log.assignment(Arc::default()).await.unwrap().unwrap();
        assert_eq!(*found, third);
    }
}
