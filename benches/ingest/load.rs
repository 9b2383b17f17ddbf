//! What is sent: series of four kinds, a point each every ten seconds.

use crate::send::{Body, Protocol, REQUEST_POINTS};

/// Seconds between two points of a series.
pub(crate) const STEP_SECS: u64 = 10;
/// Time of the first point: a full hour, long past.
pub(crate) const FIRST_SECOND: u64 = 1_599_998_400;
/// Metrics the series are spread over; their kind goes by number.
const METRICS: usize = 8;

/// Series and steps.
pub(crate) struct Load {
    series: usize,
    steps: usize,
    /// What a query must say of each metric.
    pub(crate) totals: Vec<Total>,
}

/// Count and sum of a metric's points.
#[derive(Clone, Debug, Default)]
pub(crate) struct Total {
    pub(crate) metric: String,
    pub(crate) count: u64,
    pub(crate) sum: f64,
}

impl Load {
    pub(crate) fn new(series: usize, steps: usize) -> Self {
        assert!(steps > 0, "at least one point a series");
        let mut totals = vec![Total::default(); METRICS];
        for (i, total) in totals.iter_mut().enumerate() {
            total.metric = metric(i);
        }
        let mut walks: Vec<_> = (0..series).map(Walk::new).collect();
        for _ in 0..steps {
            for walk in &mut walks {
                let total = &mut totals[walk.series % METRICS];
                total.count += 1;
                total.sum += walk.next() as f64 / if walk.is_float() { 100.0 } else { 1.0 };
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

    /// Everything every connection sends; a series keeps to one connection.
    pub(crate) fn render(&self, protocol: Protocol, connections: usize) -> Vec<Body> {
        (0..connections)
            .map(|connection| {
                let walks: Vec<_> = (connection..self.series)
                    .step_by(connections)
                    .map(|series| (Walk::new(series), Names::new(series)))
                    .collect();
                match protocol {
                    Protocol::Telnet => self.render_lines(walks),
                    Protocol::Http => self.render_requests(walks),
                }
            })
            .collect()
    }

    fn render_lines(&self, mut walks: Vec<(Walk, Names)>) -> Body {
        let mut bytes = Vec::with_capacity(walks.len() * self.steps * 64);
        let mut numbers = itoa::Buffer::new();
        for step in 0..self.steps {
            for (walk, names) in &mut walks {
                bytes.extend_from_slice(b"put ");
                bytes.extend_from_slice(names.metric.as_bytes());
                bytes.push(b' ');
                bytes.extend_from_slice(numbers.format(second(step)).as_bytes());
                bytes.push(b' ');
                walk.render(&mut bytes);
                bytes.extend_from_slice(names.words.as_bytes());
                bytes.push(b'\n');
            }
        }
        let request_ends = vec![bytes.len()];
        Body { bytes, request_ends }
    }

    fn render_requests(&self, mut walks: Vec<(Walk, Names)>) -> Body {
        let mut bytes = Vec::with_capacity(walks.len() * self.steps * 128);
        let mut request_ends = Vec::new();
        let mut body = Vec::new();
        let mut held = 0;
        let mut numbers = itoa::Buffer::new();
        for step in 0..self.steps {
            for (walk, names) in &mut walks {
                body.push(if held == 0 { b'[' } else { b',' });
                body.extend_from_slice(b"{\"metric\":\"");
                body.extend_from_slice(names.metric.as_bytes());
                body.extend_from_slice(b"\",\"timestamp\":");
                body.extend_from_slice(numbers.format(second(step)).as_bytes());
                body.extend_from_slice(b",\"value\":");
                walk.render(&mut body);
                body.extend_from_slice(names.json.as_bytes());
                held += 1;
                if held == REQUEST_POINTS {
                    finish_request(&mut bytes, &mut body, &mut request_ends);
                    held = 0;
                }
            }
        }
        if held > 0 {
            finish_request(&mut bytes, &mut body, &mut request_ends);
        }
        Body { bytes, request_ends }
    }
}

fn finish_request(bytes: &mut Vec<u8>, body: &mut Vec<u8>, ends: &mut Vec<usize>) {
    body.push(b']');
    let head = format!(
        "POST /api/put HTTP/1.1\r\nHost: tsd\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    bytes.extend_from_slice(head.as_bytes());
    bytes.append(body);
    ends.push(bytes.len());
}

const fn second(step: usize) -> u64 {
    FIRST_SECOND + step as u64 * STEP_SECS
}

fn metric(i: usize) -> String {
    format!("bench.metric.{}", i % METRICS)
}

/// Names of a series as each protocol writes them.
struct Names {
    metric: String,
    words: String,
    json: String,
}

impl Names {
    fn new(series: usize) -> Self {
        let host = format!("host{:06}", series / METRICS);
        let dc = format!("dc{}", series % 4);
        Self {
            metric: metric(series),
            words: format!(" host={host} dc={dc}"),
            json: format!(",\"tags\":{{\"host\":\"{host}\",\"dc\":\"{dc}\"}}}}"),
        }
    }
}

/// Values of one series: a walk in hundredths, a counter, a gauge that seldom changes, or a constant.
struct Walk {
    series: usize,
    step: u64,
    random: u64,
    value: i64,
}

impl Walk {
    fn new(series: usize) -> Self {
        let random = (series as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let value = if (series % METRICS).is_multiple_of(4) { 5_000 } else { 7 };
        Self { series, step: 0, random, value }
    }

    const fn is_float(&self) -> bool {
        (self.series % METRICS).is_multiple_of(4)
    }

    /// The next value; in hundredths where the series is floating.
    fn next(&mut self) -> i64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let random = (self.random >> 11) as i64;
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
