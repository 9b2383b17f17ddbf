//! A VictoriaMetrics process, fed by its listener for OpenTSDB's telnet protocol.

use std::{
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tsd_testkit::timed_http::{self, BodyUse};

use crate::{
    Server,
    data_set::{DataSet, METRIC},
    shape::{Shape, encoded},
};

/// Longest wait for the start, and for the last points.
const TIMEOUT: Duration = Duration::from_mins(2);

/// A running process; killed when dropped.
pub(crate) struct Victoria {
    process: Child,
    http: SocketAddr,
    telnet: SocketAddr,
}

impl Victoria {
    /// Starts it in an empty directory, with its cache of results off.
    pub(crate) fn start(binary: &Path, directory: &Path) -> Self {
        let (http, telnet) = (free_address(), free_address());
        let process = Command::new(binary)
            .arg(format!("-storageDataPath={}", directory.display()))
            .arg(format!("-httpListenAddr={http}"))
            .arg(format!("-opentsdbListenAddr={telnet}"))
            .args(["-retentionPeriod=100y", "-search.disableCache"])
            .args(["-search.maxUniqueTimeseries=5000000", "-search.maxSeries=5000000"])
            .args(["-search.maxSamplesPerQuery=10000000000", "-search.maxQueryDuration=120s"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start VM_BINARY");
        let began = Instant::now();
        while [http, telnet].iter().any(|address| std::net::TcpStream::connect(address).is_err()) {
            assert!(began.elapsed() < TIMEOUT, "VM_BINARY does not serve");
            thread::sleep(Duration::from_millis(50));
        }
        Self { process, http, telnet }
    }

    /// Waits until all points are found by queries.
    pub(crate) fn wait_for_points(&self, set: &DataSet) {
        let _ = timed_http::get(self.http, "/internal/force_flush", BodyUse::Discard);
        let secs = set.steps as u64 * set.step_secs;
        let query = format!("sum(count_over_time({}[{secs}s]))", METRIC.replace('.', "\\."));
        let uri =
            format!("/api/v1/query?query={}&time={}&nocache=1", encoded(&query), set.last_second());
        let began = Instant::now();
        loop {
            let response = timed_http::get(self.http, &uri, BodyUse::Keep);
            let body: Value = serde_json::from_slice(&response.body).expect("JSON");
            let count = body["data"]["result"][0]["value"][1].as_str();
            if count.and_then(|count| count.parse().ok()) == Some(set.points()) {
                return;
            }
            assert!(began.elapsed() < TIMEOUT, "VictoriaMetrics has not all points: {body}");
            thread::sleep(Duration::from_millis(500));
        }
    }
}

impl Server for Victoria {
    fn pid(&self) -> u32 {
        self.process.id()
    }

    fn telnet(&self) -> SocketAddr {
        self.telnet
    }

    /// A point of the answer is that of the interval that ends there, so the last one is a step later.
    fn query(&self, _: &DataSet, shape: &Shape) -> Duration {
        let Shape { range: (start, end), interval, metricsql, .. } = shape;
        let (first, last) = (start / interval + 1, end / interval + 1);
        let uri = format!(
            "/api/v1/query_range?query={}&start={}&end={}&step={interval}s&nocache=1",
            encoded(metricsql),
            first * interval,
            last * interval,
        );
        let response = timed_http::get(self.http, &uri, BodyUse::Keep);
        let body: Value = serde_json::from_slice(&response.body).expect("JSON");
        let series = body["data"]["result"].as_array().unwrap_or_else(|| panic!("{uri}: {body}"));
        assert_eq!(series.len(), shape.groups, "{uri}");
        response.total
    }
}

impl Drop for Victoria {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An address of this host that was free a moment ago.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address")
}
