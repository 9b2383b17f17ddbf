//! Measures queries of many shapes, and compares them with VictoriaMetrics if its binary is given.
//!
//! ```text
//! cargo bench --bench shapes -- [--sets day,functions,months,wide,short] [--runs N] [--quick] [--backfill DAYS]
//! cargo bench --bench shapes -- --sets states [--runs N] [--quick] [--series N] [--hours N] [--data DIR]
//! VM_BINARY=/path/to/victoria-metrics cargo bench --bench shapes
//! ```
//!
//! Each data set is written by telnet into an empty store of each server, then queried in two states: *loaded* (at once) and *settled*
//! (after a restart, so that all points are in files, when the server is idle). Servers alternate query by query, without their caches of
//! results. The bench checks the sum of all points of each set, the number of selected points of each query, and the numbers of series and
//! points of each response.
//!
//! The sets `series-100k`, `series-300k`, `series-1m`, `series-3m` and `series-10m` show the cost of a series: time of the load, memory,
//! and the start after SIGKILL with all points in the log. They run only if they are named.
//!
//! The set `states` runs only if it is named, and not on the other server: see `states.rs`.
//!
//! With `--backfill`, the queries of a set run again while earlier days of its series are written, a point a minute, as fast as the server
//! accepts them.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a bench may panic")]

mod backfill;
mod data_set;
mod report;
mod saltern;
mod shape;
mod states;
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
use states::StatesOptions;
use tsd_testkit::{Arguments, VictoriaMetrics, day_load::DayLoad, process};

/// Options of the command line.
struct Options {
    sets: Vec<String>,
    runs: usize,
    /// Divides the series of each set.
    scale: usize,
    /// Earlier days that are written during the queries of a set.
    backfill_days: usize,
    states: StatesOptions,
}

/// A server with a data set.
trait Server {
    fn pid(&self) -> u32;
    fn telnet(&self) -> SocketAddr;
    /// Executes a query and returns its time. Fails if the number of series or points is wrong.
    fn query(&self, set: &DataSet, shape: &Shape) -> Duration;
}

fn main() {
    let options = Options::parse();
    let vm_binary = VictoriaMetrics::binary();
    if options.sets.iter().any(|name| name == "states") {
        states::run(&options.states);
    }
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
        measure(&report, "loaded", &options, &set, (&saltern, None));
        let peak_of_load = process::peak_resident_bytes(saltern.pid());
        let saltern = if set.is_growing() { restart_killed(saltern, &set, &data) } else { saltern };
        // A running daemon has rows of minutes in memory, but not of all days.
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
        let quiet = measure(&report, "settled", &options, &set, (&saltern, other));
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

/// Kills a daemon; prints the time until the next daemon serves, and until it has counted all points.
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
    (saltern, other): (&Saltern, Option<&dyn Server>),
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
        let day = DayLoad { series: 1_000, steps: 8_640 };
        let states = StatesOptions { day, runs: 11, raw_points: 5_000_000, data: None };
        let mut options = Self { sets: Vec::new(), runs: 7, scale: 1, backfill_days: 0, states };
        let mut arguments = Arguments::of_process();
        while let Some(option) = arguments.next_option() {
            match option.as_str() {
                "--sets" => {
                    options.sets = arguments.text().split(',').map(str::to_owned).collect();
                }
                "--runs" => {
                    options.runs = arguments.number();
                    options.states.runs = options.runs;
                }
                "--backfill" => options.backfill_days = arguments.number(),
                "--quick" => {
                    (options.runs, options.scale) = (2, 100);
                    options.states.day = DayLoad { series: 50, steps: 720 };
                    (options.states.runs, options.states.raw_points) = (2, 20_000);
                }
                "--series" => options.states.day.series = arguments.number(),
                "--hours" => options.states.day.steps = arguments.number::<usize>() * 360,
                "--data" => options.states.data = Some(arguments.text().into()),
                _ => arguments.unknown(),
            }
        }
        options
    }
}
