//! What is stored: many series with a point each every ten seconds, and what their averages are.

use std::{fmt::Write as _, io::Write as _, net::SocketAddr, thread};

use crate::client;

/// Seconds between two points of a series.
pub(crate) const STEP_SECS: u64 = 10;
/// Time of the first point: a full hour, long past.
pub(crate) const FIRST_SECOND: u64 = 1_599_998_400;
/// Seconds averaged into one point of an answer.
pub(crate) const BUCKET_SECS: u64 = 300;
/// Connections that write; a series keeps to one.
const CONNECTIONS: usize = 4;
/// Bytes rendered before they are sent.
const CHUNK: usize = 1 << 20;

/// What the values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Whole numbers, each next to nothing like the one before.
    Integers,
    /// A random walk with two decimals.
    Walk,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Integers, Self::Walk];

    pub(crate) const fn metric(self) -> &'static str {
        match self {
            Self::Integers => "bench.integers",
            Self::Walk => "bench.walk",
        }
    }
}

/// How much is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Day {
    pub(crate) series: usize,
    pub(crate) steps: usize,
}

impl Day {
    pub(crate) const fn points(self) -> usize {
        self.series * self.steps
    }

    /// The last second that has points.
    pub(crate) const fn last_second(self) -> u64 {
        FIRST_SECOND + (self.steps as u64 - 1) * STEP_SECS
    }

    /// A small query: five-minute averages of one host over the last hour.
    pub(crate) fn small_uri(self) -> String {
        let (end, metric, host) = (self.last_second(), Kind::Integers.metric(), self.series / 2);
        let start = end.saturating_sub(3_599).max(FIRST_SECOND);
        format!("/api/query?start={start}&end={end}&m=avg:5m-avg:{metric}{{host=host{host:04}}}")
    }

    /// Writes all series of both kinds and waits until they are stored.
    pub(crate) fn write(self, address: SocketAddr) {
        let writers: Vec<_> = (0..CONNECTIONS)
            .map(|connection| thread::spawn(move || self.write_part(address, connection)))
            .collect();
        for writer in writers {
            writer.join().expect("a writer");
        }
    }

    fn write_part(self, address: SocketAddr, connection: usize) {
        let mut stream = client::connect(address);
        let mut series: Vec<_> = Kind::ALL
            .into_iter()
            .flat_map(|kind| (0..self.series).map(move |host| (kind, host)))
            .filter(|(_, host)| host % CONNECTIONS == connection)
            .map(|(kind, host)| (Values::new(kind, host), host))
            .collect();
        let mut lines = String::with_capacity(CHUNK + 100);
        for step in 0..self.steps {
            let second = FIRST_SECOND + step as u64 * STEP_SECS;
            for (values, host) in &mut series {
                let metric = values.kind.metric();
                let _ = write!(lines, "put {metric} {second} ");
                values.render(&mut lines);
                let _ = writeln!(lines, " host=host{host:04}");
                if lines.len() >= CHUNK {
                    stream.write_all(lines.as_bytes()).expect("send");
                    lines.clear();
                }
            }
        }
        stream.write_all(lines.as_bytes()).expect("send");
        client::end_of_lines(stream);
    }

    /// The average of each bucket of a series, in time order.
    pub(crate) fn averages(self, kind: Kind, host: usize) -> Vec<(u64, f64)> {
        let mut values = Values::new(kind, host);
        let bucket = (BUCKET_SECS / STEP_SECS) as usize;
        (0..self.steps)
            .step_by(bucket)
            .map(|first| {
                let count = bucket.min(self.steps - first);
                let sum = (0..count).fold(0.0, |sum, _| sum + values.next_double());
                (FIRST_SECOND + first as u64 * STEP_SECS, sum / count as f64)
            })
            .collect()
    }

    /// Sum of the first `steps` values of all series, as 64-bit arithmetic on hundredths.
    pub(crate) fn sum_of_hundredths(self, kind: Kind, steps: usize) -> i64 {
        (0..self.series)
            .map(|host| {
                let mut values = Values::new(kind, host);
                (0..steps).map(|_| values.next_hundredths()).sum::<i64>()
            })
            .sum()
    }
}

/// Values of one series.
struct Values {
    kind: Kind,
    random: u64,
    value: i64,
}

impl Values {
    const fn new(kind: Kind, host: usize) -> Self {
        let random = (host as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { kind, random, value: 5_000 }
    }

    /// The next value; of a walk in hundredths.
    const fn next(&mut self) -> i64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let random = (self.random >> 11) as i64;
        match self.kind {
            Kind::Integers => self.value = random % 2_000,
            Kind::Walk => {
                self.value += random % 101 - 50;
                if self.value < 0 {
                    self.value = 0;
                }
            }
        }
        self.value
    }

    fn next_double(&mut self) -> f64 {
        let value = self.next();
        match self.kind {
            Kind::Integers => value as f64,
            // Division of two exact doubles rounds as the decimal text does.
            Kind::Walk => value as f64 / 100.0,
        }
    }

    const fn next_hundredths(&mut self) -> i64 {
        let value = self.next();
        match self.kind {
            Kind::Integers => value * 100,
            Kind::Walk => value,
        }
    }

    fn render(&mut self, text: &mut String) {
        let value = self.next();
        let _ = match self.kind {
            Kind::Integers => write!(text, "{value}"),
            Kind::Walk => write!(text, "{}.{:02}", value / 100, value % 100),
        };
    }
}
