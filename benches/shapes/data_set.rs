//! The data sets: numbers of series and points, and their queries.

use std::{fmt::Write as _, io::Write as _, net::SocketAddr, thread};

use tsd_testkit::{Xorshift64, close_and_drain, connect};

use crate::shape::{self, Shape};

/// Metric of all points.
pub(crate) const METRIC: &str = "bench.shape";
/// Time of the first point: the start of a UTC day, old enough that no row is open.
pub(crate) const FIRST_SECOND: u64 = 1_600_041_600;
const DAY_SECS: u64 = 86_400;
/// Series of one host, which differ in `cpu`.
pub(crate) const CPUS: usize = 4;
/// Values of the tag `region`.
pub(crate) const REGIONS: usize = 3;
/// Values of the tag `rack`.
pub(crate) const RACKS: usize = 2_500;
/// Connections that write; one connection writes all series of a host.
const CONNECTIONS: usize = 4;
/// Bytes rendered before they are sent.
const CHUNK: usize = 1 << 20;

/// Series with a point each at every step, and the queries on them.
pub(crate) struct DataSet {
    pub(crate) name: &'static str,
    pub(crate) hosts: usize,
    pub(crate) first_second: u64,
    pub(crate) steps: usize,
    pub(crate) step_secs: u64,
    pub(crate) shapes: Vec<Shape>,
}

/// Begin of the names of sets that differ in the number of their series.
const GROWING: &str = "series-";

/// All sets. `scale` divides their hosts.
pub(crate) fn all(scale: usize) -> Vec<DataSet> {
    let set = |name, hosts: usize, steps, step_secs| DataSet {
        name,
        hosts: (hosts / scale).max(10),
        first_second: FIRST_SECOND,
        steps,
        step_secs,
        shapes: Vec::new(),
    };
    let mut sets = vec![
        set("day", 250, 8_640, 10),
        set("functions", 250, 8_640, 10),
        set("months", 25, 60 * 1_440, 60),
        set("wide", 250_000, 3, 600),
        set("short", 75_000, 24, 600),
        set("series-100k", 25_000, 1, 600),
        set("series-300k", 75_000, 1, 600),
        set("series-1m", 250_000, 1, 600),
        set("series-3m", 750_000, 1, 600),
        set("series-10m", 2_500_000, 1, 600),
    ];
    for set in &mut sets {
        if set.is_growing() {
            // A single point at the begin of an interval is in no interval of VictoriaMetrics.
            set.first_second += 60;
        }
        set.shapes = shape::of(set);
    }
    sets
}

impl DataSet {
    /// True for a set that shows the cost of a series; such sets run only if they are named.
    pub(crate) fn is_growing(&self) -> bool {
        self.name.starts_with(GROWING)
    }

    /// The same series in the days before, a point a minute.
    pub(crate) const fn days_before(&self, days: usize) -> Self {
        Self {
            name: "backfill",
            hosts: self.hosts,
            first_second: self.first_second - days as u64 * DAY_SECS,
            steps: days * 1_440,
            step_secs: 60,
            shapes: Vec::new(),
        }
    }

    pub(crate) const fn series(&self) -> usize {
        self.hosts * CPUS
    }

    pub(crate) const fn points(&self) -> usize {
        self.series() * self.steps
    }

    /// The last second with points.
    pub(crate) const fn last_second(&self) -> u64 {
        self.first_second + (self.steps as u64 - 1) * self.step_secs
    }

    /// Sum of all points. Values are multiples of a quarter, so it is exact.
    pub(crate) fn sum(&self) -> f64 {
        let of_series = |series| {
            let mut walk = Walk::new(series);
            (0..self.steps).map(|_| walk.next_quarters()).sum::<i64>()
        };
        (0..self.series()).map(of_series).sum::<i64>() as f64 / 4.0
    }

    /// Writes all points by telnet and waits until they are stored.
    pub(crate) fn write(&self, address: SocketAddr) {
        thread::scope(|scope| {
            for connection in 0..CONNECTIONS {
                scope.spawn(move || self.write_part(address, connection));
            }
        });
    }

    fn write_part(&self, address: SocketAddr, connection: usize) {
        let mut stream = connect(address);
        let mut series: Vec<(usize, Walk)> = (0..self.series())
            .filter(|series| series / CPUS % CONNECTIONS == connection)
            .map(|series| (series, Walk::new(series)))
            .collect();
        let mut lines = String::with_capacity(CHUNK + 100);
        for step in 0..self.steps {
            let second = self.first_second + step as u64 * self.step_secs;
            for (series, walk) in &mut series {
                let (host, cpu) = (*series / CPUS, *series % CPUS);
                let (value, region) = (walk.next_quarters() as f64 / 4.0, host % REGIONS);
                let _ = writeln!(
                    lines,
                    "put {METRIC} {second} {value} host={} cpu=c{cpu} region=r{region} rack=k{}",
                    host_name(host),
                    host % RACKS
                );
                if lines.len() >= CHUNK {
                    stream.write_all(lines.as_bytes()).expect("send");
                    lines.clear();
                }
            }
        }
        stream.write_all(lines.as_bytes()).expect("send");
        close_and_drain(stream);
    }
}

/// Name of a host.
pub(crate) fn host_name(host: usize) -> String {
    format!("host{host:06}")
}

/// A random walk in quarters, the same in each run.
struct Walk {
    random: Xorshift64,
    quarters: i64,
}

impl Walk {
    const fn new(series: usize) -> Self {
        let seed = (series as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self { random: Xorshift64::new(seed), quarters: 200 + (series % 800) as i64 }
    }

    /// The next value, four times.
    const fn next_quarters(&mut self) -> i64 {
        self.quarters += self.random.below(9) as i64 - 4;
        self.quarters
    }
}
