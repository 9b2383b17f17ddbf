//! Tests properties of query results over HTTP for random points. A result depends only on the
//! points, not on how they were written or stored, and partial aggregates combine to the whole.

mod points;

use proptest::prelude::*;
use tokio::runtime::Runtime;
use tsd_cli::Node;
use tsd_testkit::{HttpResponse, exchange, http};

use crate::{conformance::json::Json, in_process};
use points::{START, SamplePoint, metric_query, points, put_body, rollup_body, telnet_lines};

/// Random data sets per test; each starts its own daemons.
const CASES: u32 = 6;

/// Queries of many kinds over three hours.
const QUERIES: &[&str] = &[
    "none:m",
    "sum:m{host=*}",
    "avg:m{dc=x}",
    "mult:m",
    "dev:m{host=*}",
    "p90:m",
    "count:1m-count-zero:m",
    "zimsum:10m-avg-nan:m{dc=*}",
    "mimmax:1h-p95:m",
    "sum:0all-sum:m{host=*}",
    "max:rate:m{host=*}",
    "avg:rate{counter,,100}:5m-max:m",
    "min:7m-last-null:m{}{host=not_literal_or(b)}",
    "first:m{host=wildcard(*)}",
    "pfsum:1hc-min:m{dc=x|y}",
];

/// Rollup tables of minutes and hours.
pub(crate) const ROLLUPS: &str = r#"{"aggregationIds":{"sum":0,"count":1,"min":2,"max":3},"intervals":[
    {"table":"tsdb","preAggregationTable":"tsdb-preagg","interval":"1m","rowSpan":"1h","defaultInterval":true},
    {"table":"tsdb-1h","preAggregationTable":"tsdb-preagg-1h","interval":"1h","rowSpan":"1d"}]}"#;

/// A daemon with its own directory.
struct TestDaemon {
    runtime: Runtime,
    directory: tempfile::TempDir,
    settings: Vec<(&'static str, &'static str)>,
    node: Option<Node>,
}

impl TestDaemon {
    /// Starts a daemon and assigns all names, so that all daemons have the same UIDs.
    fn start(salted: bool) -> Self {
        Self::start_with(salted, &[])
    }

    fn start_with(salted: bool, settings: &[(&'static str, &'static str)]) -> Self {
        let mut daemon = Self {
            runtime: Runtime::new().expect("a runtime"),
            directory: in_process::directory(),
            settings: vec![
                ("tsd.core.auto_create_metrics", "true"),
                ("tsd.storage.salt.width", if salted { "1" } else { "0" }),
            ],
            node: None,
        };
        daemon.settings.extend(settings);
        daemon.open();
        let names = r#"{"metric":["m"],"tagk":["host","dc"],"tagv":["a","b","c","x","y"]}"#;
        assert_eq!(daemon.post("/api/uid/assign", names), 200);
        daemon
    }

    fn open(&mut self) {
        let node = in_process::start(&self.runtime, self.directory.path(), &self.settings);
        self.node = Some(node.expect("a daemon"));
    }

    fn restart(&mut self) {
        self.stop();
        self.open();
    }

    fn stop(&mut self) {
        if let Some(node) = self.node.take() {
            in_process::stop(&self.runtime, node);
        }
    }

    fn node(&self) -> &Node {
        self.node.as_ref().expect("a running daemon")
    }

    fn post(&self, uri: &str, body: &str) -> u16 {
        http(self.node().address(), "POST", uri, Some(body)).status
    }

    /// Writes points over HTTP in requests of `per_request` points.
    fn put(&self, points: &[SamplePoint], per_request: usize) {
        for chunk in points.chunks(per_request) {
            assert_eq!(self.post("/api/put", &put_body(chunk)), 204);
        }
    }

    /// Writes points by telnet and waits until they are stored.
    fn put_lines(&self, points: &[SamplePoint]) {
        let received = exchange(self.node().address(), telnet_lines(points).as_bytes());
        assert_eq!(String::from_utf8_lossy(&received), "");
        self.runtime.block_on(self.node().engine().drain_writes());
    }

