//! Several nodes over one log table.

use std::time::Duration;

use hbase_rs::Put;
use tokio::time::{sleep, timeout};
use tsd_cluster::{
    LEASE, LogKeys, Member, MemberState, Membership, ProofError, SLOT_TAGS, SegmentId, Settlement,
    SharedSettings, StateRow, WIRE_VERSIONS,
};
use tsd_cluster_log::{
    ClusterLogConfig, MemberVersionsError, OpenLogError, ReadProof, adopt_settings,
};
use tsd_storage::{Storage, StorageError, system_clock_ms};

use crate::node::{LogNode, NodeError, PATIENCE, World, delete, gauge, put, value, wait_until};

/// A node that sends heartbeats, and recovers dead nodes.
fn alive(name: &str) -> ClusterLogConfig {
    ClusterLogConfig {
        node: name.to_owned(),
        heartbeat: Duration::from_millis(50),
        suspect_after: Duration::from_secs(6),
        ..World::config()
    }
}

/// A node that sends one heartbeat, as if it were paused after that.
fn paused(name: &str) -> ClusterLogConfig {
    let heartbeat = Duration::from_hours(1);
    ClusterLogConfig { heartbeat, suspect_after: Duration::from_mins(10), ..alive(name) }
}

async fn open(world: &World, config: ClusterLogConfig) -> LogNode {
    world.open_with(config, system_clock_ms).await.unwrap()
}

/// Waits until the rows of a node are stored. The last change of its manifest may be seen after its end.
async fn wait_until_stored(node: &LogNode, dead: u64) {
    while node.log.settled(dead).await == Settlement::Serves {
        node.log.suspect(dead);
    }
}

