//! Two nodes on loopback: requests, also with a side that misbehaves.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, timeout},
};
use tsd_cluster::{ClusterId, ProofError, Settlement, Slot, SlotSet};
use tsd_model::{TagkUid, TagvUid};
use tsd_storage::{
    HeldRow, KeyRange, RowFilter, SeriesSet, Standstills, Table, TagCondition, TagPattern, boot_ms,
};

use crate::{
    HeldQuery, NetConfig, NodeIdentity, NodeResponse, PeerClient, PeerError, Peers,
    fakes::{CLUSTER, FakeControl, FakeMembership, FakeNode, far, identity, member, patient},
    wire::{
        HeldMessage, Hello, Nothing, RequestBody, RequestFrame, ResponseBody, ResponseFrame,
        VERSIONS, Welcome, encode,
    },
};

fn query() -> HeldQuery {
    HeldQuery { table: Table::new("tsdb"), ranges: vec![KeyRange::default()], filter: None }
}

fn no_slots() -> SlotSet {
    SlotSet::empty()
}

async fn held(client: &PeerClient, query: &HeldQuery) -> Result<Vec<HeldRow>, PeerError> {
    let mut rows = Vec::new();
    let mut take = |more: Vec<HeldRow>| {
        rows.extend(more);
        Ok(())
    };
    client.held((query, &no_slots()), 0, far(), &mut take).await?;
    Ok(rows)
}

#[tokio::test]
async fn rows_come_in_order_with_their_deletes_and_then_the_proof() {
    let node = FakeNode::start(1, patient()).await;
    for key in [b"b", b"a", b"c"] {
        node.rows.put(key, b"q", Some(b"1"), 10);
    }
    node.rows.put(b"a", b"r", None, 11);
    node.rows.delete_row(b"c", 12);
    let client = node.client(patient());
    let rows = held(&client, &query()).await.unwrap();
    let keys: Vec<&[u8]> = rows.iter().map(|row| &*row.key).collect();
    assert_eq!(keys, [b"a", b"b", b"c"]);
    assert_eq!(rows, node.rows.take());
    let range = KeyRange { start: Bytes::from_static(b"b"), stop: Bytes::from_static(b"c") };
    node.rows.put(b"b", b"q", Some(b"1"), 10);
    node.rows.put(b"c", b"q", Some(b"1"), 10);
    let rows = held(&client, &HeldQuery { ranges: vec![range], ..query() }).await.unwrap();
    assert_eq!(rows.len(), 1);
}

#[tokio::test]
async fn a_row_that_is_larger_than_a_batch_comes_in_fractions() {
    let config = NetConfig { batch_bytes: 100, ..patient() };
    let node = FakeNode::start(1, config.clone()).await;
    node.rows.delete_row(b"a", 5);
    for at in 0..50_u8 {
        node.rows.put(b"a", &[at], Some(b"value"), 10);
    }
    let rows = held(&node.client(config), &query()).await.unwrap();
    assert!(rows.len() > 5);
    assert_eq!(rows.iter().filter(|row| row.delete_row_ms.is_some()).count(), 1);
    let columns = rows.iter().flat_map(|row| &row.columns);
    let qualifiers: Vec<u8> = columns.map(|column| *column.qualifier.first().unwrap()).collect();
    assert_eq!(qualifiers, (0..50).collect::<Vec<u8>>());
}

#[tokio::test]
async fn a_response_that_would_be_too_large_ends_at_a_key() {
    let node = FakeNode::start(1, patient()).await;
    for key in [b"a", b"b", b"c"] {
        node.rows.put(key, b"q", Some(&[1; 100]), 10);
    }
    let client = node.client(patient());
    let mut keys = Vec::new();
    let mut take = |rows: Vec<HeldRow>| {
        keys.extend(rows.into_iter().map(|row| row.key));
        Ok(())
    };
    // The node owns no slot.
    let slots: SlotSet = Slot::all().take(9).collect();
    let proven = client.held((&query(), &slots), 150, far(), &mut take).await.unwrap();
    assert_eq!(proven.not_owned, slots);
    assert_eq!((keys, proven.sent_before), (vec!["a".into(), "b".into()], Some("c".into())));
    let all = client.held((&query(), &no_slots()), 1_000, far(), &mut |_| Ok(())).await.unwrap();
    assert_eq!((all.not_owned, all.sent_before), (no_slots(), None));
}

