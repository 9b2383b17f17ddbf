//! Queries that read summaries equal queries that read rows, to the last bit.
//!
//! The series are random: integers, floats, NaN, −0.0, several points of one instant, late points, corrections,
//! deletes, rows in memtables, and sections that are not merged yet. Functions, intervals, ranges and time zones are
//! random too.
//!
//! `SUMMARY_SEEDS` sets the number of histories, as `count` or `first+count`.

use bytes::Bytes;
use tsd_model::{Family, PointValue};
use tsd_query::{Clock, Query, RawQuery, parse_m_parameter};
use tsd_storage::{CellBatch, CellRef, Delete, Storage, StorageExt};

use super::{
    daemon::{Daemon, answer},
    series_index::Rng,
};
use crate::{EngineConfig, NameText, QueryControl, Sample, SampleContent, testing::put_all};

/// First days of the data, all in UTC. On some of them, time zones change their offsets.
const FIRST_DAYS: [i64; 4] = [1_356_998_400, 1_362_787_200, 1_365_206_400, 1_383_264_000];
const HOUR_SECS: i64 = 3_600;
const SERIES: [&str; 3] = ["host=a", "host=b dc=x", "host=c"];

/// How the values of a series are generated.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Integers,
    /// Values whose sums are exact only for a few of them.
    Large,
    Quarters,
    Decimals,
    Doubles,
    Mixed,
    /// Values with zeros of both signs.
    Zeros,
}

const KINDS: [Kind; 7] = [
    Kind::Integers,
    Kind::Large,
    Kind::Quarters,
    Kind::Decimals,
    Kind::Doubles,
    Kind::Mixed,
    Kind::Zeros,
];

/// Flags of a qualifier and the bytes of its value.
fn value(rng: &mut Rng, kind: Kind) -> (u16, Vec<u8>) {
    let integer = |v: i64| match v {
        -128..=127 => (0, (v as i8).to_be_bytes().to_vec()),
        -32_768..=32_767 => (1, (v as i16).to_be_bytes().to_vec()),
        -2_147_483_648..=2_147_483_647 => (3, (v as i32).to_be_bytes().to_vec()),
        _ => (7, v.to_be_bytes().to_vec()),
    };
    let double = |v: f64| (0xF, v.to_be_bytes().to_vec());
    match kind {
        Kind::Integers => integer(rng.below(2_000) as i64 - 700),
        Kind::Large => {
            let shift = rng.below(14);
            integer((rng.below(1 << 50) as i64 - (1 << 49)) << shift)
        }
        Kind::Quarters => (0xB, (rng.below(4_000) as f32 / 4.0).to_be_bytes().to_vec()),
        Kind::Decimals => double((rng.below(20_000) as i64 - 9_000) as f64 / 100.0),
        Kind::Doubles => double((rng.below(1 << 40) as f64).sqrt() / 3.0),
        Kind::Mixed if rng.below(3) == 0 => double(rng.below(1_000) as f64 / 10.0),
        Kind::Mixed => integer(rng.below(90) as i64),
        Kind::Zeros if rng.below(3) == 0 => double(rng.pick(&[0.0, -0.0, 1.5])),
        Kind::Zeros => integer(rng.below(2) as i64),
    }
}

struct History {
    daemon: Daemon,
    first_day: i64,
    kinds: [Kind; 3],
    millis: bool,
    /// Row key of each series.
    keys: Vec<Bytes>,
}

impl History {
    async fn new(rng: &mut Rng) -> Self {
        let daemon = Daemon::new(rng).await;
        let mut history = Self {
            daemon,
            first_day: rng.pick(&FIRST_DAYS),
            kinds: [(); 3].map(|()| rng.pick(&KINDS)),
            millis: rng.below(4) == 0,
            keys: Vec::new(),
        };
        // Assigns the UIDs; the rows are put as cells later.
        for tags in SERIES {
            let before = history.first_day - 30 * 24 * HOUR_SECS;
            history.put_point(tags, before, PointValue::Integer(1)).await;
        }
        history.keys = history.daemon.keys().await;
        history
    }

    async fn put_point(&self, tags: &str, timestamp: i64, value: PointValue) {
        let mut session = self.daemon.by_series().ingest_session(NameText::Utf8);
        let (metric, tags_raw) = (b"m".as_slice(), tags.as_bytes());
        put_all(
            &mut session,
            &[Sample { metric, tags_raw, timestamp, content: SampleContent::Point(value), tag: 0 }],
        );
        assert!(session.commit().await.failures.is_empty());
    }

