//! Drains, and slots that move to another node.

use super::*;

#[tokio::test]
async fn a_drained_node_flushes_and_forwards_everything() {
    let shared = Arc::<SharedRow>::default();
    let nodes = nodes(2, &shared, TIMEOUT).await;
    settled(&nodes).await;
    // The responses of some changes are lost.
    shared.lost.store(2, Ordering::Relaxed);
    let flushes = nodes[1].log.flushes.load(Ordering::Relaxed);
    assert!(nodes[1].slots.drain(TIMEOUT).await.unwrap());
    assert!(nodes[1].log.flushes.load(Ordering::Relaxed) >= flushes + 3);
    assert!(nodes[1].slots.is_draining() && !nodes[1].writes.maintenance().health().is_empty());
    nodes[1].writes.put(&table(), batch(0..50, b"1")).await.unwrap();
    for series in 0..50 {
        assert_eq!(holders(&nodes, series).await, [1]);
    }
    // The first node's commits are later than all commits of the second node.
    assert!(nodes[0].log.last_commit_ms() > 200);
    assert!(!nodes[0].slots.drain(Duration::from_millis(50)).await.unwrap(), "it is alone");
    nodes[0].writes.put(&table(), batch(0..50, b"2")).await.unwrap();
    assert_eq!(stored(&nodes[0], 7).await, Some(Bytes::from_static(b"2")));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_read_who_owns_the_slots_is_not_ready() {
    let shared = Arc::<SharedRow>::default();
    shared.is_unreachable.store(true, Ordering::Relaxed);
    let nodes = nodes(1, &shared, TIMEOUT).await;
    let ForwardNode { slots, writes, .. } = &nodes[0];
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(
        slots.problem().is_some() && writes.maintenance().health().is_empty(),
        "it has just begun"
    );
    tokio::time::sleep(Duration::from_secs(5)).await;
    let problem = writes.maintenance().health().remove(0);
    assert_eq!(problem.impact, tsd_storage::HealthImpact::WritesRejected);
    assert!(problem.reason.contains("its region is gone"), "{problem:?}");
    shared.is_unreachable.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(1)).await;
    settled(&nodes).await;
    assert!(slots.problem().is_none() && writes.maintenance().health().is_empty());
    // Later the node uses the assignment that it knows.
    shared.is_unreachable.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(slots.problem().is_some() && writes.maintenance().health().is_empty());
}

/// Waits until the assignment has these nodes as leaving.
async fn leaving(row: &SharedRow, expected: &[u64]) {
    let is_so = || {
        let assignment = row.assignment.lock();
        assignment.as_ref().is_some_and(|of| of.leaving.iter().eq(expected))
    };
    let until = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, until).await.unwrap();
}

#[tokio::test]
async fn a_drain_in_vain_is_taken_back() {
    let shared = Arc::<SharedRow>::default();
    let nodes = nodes(1, &shared, TIMEOUT).await;
    settled(&nodes).await;
    let ForwardNode { slots, writes, .. } = &nodes[0];
    assert!(!slots.drain(TIMEOUT).await.unwrap(), "it is alone");
    assert!(!slots.is_draining() && writes.maintenance().health().is_empty());
    leaving(&shared, &[]).await;
    // A dropped call takes the drain back, too.
    let dropped = Arc::clone(slots);
    nodes[0].log.hangs.store(true, Ordering::Relaxed);
    let drain = tokio::spawn(async move { dropped.drain(TIMEOUT).await });
    leaving(&shared, &[1]).await;
    assert!(slots.is_draining());
    drain.abort();
    assert!(drain.await.unwrap_err().is_cancelled() && !slots.is_draining());
    leaving(&shared, &[]).await;
    // Before a stop it is final.
    nodes[0].log.hangs.store(false, Ordering::Relaxed);
    assert!(!slots.drain_to_stop(TIMEOUT).await.unwrap());
    assert!(!slots.drain(TIMEOUT).await.unwrap());
    assert!(slots.is_draining());
    leaving(&shared, &[1]).await;
}

#[tokio::test]
async fn slots_move_only_after_the_log_is_trimmed() {
    let shared = Arc::<SharedRow>::default();
    let nodes = nodes(2, &shared, TIMEOUT).await;
    settled(&nodes).await;
    shared.is_untrimmed.store(true, Ordering::Relaxed);
    let owned = nodes[1].slots.counts().owned;
    assert!(!nodes[1].slots.drain(Duration::from_secs(1)).await.unwrap());
    assert_eq!(nodes[1].slots.counts().owned, owned);
    shared.is_untrimmed.store(false, Ordering::Relaxed);
    assert!(nodes[1].slots.drain(Duration::from_mins(1)).await.unwrap());
}

#[tokio::test]
async fn a_release_waits_for_the_writes_in_progress() {
    let shared = Arc::<SharedRow>::default();
    let nodes = nodes(2, &shared, TIMEOUT).await;
    settled(&nodes).await;
    let series = series_of(&shared, 2);
    nodes[1].store.script(Operation::Put, [Fault::Delay(Duration::from_millis(700))]);
    let writes = Arc::clone(&nodes[1].writes);
    let write = tokio::spawn(async move { writes.put(&table(), batch([series], b"old")).await });
    while !nodes[1].store.is_used_up(Operation::Put) {
        tokio::task::yield_now().await;
    }
    let slots = Arc::clone(&nodes[1].slots);
    let drain = tokio::spawn(async move { slots.drain(TIMEOUT).await });
    let other = Arc::clone(&nodes[0].writes);
    let late = tokio::spawn(async move { other.put(&table(), batch([series], b"new")).await });
    assert!(drain.await.unwrap().unwrap());
    assert!(write.is_finished(), "the slot was given away with a write in progress");
    write.await.unwrap().unwrap();
    late.await.unwrap().unwrap();
    assert_eq!(stored(&nodes[1], series).await, Some(Bytes::from_static(b"old")));
    assert_eq!(stored(&nodes[0], series).await, Some(Bytes::from_static(b"new")));
}
