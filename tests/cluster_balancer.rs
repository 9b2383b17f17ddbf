//! Nodes behind a real HAProxy with the documented configuration, which are restarted one after the other while clients
//! put and query.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tempfile::TempDir;
use tsd_testkit::{DaemonBuilder, is_whole_response, try_http, wait_for};

use crate::{
    cluster_forward::{addresses, node, wait_until_shared},
    hbase_fake::{HBase, body, check},
    in_process::directory,
};

const REQUESTS: u64 = 10_000;
const CLIENTS: u64 = 4;
const FIRST_SECOND: u64 = 1_600_000_000;
/// Pause of a client after a request.
const PAUSE: Duration = Duration::from_millis(2);

/// A running HAProxy; killed when dropped.
struct Balancer {
    process: Child,
    address: SocketAddr,
    _directory: TempDir,
}

impl Balancer {
    /// Starts the configuration of `docs/cluster.md` with these servers; `None` if there is no HAProxy.
    fn start(servers: &[SocketAddr]) -> Option<Self> {
        let program = ["haproxy", "/usr/sbin/haproxy"].into_iter().find(|program| {
            let shown = Command::new(program).arg("-v").stdout(Stdio::null()).status();
            shown.is_ok_and(|status| status.success())
        })?;
        let page = format!("{}/docs/cluster.md", env!("CARGO_MANIFEST_DIR"));
        let page = fs::read_to_string(page).expect("the page");
        let blocks = page.split("```");
        let mut text = blocks
            .filter_map(|block| block.strip_prefix("text\n"))
            .find(|block| block.contains("frontend tsd_http"))
            .expect("the configuration")
            .to_owned();
        let [address, telnet] = [0, 1].map(|_| {
            let free = TcpListener::bind("127.0.0.1:0").expect("a port");
            free.local_addr().expect("its address")
        });
        text = text.replace("bind :4242", &format!("bind {address}"));
        text = text.replace("bind :4343", &format!("bind {telnet}"));
        for (at, server) in servers.iter().enumerate() {
            text = text.replace(&format!("10.0.0.{}:4242", at + 1), &server.to_string());
        }
        let directory = directory();
        let file = directory.path().join("haproxy.cfg");
        fs::write(&file, text).expect("a file");
        let process = Command::new(program).arg("-db").arg("-f").arg(&file).spawn();
        let process = process.expect("HAProxy starts");
        let balancer = Self { process, address, _directory: directory };
        let is_ready = || {
            let ready = try_http(address, "GET", "/api/health/ready", None).ok()?;
            (ready.status == 200).then_some(())
        };
        wait_for(is_ready).expect("HAProxy has a ready server");
        Some(balancer)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A client that keeps its connection, as collectors do.
struct Client(TcpStream);

impl Client {
    fn connect(to: SocketAddr) -> Self {
        Self(TcpStream::connect(to).expect("a connection to HAProxy"))
    }

    /// The whole response, as text.
    fn request(&mut self, method: &str, uri: &str, body: &str) -> String {
        let length = body.len();
        let request = format!(
            "{method} {uri} HTTP/1.1\r\nHost: tsd\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        self.0.write_all(request.as_bytes()).expect("sent");
        let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
        // A response without a body has no length.
        while !is_whole_response(&received) && !received.starts_with(b"HTTP/1.1 204") {
            match self.0.read(&mut buffer).expect("a response") {
                0 => break,
                length => received.extend_from_slice(&buffer[..length]),
            }
        }
        String::from_utf8_lossy(&received).into_owned()
    }
}

/// Puts points of a series and reads each fourth one back, until `is_over`. Returns the number of its points.
fn load(to: SocketAddr, metric: &str, requests: &AtomicU64, is_over: &AtomicBool) -> u64 {
    let mut client = Client::connect(to);
    let mut points = 0;
    while !is_over.load(Ordering::SeqCst) || requests.load(Ordering::SeqCst) < REQUESTS {
        let put = client.request("POST", "/api/put", &body(metric, points, points + 1));
        assert!(put.starts_with("HTTP/1.1 204"), "{metric} {points}: {put}");
        if points % 4 == 0 {
            let second = FIRST_SECOND + points;
            let uri = format!("/api/query?start={second}&end={second}&m=none:{metric}");
            let read = client.request("GET", &uri, "");
            assert!(read.starts_with("HTTP/1.1 200"), "{metric} {points}: {read}");
            assert!(read.contains(&format!("\"{second}\":{points}")), "{read}");
            requests.fetch_add(1, Ordering::SeqCst);
        }
        points += 1;
        requests.fetch_add(1, Ordering::SeqCst);
        thread::sleep(PAUSE);
    }
    points
}

#[test]
fn nodes_behind_a_balancer_are_restarted_one_after_the_other_without_an_error() {
    let hbase = HBase::with_tables();
    let start = |at: usize, data: &TempDir, port: &str| {
        let lingering = |node: DaemonBuilder| node.env("TSD_CLUSTER_DRAIN_LINGER", "3");
        lingering(node(&hbase, &format!("tsd{at}"), data.path())).port(port).start()
    };
    let mut nodes: Vec<_> = (0..3)
        .map(|at| {
            let data = directory();
            (start(at, &data, "0"), data)
        })
        .collect();
    let servers = addresses(&nodes);
    wait_until_shared(&servers);
    let Some(balancer) = Balancer::start(&servers) else {
        crate::report("skipped: there is no haproxy; tests/haproxy.sh installs it");
        return;
    };
    let (requests, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (requests, is_over) = (Arc::clone(&requests), Arc::clone(&is_over));
            let to = balancer.address;
            thread::spawn(move || load(to, &format!("b{client}"), &requests, &is_over))
        })
        .collect();
    for at in 0..nodes.len() {
        let (daemon, data) = nodes.remove(at);
        let port = daemon.address().port().to_string();
        assert!(daemon.terminate().success());
        nodes.insert(at, (start(at, &data, &port), data));
        wait_until_shared(&servers);
    }
    is_over.store(true, Ordering::SeqCst);
    for (client, done) in clients.into_iter().enumerate() {
        let points = done.join().expect("a client without an error");
        for server in &servers {
            check(*server, &format!("b{client}"), points);
        }
    }
    drop(balancer);
    for (daemon, _) in nodes {
        assert!(daemon.terminate().success());
    }
}
