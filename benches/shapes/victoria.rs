//! Executes the queries of the shapes on VictoriaMetrics.

use std::{net::SocketAddr, time::Duration};

use tsd_testkit::VictoriaMetrics;

use crate::{
    Server,
    data_set::{DataSet, METRIC},
    shape::Shape,
};

/// Waits until all points are found by queries.
pub(crate) fn wait_for_points(victoria: &VictoriaMetrics, set: &DataSet) {
    let secs = set.steps as u64 * set.step_secs;
    let metric = METRIC.replace('.', "\\.");
    victoria.wait_for_points(&metric, (secs, set.last_second()), set.points());
}

impl Server for VictoriaMetrics {
    fn pid(&self) -> u32 {
        self.pid()
    }

    fn telnet(&self) -> SocketAddr {
        self.telnet()
    }

    /// A point of the result belongs to the interval that ends there, so the last point is a step
    /// later.
    fn query(&self, _: &DataSet, shape: &Shape) -> Duration {
        let Shape { range: (start, end), interval, metricsql, .. } = shape;
        let range = ((start / interval + 1) * interval, (end / interval + 1) * interval);
        let (body, time) = self.query_range(metricsql, range, *interval);
        let series = body["data"]["result"].as_array().unwrap_or_else(|| panic!("{body}"));
        assert_eq!(series.len(), shape.groups, "{metricsql}");
        time
    }
}
