//! Sends the same random points and requests to a real OpenTSDB and to our daemon, and compares the
//! responses.
//!
//! ```text
//! tests/differential.sh [option...]
//! ```
//!
//! | option | |
//! |---|---|
//! | `--seed N` | first seed, 1 unless given; a seed determines points and requests |
//! | `--seconds N` | run for about N seconds, 60 unless given |
//! | `--cases N` | run exactly N requests instead |
//! | `--only KIND` | only requests of a kind: `query`, `exp`, `gexp`, `last`, `lookup`, `suggest`, `annotation`, `put`, `telnet`, `uid`, `misc` |
//! | `--engine hbase` | our daemon on tables of its own on the same HBase; embedded unless given |
//! | `--opentsdb HOST:PORT --tsdb HOST:PORT` | use these servers, which must have the settings of `servers.rs` and no data of these seeds |
//! | `--differences N` | end after N kinds of differences, 25 unless given |
//! | `--all` | print known differences too |
//!
//! A difference is printed with the smallest request found that shows it, and both responses around it. It
//! fails the run unless `known_differences.txt` lists it with a reason. Without Java the run is skipped and
//! succeeds.

#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::too_many_lines, reason = "tests")]

mod compare;
mod data;
mod json;
mod known;
mod random;
mod request;
mod requests;
mod servers;
mod shrink;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    process::ExitCode,
    time::{Duration, Instant},
};

use cluster::Cluster;
use tsd_testkit::Arguments;

use crate::{
    compare::compare, data::Data, known::KnownDifferences, random::Random, servers::Servers,
};

/// Requests of one seed, before new points are put.
const REQUESTS_PER_SEED: u64 = 400;

struct Options {
    seed: u64,
    duration: Duration,
    cases: Option<u64>,
    only: Option<String>,
    hbase: bool,
    all: bool,
    differences: usize,
    opentsdb: Option<SocketAddr>,
    tsdb: Option<SocketAddr>,
}

impl Options {
    fn parse() -> Self {
        let mut options = Self {
            seed: 1,
            duration: Duration::from_mins(1),
            cases: None,
            only: None,
            hbase: false,
            all: false,
            differences: 25,
            opentsdb: None,
            tsdb: None,
        };
        let mut arguments = Arguments::of_process();
        while let Some(option) = arguments.next_option() {
            match option.as_str() {
                "--seed" => options.seed = arguments.number(),
                "--seconds" => options.duration = Duration::from_secs(arguments.number()),
                "--cases" => options.cases = Some(arguments.number()),
                "--only" => options.only = Some(arguments.text()),
                "--engine" => options.hbase = arguments.text() == "hbase",
                "--differences" => options.differences = arguments.number(),
                "--all" => options.all = true,
                "--opentsdb" => options.opentsdb = Some(arguments.number()),
                "--tsdb" => options.tsdb = Some(arguments.number()),
                _ => arguments.unknown(),
            }
        }
        options
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.opentsdb.is_none() && Cluster::java().is_none() {
        println!("differential: skipped, there is no Java 17");
        return ExitCode::SUCCESS;
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    let servers = match (options.opentsdb, options.tsdb) {
        (Some(opentsdb), Some(tsdb)) => Servers::running(opentsdb, tsdb),
        _ => match runtime.block_on(Servers::start(options.hbase)) {
            Ok(servers) => servers,
            Err(error) => {
                eprintln!("differential: {error}");
                return ExitCode::FAILURE;
            }
        },
    };
    let passed = run(&options, &servers);
    runtime.block_on(servers.stop());
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs all requests; true if all differences are known.
fn run(options: &Options, servers: &Servers) -> bool {
    let known = KnownDifferences::load();
    let start = Instant::now();
    let mut requests_by_kind: BTreeMap<&str, u64> = BTreeMap::new();
    let mut known_counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut found: Vec<String> = Vec::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut cases = 0;
    let mut seed = options.seed;
    let is_done = |cases: u64| match options.cases {
        Some(limit) => cases >= limit,
        None => start.elapsed() > options.duration,
    };
    while !is_done(cases) && found.len() < options.differences {
        let mut random = Random::new(seed);
        let mut data = Data::new(seed, &mut random);
        if let Err(error) = data.store(servers) {
            println!("differential: seed {seed}: {error}");
            return false;
        }
        for number in 0..REQUESTS_PER_SEED {
            if is_done(cases) || found.len() >= options.differences {
                break;
            }
            let (kind, request) = requests::next(&data, number, &mut random);
            if options.only.as_deref().is_some_and(|only| only != kind) {
                continue;
            }
            cases += 1;
            *requests_by_kind.entry(kind).or_default() += 1;
            let Some(difference) = compare(servers, &request) else { continue };
            if let Some(name) = known.find(&difference) {
                *known_counts.entry(name).or_default() += 1;
                if options.all {
                    println!("known ({name}):\n{difference}");
                }
                continue;
            }
            // Most differences are found again and again; making them smaller takes time.
            if !seen.insert(difference.kind()) {
                continue;
            }
            let smallest = shrink::shrink(servers, &known, difference);
            let shows_points = smallest.at.contains(".dps") || smallest.at.contains("length");
            let points =
                if shows_points { data.points_of(&smallest.request) } else { String::new() };
            if !found.contains(&smallest.kind()) {
                println!("--- seed {seed}, request {number} ({kind})\n{smallest}{points}");
                found.push(smallest.kind());
            }
        }
        seed += 1;
    }
    let kinds: Vec<_> = requests_by_kind.iter().map(|(k, n)| format!("{k} {n}")).collect();
    println!(
        "differential: {cases} requests with seeds from {} in {:.0?}: {}",
        options.seed,
        start.elapsed(),
        kinds.join(", ")
    );
    for (name, count) in known_counts {
        println!("differential: known: {count} × {name}");
    }
    println!("differential: {} differences that are not listed", found.len());
    found.is_empty()
}