    fn compact(&self) {
        self.runtime.block_on(self.node().engine().flush_compactions());
    }

    /// The body of a query result.
    fn query(&self, m: &str) -> String {
        let response = self.try_query(m);
        assert_eq!(response.status, 200, "{m}: {}", response.body);
        response.body
    }

    fn try_query(&self, m: &str) -> HttpResponse {
        let m = m.replace('{', "%7B").replace('}', "%7D").replace('|', "%7C");
        let uri = format!("/api/query?start={START}&end={}&ms&arrays&m={m}", START + 10_799);
        http(self.node().address(), "GET", &uri, None)
    }

    fn results<'m>(&self, random: &'m [String]) -> Vec<(&'m str, u16, String)> {
        let fixed = QUERIES.iter().copied();
        fixed
            .chain(random.iter().map(String::as_str))
            .map(|m| {
                let HttpResponse { status, body } = self.try_query(m);
                (m, status, body)
            })
            .collect()
    }
}

impl Drop for TestDaemon {
    fn drop(&mut self) {
        self.stop();
    }
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() }
}

/// Points of the result of `m`, as points of the metric `metric`.
fn as_points(daemon: &TestDaemon, m: &str, metric: &str) -> Vec<SamplePoint> {
    let response = Json::parse(&daemon.query(m)).expect("JSON");
    let mut points = Vec::new();
    for series in response.items() {
        let tags = series.get("tags").map(Json::fields).unwrap_or_default();
        let tag = |key: &str| match tags.iter().find(|(name, _)| name == key) {
            Some((_, Json::Text(tagv))) => tagv.clone(),
            _ => "a".to_owned(),
        };
        for point in series.get("dps").map(Json::items).unwrap_or_default() {
            let [Json::Number(time), Json::Number(value)] = point.items() else {
                panic!("not a point: {point}");
            };
            points.push(SamplePoint {
                metric: metric.to_owned(),
                time_ms: time.parse().expect("a time"),
                value: value.clone(),
                host: tag("host"),
                dc: tag("dc"),
            });
        }
    }
    points
}

