//! A VictoriaMetrics process for comparisons in benches, fed by its listeners for OpenTSDB's protocols.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::timed_http::{self, BodyUse};

/// Longest wait for the start, and for the last points.
const TIMEOUT: Duration = Duration::from_mins(2);

/// A running process; killed when dropped.
#[derive(Debug)]
pub struct VictoriaMetrics {
    process: Child,
    queries: SocketAddr,
    telnet: SocketAddr,
    puts: SocketAddr,
}

impl VictoriaMetrics {
    /// The binary that the environment variable `VM_BINARY` names.
    #[must_use]
    pub fn binary() -> Option<PathBuf> {
        std::env::var_os("VM_BINARY").map(PathBuf::from)
    }

    /// Starts VictoriaMetrics in an empty directory, without its cache of results.
    #[must_use]
    pub fn start(binary: &Path, directory: &Path) -> Self {
        let [queries, telnet, puts] = [(); 3].map(|()| free_address());
        let process = Command::new(binary)
            .arg(format!("-storageDataPath={}", directory.display()))
            .arg(format!("-httpListenAddr={queries}"))
            .arg(format!("-opentsdbListenAddr={telnet}"))
            .arg(format!("-opentsdbHTTPListenAddr={puts}"))
            .args(["-retentionPeriod=100y", "-search.disableCache"])
            .args(["-search.maxUniqueTimeseries=20000000", "-search.maxSeries=20000000"])
            .args(["-search.maxSamplesPerQuery=10000000000", "-search.maxQueryDuration=120s"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start VM_BINARY");
        let began = Instant::now();
        while [queries, telnet, puts].iter().any(|address| TcpStream::connect(address).is_err()) {
            assert!(began.elapsed() < TIMEOUT, "VM_BINARY does not serve");
            thread::sleep(Duration::from_millis(50));
        }
        Self { process, queries, telnet, puts }
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Address for lines of `put`.
    #[must_use]
    pub const fn telnet(&self) -> SocketAddr {
        self.telnet
    }

    /// Address for requests of `/api/put`.
    #[must_use]
    pub const fn puts(&self) -> SocketAddr {
        self.puts
    }

    /// Waits until queries find this many points of the selected series in the `secs` seconds that end with
    /// `last`.
    pub fn wait_for_points(&self, selector: &str, (secs, last): (u64, u64), points: usize) {
        let _ = timed_http::get(self.queries, "/internal/force_flush", BodyUse::Discard);
        let query = encoded(&format!("sum(count_over_time({selector}[{secs}s]))"));
        let began = Instant::now();
        loop {
            let body = self.ask(&format!("/api/v1/query?query={query}&time={last}&nocache=1")).0;
            let count = body["data"]["result"][0]["value"][1].as_str();
            if count.and_then(|count| count.parse().ok()) == Some(points) {
                return;
            }
            assert!(began.elapsed() < TIMEOUT, "VictoriaMetrics has not all points: {body}");
            thread::sleep(Duration::from_millis(500));
        }
    }

    /// Runs a range query with a step in seconds; returns the response and its time.
    #[must_use]
    pub fn query_range(&self, query: &str, range: (u64, u64), step: u64) -> (Value, Duration) {
        let (query, (start, end)) = (encoded(query), range);
        self.ask(&format!(
            "/api/v1/query_range?query={query}&start={start}&end={end}&step={step}s&nocache=1"
        ))
    }

    /// Stops VictoriaMetrics cleanly, so that all points are on the disk.
    pub fn stop(mut self) {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status();
        assert!(sent.expect("run kill").success(), "VictoriaMetrics runs");
        assert!(self.process.wait().expect("an exit status").success(), "a clean shutdown");
    }

    fn ask(&self, uri: &str) -> (Value, Duration) {
        let response = timed_http::get(self.queries, uri, BodyUse::Keep);
        let body = serde_json::from_slice(&response.body).unwrap_or_else(|error| {
            panic!("{uri}: {error}: {}", String::from_utf8_lossy(&response.body))
        });
        (body, response.total)
    }
}

impl Drop for VictoriaMetrics {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Text as a value of a query string.
#[must_use]
pub fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// An address of this host that was free a moment ago.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address")
}
