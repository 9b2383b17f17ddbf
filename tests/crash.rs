//! SIGKILL at random moments under load: after a restart, every acknowledged point is returned.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;
use tsd_testkit::{Xorshift64, http, try_http, wait_for};

use crate::{report, tsdb};

const ROUNDS: u64 = 20;
const WRITERS: u64 = 8;
/// Points of one request.
const POINTS: u64 = 50;
const FIRST_SECOND: u64 = 1_600_000_000;

/// Acknowledged requests by round and writer.
type Acknowledged = BTreeMap<(u64, u64), u64>;

#[test]
fn acknowledged_points_survive_sigkill() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    // Other moments in every run.
    let mut random = Xorshift64::new(now.as_nanos() as u64);
    let mut acknowledged = Acknowledged::new();
    let mut checked = 0;
    for round in 0..ROUNDS {
        // Small memtables, so that some rounds are killed during a flush.
        let daemon = tsdb(directory.path())
            .args(&["--log-level", "warn,tsd_cli=info"])
            .env("TSD_STORAGE_MEMTABLE_SIZE", "1048576")
            .start();
        let address = daemon.address();
        let previous_round = acknowledged.iter().filter(|((of, _), _)| of + 1 == round);
        checked += check(address, previous_round);
        let (killed, requests) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let (killed, requests) = (&killed, &requests);
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    scope.spawn(move || (writer, write(address, round, writer, killed, requests)))
                })
                .collect();
            wait_for(|| (requests.load(Relaxed) > 0).then_some(()))
                .expect("a first acknowledgement");
            thread::sleep(Duration::from_millis(random.below(300)));
            daemon.kill();
            killed.store(true, Relaxed);
            for writer in writers {
                let (writer, requests) = writer.join().expect("no panic");
                acknowledged.insert((round, writer), requests);
            }
        });
    }
    let daemon = tsdb(directory.path()).start();
    checked += check(daemon.address(), &acknowledged);
    let points: u64 = acknowledged.values().map(|requests| requests * POINTS).sum();
    report(&format!(
        "crash: {points} acknowledged points in {ROUNDS} rounds, {checked} points read"
    ));
    assert!(points > 0, "no request was acknowledged");
    assert!(daemon.terminate().success());
}

/// Puts until the daemon is killed; returns the number of acknowledged requests.
fn write(
    address: SocketAddr,
    round: u64,
    writer: u64,
    killed: &AtomicBool,
    all_requests: &AtomicU64,
) -> u64 {
    let mut requests = 0;
    while !killed.load(Relaxed) {
        let points: Vec<String> = (0..POINTS)
            .map(|i| {
                let n = requests * POINTS + i;
                let second = FIRST_SECOND + n;
                let value = value(round, writer, n);
                let metric = metric(round, writer);
                format!(
                    r#"{{"metric":"{metric}","timestamp":{second},"value":{value},"tags":{{"w":"{writer}"}}}}"#
                )
            })
            .collect();
        let body = format!("[{}]", points.join(","));
        match try_http(address, "POST", "/api/put", Some(&body)) {
            Ok(response) if response.status == 204 => {
                requests += 1;
                all_requests.fetch_add(1, Relaxed);
            }
            Ok(response) => panic!("{} {}", response.status, response.body),
            Err(_) => break,
        }
    }
    requests
}

/// Queries every acknowledged point; returns how many there are.
fn check<'a>(
    address: SocketAddr,
    acknowledged: impl IntoIterator<Item = (&'a (u64, u64), &'a u64)>,
) -> u64 {
    let mut found = 0;
    for (&(round, writer), &requests) in acknowledged {
        if requests == 0 {
            continue;
        }
        let points = requests * POINTS;
        let response = http(
            address,
            "GET",
            &format!(
                "/api/query?start={FIRST_SECOND}&end={}&m=sum:{}%7Bw={writer}%7D",
                FIRST_SECOND + points,
                metric(round, writer)
            ),
            None,
        );
        assert_eq!(response.status, 200, "{}", response.body);
        let series: Value = serde_json::from_str(&response.body).expect("JSON");
        for n in 0..points {
            let second = (FIRST_SECOND + n).to_string();
            let stored = &series[0]["dps"][second.as_str()];
            assert_eq!(
                stored.as_f64(),
                Some(value(round, writer, n) as f64),
                "round {round}, writer {writer}, point {n} of {points}"
            );
        }
        found += points;
    }
    found
}

/// New metrics in every round, so that rounds are also killed while UIDs are assigned.
fn metric(round: u64, writer: u64) -> String {
    if writer.is_multiple_of(2) {
        format!("crash.{round}")
    } else {
        format!("crash.{round}.{writer}")
    }
}

/// A value that no other point at this second has.
fn value(round: u64, writer: u64, n: u64) -> u64 {
    (round * WRITERS + writer) * 1_000_000 + n
}
