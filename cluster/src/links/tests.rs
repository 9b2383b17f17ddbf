#![expect(clippy::unwrap_used, reason = "tests")]

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};

use super::*;

const NODE: Node = Node::RegionServer(0);
/// Long enough for anything that is going to happen.
const ENOUGH: Duration = Duration::from_secs(20);
/// For so long nothing happens where nothing may.
const SILENCE: Duration = Duration::from_millis(100);

/// A server that sends back what it gets, behind a link.
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
    let mut answer = vec![0; word.len()];
    timeout(ENOUGH, stream.read_exact(&mut answer)).await.unwrap()?;
    assert_eq!(answer, word);
    Ok(())
}

async fn is_reset(stream: &mut TcpStream) {
    let error = timeout(ENOUGH, stream.read_u8()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

/// A new connection is reset, be it while it is made.
async fn connection_is_reset(links: &Links) {
    match TcpStream::connect(links.address(NODE).unwrap()).await {
        Ok(mut stream) => is_reset(&mut stream).await,
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
    }
}

#[tokio::test]
async fn a_link_carries_bytes_and_ends_both_ways() {
    let links = echo().await;
    let mut stream = connect(&links).await;
    let much: Vec<u8> = (0..10 << 20).map(|at| at as u8).collect();
    let (mut from, mut to) = stream.split();
    let mut answer = Vec::new();
    let send = async {
        to.write_all(&much).await?;
        to.shutdown().await
    };
    tokio::try_join!(send, from.read_to_end(&mut answer)).unwrap();
    assert!(answer == much);
}

#[tokio::test]
async fn nothing_passes_a_cut_link_and_nothing_is_lost() {
    let links = echo().await;
    let mut stream = connect(&links).await;
    exchange(&mut stream, b"before").await.unwrap();
    links.cut(NODE);
    stream.write_all(b"during").await.unwrap();
    timeout(SILENCE, stream.read_u8()).await.unwrap_err();
    let mut new = connect(&links).await;
    new.write_all(b"new").await.unwrap();
    timeout(SILENCE, new.read_u8()).await.unwrap_err();
    links.mend(NODE);
    receive(&mut stream, b"during").await.unwrap();
    receive(&mut new, b"new").await.unwrap();
}

#[tokio::test]
async fn a_link_that_refuses_resets_until_it_is_mended() {
    let links = echo().await;
    let mut stream = connect(&links).await;
    exchange(&mut stream, b"before").await.unwrap();
    links.refuse(NODE);
    is_reset(&mut stream).await;
    connection_is_reset(&links).await;
    links.mend(NODE);
    exchange(&mut connect(&links).await, b"after").await.unwrap();
}

#[tokio::test]
async fn broken_connections_can_be_made_again_at_once() {
    let links = echo().await;
    let mut stream = connect(&links).await;
    exchange(&mut stream, b"before").await.unwrap();
    links.break_connections(NODE);
    is_reset(&mut stream).await;
    exchange(&mut connect(&links).await, b"after").await.unwrap();
}

#[tokio::test]
async fn each_direction_takes_its_time() {
    let links = echo().await;
    let mut stream = connect(&links).await;
    let delay = Duration::from_millis(40);
    links.delay(NODE, delay);
    let start = Instant::now();
    // Words one behind the other are not slower than one.
    for _ in 0..20 {
        stream.write_all(b"word").await.unwrap();
    }
    receive(&mut stream, &b"word".repeat(20)).await.unwrap();
    assert!(start.elapsed() >= delay * 2);
    links.mend(NODE);
    exchange(&mut stream, b"soon").await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_not_there_resets() {
    let port = crate::ports::Port::take().unwrap();
    let links = Links::start([(NODE, port.number())]).unwrap();
    connection_is_reset(&links).await;
}

#[tokio::test]
async fn other_processes_are_told_of_the_links() {
    let links = Links::start([(Node::Master, 1), (NODE, 2)]).unwrap();
    let (master, server) = (links.address(Node::Master).unwrap(), links.address(NODE).unwrap());
    assert_eq!(links.hosts_setting(), format!("localhost:1={master},localhost:2={server}"));
    let by_port = links.by_port();
    assert_eq!((by_port(1), by_port(2), by_port(3)), (master, server, "127.0.0.1:3".into()));
    assert!(!links.is_empty() && links.has(NODE) && !links.has(Node::ZooKeeper));
}

#[test]
fn links_outlast_the_runtime_that_made_them() {
    let port = crate::ports::Port::take().unwrap();
    let runtime = || runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let links = runtime().block_on(async { Links::start([(NODE, port.number())]).unwrap() });
    runtime().block_on(async { connection_is_reset(&links).await });
}
