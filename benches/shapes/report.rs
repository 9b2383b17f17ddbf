//! The table of figures.

use std::time::Duration;

use tsd_testkit::process;

use crate::{Server, data_set::DataSet, shape::Shape};

/// CPU time from which the 10 ms resolution of a whole process is enough.
const LONG_SECS: f64 = 0.3;

/// Times and CPU of the same query on one server.
#[derive(Default)]
pub(crate) struct Figures {
    times: Vec<Duration>,
    cpu_secs: f64,
}

impl Figures {
    /// Runs the query once more.
    pub(crate) fn add(&mut self, server: &(impl Server + ?Sized), set: &DataSet, shape: &Shape) {
        let used = |pid| (process::thread_cpu_seconds(pid), process::cpu_seconds(pid));
        let before = used(server.pid());
        let time = server.query(set, shape);
        let after = used(server.pid());
        self.times.push(time);
        // The first time is precise, but loses threads that end meanwhile.
        self.cpu_secs += match after.1 - before.1 {
            long if long > LONG_SECS => long,
            _ => after.0 - before.0,
        };
    }

    /// Median time, milliseconds.
    pub(crate) fn millis(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e3
    }

    /// Mean CPU time, milliseconds.
    fn cpu_millis(&self) -> f64 {
        self.cpu_secs * 1e3 / self.times.len() as f64
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Prints a table for each data set.
pub(crate) struct Report {
    beside: bool,
}

impl Report {
    pub(crate) fn new(set: &DataSet, beside: bool) -> Self {
        let DataSet { name, steps, step_secs, .. } = set;
        println!();
        println!("{name}: {} series, {steps} points each, every {step_secs} s", set.series());
        println!();
        if beside {
            println!(
                "| state | query | points | ms | VM ms | ratio | CPU ms | VM CPU ms | ratio |"
            );
            println!("|---|---|---|---|---|---|---|---|---|");
        } else {
            println!("| state | query | points | ms | CPU ms |");
            println!("|---|---|---|---|---|");
        }
        Self { beside }
    }

    /// Prints the time of a load, its peak of resident memory, and the resident memory at rest, in bytes.
    pub(crate) fn load(server: &str, set: &DataSet, time: Duration, peak: u64, resting: u64) {
        println!();
        println!(
            "{server}: loaded in {:.1} s, {:.0} series/s; resident memory, MiB: peak {:.0}, at rest {:.0}",
            time.as_secs_f64(),
            set.series() as f64 / time.as_secs_f64(),
            mib(peak),
            mib(resting)
        );
    }

    /// Prints peaks of resident memory, in bytes, of our loaded and settled daemons and of the other server.
    pub(crate) fn memory(loaded: u64, settled: u64, other: Option<u64>) {
        println!();
        println!(
            "peak resident memory, MiB: loaded {:.0}, settled {:.0}",
            mib(loaded),
            mib(settled)
        );
        if let Some(other) = other {
            let ratio = loaded.max(settled) as f64 / other as f64;
            println!("VM: {:.0}; {ratio:.2} ×", mib(other));
        }
    }

    pub(crate) fn line(
        &self,
        state: &str,
        shape: &Shape,
        ours: &Figures,
        theirs: Option<&Figures>,
    ) {
        let (ms, cpu) = (ours.millis(), ours.cpu_millis());
        let head = format!("| {state} | {} | {}", shape.name, shape.input);
        match theirs {
            Some(theirs) => {
                let (their_ms, their_cpu) = (theirs.millis(), theirs.cpu_millis());
                let (time, work) = (ms / their_ms, cpu / their_cpu);
                println!(
                    "{head} | {ms:.2} | {their_ms:.2} | {time:.2} | {cpu:.2} | {their_cpu:.2} | {work:.2} |"
                );
            }
            None if self.beside => println!("{head} | {ms:.2} | | | {cpu:.2} | | |"),
            None => println!("{head} | {ms:.2} | {cpu:.2} |"),
        }
    }
}
