//! The same points as text: what daemons are sent, and what their answers must add up to.

use std::ops::Range;

use crate::{
    cells::{FIRST_SECOND, STEP_SECS, number},
    send::{Body, Protocol, REQUEST_POINTS},
};

/// Metrics the series are spread over.
const METRICS: u32 = 8;

/// Some steps of all series.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    pub(crate) series: u32,
    pub(crate) steps: Range<u32>,
}

/// Count and sum of a metric's points.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Total {
    pub(crate) count: u64,
    pub(crate) sum: f64,
}

impl Lines {
    pub(crate) const fn points(&self) -> u64 {
        self.series as u64 * (self.steps.end - self.steps.start) as u64
    }

    /// First second, and the one behind the last.
    pub(crate) const fn seconds(&self) -> (u32, u32) {
        (second(self.steps.start), second(self.steps.end))
    }

    /// What the answers must say, by metric.
    pub(crate) fn totals(&self) -> Vec<(String, Total)> {
        let mut totals = vec![Total::default(); METRICS as usize];
        for series in 0..self.series {
            let total = &mut totals[(series % METRICS) as usize];
            for step in self.steps.clone() {
                total.count += 1;
                total.sum += f64::from(number(series, step));
            }
        }
        totals.into_iter().enumerate().map(|(at, total)| (metric(at as u32), total)).collect()
    }

    /// Everything every connection sends, a step of all its series after the other; a series keeps
    /// to one connection.
    pub(crate) fn render(&self, protocol: Protocol, connections: u32) -> Vec<Body> {
        (0..connections)
            .map(|connection| {
                let series = (connection..self.series).step_by(connections as usize);
                let names: Vec<_> = series.map(|series| (series, Names::new(series))).collect();
                match protocol {
                    Protocol::Telnet => self.render_lines(&names),
                    Protocol::Http => self.render_requests(&names),
                }
            })
            .collect()
    }

    fn render_lines(&self, names: &[(u32, Names)]) -> Body {
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
                bytes.extend_from_slice(names.words.as_bytes());
            }
            request_ends.push(bytes.len());
        }
        Body { bytes, request_ends }
    }

    fn render_requests(&self, names: &[(u32, Names)]) -> Body {
        let mut bytes = Vec::with_capacity(names.len() * self.steps.len() * 128);
        let mut request_ends = Vec::new();
        let points: Vec<_> =
            self.steps.clone().flat_map(|step| names.iter().map(move |one| (step, one))).collect();
        for points in points.chunks(REQUEST_POINTS) {
            let points: Vec<_> = points.iter().map(|(step, (s, n))| n.json(*s, *step)).collect();
            let body = format!("[{}]", points.join(","));
            let head = format!(
                "POST /api/put HTTP/1.1\r\nHost: tsd\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n",
                body.len()
            );
            bytes.extend_from_slice(head.as_bytes());
            bytes.extend_from_slice(body.as_bytes());
            request_ends.push(bytes.len());
        }
        Body { bytes, request_ends }
    }
}

const fn second(step: u32) -> u32 {
    FIRST_SECOND + step * STEP_SECS
}

fn metric(at: u32) -> String {
    format!("bench.metric.{at}")
}

/// Names of a series as each protocol writes them.
struct Names {
    metric: String,
    words: String,
    tags: String,
}

impl Names {
    fn new(series: u32) -> Self {
        let host = format!("host{:06}", series / METRICS);
        let dc = format!("dc{}", series % 16);
        Self {
            metric: metric(series % METRICS),
            words: format!(" host={host} dc={dc}\n"),
            tags: format!("{{\"host\":\"{host}\",\"dc\":\"{dc}\"}}"),
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
