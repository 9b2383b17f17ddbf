//! CPU time of queries by reads of series and by scans of rows, on the embedded store behind the log.
//!
//! ```text
//! cargo bench -p tsd-engine --bench series_reads
//! ```
//!
//! Both results must be equal to the last bit. Without `--bench`, as in `cargo test --benches`, it writes few points
//! to check that it runs.

use std::{
    error::Error,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use tsd_engine::{
    Engine, EngineConfig, EngineHandle, NameText, PutError, QueryControl, Sample, SampleContent,
    SeriesIndexUse,
};
use tsd_model::{PointValue, TableSchema};
use tsd_query::{Clock, Query, RawQuery, parse_m_parameter};
use tsd_storage::Storage;
use tsd_storage_embedded::{EmbeddedConfig, EmbeddedStorage, EmbeddedTable};
use tsd_storage_wal::{WalConfig, WalStorage};

/// 2013-01-01, the start of a UTC day.
const START: i64 = 1_356_998_400;
const RUNS: usize = 7;

type AnyError = Box<dyn Error>;

struct Shape {
    name: &'static str,
    hosts: i64,
    cpus: i64,
    step_secs: i64,
    steps: i64,
    queries: &'static [&'static str],
}

const SHAPES: [Shape; 2] = [
    Shape {
        name: "1 000 series, 1 day, 10 s",
        hosts: 250,
        cpus: 4,
        step_secs: 10,
        steps: 8_640,
        queries: &[
            "none:5m-avg:m",
            "sum:5m-avg:m",
            "sum:1m-avg:m{host=h7}",
            "sum:1m-avg:m{host=h7,cpu=c1}",
        ],
    },
    Shape {
        name: "100 series, 60 days, 60 s",
        hosts: 100,
        cpus: 1,
        step_secs: 60,
        steps: 60 * 1_440,
        queries: &["sum:1h-avg:m{host=*}", "sum:1d-avg:m", "max:1d-max:m{host=h7}"],
    },
];

/// CPU time of the process, in milliseconds.
fn cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// Waits until flushes and merges are done.
async fn settle() {
    let mut quiet = 0;
    while quiet < 4 {
        let before = cpu_ms();
        tokio::time::sleep(Duration::from_millis(250)).await;
        quiet = if cpu_ms() - before < 5.0 { quiet + 1 } else { 0 };
    }
}

fn settings(schema: TableSchema) -> EngineConfig {
    let mut settings = EngineConfig { schema, ..EngineConfig::default() };
    settings.uids.auto_create_metrics = true;
    settings.query.threads = 2;
    settings
}

async fn open(dir: &Path, schema: TableSchema) -> Result<Arc<dyn Storage>, AnyError> {
    let tables = EngineConfig::default().tables;
    let wal = WalConfig { memtable_bytes: 64 << 20, ..WalConfig::new(dir.join("log")) };
    let mut specs = vec![EmbeddedTable::data(tables.data)];
    specs.extend([tables.uid, tables.meta, tables.tree].map(EmbeddedTable::cells));
    let config = EmbeddedConfig::new(dir.join("store"), schema, specs);
    Ok(Arc::new(WalStorage::open(wal, Arc::new(EmbeddedStorage::open(&config)?)).await?.0))
}

