//! The points of the load as telnet lines and put bodies, and the totals that queries must return.

use std::{ops::Range, time::SystemTime};

use tsd_testkit::put_load::{ConnectionLoad, MetricTotal, PutProtocol, REQUEST_POINTS};

use crate::cells::{FIRST_SECOND, STEP_SECS, number};

/// Metrics the series are distributed over.
const METRICS: u32 = 8;
/// Longest time of a run, in seconds.
const LONGEST_RUN: u64 = 1_200;

/// Some steps of all series, as points.
#[derive(Clone, Debug)]
pub(crate) struct PointLoad {
    pub(crate) series: u32,
    pub(crate) steps: Range<u32>,
}

impl PointLoad {
    /// Steps that begin with an hour that does not end during the run. Points of past hours would be read back,
    /// since OpenTSDB may compact their rows, which usual clients do not cause.
    pub(crate) fn of_this_hour(series: u32, steps: Range<u32>) -> Self {
        let now = SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970").as_secs();
        let end = u32::try_from(now + LONGEST_RUN).expect("a time before 2106");
        let first = (end - end % 3_600 - FIRST_SECOND) / STEP_SECS;
        Self { series, steps: first + steps.start..first + steps.end }
    }

    pub(crate) const fn points(&self) -> u64 {
        self.series as u64 * (self.steps.end - self.steps.start) as u64
    }

    /// First and last second of its time range.
    pub(crate) const fn seconds(&self) -> (u64, u64) {
        (second(self.steps.start) as u64, second(self.steps.end) as u64 - 1)
    }

    /// Count and sum of each metric.
    pub(crate) fn totals(&self) -> Vec<MetricTotal> {
        let mut totals: Vec<_> = (0..METRICS)
            .map(|at| MetricTotal { metric: metric(at), ..MetricTotal::default() })
            .collect();
        for series in 0..self.series {
            let total = &mut totals[(series % METRICS) as usize];
            for step in self.steps.clone() {
                total.count += 1;
                total.sum += f64::from(number(series, step));
            }
        }
        totals
    }

    /// A query `m` of one series.
    pub(crate) fn query_of(series: u32) -> String {
        let Names { metric, host, dc, .. } = Names::new(series);
        format!("sum:{metric}%7Bhost={host},dc={dc}%7D")
    }

    /// Renders the load of each connection, step by step; one connection sends a series.
    pub(crate) fn render(&self, protocol: PutProtocol, connections: u32) -> Vec<ConnectionLoad> {
        match protocol {
            PutProtocol::Telnet => {
                self.names(connections).map(|names| self.render_lines(&names)).collect()
            }
            PutProtocol::Http => self.render_requests_of(REQUEST_POINTS, connections),
        }
    }

    /// Renders HTTP requests of `request_points` points each, as [`Self::render`].
    pub(crate) fn render_requests_of(
        &self,
        request_points: usize,
        connections: u32,
    ) -> Vec<ConnectionLoad> {
        let names = self.names(connections);
        names.map(|names| self.render_requests(&names, request_points)).collect()
    }

    /// Renders HTTP requests of at most `request_points` points of one host, as a collector on that host sends them. The requests of all hosts
    /// alternate.
    pub(crate) fn render_host_requests(
        &self,
        request_points: usize,
        connections: u32,
    ) -> Vec<ConnectionLoad> {
        let hosts: Vec<Vec<(u32, Names)>> = (0..self.series)
            .step_by(METRICS as usize)
            .map(|first| (first..self.series.min(first + METRICS)).map(|at| (at, Names::new(at))))
            .map(Iterator::collect)
            .collect();
        let render = |connection: u32| {
            let own = hosts.iter().skip(connection as usize).step_by(connections as usize);
            let loads: Vec<_> =
                own.map(|names| self.render_requests(names, request_points)).collect();
            alternate(&loads)
        };
        (0..connections).map(render).collect()
    }

    /// The series of each connection.
    fn names(&self, connections: u32) -> impl Iterator<Item = Vec<(u32, Names)>> {
        let series = self.series;
        (0..connections).map(move |connection| {
            let series = (connection..series).step_by(connections as usize);
            series.map(|series| (series, Names::new(series))).collect()
        })
    }

    fn render_lines(&self, names: &[(u32, Names)]) -> ConnectionLoad {
        let mut bytes = Vec::with_capacity(names.len() * self.steps.len() * 64);
        let mut request_ends = Vec::new();
        let (mut time, mut value) = (itoa::Buffer::new(), itoa::Buffer::new());
        for step in self.steps.clone() {
            let time = time.format(second(step)).as_bytes();
            for (series, names) in names {
                let value = value.format(number(*series, step)).as_bytes();
                let put = [b"put ", names.metric.as_bytes(), b" ", time, b" ", value];
                for part in put {
                    bytes.extend_from_slice(part);
                }
                bytes.extend_from_slice(names.telnet_tags.as_bytes());
            }
            request_ends.push(bytes.len());
        }
        ConnectionLoad { bytes, request_ends }
    }

    fn render_requests(&self, names: &[(u32, Names)], request_points: usize) -> ConnectionLoad {
        let mut load = ConnectionLoad {
            bytes: Vec::with_capacity(names.len() * self.steps.len() * 128),
            request_ends: Vec::new(),
        };
        let points: Vec<_> =
            self.steps.clone().flat_map(|step| names.iter().map(move |one| (step, one))).collect();
        for points in points.chunks(request_points) {
            let points: Vec<_> = points.iter().map(|(step, (s, n))| n.json(*s, *step)).collect();
            load.push_put_request(format!("[{}]", points.join(",")).as_bytes());
        }
        load
    }
}

/// The first request of each load, then the second one of each, and so on.
fn alternate(loads: &[ConnectionLoad]) -> ConnectionLoad {
    let mut all = ConnectionLoad { bytes: Vec::new(), request_ends: Vec::new() };
    let most = loads.iter().map(|load| load.request_ends.len()).max().unwrap_or(0);
    for at in 0..most {
        for load in loads {
            let Some(&end) = load.request_ends.get(at) else { continue };
            let start = if at == 0 { 0 } else { load.request_ends[at - 1] };
            all.bytes.extend_from_slice(&load.bytes[start..end]);
            all.request_ends.push(all.bytes.len());
        }
    }
    all
}

const fn second(step: u32) -> u32 {
    FIRST_SECOND + step * STEP_SECS
}

fn metric(at: u32) -> String {
    format!("bench.metric.{at}")
}

/// Metric and tags of a series, as each protocol writes them.
struct Names {
    metric: String,
    host: String,
    dc: String,
    telnet_tags: String,
    tags: String,
}

impl Names {
    fn new(series: u32) -> Self {
        let host = format!("host{:06}", series / METRICS);
        let dc = format!("dc{}", series % 16);
        Self {
            metric: metric(series % METRICS),
            telnet_tags: format!(" host={host} dc={dc}\n"),
            tags: format!("{{\"host\":\"{host}\",\"dc\":\"{dc}\"}}"),
            host,
            dc,
        }
    }

    fn json(&self, series: u32, step: u32) -> String {
        let Self { metric, tags, .. } = self;
        let (time, value) = (second(step), number(series, step));
        format!(
            "{{\"metric\":\"{metric}\",\"timestamp\":{time},\"value\":{value},\"tags\":{tags}}}"
        )
    }
}
