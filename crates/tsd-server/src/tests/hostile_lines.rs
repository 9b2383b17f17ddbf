//! Issue 37: clients that send wrong lines as fast as they can, and do not read, delayed all other clients.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::harness::Tsd;

/// Clients that send wrong lines.
const HOSTILE: usize = 20;
/// Measured puts of other clients.
const PUTS: usize = 60;

/// Puts points by requests of one connection; returns the duration of the second slowest request.
fn slowest_put(address: SocketAddr) -> Duration {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut took: Vec<Duration> = (0..PUTS)
        .map(|second| {
            let body = format!(
                r#"{{"metric":"m","timestamp":{},"value":1,"tags":{{"host":"a"}}}}"#,
                1_356_998_400 + second
            );
            let head = format!(
                "POST /api/put HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            let began = Instant::now();
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            let mut answer = Vec::new();
            let mut byte = [0; 1];
            while !answer.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).unwrap();
                answer.extend(byte);
            }
            assert!(answer.starts_with(b"HTTP/1.1 204 "), "{}", String::from_utf8_lossy(&answer));
            began.elapsed()
        })
        .collect();
    took.sort_unstable();
    took[PUTS - 2]
}

/// Sends these bytes repeatedly until `stop` is set.
fn flood(address: SocketAddr, lines: &[u8], stop: &AtomicBool) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut at = 0;
    while !stop.load(Ordering::Relaxed) {
        // Writes nothing for a while if the daemon does not read.
        at = (at + stream.write(&lines[at..]).unwrap_or(0)) % lines.len();
    }
}

/// The target is 50 ms with an optimized build on two idle cores. On a busy machine, the limit follows from the
/// duration of puts without hostile clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn puts_complete_soon_while_twenty_clients_send_wrong_lines_and_do_not_read() {
    let tsd = Tsd::start().await;
    let address = tsd.server.local_addr();
    let put = || tokio::task::spawn_blocking(move || slowest_put(address));
    let quiet = put().await.unwrap();
    for lines in
        ["x\n".repeat(100_000), "put m 1 x a=b\n".repeat(20_000), "status\n".repeat(20_000)]
    {
        let stop = Arc::new(AtomicBool::new(false));
        let lines: Arc<[u8]> = lines.into_bytes().into();
        let floods: Vec<_> = (0..HOSTILE)
            .map(|_| {
                let (stop, lines) = (Arc::clone(&stop), Arc::clone(&lines));
                std::thread::spawn(move || flood(address, &lines, &stop))
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let beside = put().await.unwrap();
        stop.store(true, Ordering::Relaxed);
        for flood in floods {
            flood.join().unwrap();
        }
        let bound = Duration::from_secs(2) + 20 * quiet;
        assert!(beside < bound, "{beside:?} beside them, {quiet:?} without");
        tsd.no_connections().await;
    }
}
