//! A day of points in many series, ten seconds apart, with the averages and sums that queries must
//! return.

use std::{fmt::Write as _, io::Write as _, net::SocketAddr, thread};

use crate::{random::Xorshift64, socket};

/// Seconds between two points of a series.
pub const STEP_SECS: u64 = 10;
/// Time of the first point: the start of an hour, so long ago that row compaction is due.
pub const FIRST_SECOND: u64 = 1_599_998_400;
/// Seconds of a downsampling interval.
pub const BUCKET_SECS: u64 = 300;
/// Connections that write; each series is written by one of them.
const CONNECTIONS: usize = 4;
/// Bytes rendered before they are sent.
const CHUNK: usize = 1 << 20;

/// How the values of a series are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Independent integers.
    Integers,
    /// A random walk with two decimals.
    Walk,
}

impl ValueKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Integers, Self::Walk];

    /// Metric of the series of this kind.
    #[must_use]
    pub const fn metric(self) -> &'static str {
        match self {
            Self::Integers => "bench.integers",
            Self::Walk => "bench.walk",
        }
    }
}

/// Size of the load.
#[derive(Clone, Copy, Debug)]
pub struct DayLoad {
    /// Series of each kind, one per host.
    pub series: usize,
    /// Points of each series.
    pub steps: usize,
}

impl DayLoad {
    /// Points of each kind.
    #[must_use]
    pub const fn points(self) -> usize {
        self.series * self.steps
    }

    /// The last second with points.
    #[must_use]
    pub const fn last_second(self) -> u64 {
        FIRST_SECOND + (self.steps as u64 - 1) * STEP_SECS
    }

    /// A small query: five-minute averages of one host over the last hour.
    #[must_use]
    pub fn small_uri(self) -> String {
        let (end, metric, host) =
            (self.last_second(), ValueKind::Integers.metric(), self.series / 2);
        let start = end.saturating_sub(3_599).max(FIRST_SECOND);
        format!("/api/query?start={start}&end={end}&m=avg:5m-avg:{metric}{{host=host{host:04}}}")
    }

    /// Writes all series of both kinds by telnet and waits until they are stored.
    pub fn write(self, address: SocketAddr) {
        let writers: Vec<_> = (0..CONNECTIONS)
            .map(|connection| thread::spawn(move || self.write_part(address, connection)))
            .collect();
        for writer in writers {
            writer.join().expect("a writer");
        }
    }

    fn write_part(self, address: SocketAddr, connection: usize) {
        let mut stream = socket::connect(address);
        let mut series: Vec<_> = ValueKind::ALL
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
        socket::close_and_drain(stream);
    }

    /// The average of each bucket of a series, in time order.
    #[must_use]
    pub fn averages(self, kind: ValueKind, host: usize) -> Vec<(u64, f64)> {
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

    /// Sum of the first `steps` values of all series, in hundredths.
    #[must_use]
    pub fn sum_of_hundredths(self, kind: ValueKind, steps: usize) -> i64 {
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
    kind: ValueKind,
    random: Xorshift64,
    value: i64,
}

impl Values {
    const fn new(kind: ValueKind, host: usize) -> Self {
        let random = Xorshift64::new((host as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self { kind, random, value: 5_000 }
    }

    /// The next value; for a walk in hundredths.
    const fn next(&mut self) -> i64 {
        let random = self.random.next_bits() as i64;
        match self.kind {
            ValueKind::Integers => self.value = random % 2_000,
            ValueKind::Walk => {
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
            ValueKind::Integers => value as f64,
            // Dividing two exact doubles rounds as parsing the decimal text does.
            ValueKind::Walk => value as f64 / 100.0,
        }
    }

    const fn next_hundredths(&mut self) -> i64 {
        let value = self.next();
        match self.kind {
            ValueKind::Integers => value * 100,
            ValueKind::Walk => value,
        }
    }

    fn render(&mut self, text: &mut String) {
        let value = self.next();
        let _ = match self.kind {
            ValueKind::Integers => write!(text, "{value}"),
            ValueKind::Walk => write!(text, "{}.{:02}", value / 100, value % 100),
        };
    }
}