    /// The row key of a series at an hour of the data.
    fn row(&self, key: &[u8], hour: u64) -> Vec<u8> {
        let (mut row, at) = (key.to_vec(), self.daemon.schema().base_time_start());
        let base = (self.first_day + hour as i64 * HOUR_SECS) as u32;
        row[at..at + 4].copy_from_slice(&base.to_be_bytes());
        row
    }

    /// Writes some hours of some series, as one compacted column each.
    async fn put_hours(&self, rng: &mut Rng) {
        let table = EngineConfig::default().tables.data;
        let (first, count) = match rng.below(4) {
            0 => (0, 72),
            1 => (24 * rng.below(3), 24),
            2 => (rng.below(60), 6 + rng.below(20)),
            _ => (rng.below(70), 1 + rng.below(3)),
        };
        let dense = rng.below(5) > 0;
        for (key, kind) in self.keys.iter().zip(self.kinds) {
            if rng.below(4) == 0 {
                continue;
            }
            let kind = if rng.below(8) == 0 { rng.pick(&KINDS) } else { kind };
            let mut cells = Vec::new();
            for hour in first..first + count {
                if rng.below(30) == 0 {
                    continue;
                }
                let (mut qualifier, mut values) = (Vec::new(), Vec::new());
                let step = if dense { 40 + rng.below(18) as u32 } else { 400 };
                let mut second = rng.below(30) as u32;
                let mut points = 0;
                while second < 3_600 {
                    let (flags, bytes) = value(rng, kind);
                    if self.millis {
                        let millis = second * 1_000 + rng.below(1_000) as u32;
                        let q = 0xF000_0000 | millis << 6 | u32::from(flags);
                        qualifier.extend_from_slice(&q.to_be_bytes());
                    } else {
                        qualifier.extend_from_slice(&((second << 4) as u16 | flags).to_be_bytes());
                    }
                    values.extend_from_slice(&bytes);
                    points += 1;
                    second += if rng.below(9) == 0 { 2 * step } else { step };
                }
                if points > 1 {
                    values.push(0);
                }
                cells.push((self.row(key, hour), qualifier, values));
            }
            let mut batch = CellBatch::new();
            for (row, qualifier, value) in &cells {
                let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: None };
                batch.begin_row(row).unwrap();
                batch.push(cell).unwrap();
            }
            if !cells.is_empty() {
                self.daemon.store().put(&table, batch).await.unwrap();
            }
        }
    }

    /// Adds a late point, a correction, a second value of an instant, a value that is not a number, an annotation, or
    /// a delete.
    async fn disturb(&self, rng: &mut Rng) {
        let table = EngineConfig::default().tables.data;
        let key = &self.keys[rng.below(self.keys.len() as u64) as usize];
        let row = self.row(key, rng.below(72));
        if rng.below(5) == 0 {
            self.daemon.store().delete(&table, Delete::Row(row.into())).await.unwrap();
            return;
        }
        let second = rng.below(3_600) as u32;
        let seconds = |flags: u16| ((second << 4) as u16 | flags).to_be_bytes().to_vec();
        let (qualifier, value) = match rng.below(6) {
            0 => (seconds(0xF), f64::NAN.to_be_bytes().to_vec()),
            1 => (vec![1, 0, 1], br#"{"startTime":1356998400,"description":"x"}"#.to_vec()),
            2 => {
                let q = 0xF000_0000 | (second * 1_000) << 6;
                (q.to_be_bytes().to_vec(), vec![9])
            }
            3 => (seconds(1), vec![1, 7]),
            _ => (seconds(0), vec![rng.below(100) as u8]),
        };
        let cell =
            CellRef { family: Family::T, qualifier: &qualifier, value: &value, timestamp_ms: None };
        self.daemon.store().put(&table, CellBatch::single(&row, cell).unwrap()).await.unwrap();
    }

    fn random_query(&self, rng: &mut Rng) -> (String, Query) {
        const FUNCTIONS: [&str; 14] = [
            "sum", "avg", "avg", "sum", "min", "max", "count", "first", "last", "diff", "mimmax",
            "zimsum", "dev", "median",
        ];
        const INTERVALS: [&str; 22] = [
            "1h", "1h", "6h", "1d", "1d", "24h", "2h", "3h", "7h", "2d", "0all", "0all", "1hc",
            "1dc", "6hc", "7hc", "2dc", "1wc", "1nc", "90m", "30m", "12h",
        ];
        const ZONES: [&str; 7] = [
            "UTC",
            "UTC",
            "America/New_York",
            "Asia/Kabul",
            "Asia/Tokyo",
            "Australia/Lord_Howe",
            "Europe/Berlin",
        ];
        let (from, to) = match rng.below(4) {
            0 => (0, 72 * HOUR_SECS),
            1 => (24 * HOUR_SECS * rng.below(3) as i64, 72 * HOUR_SECS - rng.below(2) as i64),
            2 => {
                let from = HOUR_SECS * rng.below(60) as i64;
                (from, from + HOUR_SECS * (1 + rng.below(40)) as i64)
            }
            _ => {
                let from = rng.below(60 * 3_600) as i64;
                (from, from + 1 + rng.below(50 * 3_600) as i64)
            }
        };
        let aggregator = rng.pick(&["none", "none", "sum", "avg", "max", "dev", "zimsum"]);
        let fill = rng.pick(&["", "", "", "-nan", "-zero"]);
        let rate = rng.pick(&["", "", "", "rate:"]);
        let filter = match rng.below(10) {
            0 => "{host=a}",
            1 => "{host=*}",
            2 => "{value=gt(3)}",
            _ => "",
        };
        let (interval, function) = (rng.pick(&INTERVALS), rng.pick(&FUNCTIONS));
        let m = format!("{aggregator}:{interval}-{function}{fill}:{rate}m{filter}");
        let zone = rng.pick(&ZONES);
        let millis = |secs: i64, rng: &mut Rng| {
            (self.first_day + secs) * 1_000 + rng.pick(&[0, 0, 0, 1, 999])
        };
        let (start, end) = (millis(from, rng), millis(to, rng));
        let raw = RawQuery {
            start: Some(start.to_string()),
            end: Some(end.max(start + 1).to_string()),
            timezone: Some(zone.to_owned()),
            queries: Some(vec![parse_m_parameter(&m).unwrap()]),
            ..RawQuery::default()
        };
        let query = raw.validate(&Clock::utc(end + 1)).unwrap();
        (format!("{m} from {start} to {end} in {zone}"), query)
    }

    /// Executes a query both ways. Returns the number of summaries that were read.
    async fn check(&self, rng: &mut Rng, seed: u64) -> u64 {
        let (text, query) = self.random_query(rng);
        let found = answer(self.daemon.by_series(), query.clone()).await;
        let expected = answer(self.daemon.scanning(), query.clone()).await;
        match (found, expected) {
            // The order of the reads determines which of several conflicts is met first.
            (Err(_), Err(_)) => return 0,
            (found, expected) => assert_eq!(found, expected, "seed {seed}: {text}"),
        }
        let counted = self.daemon.by_series().reads().query(query, QueryControl::default()).await;
        counted.unwrap().sub_results[0].stats.summaries()
    }
}