#[tokio::test]
async fn many_requests_share_a_connection() {
    let config = NetConfig { max_requests: 3, ..patient() };
    let node = FakeNode::start(1, config.clone()).await;
    node.rows.put(b"a", b"q", Some(b"1"), 10);
    let client = node.client(config);
    let query = query();
    let all = (0..50).map(|_| held(&client, &query));
    for rows in futures_util::future::join_all(all).await {
        assert_eq!(rows.unwrap().len(), 1);
    }
    client.probe(far()).await.unwrap();
    assert_eq!(client.report(far()).await.unwrap().rows, 3);
    let error = client.flush(far()).await.unwrap_err();
    assert!(matches!(error, PeerError::Failed(text) if &*text == "the disk of HBase is full"));
    assert_eq!(client.queries(far()).await.unwrap(), r#"[{"id":7}]"#);
    client.cancel_query(7, far()).await.unwrap();
    let error = client.cancel_query(8, far()).await.unwrap_err().to_string();
    assert_eq!(error, "no query with the id 8 is running");
}

#[tokio::test]
async fn a_node_that_is_fenced_while_it_responds_proves_nothing() {
    let node = FakeNode::start(1, patient()).await;
    node.rows.put(b"a", b"q", Some(b"1"), 10);
    node.membership.proof.send_replace(None);
    let client = node.client(patient());
    let query = query();
    let mut has_rows = false;
    let mut take = |_: Vec<HeldRow>| {
        has_rows = true;
        node.membership.proof.send_replace(Some(Err(ProofError::Fenced("fenced".to_owned()))));
        Ok(())
    };
    let error = client.held((&query, &no_slots()), 0, far(), &mut take).await.unwrap_err();
    assert!(has_rows && matches!(error, PeerError::Failed(text) if &*text == "fenced"));
}

#[tokio::test]
async fn a_silent_node_is_waited_for_until_the_deadline() {
    let node = FakeNode::start(1, patient()).await;
    node.membership.proof.send_replace(None);
    let client = node.client(patient());
    let soon = Instant::now() + Duration::from_millis(50);
    let error = client.held((&query(), &no_slots()), 0, soon, &mut |_| Ok(())).await.unwrap_err();
    assert!(matches!(error, PeerError::Timeout));
    // The connection serves others.
    client.probe(far()).await.unwrap();
}

#[tokio::test]
async fn another_cluster_and_another_run_are_refused_with_the_reason() {
    let node = FakeNode::start(1, patient()).await;
    let address = node.member().address.unwrap();
    let client = |identity: NodeIdentity, incarnation| {
        PeerClient::new(&address, incarnation, Arc::new(identity), patient())
    };
    let other = NodeIdentity { cluster: ClusterId::new([8; 16]), ..identity(2) };
    let error = client(other, 1).probe(far()).await.unwrap_err().to_string();
    assert!(error.contains("another cluster"), "{error}");
    assert!(!error.contains(&CLUSTER.to_string()), "{error}");
    let error = client(identity(2), 5).probe(far()).await.unwrap_err().to_string();
    assert!(error.contains("incarnation 1, not 5"), "{error}");
    client(identity(2), 1).probe(far()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_outlives_the_runtime_of_its_first_caller() {
    let node = FakeNode::start(1, patient()).await;
    let membership = FakeMembership::new(2);
    *membership.members.lock() = vec![node.member()];
    let peers = Arc::new(Peers::new(identity(2), patient(), membership));
    let (of_caller, member) = (Arc::clone(&peers), node.member());
    let first = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(of_caller.client(&member).probe(far()))
    });
    first.await.unwrap().unwrap();
    // A connection of that runtime would deliver no more responses.
    peers.client(&node.member()).probe(far()).await.unwrap();
}

#[tokio::test]
async fn a_version_that_is_too_new_is_refused_with_both() {
    let node = FakeNode::start(1, patient()).await;
    let mut stream = TcpStream::connect(node.member().address.unwrap()).await.unwrap();
    let hello = Hello {
        lowest_version: 5,
        highest_version: 6,
        cluster: CLUSTER.to_string(),
        name: "new".to_owned(),
        incarnation: 9,
    };
    let body = Some(RequestBody::Hello(hello));
    stream.write_all(&encode(&RequestFrame { id: 0, timeout_ms: 0, body })).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    let text = String::from_utf8_lossy(&response).into_owned();
    assert!(text.contains("versions 5 to 6") && text.contains("speaks 2 to 2"), "{text}");
}

#[tokio::test]
async fn a_frame_that_is_too_large_or_none_ends_the_connection() {
    let config = NetConfig { max_frame_bytes: 1_000, ..patient() };
    let node = FakeNode::start(1, config).await;
    for bad in [&2_000_u32.to_be_bytes()[..], &[0, 0, 0, 3, 255, 255, 255]] {
        let mut stream = TcpStream::connect(node.member().address.unwrap()).await.unwrap();
        stream.write_all(bad).await.unwrap();
        let mut response = Vec::new();
        let ended = timeout(Duration::from_mins(1), stream.read_to_end(&mut response)).await;
        ended.unwrap().unwrap();
        assert!(response.is_empty(), "{response:?}");
    }
    node.client(patient()).probe(far()).await.unwrap();
}

/// A listener that greets and then does what `then` does.
async fn misbehaving<F: Future<Output = ()> + Send + 'static>(
    config: NetConfig,
    then: impl FnOnce(TcpStream) -> F + Send + 'static,
) -> PeerClient {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).await.unwrap();
        let mut hello = BytesMut::zeroed(u32::from_be_bytes(length) as usize);
        stream.read_exact(&mut hello).await.unwrap();
        let welcome = Welcome { version: 1, name: "odd".to_owned(), incarnation: 1 };
        let body = ResponseBody::Welcome(welcome);
        stream.write_all(&encode(&ResponseFrame::new(0, body))).await.unwrap();
        then(stream).await;
    });
    PeerClient::new(&address, 1, Arc::new(identity(2)), config)
}

