//! SIGKILL at random moments under load: every acknowledged point is there afterwards.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use crate::{
    daemon::{Start, wait_for},
    report,
    socket::{http, try_http},
};

const ROUNDS: u64 = 20;
const WRITERS: u64 = 8;
/// Points of one request.
const POINTS: u64 = 50;
const FIRST_SECOND: u64 = 1_600_000_000;

/// What one writer knows to be stored: how many requests of which round were acknowledged.
type Acknowledged = BTreeMap<(u64, u64), u64>;

#[test]
fn acknowledged_points_survive_sigkill() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let mut random = Random::seeded();
    let mut acknowledged = Acknowledged::new();
    let mut checked = 0;
    for round in 0..ROUNDS {
        // Small memtables, so that rounds die during flushes as well.
        let daemon = Start::on(directory.path())
            .args(&["--log-level", "warn,tsd_cli=info"])
            .env("TSD_STORAGE_MEMTABLE_SIZE", "1048576")
            .serve();
        let address = daemon.address();
        let last_round = acknowledged.iter().filter(|((of, _), _)| of + 1 == round);
        checked += check(address, last_round);
        let (over, requests) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let (over, requests) = (&over, &requests);
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    scope.spawn(move || (writer, write(address, round, writer, over, requests)))
                })
                .collect();
            // At any moment once points flow.
            wait_for(Duration::from_mins(1), || (requests.load(Relaxed) > 0).then_some(()))
                .expect("a first acknowledgement");
            thread::sleep(Duration::from_millis(random.below(300)));
            daemon.kill();
            over.store(true, Relaxed);
            for writer in writers {
                let (writer, requests) = writer.join().expect("no panic");
                acknowledged.insert((round, writer), requests);
            }
        });
    }
    let daemon = Start::on(directory.path()).serve();
    checked += check(daemon.address(), &acknowledged);
    let points: u64 = acknowledged.values().map(|requests| requests * POINTS).sum();
    report(&format!(
        "crash: {points} acknowledged points over {ROUNDS} rounds, {checked} look-ups"
    ));
    assert!(points > 0, "nothing was ever acknowledged");
    assert!(daemon.terminate().success());
}

/// Puts until the daemon is gone; returns the number of acknowledged requests.
fn write(
    address: SocketAddr,
    round: u64,
    writer: u64,
    over: &AtomicBool,
    all_requests: &AtomicU64,
) -> u64 {
    let mut requests = 0;
    while !over.load(Relaxed) {
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
            Ok(answer) if answer.status == 204 => {
                requests += 1;
                all_requests.fetch_add(1, Relaxed);
            }
            Ok(answer) => panic!("{} {}", answer.status, answer.body),
            Err(_) => break,
        }
    }
    requests
}

/// Looks for every acknowledged point; returns how many there are.
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
        let answer = http(
            address,
            "GET",
            &format!(
                "/api/query?start={FIRST_SECOND}&end={}&m=sum:{}%7Bw={writer}%7D",
                FIRST_SECOND + points,
                metric(round, writer)
            ),
            None,
        );
        assert_eq!(answer.status, 200, "{}", answer.body);
        let series: Value = serde_json::from_str(&answer.body).expect("JSON");
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

/// New names in every round, so that UIDs are assigned under fire too.
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

/// A few random numbers, other ones in every run.
struct Random(u64);

impl Random {
    fn seeded() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
        Self(now.as_nanos() as u64 | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
