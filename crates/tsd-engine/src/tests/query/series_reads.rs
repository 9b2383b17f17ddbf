//! Queries by reads of series equal queries by scans of rows, to the last bit. Random histories of puts in every form,
//! corrections, deletes, flushes, merges and restarts run on parts behind the log.
//!
//! `SERIES_READ_SEEDS` sets the number of histories.

use tsd_model::{Family, PointValue, TableSchema};
use tsd_storage::{CellBatch, CellRef, Storage, StorageExt};

use super::{
    HOUR,
    daemon::{Daemon, OpenStore, ROW, answer},
    query,
    series_index::Rng,
};
use crate::{
    EngineConfig, EngineHandle, NameText, QueryControl, Sample, SampleContent,
    testing::{put, put_all},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_by_series_equal_queries_by_rows() {
    let seeds = std::env::var("SERIES_READ_SEEDS").ok().and_then(|n| n.parse().ok());
    for seed in 0..seeds.unwrap_or(12) {
        let mut rng = Rng(seed);
        let mut daemon = Daemon::new(&mut rng).await;
        for _ in 0..4 {
            daemon.put(&mut rng).await;
        }
        for _ in 0..40 {
            match rng.below(12) {
                0..3 => daemon.put(&mut rng).await,
                3 | 4 => daemon.write_cells(&mut rng).await,
                5 => daemon.restart(&mut rng).await,
                6 => daemon.open.store.flush().await.unwrap(),
                _ => daemon.check(&mut rng, seed).await,
            }
        }
        for _ in 0..10 {
            daemon.check(&mut rng, seed).await;
        }
        daemon.open.store.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_series_are_counted_and_explained() {
    let mut rng = Rng(7);
    let mut daemon = Daemon::new(&mut rng).await;
    let mut session = daemon.open.by_series.ingest_session(NameText::Utf8);
    for host in 0..40_i64 {
        for hour in 0..30 {
            let tags = format!("host=h{host}");
            put(&mut session, "m", &tags, HOUR + hour * ROW + 5, host, 0).unwrap();
        }
    }
    assert!(session.commit().await.failures.is_empty());
    for _ in 0..2 {
        let OpenStore { by_series, scanning, .. } = &daemon.open;
        let request = || query(HOUR, HOUR + 20 * ROW + 10, &["sum:m"]);
        let count = async |engine: &EngineHandle| {
            let result = engine.reads().query(request(), QueryControl::default()).await.unwrap();
            let stats = &result.sub_results[0].stats;
            (stats.rows(), stats.cells(), stats.scanners.iter().all(|s| s.successful))
        };
        assert_eq!(count(by_series).await, (40 * 21, 40 * 21, true));
        assert_eq!(count(scanning).await, (40 * 21, 40 * 21, true));
        let explained =
            by_series.reads().explain(&request(), &crate::MetricRights::default()).await.unwrap();
        let read = &explained[0].reads[0];
        assert!(read.by_series && read.text.contains("read series of "), "{read:?}");
        let of = async |engine: &EngineHandle, m: &str| {
            let request = query(HOUR, HOUR + 20 * ROW + 10, &[m]);
            engine
                .reads()
                .explain(&request, &crate::MetricRights::default())
                .await
                .unwrap()
                .remove(0)
                .reads
                .remove(0)
                .summaries
        };
        let hours = of(by_series, "sum:1h-max-nan:rate:m").await;
        assert!(hours.may_serve && hours.most_days == 0 && hours.most_hours >= 20, "{hours:?}");
        for (engine, m, reason) in [
            (by_series, "sum:m", "not downsampled"),
            (by_series, "sum:90m-max:m", "not a number of hours"),
            (by_series, "sum:1h-median:m", "median needs each point"),
            (by_series, "sum:1h-max:m{value=gt(1)}", "value filters"),
            (scanning, "sum:1h-max:m", "by rows"),
        ] {
            let summaries = of(engine, m).await;
            assert!(!summaries.may_serve && summaries.reason.contains(reason), "{summaries:?}");
        }
        let mut delete = request();
        delete.delete = true;
        assert!(
            !by_series.reads().explain(&delete, &crate::MetricRights::default()).await.unwrap()[0]
                .reads[0]
                .by_series
        );
        let explained =
            scanning.reads().explain(&request(), &crate::MetricRights::default()).await.unwrap();
        assert!(!explained[0].reads[0].by_series);
        daemon.open.store.flush().await.unwrap();
        daemon.restart(&mut rng).await;
    }
    daemon.open.store.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_query_reads_only_what_may_have_changed() {
    const DAYS: i64 = 4;
    let mut rng = Rng(5);
    let mut daemon = Daemon::new(&mut rng).await;
    (daemon.options.cache_bytes, daemon.options.memtable_bytes) = (1 << 20, 1 << 20);
    daemon.restart(&mut rng).await;
    let put_points = async |daemon: &Daemon, hours: std::ops::Range<i64>, value: i64| {
        let mut session = daemon.open.by_series.ingest_session(NameText::Utf8);
        for host in 0..5 {
            for hour in hours.clone() {
                let tags = format!("host=h{host}");
                put(&mut session, "m", &tags, HOUR + hour * ROW + 5, value, 0).unwrap();
            }
        }
        assert!(session.commit().await.failures.is_empty());
    };
    put_points(&daemon, 0..DAYS * 24, 1).await;
    daemon.open.store.flush().await.unwrap();
    // From the middle of the first day to the middle of the last: two whole days in between.
    let request = || query(HOUR + 12 * ROW, HOUR + (DAYS * 24 - 12) * ROW - 1, &["sum:1h-sum:m"]);
    let rows = async |engine: &EngineHandle| {
        let result = engine.reads().query(request(), QueryControl::default()).await.unwrap();
        let sums = &result.sub_results[0].series[0].points;
        let sum: f64 = (0..sums.len()).map(|at| f64::from_bits(sums.bits[at])).sum();
        (result.sub_results[0].stats.rows(), sum)
    };
    // One more hour, in which the last bucket may end.
    let (all, edges) = (5 * 73, 5 * 25);
    let engine = &daemon.open.by_series;
    // A merge of a day creates a new version of it, so that day is read once more.
    let reads = async |expected_rows: u64, expected: f64, what: &str| {
        for _ in 0..500 {
            let (rows, sum) = rows(engine).await;
            assert_eq!(sum.to_bits(), expected.to_bits(), "{what}");
            if rows == expected_rows {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("{what}: other rows are read again and again");
    };
    assert_eq!(rows(engine).await, (all, 360.0), "read");
    assert_eq!(rows(engine).await, (all, 360.0), "repeated: read and kept");
    reads(edges, 360.0, "kept").await;
    put_points(&daemon, 24..25, 3).await;
    reads(edges + 5 * 24, 370.0, "a correction in memory").await;
    daemon.open.store.flush().await.unwrap();
    let (flushed, sum) = rows(engine).await;
    assert!(flushed >= edges + 5 * 24, "the day of the correction is read: {flushed}");
    assert_eq!(sum.to_bits(), 370_f64.to_bits());
    reads(edges, 370.0, "kept again").await;
    for attempt in 1.. {
        engine.drop_caches();
        // Names may have changed, so this is another read.
        let (rows_read, _) = rows(engine).await;
        assert_eq!(rows_read, all);
        let same = futures_util::future::join_all((0..6).map(|_| rows(engine))).await;
        assert!(same.iter().all(|(_, sum)| sum.to_bits() == 370_f64.to_bits()), "{same:?}");
        let read: u64 = same.iter().map(|(rows, _)| rows).sum();
        if read == all + 5 * edges {
            break;
        }
        assert!(attempt < 50, "one of them reads the whole days: {read}");
    }
    daemon.open.store.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_conflict_is_named() {
    let mut rng = Rng(3);
    let mut daemon = Daemon::new(&mut rng).await;
    daemon.options.fix_duplicates = false;
    daemon.restart(&mut rng).await;
    for value in [1, 300] {
        let mut session = daemon.open.by_series.ingest_session(NameText::Utf8);
        put(&mut session, "m", "host=a", HOUR + 5, value, 0).unwrap();
        assert!(session.commit().await.failures.is_empty());
    }
    for _ in 0..2 {
        let error = |engine| answer(engine, query(HOUR, HOUR + 60, &["sum:m"]));
        let by_series = error(&daemon.open.by_series).await.unwrap_err();
        assert_eq!(by_series, error(&daemon.open.scanning).await.unwrap_err());
        let time = format!("time_ms: {}", (HOUR + 5) * 1_000);
        for part in ["metric: \"m\"", "(\"host\", \"a\")", &time] {
            assert!(by_series.contains(part), "{by_series}");
        }
        assert_eq!(by_series.matches("ConflictingPoint").count(), 2, "{by_series}");
        daemon.open.store.flush().await.unwrap();
    }
    daemon.open.store.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_equal_whatever_the_number_of_ranges() {
    let mut rng = Rng(11);
    let mut daemon = Daemon::new(&mut rng).await;
    daemon.schema = TableSchema::try_new(3, 3, 3, 0, 4).unwrap();
    daemon.options.memtable_bytes = 1 << 20;
    (daemon.directory, daemon.options.threads) = (tempfile::tempdir().unwrap(), 1);
    daemon.restart(&mut rng).await;
    let mut session = daemon.open.by_series.ingest_session(NameText::Utf8);
    for host in 0..600_i64 {
        for step in 0..2_i64 {
            let tags = format!("host=h{} dc=dc{}", host * 7_919 % 600, host % 3);
            let second = HOUR + (host % 40) * ROW + step * 600;
            let value = PointValue::Double((host * 31 + step) as f64 / 7.0);
            let (metric, tags_raw) = (b"m".as_slice(), tags.as_bytes());
            let point = Sample {
                metric,
                tags_raw,
                timestamp: second,
                content: SampleContent::Point(value),
                tag: 0,
            };
            put_all(&mut session, &[point]);
        }
    }
    assert!(session.commit().await.failures.is_empty());
    daemon.open.store.flush().await.unwrap();
    let mut answers = Vec::new();
    let mut parts = Vec::new();
    for (threads, range_bytes) in [(1, 1), (2, 1), (16, 1), (2, 4 << 10), (2, 1 << 30)] {
        (daemon.options.threads, daemon.options.range_bytes) = (threads, range_bytes);
        daemon.restart(&mut rng).await;
        let mut of_ranges = Vec::new();
        for hours in [12, 40] {
            for m in ["sum:m", "sum:10m-avg:m{dc=*}", "dev:1h-sum:m{}{host=not_literal_or(h7)}"] {
                let request = query(HOUR, HOUR + hours * ROW, &[m]);
                if answers.is_empty() {
                    daemon.compare(&request, m).await;
                }
                let result =
                    daemon.open.by_series.reads().query(request.clone(), QueryControl::default());
                parts.push(result.await.unwrap().sub_results[0].stats.scanners.len());
                of_ranges.push(answer(&daemon.open.by_series, request).await.unwrap());
            }
        }
        answers.push(of_ranges);
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert!(parts.contains(&1) && parts.contains(&64), "{parts:?}");
    daemon.open.store.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn series_in_several_salt_buckets_are_merged() {
    let mut rng = Rng(5);
    let mut daemon = Daemon::new(&mut rng).await;
    daemon.schema = TableSchema::try_new(3, 3, 3, 1, 4).unwrap();
    (daemon.options.keep_bucket, daemon.options.cache_bytes) = (false, 0);
    daemon.directory = tempfile::tempdir().unwrap();
    daemon.restart(&mut rng).await;
    let mut session = daemon.open.by_series.ingest_session(NameText::Utf8);
    for host in 0..40_i64 {
        let tags = format!("host=h{host} dc=dc{}", host % 3);
        put(&mut session, "m", &tags, HOUR + 5 * ROW + 7 * host, host * 11 + 1, 0).unwrap();
    }
    assert!(session.commit().await.failures.is_empty());
    let table = EngineConfig::default().tables.data;
    let at = daemon.schema.base_time_start();
    for (number, key) in daemon.keys().await.into_iter().enumerate() {
        let mut other = key.to_vec();
        other[0] = (other[0] + 1) % 4;
        // Points in the range, points before it, or only an annotation.
        let (hour, qualifier, value) = match number % 4 {
            0 => (6, vec![0x01, 0x00], vec![9]),
            1 => (0, vec![0x01, 0x00], vec![8]),
            2 => (5, vec![1, 0, 1], br#"{"startTime":1357016400,"description":"x"}"#.to_vec()),
            _ => continue,
        };
        let base = (HOUR + hour * ROW) as u32;
        other[at..at + 4].copy_from_slice(&base.to_be_bytes());
        let (family, qualifier, value) = (Family::T, &qualifier[..], &value[..]);
        let cell = CellRef { family, qualifier, value, timestamp_ms: None };
        daemon.open.store.put(&table, CellBatch::single(&other, cell).unwrap()).await.unwrap();
    }
    for _ in 0..2 {
        // Reads of one day and of two days.
        for (from, to) in [(3, 20), (1, 30)] {
            for m in ["sum:m", "none:m", "sum:10m-avg:m{dc=*}", "avg:rate:m{host=*}"] {
                let request = query(HOUR + from * ROW, HOUR + to * ROW, &[m]);
                assert!(!daemon.compare(&request, m).await.is_empty());
            }
        }
        daemon.open.store.flush().await.unwrap();
        daemon.restart(&mut rng).await;
    }
    daemon.open.store.stop().await;
}
