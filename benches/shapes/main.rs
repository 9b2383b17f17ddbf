//! Queries of many shapes, in one run beside VictoriaMetrics where there is a binary of it.
//!
//! ```text
//! cargo bench --bench shapes -- [--sets day,functions,months,wide,short] [--runs N] [--quick] [--backfill DAYS]
//! VM_BINARY=/path/to/victoria-metrics cargo bench --bench shapes
//! ```
//!
//! Each data set is written by telnet into an empty store of each server, then queried in two states:
//! *loaded* (at once) and *settled* (restarted, so that all points are in files, and when the server uses no
//! CPU any more). Servers alternate query by
//! query, with their caches of results off. Of each set the sum of all points is compared with the one
//! that is known, of each query the number of points that it is about, and of each response the number of series and points.
//!
//! The sets `series-100k`, `series-300k`, `series-1m`, `series-3m` and `series-10m` show what a series costs: time of the load, memory, and
//! the start after SIGKILL, with all points in the log. They run only if they are named.
//!
//! With `--backfill`, days before those of a set are written to it then, a point a minute of each series, as fast as a server takes
//! them, and the queries of the set are run beside.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a bench may panic")]

mod backfill;
mod data_set;
mod report;
mod saltern;
mod shape;
mod victoria;

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use data_set::DataSet;
use report::{Figures, Report};
use saltern::Saltern;
use shape::Shape;
use tsd_testkit::{Arguments, VictoriaMetrics, process};

/// Options of the command line.
struct Options {
    sets: Vec<String>,
    runs: usize,
    /// Divides the series of each set.
    scale: usize,
    /// Days before those of a set that are written beside its queries.
    backfill_days: usize,
}

/// A server with a data set.
trait Server {
    fn pid(&self) -> u32;
    fn telnet(&self) -> SocketAddr;
    /// Answers a query; returns its time, and fails if its series or points are not as many as expected.
    fn query(&self, set: &DataSet, shape: &Shape) -> Duration;
}

fn main() {
    let options = Options::parse();
    let vm_binary = VictoriaMetrics::binary();
    for set in data_set::all(options.scale) {
        let is_named = options.sets.iter().any(|name| *name == set.name);
        if !is_named && (set.is_growing() || !options.sets.is_empty()) {
            continue;
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let data = directory.path().join("saltern");
        let saltern = Saltern::start(&data);
        load("saltern", &set, &saltern, || {});
        saltern.check_sum(&set);
        for shape in &set.shapes {
            saltern.check_input(shape);
        }
        let report = Report::new(&set, vm_binary.is_some());
        measure(&report, "loaded", &options, &set, &saltern, None);
        let peak_of_load = process::peak_resident_bytes(saltern.pid());
        let saltern = if set.is_growing() { restart_killed(saltern, &set, &data) } else { saltern };
        // Rows of minutes are in memory in a daemon that runs, not of all days.
        saltern.stop();
        let saltern = Saltern::start(&data);
        process::wait_until_idle(saltern.pid());
        let victoria = vm_binary.as_ref().map(|binary| {
            let victoria = VictoriaMetrics::start(binary, &directory.path().join("victoria"));
            load("VM", &set, &victoria, || victoria::wait_for_points(&victoria, &set));
            process::wait_until_idle(victoria.pid());
            victoria
        });
        let other = victoria.as_ref().map(|victoria| victoria as &dyn Server);
        let quiet = measure(&report, "settled", &options, &set, &saltern, other);
        let peak = process::peak_resident_bytes(saltern.pid());
        let peak_of_other = other.map(|server| process::peak_resident_bytes(server.pid()));
        Report::memory(peak_of_load, peak, peak_of_other);
        if options.backfill_days > 0 {
            let earlier = set.days_before(options.backfill_days);
            backfill::measure(&options, &set, &earlier, (&saltern, other), &quiet);
            saltern.check_sum(&earlier);
            if let Some(victoria) = &victoria {
                victoria::wait_for_points(victoria, &earlier);
            }
        }
        saltern.stop();
    }
}

/// Writes a set; `wait` until it is stored.
fn load(name: &str, set: &DataSet, server: &impl Server, wait: impl FnOnce()) {
    let began = Instant::now();
    set.write(server.telnet());
    wait();
    let time = began.elapsed();
    if set.is_growing() {
        process::wait_until_idle(server.pid());
        let peak = process::peak_resident_bytes(server.pid());
        Report::load(name, set, time, peak, process::resident_bytes(server.pid()));
    }
}

/// Kills a daemon; prints how long the next one takes until it serves, and until it has counted all points.
fn restart_killed(saltern: Saltern, set: &DataSet, data: &Path) -> Saltern {
    saltern.kill();
    let began = Instant::now();
    let saltern = Saltern::start(data);
    let serves = began.elapsed();
    saltern.check_sum(set);
    println!();
    println!(
        "killed: serves after {serves:.2?}, the sum of all points after {:.2?}",
        began.elapsed()
    );
    saltern
}

/// Figures of a query on ours and, if there is one, the other server.
type BothFigures = (Figures, Option<Figures>);

/// Runs all queries of a set, alternating between the servers, and prints their figures.
fn measure(
    report: &Report,
    state: &str,
    options: &Options,
    set: &DataSet,
    saltern: &Saltern,
    other: Option<&dyn Server>,
) -> Vec<BothFigures> {
    let figures_of = |shape| {
        let mut ours = Figures::default();
        let mut theirs = other.map(|_| Figures::default());
        for _ in 0..options.runs {
            ours.add(saltern, set, shape);
            if let (Some(server), Some(figures)) = (other, &mut theirs) {
                figures.add(server, set, shape);
            }
        }
        report.line(state, shape, &ours, theirs.as_ref());
        (ours, theirs)
    };
    set.shapes.iter().map(figures_of).collect()
}

impl Options {
    fn parse() -> Self {
        let mut options = Self { sets: Vec::new(), runs: 7, scale: 1, backfill_days: 0 };
        let mut arguments = Arguments::of_process();
        while let Some(option) = arguments.next_option() {
            match option.as_str() {
                "--sets" => {
                    options.sets = arguments.text().split(',').map(str::to_owned).collect();
                }
                "--runs" => options.runs = arguments.number(),
                "--backfill" => options.backfill_days = arguments.number(),
                "--quick" => (options.runs, options.scale) = (2, 100),
                _ => arguments.unknown(),
            }
        }
        options
    }
}
