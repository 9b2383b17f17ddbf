//! Protected streams: messages of any length in both directions, cut anywhere.

use std::{io, sync::mpsc, time::Duration};

use proptest::prelude::*;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex,
    split,
};

use super::stand_in::{OVERHEAD, Replay, StandIn, failure, tok};
use crate::transport::{
    Channel,
    sasl::{
        SaslMechanism,
        engine::{MAX_INLINE, SharedMechanism},
        protect,
        reader::{MAX_MESSAGE, ProtectedReader},
        writer::MAX_CONTENT,
    },
};

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Protects one end of a stream.
fn protected(stream: DuplexStream, mechanism: StandIn, confidential: bool) -> (Reader, Writer) {
    let (read, write) = split(stream);
    let channel = protect(read, write, Box::new(mechanism), confidential);
    let Channel::Layered { read, write } = channel else { panic!("no layers") };
    (read, write)
}

/// Both protected halves, and the raw halves of the peer.
struct Ends {
    read: Reader,
    write: Writer,
    raw_read: ReadHalf<DuplexStream>,
    raw_write: WriteHalf<DuplexStream>,
}

fn ends(capacity: usize, mechanism: StandIn) -> Ends {
    let (client, server) = duplex(capacity);
    let (read, write) = protected(client, mechanism, false);
    let (raw_read, raw_write) = split(server);
    Ends { read, write, raw_read, raw_write }
}

/// Reads the content of the next message.
async fn next_message(raw: &mut (impl AsyncRead + Unpin), peer: &mut StandIn) -> Vec<u8> {
    let length = raw.read_u32().await.unwrap();
    let mut message = vec![0; length as usize];
    raw.read_exact(&mut message).await.unwrap();
    peer.unwrap(&message, false).unwrap()
}

/// Reads everything that a protected stream returns for these bytes, and its last error.
async fn read_all(input: &[u8], confidential: bool) -> (Vec<u8>, Option<io::ErrorKind>) {
    let shared = SharedMechanism::new(Box::new(StandIn::default()), confidential);
    let mut reader = ProtectedReader::new(Replay::new(input), shared);
    let mut content = Vec::new();
    let error = reader.read_to_end(&mut content).await.err();
    (content, error.map(|error| error.kind()))
}

/// Wraps contents as a peer does.
fn wrapped(contents: &[&[u8]], confidential: bool) -> Vec<u8> {
    let mut peer = StandIn::default();
    contents.iter().flat_map(|one| tok(&peer.wrap(one, confidential).unwrap())).collect()
}

