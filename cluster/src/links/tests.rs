#![expect(clippy::unwrap_used, reason = "tests")]

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};

use super::*;

const NODE: Node = Node::RegionServer(0);
/// Timeout of expected events.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Wait for events that must not happen.
const SILENCE: Duration = Duration::from_millis(100);

/// An echo server behind a link.
async fn echo() -> Links {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
                let _ = to.shutdown().await;
            });
        }
    });
    Links::start([(NODE, port)]).unwrap()
}

async fn connect(links: &Links) -> TcpStream {
    TcpStream::connect(links.address(NODE).unwrap()).await.unwrap()
}

async fn exchange(stream: &mut TcpStream, word: &[u8]) -> io::Result<()> {
    stream.write_all(word).await?;
    receive(stream, word).await
}

async fn receive(stream: &mut TcpStream, word: &[u8]) -> io::Result<()> {
    let mut response = vec![0; word.len()];
    timeout(TIMEOUT, stream.read_exact(&mut response)).await.unwrap()?;
    assert_eq!(response, word);
    Ok(())
}

async fn is_reset(stream: &mut TcpStream) {
    let error = timeout(TIMEOUT, stream.read_u8()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

/// Checks that a new connection is reset, possibly during the handshake.
async fn connection_is_reset(links: &Links) {
    match TcpStream::connect(links.address(NODE).unwrap()).await {
        Ok(mut stream) => is_reset(&mut stream).await,
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
    }
}

#[tokio::test]
async fn a_link_forwards_bytes_and_half_closes() {
    let links = echo().await;
    let mut stream = connect(&links).await;
    let much: Vec<u8> = (0..10 << 20).map(|at| at as u8).collect();
    let (mut from, mut to) = stream.split();
    let mut response = Vec::new();
    let send = async {
        to.write_all(&much).await?;
        to.shutdown().await
    };
    tokio::try_join!(send, from.read_to_end(&mut response)).unwrap();
    assert!(response == much);
}

#[tokio::test]
async fn a_cut_link_forwards_nothing_and_loses_nothing() {
    let links = echo().await;
    let mut stream = connect(&links).await;
    exchange(&mut stream, b"before").await.unwrap();
    links.cut(NODE);
    stream.write_all(b"during").await.unwrap();
    timeout(SILENCE, stream.read_u8()).await.unwrap_err();
    let mut new = connect(&links).await;
    new.write_all(b"new").await.unwrap();
    timeout(SILENCE, new.read_u8()).await.unwrap_err();
    links.restore(NODE);
    receive(&mut stream, b"during").await.unwrap();
    receive(&mut new, b"new").await.unwrap();
}

#[tokio::test]
async fn a_refusing_link_resets_connections_until_restored() {
    let links = echo().await;
    let mut stream = connect(&links).await;
    exchange(&mut stream, b"before").await.unwrap();
    links.refuse(NODE);
    is_reset(&mut stream).await;
    connection_is_reset(&links).await;
    links.restore(NODE);
    exchange(&mut connect(&links).await, b"after").await.unwrap();
}

#[tokio::test]
async fn new_connections_work_after_a_break() {
    let links = echo().await;
    let mut stream = connect(&links).await;
    exchange(&mut stream, b"before").await.unwrap();
    links.break_connections(NODE);
    is_reset(&mut stream).await;
    exchange(&mut connect(&links).await, b"after").await.unwrap();
}

#[tokio::test]
async fn each_direction_is_delayed() {
    let links = echo().await;
    let mut stream = connect(&links).await;
    let delay = Duration::from_millis(40);
    links.delay(NODE, delay);
    let start = Instant::now();
    // Successive writes are not delayed one after the other.
    for _ in 0..20 {
        stream.write_all(b"word").await.unwrap();
    }
    receive(&mut stream, &b"word".repeat(20)).await.unwrap();
    assert!(start.elapsed() >= delay * 2);
    links.restore(NODE);
    exchange(&mut stream, b"soon").await.unwrap();
}

#[tokio::test]
async fn a_missing_server_resets_connections() {
    let port = crate::ports::Port::reserve().unwrap();
    let links = Links::start([(NODE, port.number())]).unwrap();
    connection_is_reset(&links).await;
}

#[tokio::test]
async fn hosts_setting_lists_all_links() {
    let links = Links::start([(Node::Master, 1), (NODE, 2)]).unwrap();
    let (master, server) = (links.address(Node::Master).unwrap(), links.address(NODE).unwrap());
    assert_eq!(links.hosts_setting(), format!("localhost:1={master},localhost:2={server}"));
    let by_port = links.by_port();
    assert_eq!((by_port(1), by_port(2), by_port(3)), (master, server, "127.0.0.1:3".into()));
    assert!(!links.is_empty() && links.has(NODE) && !links.has(Node::ZooKeeper));
}

#[test]
fn links_survive_the_runtime_that_started_them() {
    let port = crate::ports::Port::reserve().unwrap();
    let runtime = || runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let links = runtime().block_on(async { Links::start([(NODE, port.number())]).unwrap() });
    runtime().block_on(async { connection_is_reset(&links).await });
}
