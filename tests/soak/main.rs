//! Runs a mixed load on a daemon with faults: full disks, damaged files, missing descriptors,
//! changed clocks and kills. Every acknowledged point must be read, every rejected point reported
//! or its sender held, and the status correct.
//!
//! ```text
//! tests/soak.sh [--hours H] [--minutes M] [--seed N] [--rate POINTS_PER_SECOND] [--tsdb PATH]
//! ```
//!
//! Stages run in an order that the seed decides. `cargo test` runs half a minute of them. A failure
//! keeps the data directory. Needs root to mount a separate disk, and `cc` for the clock; without
//! them the affected stages are skipped with a message.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

mod damage;
mod environment;
mod load;
mod model;
mod run;
mod stages;

use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    sync::atomic::Ordering::SeqCst,
    thread,
    time::{Duration, Instant},
};

use tsd_testkit::{Arguments, SplitMix64};

use crate::{
    environment::Environment,
    load::Transport,
    run::Run,
    stages::{Conductor, Stage},
};

/// Path of the binary under test, unless the option `--tsdb` names another one.
const TSDB: &str = env!("CARGO_BIN_EXE_tsdb");

const TELNET_SENDERS: usize = 3;
const HTTP_SENDERS: usize = 3;
const READERS: usize = 2;
/// Time between two rows of figures.
const ROW: Duration = Duration::from_mins(10);

struct Options {
    time: Duration,
    seed: u64,
    /// Points per second of all senders.
    rate: f64,
    /// Time under load before a stage and within one.
    load: Duration,
    disk_bytes: u64,
    memtable_bytes: u64,
    tsdb: String,
}

impl Options {
    /// A short run.
    fn short() -> Self {
        Self {
            time: Duration::from_secs(25),
            seed: 1,
            rate: 1_500.0,
            load: Duration::from_millis(500),
            disk_bytes: 96 << 20,
            memtable_bytes: 1 << 20,
            tsdb: TSDB.to_owned(),
        }
    }

    /// Options after the word `run`; `None` if arguments of the test harness exclude this test.
    fn of_process() -> Option<Self> {
        let mut options = Self::short();
        let given: Vec<String> = env::args().skip(1).collect();
        let mut given = given.into_iter().peekable();
        if given.next_if(|word| word == "run").is_none() {
            let names: Vec<_> = given.filter(|word| !word.starts_with('-')).collect();
            let selected = names.is_empty() || names.iter().any(|name| "soak".contains(&**name));
            return selected.then_some(options);
        }
        options.load = Duration::from_secs(4);
        options.time = Duration::from_mins(3);
        options.rate = 2_500.0;
        options.disk_bytes = 512 << 20;
        options.memtable_bytes = 2 << 20;
        let mut arguments = Arguments::new(given);
        while let Some(option) = arguments.next_option() {
            match option.as_str() {
                "--hours" => {
                    options.time = Duration::from_secs_f64(arguments.number::<f64>() * 3600.0);
                }
                "--minutes" => {
                    options.time = Duration::from_secs_f64(arguments.number::<f64>() * 60.0);
                }
                "--seed" => options.seed = arguments.number(),
                "--tsdb" => options.tsdb = arguments.text(),
                "--rate" => options.rate = arguments.number(),
                _ => arguments.unknown(),
            }
        }
        Some(options)
    }
}

fn main() -> ExitCode {
    let Some(options) = Options::of_process() else { return ExitCode::SUCCESS };
    println!("soak: {:.1} minutes, seed {}", options.time.as_secs_f64() / 60.0, options.seed);
    let environment =
        Environment::prepare(&options.tsdb, options.disk_bytes, options.memtable_bytes);
    let run = Run::default();
    let log = thread::scope(|scope| {
        let run = &run;
        let mut random = SplitMix64::new(options.seed);
        let mut conductor =
            Conductor::start(run, &environment, random.below(u64::MAX), options.load);
        let rate = options.rate / (TELNET_SENDERS + HTTP_SENDERS) as f64;
        for number in 0..TELNET_SENDERS + HTTP_SENDERS {
            let transport =
                if number < TELNET_SENDERS { Transport::Telnet } else { Transport::Http };
            let seed = random.below(u64::MAX);
            scope.spawn(move || watch(run, || load::send(run, transport, number, seed, rate)));
        }
        for _ in 0..READERS {
            let seed = random.below(u64::MAX);
            scope.spawn(move || watch(run, || load::query(run, seed)));
        }
        scope.spawn(move || watch(run, || load::annotate(run)));
        let conducted =
            catch_unwind(AssertUnwindSafe(|| conduct(&mut conductor, &options, random)));
        if conducted.is_err() {
            run.fail("the run panicked".to_owned());
        }
        run.stop.store(true, SeqCst);
        let log = conductor.log();
        if run.failures().is_empty() {
            Some(conductor)
        } else {
            for line in log.iter().rev().take(40).rev() {
                println!("{line}");
            }
            // Held senders end with the daemon.
            drop(conductor);
            None
        }
        .map(|conductor| {
            let ended = catch_unwind(AssertUnwindSafe(|| conductor.finish()));
            match ended {
                Ok(verified) => println!("soak: {verified} points verified after the end"),
                Err(_) => run.fail("the end panicked".to_owned()),
            }
        })
    });
    let failures = run.failures();
    if log.is_some() && failures.is_empty() {
        println!("soak: passed");
        return ExitCode::SUCCESS;
    }
    println!("soak: FAILED, data kept in {}", environment.keep().display());
    for failure in failures {
        println!("  {failure}");
    }
    ExitCode::FAILURE
}

/// Runs a thread of the load; a panic fails the run.
fn watch(run: &Run, work: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        run.fail("a thread of the load panicked".to_owned());
    }
}

fn conduct(conductor: &mut Conductor<'_>, options: &Options, mut random: SplitMix64) {
    println!(
        "| minute | sent | acknowledged | refused | in doubt | held up | deleted | lost to damage | \
         queries | named errors | verified | stages | RSS, MB | files | disk, MB | logged errors |"
    );
    let started = Instant::now();
    let mut next_row = ROW;
    let mut stages: Vec<Stage> = Vec::new();
    while started.elapsed() < options.time && !conductor.run.is_stopped() {
        if stages.is_empty() {
            stages =
                Stage::ALL.into_iter().filter(|s| s.is_possible(conductor.environment)).collect();
            for i in (1..stages.len()).rev() {
                stages.swap(i, random.below(i as u64 + 1) as usize);
            }
        }
        let load = options.load.as_millis() as u64;
        conductor.run.sleep(Duration::from_millis(load + random.below(load * 2)));
        if let Some(stage) = stages.pop() {
            conductor.execute(stage);
        }
        if started.elapsed() > next_row {
            println!("{}", conductor.row(started));
            next_row += ROW;
        }
    }
    if !conductor.run.is_stopped() {
        conductor.verify(false);
        println!("{}", conductor.row(started));
    }
}
