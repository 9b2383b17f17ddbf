//! What must hold whatever the points are, seen over HTTP: an answer hangs on the points alone, not on
//! how they came or where they lie, and parts put together are the whole.

mod points;

use proptest::prelude::*;
use tokio::runtime::Runtime;
use tsd_cli::Node;

use crate::{
    conformance::json::Json,
    in_process,
    socket::{Answer, converse, http},
};
use points::{Point, START, data_set, put_body, question, rollup_body, telnet_lines};

/// Data sets a test draws; each starts daemons of its own.
const CASES: u32 = 6;

/// Questions of many kinds over three hours.
const QUESTIONS: &[&str] = &[
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

/// Rolled-up hours beside the points.
const ROLLUPS: &str = r#"{"aggregationIds":{"sum":0,"count":1,"min":2,"max":3},"intervals":[
    {"table":"tsdb","preAggregationTable":"tsdb-preagg","interval":"1m","rowSpan":"1h","defaultInterval":true},
    {"table":"tsdb-1h","preAggregationTable":"tsdb-preagg-1h","interval":"1h","rowSpan":"1d"}]}"#;

/// A daemon with a directory of its own.
struct Daemon {
    runtime: Runtime,
    directory: tempfile::TempDir,
    settings: Vec<(&'static str, &'static str)>,
    node: Option<Node>,
}

impl Daemon {
    /// One with the names of every point assigned, so that all have the same UIDs.
    fn start(salted: bool) -> Self {
        Self::start_with(salted, &[])
    }

    fn start_with(salted: bool, more: &[(&'static str, &'static str)]) -> Self {
        let mut daemon = Self {
            runtime: Runtime::new().expect("a runtime"),
            directory: in_process::directory(),
            settings: vec![
                ("tsd.core.auto_create_metrics", "true"),
                ("tsd.storage.salt.width", if salted { "1" } else { "0" }),
            ],
            node: None,
        };
        daemon.settings.extend(more);
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
        self.node.as_ref().expect("it runs")
    }

    fn post(&self, uri: &str, body: &str) -> u16 {
        http(self.node().address(), "POST", uri, Some(body)).status
    }

    /// Writes points over HTTP, so many a request.
    fn put(&self, points: &[Point], a_request: usize) {
        for chunk in points.chunks(a_request) {
            assert_eq!(self.post("/api/put", &put_body(chunk)), 204);
        }
    }

    /// Writes points by telnet and waits until they are there.
    fn put_lines(&self, points: &[Point]) {
        let said = converse(self.node().address(), telnet_lines(points).as_bytes());
        assert_eq!(String::from_utf8_lossy(&said), "");
        self.runtime.block_on(self.node().engine().drain_writes());
    }

    fn compact(&self) {
        self.runtime.block_on(self.node().engine().flush_compactions());
    }

    /// The series of an answer.
    fn ask(&self, m: &str) -> String {
        let answer = self.try_ask(m);
        assert_eq!(answer.status, 200, "{m}: {}", answer.body);
        answer.body
    }

    fn try_ask(&self, m: &str) -> Answer {
        let m = m.replace('{', "%7B").replace('}', "%7D").replace('|', "%7C");
        let uri = format!("/api/query?start={START}&end={}&ms&arrays&m={m}", START + 10_799);
        http(self.node().address(), "GET", &uri, None)
    }

    fn answers<'m>(&self, drawn: &'m [String]) -> Vec<(&'m str, u16, String)> {
        let fixed = QUESTIONS.iter().copied();
        fixed
            .chain(drawn.iter().map(String::as_str))
            .map(|m| {
                let Answer { status, body } = self.try_ask(m);
                (m, status, body)
            })
            .collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
    }
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() }
}