fn names(node: &LogNode) -> Vec<(String, MemberState)> {
    node.log.members().into_iter().map(|member| (member.name, member.state)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_write_side_by_side_and_recover_only_themselves() {
    let world = World::start().await;
    let a = open(&world, paused("a")).await;
    let b = open(&world, paused("b")).await;
    for row in 0..20_u8 {
        put(&a.store, &[b'a', row], b"1").await.unwrap();
        put(&b.store, &[b'b', row], b"1").await.unwrap();
    }
    drop(a);
    let a = open(&world, ClusterLogConfig { suspect_after: Duration::ZERO, ..paused("a") }).await;
    assert_eq!(a.report.records, 20);
    put(&a.store, b"more", b"1").await.unwrap();
    put(&b.store, b"more of b", b"1").await.unwrap();
    for row in 0..20_u8 {
        assert_eq!(value(&a.store, &[b'a', row]).await.as_deref(), Some(&b"1"[..]));
        assert_eq!(value(&a.store, &[b'b', row]).await, None, "held by the other one");
    }
    b.store.flush().await.unwrap();
    assert_eq!(value(&a.store, &[b'b', 7]).await.as_deref(), Some(&b"1"[..]));
    assert!(a.log.prove().await.is_ok() && b.log.prove().await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_node_stores_what_a_dead_one_has_left() {
    let world = World::start().await;
    let a = open(&world, alive("a")).await;
    // The clock of this node is far behind.
    let b = world.open_with(alive("b"), || 1_000_000).await.unwrap();
    put(&a.store, b"deleted", b"1").await.unwrap();
    a.store.flush().await.unwrap();
    put(&a.store, b"held", b"1").await.unwrap();
    put(&a.store, b"held", b"2").await.unwrap();
    delete(&a.store, b"deleted").await.unwrap();
    put(&b.store, b"of b", b"1").await.unwrap();
    let dead = a.log.this();
    drop(a);
    b.log.suspect(dead);
    wait_until_stored(&b, dead).await;
    assert_eq!(value(&*world.backend, b"held").await.as_deref(), Some(&b"2"[..]));
    assert_eq!(value(&*world.backend, b"deleted").await, None);
    assert_eq!(value(&*world.backend, b"of b").await, None, "it is held");
    // Its segments are removed next, and then its manifest.
    wait_until(|| names(&b) == [("b".to_owned(), MemberState::Serving)]).await;
    // A correction is later than the recovered points, whatever the clock says.
    put(&b.store, b"held", b"3").await.unwrap();
    b.store.flush().await.unwrap();
    assert_eq!(value(&*world.backend, b"held").await.as_deref(), Some(&b"3"[..]));
    // The commit time outlasts its log, and the node that recovered it.
    drop(b);
    let next = ClusterLogConfig { suspect_after: Duration::ZERO, ..alive("b") };
    let next = world.open_with(next, || 1_000_000).await.unwrap();
    put(&next.store, b"held", b"4").await.unwrap();
    next.store.flush().await.unwrap();
    assert_eq!(value(&*world.backend, b"held").await.as_deref(), Some(&b"4"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_wakes_up_after_its_recovery_finds_out() {
    let world = World::start().await;
    let a = open(&world, paused("a")).await;
    put(&a.store, b"row", b"1").await.unwrap();
    let b = open(&world, alive("b")).await;
    // The node may still open standby segments.
    wait_until_stored(&b, a.log.this()).await;
    let proof = a.log.prove().await;
    assert!(matches!(proof, Err(ProofError::Fenced(_))), "{proof:?}");
    assert!(matches!(a.log.current().await, Err(ProofError::Fenced(_))));
    let error = put(&a.store, b"row", b"2").await.unwrap_err();
    assert!(matches!(error, StorageError::Unavailable(_)), "a sender may try another node");
    assert!(error.to_string().contains("has taken over the log"), "{error}");
    assert!(a.store.flush().await.is_err());
    assert_eq!(gauge(&a, "tsd_cluster_log_fenced"), 1);
    put(&b.store, b"row", b"3").await.unwrap();
    b.store.flush().await.unwrap();
    assert_eq!(value(&*world.backend, b"row").await.as_deref(), Some(&b"3"[..]));
    assert!(b.log.prove().await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_in_use_is_refused() {
    let world = World::start().await;
    let first = alive("a");
    let a = open(&world, first).await;
    a.log.publish_address("host:1");
    put(&a.store, b"row", b"1").await.unwrap();
    // The second node watches the first one until it sees a heartbeat.
    let (heartbeat, suspect_after) = (PATIENCE, Duration::from_mins(10));
    let second = ClusterLogConfig { heartbeat, suspect_after, ..alive("a") };
    let second = world.open_with(second, system_clock_ms).await;
    let (name, address, incarnation) = match second {
        Err(NodeError::Log(OpenLogError::NameInUse { name, address, incarnation })) => {
            (name, address, incarnation)
        }
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was opened"),
    };
    assert_eq!((name.as_str(), address.as_str(), incarnation), ("a", "host:1", a.log.this()));
    put(&a.store, b"row", b"2").await.unwrap();
    assert!(a.log.prove().await.is_ok());
    let members = a.log.current().await.unwrap();
    let serving = members.iter().filter(|member| member.state == MemberState::Serving);
    assert_eq!(serving.count(), 1);
    assert!(members.iter().all(|member| member.state != MemberState::Joining), "{members:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_listed_before_it_acknowledges_its_first_point() {
    let world = World::start().await;
    let a = open(&world, paused("a")).await;
    let b = open(&world, paused("b")).await;
    let of_b = |members: Vec<tsd_cluster::Member>| {
        members.into_iter().find(|member| member.name == "b").map(|member| member.state)
    };
    // `paused` nodes look after a heartbeat of an hour.
    let known: Vec<_> = b.log.members().into_iter().map(|member| member.name).collect();
    assert_eq!(known, ["a", "b"], "without a look of its own, and before the first heartbeat");
    assert_eq!(of_b(a.log.current().await.unwrap()), Some(MemberState::Joining));
    put(&b.store, b"row", b"1").await.unwrap();
    assert_eq!(of_b(a.log.current().await.unwrap()), Some(MemberState::Serving));
    b.store.close().await.unwrap();
    assert!(b.log.end().await.unwrap());
    assert_eq!(of_b(a.log.current().await.unwrap()), Some(MemberState::Left));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_other_settings_is_refused() {
    let world = World::start().await;
    let with = |name, buckets| ClusterLogConfig {
        shared: SharedSettings::new([("tsd.storage.salt.buckets", buckets)]),
        ..paused(name)
    };
    let a = open(&world, with("a", "20")).await;
    let other = world.open_with(with("b", "8"), system_clock_ms).await;
    let differences = match other {
        Err(NodeError::Log(OpenLogError::Settings(differences))) => differences,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was opened"),
    };
    assert_eq!(differences, ["tsd.storage.salt.buckets is 8, and 20 in the cluster"]);
    assert_eq!(a.log.current().await.unwrap().len(), 1);
    let b = open(&world, with("b", "20")).await;
    put(&b.store, b"row", b"1").await.unwrap();
}

/// Changes the settings of the cluster. `speaks` tells whether running nodes speak the new versions.
async fn adopt(
    world: &World,
    settings: [(&str, &str); 3],
    speaks: Result<(), String>,
) -> Result<Vec<String>, OpenLogError> {
    let config = ClusterLogConfig { shared: SharedSettings::new(settings), ..paused("tool") };
    let speaks = async |_, members: Vec<Member>| {
        let names: Vec<_> = members.into_iter().map(|member| member.name).collect();
        speaks.clone().map_err(|text| MemberVersionsError(format!("{}: {text}", names.join(", "))))
    };
    let changed = adopt_settings(&world.client(), &config, speaks).await?;
    Ok(changed.into_iter().map(|change| format!("{} {}", change.name, change.now)).collect())
}

fn all_alike<'a>(versions: &'a str, tags: &'a str, salt: &'a str) -> [(&'a str, &'a str); 3] {
    [(WIRE_VERSIONS, versions), (SLOT_TAGS, tags), ("salt", salt)]
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_raised_while_nodes_run_that_speak_them() {
    let world = World::start().await;
    let with = |name, versions| ClusterLogConfig {
        shared: SharedSettings::new(all_alike(versions, "host", "2")),
        ..paused(name)
    };
    let a = open(&world, with("a", "1-1")).await;
    // The next release runs together with this one; the release after it does not.
    let b = open(&world, with("b", "1-2")).await;
    assert!(world.open_with(with("c", "2-3"), system_clock_ms).await.is_err());
    let raised = all_alike("1-2", "host", "2");
    let refused = adopt(&world, raised, Err("speaks 1".to_owned())).await.unwrap_err();
    assert!(matches!(&refused, OpenLogError::Versions(error) if error.0 == "a, b: speaks 1"));
    assert!(world.open_with(with("c", "2-3"), system_clock_ms).await.is_err());
    a.store.close().await.unwrap();
    assert!(a.log.end().await.unwrap());
    let changed = adopt(&world, raised, Ok(())).await.unwrap();
    assert_eq!(changed, [format!("{WIRE_VERSIONS} 1-2")]);
    assert_eq!(adopt(&world, raised, Ok(())).await.unwrap(), Vec::<String>::new());
    let c = open(&world, with("c", "2-3")).await;
    put(&c.store, b"row", b"1").await.unwrap();
    drop(b);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slot_tags_change_while_no_node_owns_a_log() {
    let world = World::start().await;
    let config = ClusterLogConfig {
        shared: SharedSettings::new(all_alike("1-1", "host", "2")),
        ..paused("a")
    };
    let a = open(&world, config.clone()).await;
    let by_pod = all_alike("1-1", "pod", "2");
    let refused = adopt(&world, by_pod, Ok(())).await.unwrap_err();
    assert!(matches!(&refused, OpenLogError::NotStopped(names) if *names == ["a"]));
    let salted = adopt(&world, all_alike("1-1", "pod", "3"), Ok(())).await.unwrap_err();
    assert!(matches!(&salted, OpenLogError::Settings(all) if all.len() == 1), "{salted}");
    a.store.close().await.unwrap();
    assert!(a.log.end().await.unwrap());
    assert_eq!(adopt(&world, by_pod, Ok(())).await.unwrap(), [format!("{SLOT_TAGS} pod")]);
    let refused = world.open_with(config.clone(), system_clock_ms).await;
    assert!(matches!(refused, Err(NodeError::Log(OpenLogError::Settings(_)))));
    // Back and forth: each change is later than the one before.
    for _ in 0..3 {
        adopt(&world, all_alike("1-1", "host", "2"), Ok(())).await.unwrap();
        assert_eq!(adopt(&world, by_pod, Ok(())).await.unwrap(), [format!("{SLOT_TAGS} pod")]);
    }
    adopt(&world, all_alike("1-1", "host", "2"), Ok(())).await.unwrap();
    drop(open(&world, config).await);
}

/// One proof serves all who wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn proofs_and_looks_are_shared() {
    let world = World::start().await;
    let a = open(&world, paused("a")).await;
    put(&a.store, b"row", b"1").await.unwrap();
    let before = world.cluster.calls("Mutate");
    let proofs = (0..100).map(|_| a.log.prove_by_append());
    assert!(futures_util::future::join_all(proofs).await.iter().all(Result::is_ok));
    // Segments may be opened meanwhile.
    let made = world.cluster.calls("Mutate") - before;
    assert!((1..20).contains(&made), "{made}");
    let before = world.cluster.calls("Scan");
    let looks = (0..100).map(|_| a.log.current());
    assert!(futures_util::future::join_all(looks).await.iter().all(Result::is_ok));
    let made = world.cluster.calls("Scan") - before;
    assert!((1..=8).contains(&made), "{made}");
    // A proof from before the call does not count.
    let before = world.cluster.calls("Mutate");
    a.log.prove_by_append().await.unwrap();
    assert!(world.cluster.calls("Mutate") > before);
}

/// Changes of the log table that proofs of reads need, one after the other.
async fn changes_of_proofs(world: &World, node: &LogNode, proofs: usize) -> usize {
    let before = world.cluster.calls("Mutate");
    for _ in 0..proofs {
        node.log.prove().await.unwrap();
    }
    world.cluster.calls("Mutate") - before
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_proves_reads_for_a_while_and_then_each_needs_a_change() {
    let world = World::start().await;
    let a = open(&world, paused("a")).await;
    // Its only heartbeat.
    sleep(LEASE).await;
    while changes_of_proofs(&world, &a, 1).await == 0 {}
    assert!(changes_of_proofs(&world, &a, 20).await >= 20);
    let b = open(&world, alive("b")).await;
    // On a busy machine a heartbeat may be late.
    let deadline = std::time::Instant::now() + PATIENCE;
    while changes_of_proofs(&world, &b, 500).await >= 500 {
        assert!(std::time::Instant::now() < deadline, "no proof by a lease");
    }
    let config = ClusterLogConfig { read_proof: ReadProof::Append, ..alive("c") };
    let c = open(&world, config).await;
    assert!(changes_of_proofs(&world, &c, 20).await >= 20);
    assert!(b.log.end().await.unwrap());
    assert!(b.log.prove().await.is_err(), "the lease ends with the log");
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_and_reads_go_on_while_no_manifest_can_be_changed() {
    let world = World::start().await;
    let config = ClusterLogConfig {
        hedge_after: Some(Duration::from_millis(50)),
        suspect_after: Duration::from_hours(1),
        ..alive("a")
    };
    let a = open(&world, config).await;
    put(&a.store, b"first", b"1").await.unwrap();
    // The active segment, and two that stand by, on three servers.
    wait_until(|| gauge(&a, "tsd_cluster_log_segments") >= 3).await;
    let table = "tsdb-log".parse().unwrap();
    let manifest = LogKeys::new(a.log.cluster(), 6).state(StateRow::Manifest(a.log.this()));
    world.cluster.set_region_state(&table, &manifest, "OPENING");
    sleep(LEASE).await;
    for row in 0..10_u8 {
        timeout(PATIENCE, put(&a.store, &[row], b"1")).await.unwrap().unwrap();
        timeout(PATIENCE, a.log.prove()).await.unwrap().unwrap();
    }
    world.cluster.set_region_state(&table, &manifest, "OPEN");
    a.store.flush().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_waits_for_the_lease_of_a_former_one_of_its_name() {
    let world = World::start().await;
    let former = open(&world, paused("a")).await;
    let config = ClusterLogConfig { suspect_after: Duration::ZERO, ..paused("a") };
    let _a = open(&world, config).await;
    // The former process is alive, and its heartbeat is recent.
    assert!(matches!(former.log.prove().await, Err(ProofError::Fenced(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_not_retired_before_the_lease_of_its_owner_has_ended() {
    let world = World::start().await;
    let a = open(&world, paused("a")).await;
    let b = open(&world, ClusterLogConfig { suspect_after: Duration::ZERO, ..alive("b") }).await;
    timeout(PATIENCE, wait_until_stored(&b, a.log.this())).await.unwrap();
    assert!(matches!(a.log.prove().await, Err(ProofError::Fenced(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recovery_is_finished_by_another_node_if_the_recoverer_dies_too() {
    let world = World::start().await;
    let a = open(&world, paused("a")).await;
    for row in 0..10_u8 {
        put(&a.store, &[row], &[row]).await.unwrap();
    }
    drop(a);
    // The node dies as soon as the recovery has begun, or right after its end.
    let b = open(&world, alive("b")).await;
    put(&b.store, b"of b", b"1").await.unwrap();
    wait_until(|| {
        let is_begun = |state| matches!(state, MemberState::Recovering { .. });
        names(&b).iter().any(|(_, state)| is_begun(*state)) || names(&b).len() == 1
    })
    .await;
    drop(b);
    let c = open(&world, alive("c")).await;
    wait_until(|| names(&c).len() == 1).await;
    for row in 0..10_u8 {
        assert_eq!(value(&*world.backend, &[row]).await.as_deref(), Some(&[row][..]));
    }
    assert_eq!(value(&*world.backend, b"of b").await.as_deref(), Some(&b"1"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_not_admitted_neither_serves_nor_acknowledges() {
    let world = World::start().await;
    let a = open(&world, paused("a")).await;
    let b = world.open_unadmitted(alive("b"), system_clock_ms).await.unwrap();
    let state_of_b = async || {
        let members = a.log.current().await.unwrap();
        members.into_iter().find(|member| member.name == "b").map(|member| member.state)
    };
    // Some heartbeats.
    let before = world.cluster.calls("Mutate");
    wait_until(|| world.cluster.calls("Mutate") > before + 10).await;
    assert_eq!(state_of_b().await, Some(MemberState::Joining));
    let error = put(&b.store, b"row", b"1").await.unwrap_err();
    assert!(matches!(error, StorageError::Unavailable(_)), "a sender may try another node");
    assert!(error.to_string().contains("have not admitted"), "{error}");
    assert_eq!(state_of_b().await, Some(MemberState::Joining));
    b.log.join().await.unwrap();
    assert_eq!(state_of_b().await, Some(MemberState::Serving));
    let acknowledged = async {
        while put(&b.store, b"row", b"1").await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, acknowledged).await.unwrap();
    assert_eq!(state_of_b().await, Some(MemberState::Serving));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_recovered_does_not_keep_the_others_waiting() {
    let world = World::start().await;
    let a = open(&world, paused("a")).await;
    let b = open(&world, paused("b")).await;
    put(&a.store, b"of a", b"1").await.unwrap();
    put(&b.store, b"of b", b"1").await.unwrap();
    let (first, second) = (a.log.this(), b.log.this());
    let segment = SegmentId { incarnation: first, stream: 0, number: 1, stripe: 0 };
    let row = LogKeys::new(a.log.cluster(), 6).segment(segment);
    let no_record = Put::try_new(row).unwrap().cell(b"l", &9_u64.to_be_bytes(), 9, b"?").unwrap();
    world.client().table("tsdb-log".parse().unwrap()).mutate(no_record).await.unwrap();
    drop((a, b));
    let suspect_after = Duration::from_millis(500);
    let c = open(&world, ClusterLogConfig { suspect_after, ..alive("c") }).await;
    timeout(PATIENCE, wait_until_stored(&c, second)).await.unwrap();
    assert_eq!(value(&*world.backend, b"of b").await.as_deref(), Some(&b"1"[..]));
    let state = MemberState::Recovering { by: c.log.this() };
    assert!(names(&c).contains(&("a".to_owned(), state)), "{:?}", names(&c));
}
