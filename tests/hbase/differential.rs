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
//! | `--seeds N` | run N seeds to their end instead |
//! | `--requests N` | requests of a seed, 400 unless given |
//! | `--only KIND` | only requests of a kind, as the last lines list them |
//! | `--engine NAME` | `embedded`, `hbase`: our daemon on tables of its own on the same HBase, or `both` unless given |
//! | `--short` | a short run: two fixed seeds and one of the clock, with 150 requests each |
//! | `--plant` | stores one point of ours with another value, which must fail the run |
//! | `--opentsdb HOST:PORT --tsdb HOST:PORT` | use these servers, which must have the settings of `servers.rs` and no data of these seeds |
//! | `--differences N` | end after N kinds of differences, 25 unless given |
//! | `--all` | print known differences too |
//!
//! A difference is printed with the smallest request found that shows it, and both responses around it. It
//! fails the run unless `known_differences.txt` lists it with a reason. Without Java the run is skipped and
//! succeeds.

pub(crate) mod compare;
pub(crate) mod data;
pub(crate) mod json;
pub(crate) mod known;
pub(crate) mod random;
pub(crate) mod request;
pub(crate) mod requests;
pub(crate) mod servers;
mod shrink;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    process::ExitCode,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use cluster::{Cluster, ClusterConfig};
use tokio::{runtime::Runtime, task::block_in_place};
use tsd_testkit::Arguments;

use self::{
    compare::compare,
    data::Data,
    known::KnownDifferences,
    random::Random,
    servers::{Engine, Ours, Servers},
};
use crate::regions::ScenarioResult;

struct Options {
    seed: u64,
    duration: Duration,
    cases: Option<u64>,
    only: Option<String>,
    seeds: Option<u64>,
    short: bool,
    requests: u64,
    engines: Vec<Engine>,
    plant: bool,
    all: bool,
    differences: usize,
    opentsdb: Option<SocketAddr>,
    tsdb: Option<SocketAddr>,
}

impl Options {
    fn parse(arguments: &[String]) -> Self {
        let mut options = Self {
            seed: 1,
            duration: Duration::from_mins(1),
            cases: None,
            only: None,
            seeds: None,
            short: false,
            requests: 400,
            engines: vec![Engine::Embedded, Engine::HBase],
            plant: false,
            all: false,
            differences: 25,
            opentsdb: None,
            tsdb: None,
        };
        let mut arguments = Arguments::new(arguments.iter().cloned());
        while let Some(option) = arguments.next_option() {
            match option.as_str() {
                "--seed" => options.seed = arguments.number(),
                "--seconds" => options.duration = Duration::from_secs(arguments.number()),
                "--cases" => options.cases = Some(arguments.number()),
                "--only" => options.only = Some(arguments.text()),
                "--seeds" => options.seeds = Some(arguments.number()),
                "--requests" => options.requests = arguments.number(),
                "--engine" => {
                    options.engines = match arguments.text().as_str() {
                        "embedded" => vec![Engine::Embedded],
                        "hbase" => vec![Engine::HBase],
                        _ => vec![Engine::Embedded, Engine::HBase],
                    }
                }
                "--short" => options.short = true,
                "--plant" => options.plant = true,
                "--differences" => options.differences = arguments.number(),
                "--all" => options.all = true,
                "--opentsdb" => options.opentsdb = Some(arguments.number()),
                "--tsdb" => options.tsdb = Some(arguments.number()),
                _ => arguments.unknown(),
            }
        }
        if options.short {
            options.requests = 150;
        }
        options
    }

    /// The seeds to run, one after the other.
    fn seeds(&self) -> Box<dyn Iterator<Item = u64>> {
        if self.short {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            return Box::new([1, 2, 1_000 + now.as_secs() % 1_000_000].into_iter());
        }
        match self.seeds {
            Some(count) => Box::new(self.seed..self.seed + count),
            None => Box::new(self.seed..),
        }
    }

    /// True once enough requests were sent or enough time has passed.
    fn is_done(&self, cases: u64, start: Instant) -> bool {
        match self.cases {
            Some(limit) => cases >= limit,
            None => !self.short && self.seeds.is_none() && start.elapsed() > self.duration,
        }
    }
}

/// Runs two seeds on the cluster of all scenarios.
pub(crate) async fn scenario(cluster: &mut Cluster) -> ScenarioResult<()> {
    let mut options = Options::parse(&[]);
    (options.seeds, options.requests) = (Some(2), 150);
    let servers = Servers::start(cluster, &options.engines).await?;
    if block_in_place(|| run(&options, &servers)) {
        Ok(())
    } else {
        Err("there are differences that are not listed".into())
    }
}

/// Runs with these options, on running servers or on a new cluster.
pub(crate) fn main(arguments: &[String], runtime: &Runtime) -> ExitCode {
    let options = Options::parse(arguments);
    let passed = match (options.opentsdb, options.tsdb) {
        (Some(opentsdb), Some(address)) => {
            run(&options, &Servers::running(opentsdb, vec![Ours { name: "running", address }]))
        }
        _ => runtime.block_on(run_on_cluster(&options)).unwrap_or_else(|error| {
            eprintln!("differential: {error}");
            false
        }),
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run_on_cluster(options: &Options) -> ScenarioResult<bool> {
    let mut config = ClusterConfig::new(1);
    config.opentsdb = true;
    config.region_server_heap_mb = 400;
    let mut cluster = Cluster::start(config).await?;
    let servers = Servers::start(&mut cluster, &options.engines).await?;
    let passed = block_in_place(|| run(options, &servers));
    drop(servers);
    cluster.shut_down().await?;
    Ok(passed)
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
    let mut failed: BTreeSet<u64> = BTreeSet::new();
    let mut seeds = 0;
    for seed in options.seeds() {
        if options.is_done(cases, start) || found.len() >= options.differences {
            break;
        }
        seeds += 1;
        let mut random = Random::new(seed);
        let mut data = Data::new(seed, &mut random);
        println!("differential: seed {seed}");
        if let Err(error) = data.store(servers, options.plant) {
            println!("differential: seed {seed}: {error}");
            return false;
        }
        for number in 0..options.requests {
            if options.is_done(cases, start) || found.len() >= options.differences {
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
            // Most differences repeat, and shrinking them takes time.
            if !seen.insert(difference.kind()) {
                continue;
            }
            let smallest = shrink::shrink(servers, &known, difference);
            let shows_points =
                [".dps", "length", ".points"].iter().any(|part| smallest.at.contains(part));
            let points =
                if shows_points { data.points_of(&smallest.request) } else { String::new() };
            if !found.contains(&smallest.kind()) {
                println!("--- seed {seed}, request {number} ({kind})\n{smallest}{points}");
                found.push(smallest.kind());
                failed.insert(seed);
            }
        }
    }
    let kinds: Vec<_> = requests_by_kind.iter().map(|(k, n)| format!("{k} {n}")).collect();
    println!(
        "differential: {cases} requests of {seeds} seeds in {:.0?}: {}",
        start.elapsed(),
        kinds.join(", ")
    );
    for (name, count) in known_counts {
        println!("differential: known: {count} × {name}");
    }
    println!("differential: {} differences that are not listed", found.len());
    for seed in failed {
        let requests = options.requests;
        println!("repeat: tests/differential.sh --seed {seed} --seeds 1 --requests {requests}");
    }
    found.is_empty()
}
