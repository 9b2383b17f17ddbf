//! The load of the bench: series of four kinds with a point every ten seconds, as telnet lines or
//! put bodies.

use tsd_testkit::{
    Xorshift64,
    put_load::{ConnectionLoad, MetricTotal, PutProtocol, REQUEST_POINTS},
};

/// Seconds between two points of a series.
pub(crate) const STEP_SECS: u64 = 10;
/// Time of the first point: the start of an hour, so long ago that row compaction is due.
pub(crate) const FIRST_SECOND: u64 = 1_599_998_400;
/// Number of metrics; the metric decides the kind of a series.
const METRICS: usize = 8;

/// Size of the load, and its totals.
pub(crate) struct IngestLoad {
    series: usize,
    steps: usize,
    /// Count and sum of each metric.
    pub(crate) totals: Vec<MetricTotal>,
}

impl IngestLoad {
    pub(crate) fn new(series: usize, steps: usize) -> Self {
        assert!(steps > 0, "at least one point per series");
        let mut totals = vec![MetricTotal::default(); METRICS];
        for (i, total) in totals.iter_mut().enumerate() {
            total.metric = metric(i);
        }
        let mut all: Vec<_> = (0..series).map(SeriesValues::new).collect();
        for _ in 0..steps {
            for values in &mut all {
                let total = &mut totals[values.series % METRICS];
                total.count += 1;
                total.sum += values.next() as f64 / if values.is_float() { 100.0 } else { 1.0 };
            }
        }
        Self { series, steps, totals }
    }

    pub(crate) const fn points(&self) -> usize {
        self.series * self.steps
    }

    pub(crate) const fn end_second(&self) -> u64 {
        FIRST_SECOND + self.steps as u64 * STEP_SECS
    }

    /// Renders the load of each connection; one connection sends a series.
    pub(crate) fn render(&self, protocol: PutProtocol, connections: usize) -> Vec<ConnectionLoad> {
        (0..connections)
            .map(|connection| {
                let series: Vec<_> = (connection..self.series)
                    .step_by(connections)
                    .map(|series| (SeriesValues::new(series), Names::new(series)))
                    .collect();
                match protocol {
                    PutProtocol::Telnet => self.render_lines(series),
                    PutProtocol::Http => self.render_requests(series),
                }
            })
            .collect()
    }

    fn render_lines(&self, mut series: Vec<(SeriesValues, Names)>) -> ConnectionLoad {
        let mut bytes = Vec::with_capacity(series.len() * self.steps * 64);
        let mut request_ends = Vec::with_capacity(self.steps);
        let mut numbers = itoa::Buffer::new();
        for step in 0..self.steps {
            for (values, names) in &mut series {
                bytes.extend_from_slice(b"put ");
                bytes.extend_from_slice(names.metric.as_bytes());
                bytes.push(b' ');
                bytes.extend_from_slice(numbers.format(second(step)).as_bytes());
                bytes.push(b' ');
                values.render(&mut bytes);
                bytes.extend_from_slice(names.telnet_tags.as_bytes());
                bytes.push(b'\n');
            }
            request_ends.push(bytes.len());
        }
        ConnectionLoad { bytes, request_ends }
    }

    fn render_requests(&self, mut series: Vec<(SeriesValues, Names)>) -> ConnectionLoad {
        let mut load = ConnectionLoad {
            bytes: Vec::with_capacity(series.len() * self.steps * 128),
            request_ends: Vec::new(),
        };
        let mut body = Vec::new();
        let mut points = 0;
        let mut numbers = itoa::Buffer::new();
        for step in 0..self.steps {
            for (values, names) in &mut series {
                body.push(if points == 0 { b'[' } else { b',' });
                body.extend_from_slice(b"{\"metric\":\"");
                body.extend_from_slice(names.metric.as_bytes());
                body.extend_from_slice(b"\",\"timestamp\":");
                body.extend_from_slice(numbers.format(second(step)).as_bytes());
                body.extend_from_slice(b",\"value\":");
                values.render(&mut body);
                body.extend_from_slice(names.json_tags.as_bytes());
                points += 1;
                if points == REQUEST_POINTS {
                    body.push(b']');
                    load.push_put_request(&body);
                    body.clear();
                    points = 0;
                }
            }
        }
        if points > 0 {
            body.push(b']');
            load.push_put_request(&body);
        }
        load
    }
}

const fn second(step: usize) -> u64 {
    FIRST_SECOND + step as u64 * STEP_SECS
}

fn metric(i: usize) -> String {
    format!("bench.metric.{}", i % METRICS)
}

/// Metric and tags of a series, as each protocol writes them.
struct Names {
    metric: String,
    telnet_tags: String,
    json_tags: String,
}

impl Names {
    fn new(series: usize) -> Self {
        let host = format!("host{:06}", series / METRICS);
        let dc = format!("dc{}", series % 4);
        Self {
            metric: metric(series),
            telnet_tags: format!(" host={host} dc={dc}"),
            json_tags: format!(",\"tags\":{{\"host\":\"{host}\",\"dc\":\"{dc}\"}}}}"),
        }
    }
}

/// Values of one series: a random walk in hundredths, a counter, a gauge that seldom changes, or a
/// constant.
struct SeriesValues {
    series: usize,
    step: u64,
    random: Xorshift64,
    value: i64,
}

impl SeriesValues {
    fn new(series: usize) -> Self {
        let random = Xorshift64::new((series as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let value = if (series % METRICS).is_multiple_of(4) { 5_000 } else { 7 };
        Self { series, step: 0, random, value }
    }

    const fn is_float(&self) -> bool {
        (self.series % METRICS).is_multiple_of(4)
    }

    /// The next value; for a walk in hundredths.
    fn next(&mut self) -> i64 {
        let random = self.random.next_bits() as i64;
        match self.series % METRICS % 4 {
            0 => self.value = (self.value + random % 101 - 50).max(0),
            1 => self.value += random % 1_500,
            2 if self.step.is_multiple_of(7) => self.value = random % 2_000,
            _ => {}
        }
        self.step += 1;
        self.value
    }

    fn render(&mut self, bytes: &mut Vec<u8>) {
        let float = self.is_float();
        let value = self.next();
        let mut numbers = itoa::Buffer::new();
        if float {
            bytes.extend_from_slice(numbers.format(value / 100).as_bytes());
            bytes.push(b'.');
            let cents = (value % 100) as u8;
            bytes.extend_from_slice(&[b'0' + cents / 10, b'0' + cents % 10]);
        } else {
            bytes.extend_from_slice(numbers.format(value).as_bytes());
        }
    }
}
