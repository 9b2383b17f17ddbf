//! Measures queries of millions of raw points: time to the first byte and memory. Small queries meanwhile
//! are measured by `--bench steady -- --heavy --only "5 M raw points"`.

use tsd_testkit::{
    Daemon,
    day_load::{DayLoad, FIRST_SECOND, STEP_SECS, ValueKind},
    process,
    timed_http::{self, BodyUse},
};

/// Queries `points` points, each time from a freshly started daemon.
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
