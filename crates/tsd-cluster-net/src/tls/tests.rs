#![expect(clippy::unwrap_used, reason = "tests")]

use tempfile::TempDir;
use tokio::time::Instant;
use tsd_cluster::SlotSet;
use tsd_storage::{HeldRow, KeyRange, Table};

use super::*;
use crate::{
    config::NetConfig,
    fakes::{FakeNode, far, patient},
    held_query::HeldQuery,
};

/// Certificates of two authorities.
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/tls");

fn files(authority: &str, node: &str) -> TlsFiles {
    let directory = Path::new(DATA).join(authority);
    TlsFiles {
        certificate: directory.join(node).with_extension("pem"),
        key: directory.join(node).with_extension("key"),
        authority: directory.join("ca.pem"),
    }
}

/// A node for which an authority has issued a certificate.
fn node_of(authority: &str) -> NetConfig {
    with_tls(&files(authority, "node"))
}

/// Files that can be changed.
fn copied(from: &TlsFiles, directory: &TempDir) -> TlsFiles {
    let to = |name: &str| directory.path().join(name);
    let copies =
        TlsFiles { certificate: to("node.pem"), key: to("node.key"), authority: to("ca.pem") };
    copy(from, &copies);
    copies
}

fn copy(from: &TlsFiles, to: &TlsFiles) {
    fs::copy(&from.certificate, &to.certificate).unwrap();
    fs::copy(&from.key, &to.key).unwrap();
    fs::copy(&from.authority, &to.authority).unwrap();
}

fn with_tls(files: &TlsFiles) -> NetConfig {
    NetConfig { tls: Some(Arc::new(PeerTls::load(files.clone()).unwrap())), ..patient() }
}

/// Probes a node with a client that has other settings.
async fn probe(node: NetConfig, client: NetConfig) -> Result<(), PeerError> {
    let node = FakeNode::start(1, node).await;
    node.client(client).probe(far()).await
}

#[track_caller]
fn check_refused(probed: Result<(), PeerError>, text: &str) {
    let error = probed.unwrap_err();
    assert!(matches!(error, PeerError::Tls { .. }), "{error}");
    assert!(error.to_string().contains(text), "{error}");
}

#[tokio::test]
async fn nodes_of_one_authority_are_connected() {
    let node = FakeNode::start(1, node_of("one")).await;
    // Larger than the buffers of an encrypted connection.
    let value = vec![7; 1 << 20];
    for key in 0..8 {
        node.rows.put(&[key], b"q", Some(&value), 10);
    }
    let client = node.client(node_of("one"));
    let mut bytes = 0;
    let mut take = |rows: Vec<HeldRow>| {
        let columns = rows.iter().flat_map(|row| &row.columns);
        bytes += columns.map(|column| column.value.as_ref().unwrap().len()).sum::<usize>();
        Ok(())
    };
    let ranges = vec![KeyRange::default()];
    let query = HeldQuery { table: Table::new("tsdb"), ranges, filter: None };
    let slots = SlotSet::empty();
    let proven = client.held((&query, &slots), 0, far(), &mut take).await.unwrap();
    assert_eq!(proven.sent_before, None);
    assert_eq!(bytes, 8 << 20);
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    check_refused(probe(node_of("one"), node_of("two")).await, "UnknownIssuer");
    // The client trusts the node, but the node does not trust the client.
    let mixed = TlsFiles { authority: files("one", "node").authority, ..files("two", "node") };
    check_refused(probe(node_of("one"), with_tls(&mixed)).await, "UnknownCA");
}

#[tokio::test]
async fn a_certificate_for_another_address_is_refused() {
    let elsewhere = with_tls(&files("one", "elsewhere"));
    check_refused(probe(elsewhere, node_of("one")).await, "not valid for name");
}

#[tokio::test]
async fn a_node_that_encrypts_and_one_that_does_not_say_so() {
    check_refused(probe(node_of("one"), patient()).await, "tsd.cluster.tls");
    check_refused(probe(patient(), node_of("one")).await, "InvalidContentType");
}

#[tokio::test]
async fn changed_certificates_are_used_by_the_next_connection() {
    let directory = tempfile::tempdir().unwrap();
    let changing = copied(&files("one", "node"), &directory);
    let node = FakeNode::start(1, with_tls(&changing)).await;
    node.client(node_of("one")).probe(far()).await.unwrap();
    // An incomplete file changes nothing.
    fs::write(&changing.key, "-----BEGIN").unwrap();
    node.client(node_of("one")).probe(far()).await.unwrap();
    copy(&files("two", "node"), &changing);
    node.client(node_of("two")).probe(far()).await.unwrap();
    check_refused(node.client(node_of("one")).probe(far()).await, "UnknownIssuer");
}

#[tokio::test]
async fn a_client_that_does_not_shake_hands_is_given_up() {
    let connect_timeout = Duration::from_millis(100);
    let config = NetConfig { connect_timeout, max_connections: 1, ..node_of("one") };
    let node = FakeNode::start(1, config).await;
    let silent = TcpStream::connect(node.member().address.unwrap()).await.unwrap();
    let client = node.client(node_of("one"));
    while client.probe(Instant::now() + Duration::from_mins(1)).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(silent);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let good = files("one", "node");
    let check = |files: &TlsFiles, path: &Path, text: &str| {
        let error = PeerTls::load(files.clone()).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()) && error.contains(text), "{error}");
    };
    let missing = good.key.with_file_name("missing.key");
    check(&TlsFiles { key: missing.clone(), ..good.clone() }, &missing, "No such file");
    let without = TlsFiles { certificate: good.key.clone(), ..good.clone() };
    check(&without, &good.key, "no certificate");
    let stranger = TlsFiles { key: files("two", "node").key, ..good.clone() };
    check(&stranger, &good.certificate, "KeyMismatch");
}