async fn load(engine: &EngineHandle, shape: &Shape, steps: i64) -> Result<(), AnyError> {
    let names: Vec<(i64, String)> = (0..shape.hosts * shape.cpus)
        .map(|i| (i, format!("host=h{} cpu=c{}", i / shape.cpus, i % shape.cpus)))
        .collect();
    let mut values: Vec<f64> = names.iter().map(|(i, _)| *i as f64).collect();
    let mut session = engine.ingest_session(NameText::Latin1);
    let mut random = 1_u64;
    for step in 0..steps {
        let mut points = Vec::with_capacity(names.len());
        for ((_, tags), value) in names.iter().zip(&mut values) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *value += ((random >> 33) % 201) as f64 / 100.0 - 1.0;
            points.push(Sample {
                metric: b"m",
                tags_raw: tags.as_bytes(),
                timestamp: START + step * shape.step_secs,
                content: SampleContent::Point(PointValue::Double((*value * 100.0).round() / 100.0)),
                tag: 0,
            });
        }
        let failures = session.put(
            &points,
            |point| *point,
            |point: &Sample<'_>| Ok::<_, PutError>(split_tags(point.tags_raw)),
        );
        if !failures.is_empty() || !session.commit().await.failures.is_empty() {
            return Err("points were not stored".into());
        }
    }
    Ok(())
}

/// Pairs of tag keys and values.
type Pairs<'p> = Vec<(&'p [u8], &'p [u8])>;

fn split_tags(tags: &[u8]) -> Pairs<'_> {
    tags.split(|b| *b == b' ')
        .filter_map(|word| {
            let (key, value) = word.split_at(word.iter().position(|b| *b == b'=')?);
            Some((key, value.get(1..)?))
        })
        .collect()
}

fn query(shape: &Shape, steps: i64, m: &str) -> Result<Query, AnyError> {
    let end = START + steps * shape.step_secs - 1;
    let raw = RawQuery {
        start: Some(START.to_string()),
        end: Some(end.to_string()),
        queries: Some(vec![parse_m_parameter(m)?]),
        ..RawQuery::default()
    };
    Ok(raw.validate(&Clock::utc(end * 1_000))?)
}

/// The result, and the medians of CPU time and of time, in milliseconds.
async fn measure(engine: &EngineHandle, query: &Query) -> Result<(String, f64, f64), AnyError> {
    let mut answer = String::new();
    let (mut cpu, mut wall) = (Vec::new(), Vec::new());
    for _ in 0..=RUNS {
        let (before, began) = (cpu_ms(), Instant::now());
        let result = engine.reads().query(query.clone(), QueryControl::default()).await?;
        cpu.push(cpu_ms() - before);
        wall.push(began.elapsed().as_secs_f64() * 1e3);
        let series = result.sub_results.iter().flat_map(|sub| &sub.series);
        answer = format!("{:?}", series.collect::<Vec<_>>());
    }
    // The first execution fills caches.
    let median = |values: &mut Vec<f64>| {
        values.remove(0);
        values.sort_by(f64::total_cmp);
        values.get(RUNS / 2).copied().unwrap_or_default()
    };
    Ok((answer, median(&mut cpu), median(&mut wall)))
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), AnyError> {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    for shape in &SHAPES {
        let steps = if is_bench { shape.steps } else { 400 };
        println!("{}", shape.name);
        let mut answers: Vec<String> = Vec::new();
        let directory = tempfile::tempdir()?;
        let schema = TableSchema::opentsdb_default();
        let store = open(directory.path(), schema).await?;
        let by_series = Engine::start(settings(schema), Arc::clone(&store))?;
        let mut by_rows = settings(schema);
        by_rows.query.series_reads = false;
        by_rows.query.series_index = SeriesIndexUse::Auto;
        let by_rows = Engine::start(by_rows, Arc::clone(&store))?;
        load(&by_rows, shape, steps).await?;
        store.flush().await?;
        settle().await;
        for (design, engine) in [("rows", &by_rows), ("series", &by_series)] {
            for (index, m) in shape.queries.iter().enumerate() {
                let query = query(shape, steps, m)?;
                let (answer, cpu, wall) = measure(engine, &query).await?;
                println!("{design:8} {m:32} {cpu:9.2} ms CPU {wall:9.2} ms");
                match answers.get(index) {
                    Some(expected) if *expected != answer => {
                        return Err(format!("{design}: another answer to {m}").into());
                    }
                    Some(_) => {}
                    None => answers.push(answer),
                }
            }
        }
        store.close().await?;
    }
    Ok(())
}
