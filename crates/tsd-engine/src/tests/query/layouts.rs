//! Results depend only on the points: not on their arrival order, row layout, compaction, salt buckets, or number of
//! threads.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, test_runner::Config};
use tsd_model::{PointValue, UidKind};

use super::*;
use crate::{
    Sample, SampleContent,
    testing::{ManualClock, put_all},
};

/// Series by host and data centre.
const SERIES: [(&str, &str); 5] =
    [("a", "east"), ("b", "east"), ("c", "west"), ("d", "west"), ("e", "west")];
const HOURS: i64 = 3;

/// A series, a time in milliseconds after `HOUR`, a value.
type SeriesPoint = (usize, i64, PointValue);

/// How points are stored and read.
#[derive(Clone, Debug)]
struct Layout {
    salt_buckets: u32,
    threads: usize,
    batch_rows: usize,
    compacted: bool,
    appends: bool,
    order: u64,
}

fn layouts() -> impl Strategy<Value = Layout> {
    let buckets = prop::sample::select(vec![0_u32, 1, 7, 20]);
    (buckets, 1..4_usize, 1..5_usize, any::<bool>(), any::<bool>(), any::<u64>()).prop_map(
        |(salt_buckets, threads, batch_rows, compacted, appends, order)| Layout {
            salt_buckets,
            threads,
            batch_rows,
            compacted,
            appends,
            order,
        },
    )
}

fn points() -> impl Strategy<Value = Vec<SeriesPoint>> {
    let time = prop_oneof![
        (0..HOURS * 3_600).prop_map(|secs| secs * 1_000),
        0..HOURS * 3_600_000,
        (0..HOURS * 60).prop_map(|minutes| minutes * 60_000),
    ];
    let value = prop_oneof![
        (-1_000_i64..1_000).prop_map(PointValue::Integer),
        (-1e6_f64..1e6).prop_map(PointValue::Double),
    ];
    prop::collection::vec((0..SERIES.len(), time, value), 1..60).prop_map(|points| {
        let mut seen = BTreeSet::new();
        points.into_iter().filter(|(series, time, _)| seen.insert((*series, *time))).collect()
    })
}

/// Integers, one per minute, so that sums are exact.
fn whole_points() -> impl Strategy<Value = Vec<SeriesPoint>> {
    points().prop_map(|points| {
        let mut seen = BTreeSet::new();
        points
            .into_iter()
            .map(|(series, time, _)| (series, time - time % 60_000, PointValue::Integer(time % 97)))
            .filter(|(series, time, _)| seen.insert((*series, *time)))
            .collect()
    })
}

/// An engine that stores the points.
async fn engine_with(points: &[SeriesPoint], layout: &Layout) -> EngineHandle {
    let store = store();
    let mut settings = config();
    let salt_width = usize::from(layout.salt_buckets > 0);
    settings.schema =
        TableSchema::try_new(3, 3, 3, salt_width, layout.salt_buckets.max(1)).unwrap();
    settings.query.threads = layout.threads;
    settings.query.scan_batch_rows = layout.batch_rows;
    settings.compaction.on_read = layout.compacted;
    settings.ingest.enable_appends = layout.appends;
    settings.clock = ManualClock::at_secs(HOUR + 100 * 3_600);
    let engine = start(settings, &store);
    // UIDs are assigned in a fixed order.
    engine.uids().assign(UidKind::Metric, "m").await.unwrap();
    for tagk in ["host", "dc"] {
        engine.uids().assign(UidKind::Tagk, tagk).await.unwrap();
    }
    for tagv in ["a", "b", "c", "d", "e", "east", "west"] {
        engine.uids().assign(UidKind::Tagv, tagv).await.unwrap();
    }
    let mut arriving = points.to_vec();
    let mix = |time: i64| (time as u64 ^ layout.order).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    arriving.sort_by_key(|(series, time, _)| mix(*time * 8 + *series as i64));
    let mut session = engine.ingest_session(NameText::Utf8);
    for (i, (series, time, value)) in arriving.into_iter().enumerate() {
        let (host, dc) = SERIES[series];
        let tags = format!("host={host} dc={dc}");
        let time = HOUR * 1_000 + time;
        let time = if time % 1_000 == 0 { time / 1_000 } else { time };
        let point = Sample {
            metric: b"m",
            tags_raw: tags.as_bytes(),
            timestamp: time,
            content: SampleContent::Point(value),
            tag: 0,
        };
        assert!(put_all(&mut session, &[point]).is_empty());
        if i % 7 == 0 {
            assert!(session.commit().await.failures.is_empty());
        }
    }
    assert!(session.commit().await.failures.is_empty());
    if layout.compacted {
        engine.flush_compactions().await;
    }
    engine
}