/// Points of the answer to `m`, as points of the metric `metric`.
fn as_points(daemon: &Daemon, m: &str, metric: &str) -> Vec<Point> {
    let answer = Json::parse(&daemon.ask(m)).expect("JSON");
    let mut points = Vec::new();
    for series in answer.items() {
        let tags = series.get("tags").map(Json::fields).unwrap_or_default();
        let tag = |key: &str| match tags.iter().find(|(name, _)| name == key) {
            Some((_, Json::Text(tagv))) => tagv.clone(),
            _ => "a".to_owned(),
        };
        for point in series.get("dps").map(Json::items).unwrap_or_default() {
            let [Json::Number(time), Json::Number(value)] = point.items() else {
                panic!("no point: {point}");
            };
            points.push(Point {
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

/// Times and numbers of the one series an answer has, or of none.
fn numbers(daemon: &Daemon, m: &str) -> Vec<(i64, f64)> {
    let answer = Json::parse(&daemon.ask(m)).expect("JSON");
    assert!(answer.items().len() <= 1, "{m} is one group");
    let points = answer.items().iter().filter_map(|s| s.get("dps").map(Json::items));
    points
        .flatten()
        .map(|point| match point.items() {
            [Json::Number(time), Json::Number(value)] => {
                (time.parse().expect("a time"), value.parse().expect("a number"))
            }
            _ => panic!("no point: {point}"),
        })
        .collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn answers_hang_on_the_points_alone(
        (points, shuffled) in data_set(false).prop_flat_map(|points| {
            (Just(points.clone()), Just(points).prop_shuffle())
        }),
        a_request in 1..40_usize,
        drawn in prop::collection::vec(question(), 20),
    ) {
        let mut in_order = Daemon::start(false);
        in_order.put(&points, usize::MAX);
        let expected = in_order.answers(&drawn);
        {
            let salted = Daemon::start(true);
            salted.put(&shuffled, a_request);
            prop_assert_eq!(&salted.answers(&drawn), &expected, "salted, in another order");
            salted.compact();
            prop_assert_eq!(&salted.answers(&drawn), &expected, "salted, compacted");
        }
        {
            let telnet = Daemon::start(false);
            let (lines, bodies) = shuffled.split_at(shuffled.len() / 2);
            telnet.put_lines(lines);
            telnet.put(bodies, a_request);
            prop_assert_eq!(&telnet.answers(&drawn), &expected, "half of them by telnet");
        }
        in_order.restart();
        prop_assert_eq!(&in_order.answers(&drawn), &expected, "after a restart");
        in_order.compact();
        prop_assert_eq!(&in_order.answers(&drawn), &expected, "compacted");
        in_order.restart();
        prop_assert_eq!(&in_order.answers(&drawn), &expected, "compacted, after a restart");
    }

    #[test]
    fn a_late_half_is_merged_into_compacted_rows(
        (points, at) in data_set(false).prop_shuffle().prop_flat_map(|points| {
            let len = points.len();
            (Just(points), 0..=len)
        }),
        drawn in prop::collection::vec(question(), 20),
    ) {
        let whole = Daemon::start(false);
        whole.put(&points, usize::MAX);
        let mut late = Daemon::start(false);
        let (early, rest) = points.split_at(at);
        late.put(early, usize::MAX);
        late.compact();
        late.restart();
        late.put(rest, usize::MAX);
        let expected = whole.answers(&drawn);
        prop_assert_eq!(&late.answers(&drawn), &expected, "rows in pieces");
        late.compact();
        prop_assert_eq!(&late.answers(&drawn), &expected, "rows compacted twice");
    }

    #[test]
    fn a_downsample_of_a_downsample_is_the_coarser_one(points in data_set(true)) {
        let daemon = Daemon::start(true);
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
    fn groups_put_together_are_the_whole(points in data_set(true)) {
        let daemon = Daemon::start(true);
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
    fn rolled_up_hours_answer_as_their_points(points in data_set(true), salted: bool) {
        let settings = [("tsd.rollups.enable", "true"), ("tsd.rollups.config", ROLLUPS)];
        let daemon = Daemon::start_with(salted, &settings);
        daemon.put(&points, usize::MAX);
        for aggregator in ["sum", "count", "min", "max"] {
            let hours = as_points(&daemon, &format!("none:1h-{aggregator}:rollup_raw:m"), "m");
            let status = daemon.post("/api/rollup", &rollup_body(&hours, "1h", aggregator));
            prop_assert_eq!(status, 204);
        }
        for question in ["1h-sum", "1h-count", "1h-max", "1h-avg", "3h-sum", "3h-min", "3h-avg"] {
            for aggregator in ["zimsum", "mimmax", "mimmin"] {
                let of = |usage: &str| {
                    numbers(&daemon, &format!("{aggregator}:{question}:{usage}:m"))
                };
                prop_assert_eq!(
                    of("rollup_nofallback"), of("rollup_raw"), "{}:{}", aggregator, question
                );
            }
        }
    }
}