/// Runs histories. Returns the number of queries, and of queries that read summaries.
async fn run(seeds: std::ops::Range<u64>) -> (u64, u64) {
    let (mut queries, mut with_summaries) = (0, 0);
    for seed in seeds {
        let mut rng = Rng(seed);
        let mut history = History::new(&mut rng).await;
        let mut check = async |history: &History, rng: &mut Rng| {
            queries += 1;
            with_summaries += u64::from(history.check(rng, seed).await > 0);
        };
        history.put_hours(&mut rng).await;
        for _ in 0..24 {
            match rng.below(14) {
                0 | 1 => history.put_hours(&mut rng).await,
                2 | 3 => history.disturb(&mut rng).await,
                4 => history.daemon.restart(&mut rng).await,
                5 | 6 => history.daemon.store().flush().await.unwrap(),
                _ => check(&history, &mut rng).await,
            }
        }
        history.daemon.store().flush().await.unwrap();
        for _ in 0..10 {
            check(&history, &mut rng).await;
        }
        history.daemon.store().stop().await;
    }
    (queries, with_summaries)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_by_summaries_equal_queries_by_rows() {
    let setting = std::env::var("SUMMARY_SEEDS").unwrap_or_else(|_| "25".to_owned());
    let (first, count) = setting.split_once('+').unwrap_or(("0", &setting));
    let (first, count): (u64, u64) = (first.parse().unwrap(), count.parse().unwrap());
    let (queries, with_summaries) = run(first..first + count).await;
    println!("{queries} queries, {with_summaries} of them by summaries");
    assert!(with_summaries * 10 > queries, "{with_summaries} of {queries}");
}
