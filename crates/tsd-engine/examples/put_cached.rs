//! What a point of a known series costs on its way into a chunk, and on to a store in memory.
//!
//! `cargo run --release -p tsd-engine --example put_cached`

use std::{
    error::Error,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use tsd_engine::{Engine, EngineConfig, IngestSession, NameText};
use tsd_model::{PointValue, TableSchema};
use tsd_storage::{MemoryStorage, Storage};

const CHUNK: usize = 1_000;
const POINTS: usize = 4_000_000;

struct Series {
    metric: String,
    tags: String,
    host: String,
    cpu: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    for (count, appends) in [(1_000, false), (100_000, false), (1_000, true)] {
        let schema = TableSchema::try_new(3, 3, 3, 1, 20)?;
        let mut config = EngineConfig { schema, ..EngineConfig::default() };
        config.uids.auto_create_metrics = true;
        config.ingest.enable_appends = appends;
        let tables = config.tables.clone();
        let storage: Arc<dyn Storage> =
            Arc::new(MemoryStorage::new([tables.data, tables.uid, tables.meta, tables.tree]));
        let engine = Engine::start(config, storage)?;
        let series = series(count);
        let mut session = engine.ingest_session(NameText::Latin1);
        let started = Instant::now();
        for chunk in series.chunks(CHUNK) {
            for one in chunk {
                put(&mut session, one, 1_356_998_400, 0)?;
            }
            let report = session.commit().await;
            if !report.failures.is_empty() {
                return Err("points of new series failed".into());
            }
        }
        let new_series = started.elapsed();
        // Into the chunk and no further.
        let mut spent = Duration::ZERO;
        for chunk in 0..POINTS / CHUNK {
            let before = cpu_time(begun);
            for i in 0..CHUNK {
                let one = series.get((chunk * CHUNK + i) % count).ok_or("no series")?;
                let at = 1_356_998_401 + (chunk * CHUNK + i) as i64 / count as i64;
                put(&mut session, one, at, i)?;
            }
            spent += cpu_time(begun).saturating_sub(before);
            black_box(session.pending());
            session.forget_chunk();
        }
        println!(
            "{count} series, appends {appends}: {:.1} ns a cached point, {:.1} us a new series",
            spent.as_nanos() as f64 / POINTS as f64,
            new_series.as_micros() as f64 / count as f64,
        );
    }
    Ok(())
}

/// Processor time of this thread, where the system tells; else the time of the day's clock. A busy
/// machine does not blur it.
fn cpu_time(since: Instant) -> Duration {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .map_or_else(|| since.elapsed(), Duration::from_nanos)
}

fn series(count: usize) -> Vec<Series> {
    (0..count)
        .map(|i| Series {
            metric: format!("sys.cpu.{}", i % 10),
            tags: format!("host=web{} cpu={}", i / 10, i % 4),
            host: format!("web{}", i / 10),
            cpu: (i % 4).to_string(),
        })
        .collect()
}

fn put(
    session: &mut IngestSession,
    series: &Series,
    at: i64,
    i: usize,
) -> Result<(), Box<dyn Error>> {
    let value = PointValue::Integer(i as i64);
    let (metric, raw) = (series.metric.as_bytes(), series.tags.as_bytes());
    if let Some(put) = session.put_cached(metric, raw, at, value, i as u32) {
        return Ok(put?);
    }
    let tags: [(&[u8], &[u8]); 2] =
        [(b"host", series.host.as_bytes()), (b"cpu", series.cpu.as_bytes())];
    Ok(session.put_new(metric, raw, &tags, at, value, i as u32)?)
}