/// Times and values of the series of a result, which has at most one series.
fn numbers(daemon: &TestDaemon, m: &str) -> Vec<(i64, f64)> {
    let response = Json::parse(&daemon.query(m)).expect("JSON");
    assert!(response.items().len() <= 1, "{m} is one group");
    let points = response.items().iter().filter_map(|s| s.get("dps").map(Json::items));
    points
        .flatten()
        .map(|point| match point.items() {
            [Json::Number(time), Json::Number(value)] => {
                (time.parse().expect("a time"), value.parse().expect("a number"))
            }
            _ => panic!("not a point: {point}"),
        })
        .collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn results_depend_on_the_points_only(
        (points, shuffled) in points(false).prop_flat_map(|points| {
            (Just(points.clone()), Just(points).prop_shuffle())
        }),
        per_request in 1..40_usize,
        random in prop::collection::vec(metric_query(), 20),
    ) {
        let mut in_order = TestDaemon::start(false);
        in_order.put(&points, usize::MAX);
        let expected = in_order.results(&random);
        {
            let salted = TestDaemon::start(true);
            salted.put(&shuffled, per_request);
            prop_assert_eq!(&salted.results(&random), &expected, "salted, in another order");
            salted.compact();
            prop_assert_eq!(&salted.results(&random), &expected, "salted, compacted");
        }
        {
            let telnet = TestDaemon::start(false);
            let (lines, bodies) = shuffled.split_at(shuffled.len() / 2);
            telnet.put_lines(lines);
            telnet.put(bodies, per_request);
            prop_assert_eq!(&telnet.results(&random), &expected, "half of them by telnet");
        }
        in_order.restart();
        prop_assert_eq!(&in_order.results(&random), &expected, "after a restart");
        in_order.compact();
        prop_assert_eq!(&in_order.results(&random), &expected, "compacted");
        in_order.restart();
        prop_assert_eq!(&in_order.results(&random), &expected, "compacted, after a restart");
    }

    #[test]
    fn late_points_are_merged_into_compacted_rows(
        (points, at) in points(false).prop_shuffle().prop_flat_map(|points| {
            let len = points.len();
            (Just(points), 0..=len)
        }),
        random in prop::collection::vec(metric_query(), 20),
    ) {
        let whole = TestDaemon::start(false);
        whole.put(&points, usize::MAX);
        let mut late = TestDaemon::start(false);
        let (early, rest) = points.split_at(at);
        late.put(early, usize::MAX);
        late.compact();
        late.restart();
        late.put(rest, usize::MAX);
        let expected = whole.results(&random);
        prop_assert_eq!(&late.results(&random), &expected, "rows partly compacted");
        late.compact();
        prop_assert_eq!(&late.results(&random), &expected, "rows compacted twice");
    }

    #[test]
    fn downsampling_twice_equals_the_coarser_downsampling(points in points(true)) {
        let daemon = TestDaemon::start(true);
        daemon.put(&points, usize::MAX);
        for (finer, coarser) in [
            ("sum", "sum"), ("min", "min"), ("max", "max"), ("count", "sum"),
            ("first", "first"), ("last", "last"),
        ] {
            let step = format!("m.{finer}");
            daemon.put(&as_points(&daemon, &format!("none:1m-{finer}:m"), &step), usize::MAX);
            for host in ["a", "b", "c"] {
                let of = |downsample: &str, metric: &str| {
                    numbers(&daemon, &format!("zimsum:{downsample}:{metric}{{host={host}}}"))
                };
                let twice = of(&format!("30m-{coarser}"), &step);
                prop_assert_eq!(twice, of(&format!("30m-{finer}"), "m"), "{} of {}", coarser, finer);
            }
        }
    }

    #[test]
    fn aggregated_groups_equal_the_whole(points in points(true)) {
        let daemon = TestDaemon::start(true);
        daemon.put(&points, usize::MAX);
        for aggregator in ["zimsum", "mimmin", "mimmax"] {
            let whole = numbers(&daemon, &format!("{aggregator}:m"));
            for key in ["host", "dc"] {
                let metric = format!("m.{aggregator}.{key}");
                let groups = as_points(&daemon, &format!("{aggregator}:m{{{key}=*}}"), &metric);
                daemon.put(&groups, usize::MAX);
                let merged = numbers(&daemon, &format!("{aggregator}:{metric}"));
                prop_assert_eq!(&merged, &whole, "{} by {}", aggregator, key);
            }
        }
    }

    #[test]
    fn results_of_rollups_equal_those_of_raw_points(points in points(true), salted: bool) {
        let settings = [("tsd.rollups.enable", "true"), ("tsd.rollups.config", ROLLUPS)];
        let daemon = TestDaemon::start_with(salted, &settings);
        daemon.put(&points, usize::MAX);
        for aggregator in ["sum", "count", "min", "max"] {
            let hours = as_points(&daemon, &format!("none:1h-{aggregator}:rollup_raw:m"), "m");
            let status = daemon.post("/api/rollup", &rollup_body(&hours, "1h", aggregator));
            prop_assert_eq!(status, 204);
        }
        for downsample in ["1h-sum", "1h-count", "1h-max", "1h-avg", "3h-sum", "3h-min", "3h-avg"] {
            for aggregator in ["zimsum", "mimmax", "mimmin"] {
                let of = |usage: &str| {
                    numbers(&daemon, &format!("{aggregator}:{downsample}:{usage}:m"))
                };
                prop_assert_eq!(
                    of("rollup_nofallback"), of("rollup_raw"), "{}:{}", aggregator, downsample
                );
            }
        }
    }
}
