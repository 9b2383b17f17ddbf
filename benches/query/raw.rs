//! Queries of millions of raw points: time to the first byte, memory, and the latency of a small query
//! meanwhile.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use tsd_testkit::{
    Daemon,
    day_load::{DayLoad, FIRST_SECOND, STEP_SECS, ValueKind},
    process,
    timed_http::{self, BodyUse},
};

/// Concurrent heavy queries.
const HEAVY: usize = 4;
/// Timed small queries.
const SMALL: usize = 300;

/// Queries `points` points, each time from a daemon just started, then measures small queries alone
/// and beside [`HEAVY`] such queries.
pub(crate) fn run(start: impl Fn() -> Daemon, day: DayLoad, points: usize) {
    let steps = points.div_ceil(day.series).min(day.steps);
    println!();
    println!(
        "{:<10} {:<15} {:>9} {:>12} {:>9} {:>9} {:>9} {:>9}",
        "raw", "metric", "points", "first byte", "all ms", "cpu-s/M", "MiB out", "peak MiB"
    );
    for kind in ValueKind::ALL {
        for aggregator in ["none", "sum"] {
            let daemon = start();
            process::wait_until_idle(daemon.pid());
            raw(&daemon, day, kind, aggregator, steps);
            assert!(daemon.terminate().success(), "a clean shutdown");
        }
    }
    println!();
    let daemon = start();
    process::wait_until_idle(daemon.pid());
    let small = |note: &str, times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
        println!(
            "small query, {note:<28} p50 {:>8.2} ms   p99 {:>8.2} ms   worst {:>8.2} ms",
            at(0.5),
            at(0.99),
            at(1.0)
        );
    };
    let uri = day.small_uri();
    let millis =
        || timed_http::get(daemon.address(), &uri, BodyUse::Discard).total.as_secs_f64() * 1e3;
    let mut alone: Vec<f64> = (0..SMALL).map(|_| millis()).collect();
    small("alone", &mut alone);

    process::reset_peak(daemon.pid());
    let heavy = raw_uri(ValueKind::Walk, "none", steps);
    let stop = AtomicBool::new(false);
    let mut beside = thread::scope(|scope| {
        for _ in 0..HEAVY {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = timed_http::get(daemon.address(), &heavy, BodyUse::Discard);
                }
            });
        }
        thread::sleep(Duration::from_millis(100));
        let beside: Vec<f64> = (0..SMALL).map(|_| millis()).collect();
        stop.store(true, Ordering::Relaxed);
        beside
    });
    small("beside four raw ones", &mut beside);
    println!("peak resident meanwhile: {:.0} MiB", mib(process::peak_resident_bytes(daemon.pid())));
    assert!(daemon.terminate().success(), "a clean shutdown");
}

fn raw(daemon: &Daemon, day: DayLoad, kind: ValueKind, aggregator: &str, steps: usize) {
    let uri = raw_uri(kind, aggregator, steps);
    let resting = process::resident_bytes(daemon.pid());
    process::reset_peak(daemon.pid());
    let before = process::thread_cpu_seconds(daemon.pid());
    let timed = timed_http::get(daemon.address(), &uri, BodyUse::Discard);
    let cpu = process::thread_cpu_seconds(daemon.pid()) - before;
    let peak = process::peak_resident_bytes(daemon.pid());
    assert_eq!(timed.status, 200);
    let points = day.series * steps;
    println!(
        "{aggregator:<10} {:<15} {points:>9} {:>9.1} ms {:>9.1} {:>9.3} {:>9.1} {:>9.0}   (resting {:.0})",
        kind.metric(),
        timed.first_byte.as_secs_f64() * 1e3,
        timed.total.as_secs_f64() * 1e3,
        cpu / points as f64 * 1e6,
        mib(timed.bytes as u64),
        mib(peak),
        mib(resting),
    );
    check(daemon, day, kind, aggregator, steps);
}

/// Compares count and sum of the points; the sum is in hundredths, so that the order is irrelevant.
fn check(daemon: &Daemon, day: DayLoad, kind: ValueKind, aggregator: &str, steps: usize) {
    let response =
        timed_http::get(daemon.address(), &raw_uri(kind, aggregator, steps), BodyUse::Keep);
    let text = std::str::from_utf8(&response.body).expect("text");
    let (mut count, mut sum) = (0, 0_i64);
    for dps in text.split("\"dps\":{").skip(1) {
        let dps = dps.split('}').next().expect("the end of the points");
        for point in dps.split(',') {
            let value = point.split(':').nth(1).expect("a value");
            count += 1;
            sum += (value.parse::<f64>().expect("a number") * 100.0).round() as i64;
        }
    }
    let expected = if aggregator == "none" { day.series * steps } else { steps };
    assert_eq!(count, expected, "points of {aggregator}");
    assert_eq!(sum, day.sum_of_hundredths(kind, steps), "sum over all points of {aggregator}");
}

fn raw_uri(kind: ValueKind, aggregator: &str, steps: usize) -> String {
    let end = FIRST_SECOND + (steps as u64 - 1) * STEP_SECS;
    format!("/api/query?start={FIRST_SECOND}&end={end}&m={aggregator}:{}", kind.metric())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