#[tokio::test]
async fn a_flush_is_one_message() {
    let Ends { mut write, mut raw_read, .. } = ends(1 << 20, StandIn::default());
    let mut peer = StandIn::default();
    for parts in [&[&b"header"[..], b"request", b""][..], &[b"next"]] {
        for part in parts {
            write.write_all(part).await.unwrap();
        }
        write.flush().await.unwrap();
        assert_eq!(next_message(&mut raw_read, &mut peer).await, parts.concat());
    }
    // A flush without bytes sends nothing.
    write.flush().await.unwrap();
    write.write_all(b"last").await.unwrap();
    write.shutdown().await.unwrap();
    assert_eq!(next_message(&mut raw_read, &mut peer).await, b"last");
    assert_eq!(raw_read.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn vectored_writes_are_one_message() {
    let Ends { mut write, mut raw_read, .. } = ends(1 << 20, StandIn::default());
    assert!(write.is_write_vectored());
    let slices = [io::IoSlice::new(b"head"), io::IoSlice::new(b""), io::IoSlice::new(b"block")];
    assert_eq!(write.write_vectored(&slices).await.unwrap(), 9);
    write.flush().await.unwrap();
    assert_eq!(next_message(&mut raw_read, &mut StandIn::default()).await, b"headblock");
}

#[tokio::test]
async fn long_writes_fit_the_maximum_of_servers() {
    let content: Vec<u8> = (0..300_000_u32).map(|at| at as u8).collect();
    let Ends { mut write, mut raw_read, .. } = ends(1000, StandIn::default());
    let sent = content.clone();
    let writer = tokio::spawn(async move {
        write.write_all(&sent).await.unwrap();
        write.flush().await.unwrap();
        write
    });
    let mut peer = StandIn::default();
    let mut received = Vec::new();
    while received.len() < content.len() {
        let message = next_message(&mut raw_read, &mut peer).await;
        assert!(message.len() <= MAX_CONTENT);
        assert!(message.len() == MAX_CONTENT || received.len() + message.len() == content.len());
        received.extend_from_slice(&message);
    }
    assert_eq!(received, content);
    writer.await.unwrap();
}

#[tokio::test]
async fn messages_cut_at_any_byte_are_read() {
    let stream = wrapped(&[b"first", b"", b"second message"], true);
    for at in 1..stream.len() {
        let (client, mut server) = duplex(1 << 10);
        let (mut read, _write) = protected(client, StandIn::default(), true);
        let (start, rest) = stream.split_at(at);
        server.write_all(start).await.unwrap();
        let mut content = Vec::new();
        // The reader sees the first part alone.
        let early = tokio::time::timeout(Duration::ZERO, read.read_buf(&mut content)).await;
        assert!(!matches!(early, Ok(Ok(0) | Err(_))), "{at}: {early:?}");
        server.write_all(rest).await.unwrap();
        drop(server);
        read.read_to_end(&mut content).await.unwrap();
        assert_eq!(content, b"firstsecond message", "{at}");
    }
}

#[tokio::test]
async fn a_stream_that_ends_inside_a_message_is_an_error() {
    let contents: [&[u8]; 2] = [b"first", b"second"];
    let stream = wrapped(&contents, false);
    let first = 4 + OVERHEAD + contents[0].len();
    for end in 0..=stream.len() {
        let (content, error) = read_all(&stream[..end], false).await;
        let complete = usize::from(end >= first) + usize::from(end == stream.len());
        assert_eq!(content, contents[..complete].concat(), "{end}");
        let expected = ![0, first, stream.len()].contains(&end);
        let expected = expected.then_some(io::ErrorKind::UnexpectedEof);
        assert_eq!(error, expected, "{end}");
    }
}

#[tokio::test]
async fn a_failure_instead_of_the_first_message_passes_through() {
    let failed = failure("javax.security.sasl.SaslException", "Problem with callback handler");
    assert_eq!(read_all(&failed, true).await, (failed.clone(), None));
    // It passes as far as it comes.
    for end in 4..failed.len() {
        assert_eq!(read_all(&failed[..end], true).await.0, failed[..end], "{end}");
    }
    // After a message, the same bytes are a malformed one.
    let late = [wrapped(&[b"first"], true), failed].concat();
    assert_eq!(read_all(&late, true).await, (b"first".to_vec(), Some(io::ErrorKind::InvalidData)));
}

#[tokio::test]
async fn invalid_messages_end_the_stream() {
    let too_long = (MAX_MESSAGE as u32 + 1).to_be_bytes();
    let mut damaged = wrapped(&[b"content"], false);
    *damaged.last_mut().unwrap() ^= 1;
    let other_protection = wrapped(&[b"content"], true);
    for bad in [&too_long[..], &damaged, &other_protection, &[0; 4]] {
        let stream = [&[][..], bad].concat();
        let (content, error) = read_all(&stream, false).await;
        assert_eq!((content, error), (Vec::new(), Some(io::ErrorKind::InvalidData)), "{bad:?}");
    }
}

#[tokio::test]
async fn a_writer_that_waits_for_the_peer_does_not_delay_the_reader() {
    let Ends { mut read, mut write, mut raw_write, mut raw_read } = ends(100, StandIn::default());
    let writer = tokio::spawn(async move {
        write.write_all(&vec![1; 300_000]).await.unwrap();
        write.flush().await.unwrap();
    });
    let content = [2; 50];
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    let mut peer = StandIn::default();
    for _ in 0..10 {
        raw_write.write_all(&tok(&peer.wrap(&content, false).unwrap())).await.unwrap();
        let mut received = [0; 50];
        read.read_exact(&mut received).await.unwrap();
        assert_eq!(received, content);
    }
    assert!(!writer.is_finished());
    let mut received = 0;
    while received < 300_000 {
        received += next_message(&mut raw_read, &mut peer).await.len();
    }
    writer.await.unwrap();
}

/// The runtime has one thread: it would stand still if a long message were unwrapped, or waited for, on it.
#[tokio::test]
async fn a_long_message_does_not_block_the_runtime() {
    let (release, receiver) = mpsc::channel();
    let Ends { mut read, mut write, mut raw_write, mut raw_read } =
        ends(1 << 20, StandIn::waiting_for(receiver));
    let content = vec![3; MAX_INLINE];
    raw_write.write_all(&wrapped(&[&content], false)).await.unwrap();
    let reader = tokio::spawn(async move {
        let mut received = vec![0; MAX_INLINE];
        read.read_exact(&mut received).await.unwrap();
        received
    });
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    // The mechanism is in use: a writer waits without its thread.
    write.write_all(b"request").await.unwrap();
    let flushed = tokio::time::timeout(Duration::from_millis(1), write.flush()).await;
    assert!(flushed.is_err());
    release.send(()).unwrap();
    write.flush().await.unwrap();
    assert_eq!(next_message(&mut raw_read, &mut StandIn::default()).await, b"request");
    assert_eq!(reader.await.unwrap(), content);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn bytes_pass_in_both_directions(
        contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100_000), 0..4),
        capacity in 1_usize..100_000,
        confidential: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (client, server) = duplex(capacity);
            let (mut client_read, client_write) = protected(client, StandIn::default(), confidential);
            let (server_read, server_write) = protected(server, StandIn::default(), confidential);
            // The server sends everything back.
            let echo = tokio::spawn(async move {
                let (mut read, mut write) = (server_read, server_write);
                let mut buffer = Vec::new();
                while read.read_buf(&mut buffer).await.unwrap() > 0 {
                    write.write_all(&buffer).await.unwrap();
                    write.flush().await.unwrap();
                    buffer.clear();
                }
                write.shutdown().await.unwrap();
            });
            let expected = contents.concat();
            let sender = tokio::spawn(async move {
                let mut write = client_write;
                for content in contents {
                    write.write_all(&content).await.unwrap();
                    write.flush().await.unwrap();
                }
                write.shutdown().await.unwrap();
            });
            let mut received = Vec::new();
            client_read.read_to_end(&mut received).await.unwrap();
            sender.await.unwrap();
            echo.await.unwrap();
            assert_eq!(received, expected);
        });
    }
}