#[tokio::test]
async fn a_node_that_dies_in_the_middle_fails_its_requests() {
    let client = misbehaving(patient(), |mut stream| async move {
        let mut some = [0; 16];
        stream.read_exact(&mut some).await.unwrap();
        let body = ResponseBody::Rows(crate::wire::RowsMessage { rows: Vec::new() });
        stream.write_all(&encode(&ResponseFrame::new(1, body))).await.unwrap();
    })
    .await;
    let error = held(&client, &query()).await.unwrap_err();
    assert!(matches!(error, PeerError::Lost), "{error:?}");
    // The listener is gone, too. For a while requests fail with that error.
    let error = client.probe(far()).await.unwrap_err();
    assert!(matches!(error, PeerError::Connect { .. } | PeerError::Lost | PeerError::Timeout));
}

#[tokio::test]
async fn a_response_that_is_too_large_ends_the_connection() {
    let client = misbehaving(patient(), |mut stream| async move {
        stream.write_all(&u32::MAX.to_be_bytes()).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let error = client.probe(far()).await.unwrap_err();
    assert!(matches!(error, PeerError::Frame(_)), "{error:?}");
}

/// Makes a node send more than the other side reads, until it closes the connection.
async fn check_unread_responses(config: NetConfig) {
    let node = FakeNode::start(1, config).await;
    let value = vec![0; 100_000];
    for at in 0..300_u16 {
        node.rows.put(&at.to_be_bytes(), b"q", Some(&value), 10);
    }
    let mut stream = TcpStream::connect(node.member().address.unwrap()).await.unwrap();
    let hello = Hello {
        lowest_version: VERSIONS.0,
        highest_version: VERSIONS.1,
        cluster: CLUSTER.to_string(),
        name: "slow".to_owned(),
        incarnation: 9,
    };
    let hello = RequestFrame { id: 0, timeout_ms: 0, body: Some(RequestBody::Hello(hello)) };
    stream.write_all(&encode(&hello)).await.unwrap();
    let body = Some(RequestBody::Held(HeldMessage::of(&query(), &no_slots(), 0)));
    let request = RequestFrame { id: 1, timeout_ms: 60_000, body };
    stream.write_all(&encode(&request)).await.unwrap();
    // The peer reads only after the node has closed the connection.
    let probe = RequestFrame { id: 2, timeout_ms: 1, body: Some(RequestBody::Probe(Nothing {})) };
    while stream.write_all(&encode(&probe)).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut sent = Vec::new();
    let _ = stream.read_to_end(&mut sent).await;
    assert!(sent.len() < 30_000_000, "{} bytes", sent.len());
}

#[tokio::test]
async fn a_node_that_does_not_read_its_responses_is_disconnected() {
    check_unread_responses(NetConfig { write_timeout: Duration::from_millis(50), ..patient() })
        .await;
}

/// Limits by which the operating system detects a lost host before any other timeout.
fn soon_lost() -> NetConfig {
    let never = Duration::from_hours(1);
    NetConfig { write_timeout: never, silence_timeout: Duration::from_secs(1), ..patient() }
}

#[tokio::test]
async fn a_host_that_takes_no_responses_is_given_up() {
    let checked = timeout(Duration::from_mins(1), check_unread_responses(soon_lost())).await;
    checked.unwrap();
}

#[tokio::test]
async fn a_host_that_takes_no_requests_is_given_up() {
    let client = misbehaving(soon_lost(), |stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let large = "x".repeat(8 << 20);
    let requests = (0..4).map(|_| client.note_refusal(&large, far()));
    for ended in futures_util::future::join_all(requests).await {
        assert!(matches!(ended, Err(PeerError::Lost)), "{ended:?}");
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed() {
    let config = NetConfig { max_connections: 1, ..patient() };
    let node = FakeNode::start(1, config).await;
    let first = node.client(patient());
    first.probe(far()).await.unwrap();
    let second = node.client(patient());
    second.probe(far()).await.unwrap_err();
    first.probe(far()).await.unwrap();
}

#[test]
fn filters_are_sent_as_they_are() {
    let bytes = |text: &'static [u8]| Bytes::from_static(text);
    let series = SeriesSet { tags_start: 8, tags: vec![bytes(b"a"), bytes(b"b")] };
    let condition = |tagvs| TagCondition { tagk: TagkUid::try_new(b"k").unwrap(), tagvs };
    let pattern = TagPattern {
        tags_start: 8,
        tagk_width: 3,
        tagv_width: 3,
        conditions: vec![condition(None), condition(Some(vec![TagvUid::try_new(b"v").unwrap()]))],
        explicit: true,
    };
    let filters = vec![
        RowFilter::Series(Arc::new(series)),
        RowFilter::Tags(Arc::new(pattern)),
        RowFilter::Keys(Arc::new(vec![bytes(b"x"), bytes(b"y")])),
    ];
    let sent = HeldQuery { filter: Some(RowFilter::All(filters)), ..query() };
    assert_eq!(HeldMessage::of(&sent, &no_slots(), 0).into_query(), sent);
    assert_eq!(HeldMessage::of(&query(), &no_slots(), 0).into_query(), query());
}

#[tokio::test]
async fn a_flush_asks_nodes_that_have_just_joined() {
    let joined = FakeNode::start(2, patient()).await;
    let membership = FakeMembership::new(1);
    membership.settlement.send_replace(Some(Settlement::Serves));
    *membership.newer.lock() = Some(vec![member(1, ""), joined.member()]);
    let peers = Peers::new(identity(1), patient(), membership);
    let responses = peers.flush(&FakeControl::default(), Duration::from_mins(1)).await;
    let asked: Vec<u64> = responses.iter().map(|response| response.member.incarnation).collect();
    assert_eq!(asked, [1, 2]);
    let refused = |response: &NodeResponse<()>| {
        response.response.as_ref().is_err_and(|error| error.to_string().contains("disk of HBase"))
    };
    assert!(responses.iter().all(refused), "{responses:?}");
}

#[tokio::test]
async fn a_flush_of_a_node_that_says_nothing_ends_when_its_rows_are_recovered() {
    let paused = FakeNode::start(2, patient()).await;
    paused.control.hangs.store(true, Ordering::Relaxed);
    let membership = FakeMembership::new(1);
    *membership.members.lock() = vec![paused.member()];
    // The heartbeats of the member continue at first.
    membership.settlement.send_replace(Some(Settlement::Serves));
    let peers = Peers::new(identity(1), patient(), Arc::<FakeMembership>::clone(&membership) as _);
    let flush =
        tokio::spawn(
            async move { peers.flush(&FakeControl::default(), Duration::from_mins(1)).await },
        );
    while membership.suspected.lock().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    membership.settlement.send_replace(Some(Settlement::Stored));
    let responses = flush.await.unwrap();
    assert!(responses.first().unwrap().response.is_ok(), "{responses:?}");
}

/// Limits of a node that detects standstills.
fn detecting(detector: &Arc<Standstills>) -> NetConfig {
    NetConfig { standstills: Some(Arc::clone(detector)), ..patient() }
}

#[tokio::test]
async fn a_standstill_of_either_side_ends_the_connections_that_were_open() {
    for is_client in [false, true] {
        let detector = Standstills::new(boot_ms() + 3_600_000);
        let mut configs = [patient(), detecting(&detector)];
        configs.rotate_left(usize::from(is_client));
        let [client, server] = configs;
        let node = FakeNode::start(1, server).await;
        let client = Arc::new(node.client(client));
        client.probe(far()).await.unwrap();
        node.control.hangs.store(true, Ordering::Relaxed);
        let waiting = tokio::spawn({
            let client = Arc::clone(&client);
            async move { client.flush(far()).await }
        });
        // The request has arrived, if the next one has.
        tokio::task::yield_now().await;
        client.probe(far()).await.unwrap();
        assert!(!waiting.is_finished());
        let _ = detector.mark(boot_ms() + 2 * 3_600_000);
        let error = waiting.await.unwrap().unwrap_err();
        assert!(matches!(error, PeerError::Lost), "{error}");
        client.probe(far()).await.unwrap();
    }
}

#[tokio::test]
async fn a_request_of_an_ended_epoch_is_not_sent() {
    let detector = Standstills::new(boot_ms() + 3_600_000);
    let node = FakeNode::start(1, patient()).await;
    let client = node.client(patient());
    let epoch = detector.epoch();
    let send = async |epoch| client.send(RequestBody::Probe(Nothing {}), Some(epoch), far()).await;
    send(&epoch).await.unwrap().response().await.unwrap();
    let _ = detector.mark(boot_ms() + 2 * 3_600_000);
    let error = send(&epoch).await.err().unwrap();
    assert!(matches!(error, PeerError::StoodStill), "{error}");
    send(&detector.epoch()).await.unwrap().response().await.unwrap();
}