/// Compared parts of a result: tags, aggregated tags, and points to the last bit.
type ComparableResult = Vec<(Vec<(String, String)>, Vec<String>, Vec<(i64, String)>)>;

async fn comparable(engine: &EngineHandle, query: &Query) -> ComparableResult {
    let result = execute(engine, query.clone()).await.unwrap();
    let series = result.sub_results.iter().flat_map(|sub| &sub.series);
    series
        .map(|series| {
            let points = (0..series.points.len()).map(|i| {
                let value = match series.points.value(i).unwrap() {
                    Value::Integer(v) => v.to_string(),
                    Value::Float(v) => format!("{:016x}", v.to_bits()),
                };
                (series.points.times_ms[i], value)
            });
            (series.tags.clone(), series.aggregate_tags.clone(), points.collect())
        })
        .collect()
}

const QUERIES: &[&str] = &[
    "none:m",
    "sum:m",
    "avg:m{dc=*}",
    "sum:7m-avg:m{dc=*}",
    "dev:m{dc=west}",
    "p75:10m-max:m",
    "sum:rate:m{host=*}",
    "zimsum:1h-count-zero:m{dc=*}",
    "max:1hc-first:m{host=a|c|e}",
    "diff:0all-sum:m",
    "sum:rate{counter,1000}:1m-last-nan:m",
];

proptest! {
    #![proptest_config(Config { cases: 12, ..Config::default() })]

    #[test]
    fn results_depend_only_on_the_points(
        points in points(),
        layouts in prop::collection::vec(layouts(), 3),
        start in 0..HOURS * 3_600,
        length in 0..HOURS * 3_600,
    ) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let request = query(HOUR + start, HOUR + start + length, QUERIES);
            let mut expected: Option<ComparableResult> = None;
            for layout in &layouts {
                let engine = engine_with(&points, layout).await;
                let got = comparable(&engine, &request).await;
                // Again, because reading may have compacted rows.
                engine.compactions_idle().await;
                assert_eq!(comparable(&engine, &request).await, got, "{layout:?}");
                match &expected {
                    None => expected = Some(got),
                    Some(expected) => assert_eq!(&got, expected, "{layout:?}, {:?}", layouts[0]),
                }
            }
        });
    }

    #[test]
    fn groups_add_up_to_the_total(points in whole_points(), layout in layouts()) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let engine = engine_with(&points, &layout).await;
            let end = HOUR + HOURS * 3_600;
            for m in ["zimsum:m", "zimsum:5m-sum:m", "count:5m-count-zero:m", "mimmax:5m-max:m"] {
                let request = |m: &str| query(HOUR, end, &[m]);
                let whole = execute(&engine, request(m)).await.unwrap();
                let parts = execute(&engine, request(&format!("{m}{{dc=*}}"))).await.unwrap();
                let mut sums: BTreeMap<i64, f64> = BTreeMap::new();
                for (time, value) in parts.sub_results[0].series.iter().flat_map(values) {
                    let sum = sums.entry(time).or_insert(if m.starts_with("mimmax") {
                        f64::MIN
                    } else {
                        0.0
                    });
                    *sum = if m.starts_with("mimmax") { sum.max(value) } else { *sum + value };
                }
                let whole = values(&whole.sub_results[0].series[0]);
                assert_eq!(whole, sums.into_iter().collect::<Vec<_>>(), "{m}");
            }
        });
    }
}
