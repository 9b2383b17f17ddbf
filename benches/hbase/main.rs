//! The native client beside HBase's own, and the daemon on HBase, in one run against one HBase.
//!
//! ```text
//! cargo bench --bench hbase -- [--parts write,scan,get,put,store,log,opentsdb] [--rounds N]
//!                              [--series N] [--steps N] [--quick] [--attach DIRECTORY]
//! ```
//!
//! HBase (two region servers, a master, ZooKeeper) is started as processes of their own, with the
//! full compiler. Rivals take turns on the same emptied table; the Java programs of `cluster/java`
//! stay up over all rounds and have run before the first that counts. Everything that was written
//! is read back before a figure is printed. Needs a JDK; says so and ends where there is none.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a bench may stop")]

mod cells;
#[path = "../../tests/daemon.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod daemon;
mod daemons;
mod figures;
mod gets;
mod load;
mod opentsdb;
mod process;
mod rival;
mod scans;
#[path = "../ingest/send.rs"]
mod send;
mod site;
#[path = "../../tests/socket.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod socket;
mod table;
mod tsd;
mod writes;

use std::{env, path::PathBuf, time::Instant};

use cells::Load;
use cluster::Cluster;
use rival::Programs;
use site::Site;
use writes::Baseline;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Everything that can be measured.
const PARTS: [&str; 7] = ["write", "scan", "get", "put", "store", "log", "opentsdb"];

/// What is asked for on the command line.
struct Options {
    parts: Vec<String>,
    rounds: usize,
    series: u32,
    steps: u32,
    scan_series: u32,
    gets: u32,
    held_rounds: usize,
    /// Points a second that are offered to a daemon that holds rows; else a little more than is hoped for.
    offered: Option<f64>,
    attach: Option<PathBuf>,
}

fn main() {
    let options = Options::parse();
    if Cluster::java().is_none() {
        println!("skipped: HBase needs a JDK of release 17 or later, and there is none");
        return;
    }
    let start = Instant::now();
    let site = Site::open(options.attach.as_ref(), options.has("opentsdb"));
    let directory = tempfile::tempdir().expect("temporary directory");
    let programs = Programs::compile(&site, directory.path());
    site.wait(table::create(&site.client));
    println!("HBase serves after {:.0} s", start.elapsed().as_secs_f64());
    let needs_baseline = ["write", "store", "log"].iter().any(|part| options.has(part));
    let mut baseline = needs_baseline.then(|| Baseline::start(&site, &programs, &options));
    if let Some(baseline) = baseline.as_mut().filter(|_| options.has("write")) {
        writes::run(&site, baseline, &options);
    }
    if options.has("scan") {
        scans::run(&site, &programs, &options);
    }
    if options.has("get") {
        let load =
            if options.has("scan") { options.scan_load() } else { scans::fill(&site, &options) };
        gets::run(&site, &programs, &options, load);
    }
    if options.has("put") {
        daemons::light(&site, directory.path());
    }
    if let Some(baseline) = baseline.as_mut().filter(|_| options.has("store")) {
        daemons::stored(&site, directory.path(), baseline, &options);
    }
    if let Some(baseline) = baseline.as_mut().filter(|_| options.has("log")) {
        daemons::held(&site, directory.path(), baseline, &options);
    }
    if options.has("opentsdb") {
        opentsdb::run(&site, directory.path(), &options);
    }
    println!("\n{:.0} s in all", start.elapsed().as_secs_f64());
    site.close();
}

impl Options {
    fn has(&self, part: &str) -> bool {
        self.parts.iter().any(|asked| asked == part)
    }

    /// What bulk loads write.
    const fn load(&self, together: u32) -> Load {
        Load { series: self.series, steps: self.steps, together }
    }

    /// What scans read: rows of a hundred cells.
    const fn scan_load(&self) -> Load {
        Load { series: self.scan_series, steps: 100, together: 10 }
    }

    fn parse() -> Self {
        let mut options = Self {
            parts: PARTS.map(str::to_owned).to_vec(),
            rounds: 3,
            series: 20_000,
            steps: 42,
            scan_series: 100_000,
            gets: 5_000,
            held_rounds: 1,
            offered: None,
            attach: None,
        };
        let mut words = env::args().skip(1);
        while let Some(word) = words.next() {
            let mut text = || words.next().unwrap_or_else(|| panic!("{word} needs a value"));
            let number = |text: String| -> u32 {
                text.replace('_', "").parse().unwrap_or_else(|_| panic!("{word} needs a number"))
            };
            match word.as_str() {
                "--parts" => {
                    options.parts = text().split(',').map(str::to_owned).collect();
                    let unknown = options.parts.iter().find(|part| !PARTS.contains(&part.as_str()));
                    assert!(unknown.is_none(), "parts are {}", PARTS.join(", "));
                }
                "--rounds" => options.rounds = number(text()) as usize,
                "--series" => options.series = number(text()),
                "--steps" => {
                    options.steps = number(text());
                    assert!(options.steps.is_multiple_of(6), "six points of a row make a put");
                }
                "--scan-series" => options.scan_series = number(text()),
                "--gets" => options.gets = number(text()),
                "--offered" => options.offered = Some(f64::from(number(text()))),
                "--held-rounds" => options.held_rounds = number(text()) as usize,
                "--attach" => options.attach = Some(text().into()),
                // Shows nothing but that it works.
                "--quick" => {
                    options.rounds = 1;
                    options.series = 2_000;
                    options.scan_series = 2_000;
                    options.gets = 500;
                }
                // What cargo says to every bench.
                "--bench" => {}
                _ => panic!("unknown option {word}"),
            }
        }
        options
    }
}
