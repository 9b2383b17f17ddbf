//! Time to add a point of a cached series to a chunk, and to create a series in memory storage.
//!
//! ```text
//! cargo bench -p tsd-engine --bench put_cached
//! ```
//!
//! Without `--bench`, as in `cargo test --benches`, it puts few points to check that it runs.

use std::{error::Error, hint::black_box, sync::Arc, time::Instant};

use tsd_engine::{Engine, EngineConfig, IngestSession, NameText, PutError, Sample, SampleContent};
use tsd_model::{PointValue, TableSchema};
use tsd_storage::{MemoryStorage, Storage};

const CHUNK: usize = 1_000;

struct Series {
    metric: String,
    tags: String,
    host: String,
    cpu: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (points, most_series) = if is_bench { (4_000_000, 100_000) } else { (20_000, 10_000) };
    for (count, appends) in
        [(1_000, false), (most_series, false), (1_000, true), (most_series, true)]
    {
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
        // Points are added to the chunk and discarded, not stored.
        let mut chunks = Vec::with_capacity(points / CHUNK);
        let (mut lines, mut cuts) = (String::new(), Vec::new());
        for chunk in 0..points / CHUNK {
            // Copied, because names are adjacent in a read buffer.
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
                    group.push(Sample {
                        metric: lines.get(start..metric_end).unwrap_or_default().as_bytes(),
                        tags_raw: lines.get(metric_end..end).unwrap_or_default().as_bytes(),
                        timestamp: 1_356_998_401 + (chunk * CHUNK + i) as i64 / count as i64,
                        content: SampleContent::Point(PointValue::Integer(i as i64)),
                        tag: i as u32,
                    });
                    start = end;
                }
                let rejected = session.put(&group, |point| *point, |_| Err::<NoTags, _>(Rejected));
                if !rejected.is_empty() {
                    return Err("a point was rejected".into());
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

/// Tags of a cached series, which are never parsed.
type NoTags = [(&'static [u8], &'static [u8]); 0];

/// The error of a rejected point.
struct Rejected;

impl From<PutError> for Rejected {
    fn from(_: PutError) -> Self {
        Self
    }
}

/// Puts the first point of each series.
fn put_new(session: &mut IngestSession, series: &[Series]) -> Result<(), Box<dyn Error>> {
    let rejected = session.put(
        series,
        |one| Sample {
            metric: one.metric.as_bytes(),
            tags_raw: one.tags.as_bytes(),
            timestamp: 1_356_998_400,
            content: SampleContent::Point(PointValue::Integer(0)),
            tag: 0,
        },
        |one| {
            let host: (&[u8], &[u8]) = (b"host", one.host.as_bytes());
            Ok::<_, PutError>([host, (b"cpu", one.cpu.as_bytes())])
        },
    );
    rejected.into_iter().next().map_or(Ok(()), |(_, error)| Err(error.into()))
}
