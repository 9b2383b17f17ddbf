//! Reads of series that have few rows in a long time range.

use tsd_storage::Storage;

use super::{HOUR, daemon::Daemon, query, series_index::Rng};
use crate::{EngineHandle, NameText, QueryControl, testing::put};

const DAY: i64 = 86_400;
const DAYS: i64 = 150;

async fn put_points(engine: &EngineHandle, points: impl IntoIterator<Item = (&str, &str, i64)>) {
    let mut session = engine.ingest_session(NameText::Utf8);
    for (value, (metric, tags, day)) in (1..).zip(points) {
        put(&mut session, metric, tags, HOUR + day * DAY + 5, value, 0).unwrap();
    }
    assert!(session.commit().await.failures.is_empty());
}

/// Scans of the query, by series.
async fn scans(engine: &EngineHandle, m: &str) -> usize {
    let request = query(HOUR, HOUR + DAYS * DAY, &[m]);
    let result = engine.reads().query(request, QueryControl::default()).await.unwrap();
    result.sub_results[0].stats.scanners.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn days_without_rows_are_not_read() {
    for seed in [1, 2] {
        let mut rng = Rng(seed);
        let daemon = Daemon::new(&mut rng).await;
        // Other series have points on the days in between.
        let daily = (0..DAYS).map(|day| ("daily", "host=a", day));
        put_points(daemon.by_series(), daily).await;
        let sparse = [0, 1, 60, 140].map(|day| ("sparse", "host=a", day));
        put_points(daemon.by_series(), sparse).await;
        // A metric with more series, each at another time.
        let several = (0..DAYS).step_by(10).map(|day| match day {
            0 | 140 => ("several", "host=a", day),
            _ => ("several", "host=b", day),
        });
        put_points(daemon.by_series(), several).await;
        // In memory, then in files.
        for _ in 0..2 {
            assert_eq!(scans(daemon.by_series(), "sum:sparse").await, 3);
            assert_eq!(scans(daemon.by_series(), "sum:sparse{host=a}").await, 3);
            assert_eq!(scans(daemon.by_series(), "sum:several{host=a}").await, 2);
            for metric in ["sparse", "sparse{host=*}", "several{host=a}", "several"] {
                for operators in [
                    "sum",
                    "sum:rate",
                    "avg:1h-sum",
                    "sum:1nc-sum-nan",
                    "sum:3dc-count:rate",
                    "sum:0all-sum",
                ] {
                    let m = format!("{operators}:{metric}");
                    for (first, last) in [(0, DAYS), (1, 139), (2, 59), (40, 141)] {
                        let (start, end) = (HOUR + first * DAY + 3, HOUR + last * DAY + 7);
                        daemon
                            .compare(&query(start, end, &[&m]), &format!("seed {seed}: {m}"))
                            .await;
                    }
                }
            }
            daemon.store().flush().await.unwrap();
        }
        daemon.store().stop().await;
    }
}
