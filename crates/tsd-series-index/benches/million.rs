//! Measures memory, and the time of additions, loads and selections, for a million series with five
//! tags.
//!
//! `cargo bench -p tsd-series-index [-- SERIES]`

use std::time::{Duration, Instant};

use tsd_model::{BaseTime, KindUid, KnownKind, TableSchema, TagvUid};
use tsd_series_index::{SeriesIndex, TagCondition};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const HOUR: u32 = 3_600;

/// host (4 series each), region (of 3), datacenter (of 20), rack (of 1000), cpu (of 4).
fn row_key(n: u32, hour: u32) -> Vec<u8> {
    let host = n / 4;
    let tags =
        [(1, host), (2, 10_000_000 + host % 3), (3, host % 20), (4, host % 1_000), (5, n % 4)];
    let mut key = vec![0, 0, 1];
    key.extend((hour * HOUR).to_be_bytes());
    for (tagk, tagv) in tags {
        key.extend(uid(tagk));
        key.extend(uid(tagv));
    }
    key
}

fn uid(number: u32) -> [u8; 3] {
    let [_, a, b, c] = number.to_be_bytes();
    [a, b, c]
}

fn typed<K: KnownKind>(number: u32) -> KindUid<K> {
    KindUid::try_new(&uid(number)).unwrap_or_else(|e| panic!("{e}"))
}

fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4_096
}

fn timed<T>(what: &str, per: u32, work: impl Fn() -> T) -> T {
    let (wall, before) = (Instant::now(), cpu());
    let result = work();
    let (wall, cpu) = (wall.elapsed(), cpu().saturating_sub(before));
    let each = cpu.as_nanos() / u128::from(per.max(1));
    println!("{what}: {wall:.2?}, cpu {cpu:.2?}, {each} ns for each of {per}");
    result
}

fn main() {
    let count = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(1_000_000_u32);
    let Ok(schema) = TableSchema::try_new(3, 3, 3, 0, 1) else { return };
    let keys = |hour: u32| -> Vec<Vec<u8>> { (0..count).map(|n| row_key(n, hour)).collect() };
    let (first, second, next_day) = (keys(0), keys(1), keys(24));
    let before = resident_bytes();
    let index = SeriesIndex::new(schema);
    let add = |keys: &[Vec<u8>]| index.add_rows(keys.iter().map(Vec::as_slice));
    timed("add new series", count, || add(&first));
    println!("resident: {} MiB more", (resident_bytes() - before) >> 20);
    timed("add known rows of the same day", count, || add(&second));
    timed("add known rows of another day", count, || add(&next_day));
    println!("{:?}", index.size());
    let Some(delta) = timed("encode", count, || index.delta(false)) else { return };
    println!("{} bytes encoded", delta.frames.iter().map(Vec::len).sum::<usize>());
    let loaded = timed("load", count, || {
        let loaded = SeriesIndex::new(schema);
        delta.frames.iter().for_each(|frame| assert!(loaded.load(frame).is_ok()));
        loaded
    });
    assert_eq!(loaded.size().series, u64::from(count));
    let Some(metric) = loaded.metric(typed(1)) else { return };
    let value = |number: u32| vec![typed(number)];
    let (from, to) = (BaseTime::containing(0), BaseTime::containing(3 * HOUR));
    let select = |what: &str, conditions: &[(u32, Option<Vec<TagvUid>>)]| {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(tagk, tagvs)| TagCondition { tagk: typed(*tagk), tagvs: tagvs.as_deref() })
            .collect();
        timed(what, 1, || {
            let set = metric.matching(&conditions, false);
            let counts = metric.count_rows(&set, from, to);
            let rows = metric.rows(&set, from, to);
            let mut bytes = 0;
            if set.len() < 100_000 {
                metric.for_each(&set, |_, tags| bytes += tags.len());
            }
            println!("  {} series, {counts:?}, {} days", set.len(), rows.len());
        });
    };
    select("one host", &[(1, Some(value(77)))]);
    select("three hosts", &[(1, Some([value(7), value(8), value(9)].concat()))]);
    let hosts = (0..1_111).flat_map(|n| value(n * 7)).collect();
    select("1111 hosts", &[(1, Some(hosts))]);
    select("a region and a rack", &[(2, Some(value(10_000_001))), (4, Some(value(500)))]);
    select("any host of a region", &[(1, None), (2, Some(value(10_000_001)))]);
    select("all", &[]);
    let all = metric.matching(&[], false);
    let hosts = timed("values of host", count / 4, || metric.values(typed(1), &all));
    assert_eq!(hosts.len() as u32, count.div_ceil(4));
}
