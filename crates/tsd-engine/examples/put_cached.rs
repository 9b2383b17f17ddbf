//! What a point of a known series costs on its way into a chunk, and on to a store in memory.
//!
//! `cargo run --release -p tsd-engine --example put_cached`

use std::{error::Error, hint::black_box, sync::Arc, time::Instant};

use tsd_engine::{Engine, EngineConfig, IngestSession, NameText, PointInput, PutError};
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
    for (count, appends) in [(1_000, false), (100_000, false), (1_000, true), (100_000, true)] {
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
            put_new(&mut session, chunk)?;
            let report = session.commit().await;
            if !report.failures.is_empty() {
                return Err("points of new series failed".into());
            }
        }
        let new_series = started.elapsed();
        // Into the chunk and no further.
        let mut chunks = Vec::with_capacity(POINTS / CHUNK);
        let (mut lines, mut cuts) = (String::new(), Vec::new());
        for chunk in 0..POINTS / CHUNK {
            // Names as they stand in a read buffer, which is why they are copied first.
            lines.clear();
            cuts.clear();
            for i in 0..CHUNK {
                let one = series.get((chunk * CHUNK + i) % count).ok_or("no series")?;
                lines.push_str(&one.metric);
                let metric_end = lines.len();
                lines.push_str(&one.tags);
                cuts.push((metric_end, lines.len()));
            }
            let mut start = 0;
            let started = Instant::now();
            let mut group = Vec::with_capacity(IngestSession::GROUP);
            for (at, cuts) in cuts.chunks(IngestSession::GROUP).enumerate() {
                group.clear();
                for (i, &(metric_end, end)) in cuts.iter().enumerate() {
                    let i = at * IngestSession::GROUP + i;
                    group.push(PointInput {
                        metric: lines.get(start..metric_end).unwrap_or_default().as_bytes(),
                        tags_raw: lines.get(metric_end..end).unwrap_or_default().as_bytes(),
                        timestamp: 1_356_998_401 + (chunk * CHUNK + i) as i64 / count as i64,
                        value: PointValue::Integer(i as i64),
                        tag: i as u32,
                    });
                    start = end;
                }
                let refused = session.put(&group, |point| *point, |_| Err::<NoTags, _>(Refused));
                if !refused.is_empty() {
                    return Err("a point was not taken".into());
                }
            }
            chunks.push(started.elapsed().as_nanos() as f64 / CHUNK as f64);
            black_box(session.pending());
            session.discard_chunk();
        }
        chunks.sort_by(f64::total_cmp);
        let quantile = |q: usize| chunks.get(chunks.len() * q / 100).copied().unwrap_or_default();
        println!(
            "{count} series, appends {appends}: {:.1} ns a cached point ({:.1} in the best tenth of \
             the chunks), {:.1} us a new series",
            quantile(50),
            quantile(10),
            new_series.as_micros() as f64 / count as f64,
        );
    }
    Ok(())
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

/// Stands for tags that nobody asks for.
type NoTags = [(&'static [u8], &'static [u8]); 0];

/// A point was not taken.
struct Refused;

impl From<PutError> for Refused {
    fn from(_: PutError) -> Self {
        Self
    }
}

/// Puts a first point of each series.
fn put_new(session: &mut IngestSession, series: &[Series]) -> Result<(), Box<dyn Error>> {
    let refused = session.put(
        series,
        |one| PointInput {
            metric: one.metric.as_bytes(),
            tags_raw: one.tags.as_bytes(),
            timestamp: 1_356_998_400,
            value: PointValue::Integer(0),
            tag: 0,
        },
        |one| {
            let host: (&[u8], &[u8]) = (b"host", one.host.as_bytes());
            Ok::<_, PutError>([host, (b"cpu", one.cpu.as_bytes())])
        },
    );
    refused.into_iter().next().map_or(Ok(()), |(_, error)| Err(error.into()))
}
