//! The daemon of this repository, embedded store.

use std::{net::SocketAddr, path::Path, time::Duration};

use serde_json::Value;
use tsd_testkit::{
    Daemon, DaemonBuilder, encoded,
    timed_http::{self, BodyUse},
};

use crate::{
    Server,
    data_set::{DataSet, FIRST_SECOND, METRIC},
    shape::Shape,
};

/// A running daemon.
pub(crate) struct Saltern(Daemon);

impl Saltern {
    pub(crate) fn start(directory: &Path) -> Self {
        let daemon = DaemonBuilder::of_bench(env!("CARGO_BIN_EXE_tsdb"), directory)
            .args(&["--log-level", "warn,tsd_cli=info"])
            // Each query reads its points, as on the other server without its cache.
            .env("TSD_QUERY_CACHE_SIZE", "0")
            .start();
        Self(daemon)
    }

    /// Fails if the sum of all points is not the known one.
    pub(crate) fn check_sum(&self, set: &DataSet) {
        // `0all` leaves out the end.
        let end = set.last_second() + 1;
        let start = set.first_second;
        let uri = format!("/api/query?start={start}&end={end}&m=sum:0all-sum:{METRIC}");
        let response = timed_http::get(self.0.address(), &uri, BodyUse::Keep);
        let body: Value = serde_json::from_slice(&response.body).expect("JSON");
        let sums = body[0]["dps"].as_object().unwrap_or_else(|| panic!("{uri}: {body}"));
        let sum: f64 = sums.values().filter_map(Value::as_f64).sum();
        assert!(
            sum.to_bits() == set.sum().to_bits(),
            "sum of all points: {sum}, not {}",
            set.sum()
        );
    }

    /// Fails if a query selects another number of points than expected, for example because its filter selects
    /// other series. Results omit intervals that begin before the range, so only queries of the whole range are
    /// checked.
    pub(crate) fn check_input(&self, shape: &Shape) {
        let Shape { range: (start, end), opentsdb_count, input, .. } = shape;
        if *start != FIRST_SECOND {
            return;
        }
        let uri = format!("/api/query?start={start}&end={end}&m={}", encoded(opentsdb_count));
        let response = timed_http::get(self.0.address(), &uri, BodyUse::Keep);
        let body: Value = serde_json::from_slice(&response.body).expect("JSON");
        let series = body.as_array().unwrap_or_else(|| panic!("{uri}: {body}"));
        let counts = series.iter().flat_map(|one| one["dps"].as_object().expect("points").values());
        let count: f64 = counts.filter_map(Value::as_f64).sum();
        assert!(count.to_bits() == (*input as f64).to_bits(), "{uri}: {count}, not {input}");
    }

    /// Ends the daemon by SIGKILL.
    pub(crate) fn kill(self) {
        self.0.kill();
    }

    pub(crate) fn stop(self) {
        assert!(self.0.terminate().success(), "a clean shutdown");
    }
}

impl Server for Saltern {
    fn pid(&self) -> u32 {
        self.0.pid()
    }

    fn telnet(&self) -> SocketAddr {
        self.0.address()
    }

    fn query(&self, _: &DataSet, shape: &Shape) -> Duration {
        let Shape { range: (start, end), opentsdb, .. } = shape;
        let uri = format!("/api/query?start={start}&end={end}&m={}", encoded(opentsdb));
        let response = timed_http::get(self.0.address(), &uri, BodyUse::Keep);
        let body: Value = serde_json::from_slice(&response.body).expect("JSON");
        let series = body.as_array().unwrap_or_else(|| panic!("{uri}: {body}"));
        let points: usize =
            series.iter().map(|one| one["dps"].as_object().expect("points").len()).sum();
        assert_eq!((series.len(), points), (shape.groups, shape.points), "{uri}");
        response.total
    }
}
