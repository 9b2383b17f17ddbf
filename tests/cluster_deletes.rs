//! Deletes by query through nodes that do not hold the rows, while rows are flushed and move to other nodes.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;
use tempfile::TempDir;
use tsd_testkit::{DaemonBuilder, http, try_http};

use crate::{
    cluster_forward::{addresses, flush_all, node, put_until_taken, wait_until_shared},
    hbase_fake::HBase,
    in_process::directory,
};

const SERIES: u64 = 12;
/// Points of each series before the deletes, all in one row.
const INSTANTS: u64 = 128;

fn deleting_node(hbase: &HBase, at: usize, data: &TempDir) -> DaemonBuilder {
    node(hbase, &format!("tsd{at}"), data.path())
        .env("TSD_HTTP_QUERY_ALLOW_DELETE", "true")
        // A column is not replaced before other daemons have flushed what they held when it was written.
        .env("TSD_STORAGE_HOLD_SECONDS", "1")
        .env("TSD_CORE_ADMIN_PEERS", "*")
}

/// The begin of the next hour: rows of past hours are read back for a while before their columns may be replaced.
fn next_hour() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    (now.as_secs() / 3_600 + 1) * 3_600
}

/// Points of all series in one hour.
#[derive(Clone, Copy)]
struct Points {
    hour: u64,
}

impl Points {
    const fn time_of(self, instant: u64) -> u64 {
        self.hour + instant * 10
    }

    /// A point of each series at an instant.
    fn at(self, instant: u64) -> String {
        let time = self.time_of(instant);
        let point = |series| {
            format!(
                r#"{{"metric":"d","timestamp":{time},"value":{instant},"tags":{{"h":"h{series}"}}}}"#
            )
        };
        format!("[{}]", (0..SERIES).map(point).collect::<Vec<_>>().join(","))
    }

    /// Deletes the points at an instant. Repeats the request while its rows are written all the time.
    fn delete_at(self, node: SocketAddr, instant: u64) {
        let time = self.time_of(instant);
        let uri = format!("/api/query?start={time}&end={time}&m=none:d{{h=*}}");
        let mut last = String::new();
        for _ in 0..100 {
            match try_http(node, "DELETE", &uri, None) {
                Ok(deleted) if deleted.status == 200 => return,
                Ok(refused) => last = refused.body,
                Err(error) => last = error.to_string(),
            }
            thread::sleep(Duration::from_millis(200));
        }
        panic!("the points are not deleted: {last}");
    }

    #[track_caller]
    fn check(self, nodes: &[SocketAddr], expected: &BTreeSet<u64>) {
        for node in nodes {
            let (start, end) = (self.hour, self.hour + 3_599);
            let uri = format!("/api/query?start={start}&end={end}&m=none:d{{h=*}}");
            let body = http(*node, "GET", &uri, None).body;
            let series: Value = serde_json::from_str(&body).expect("JSON");
            let series = series.as_array().unwrap_or_else(|| panic!("{body}"));
            assert_eq!(series.len() as u64, SERIES);
            for one in series {
                let points = one["dps"].as_object().expect("points");
                let found = points.values().map(|value| value.as_u64().expect("a value"));
                let found: BTreeSet<u64> = found.collect();
                let lost: Vec<_> = expected.difference(&found).collect();
                let kept: Vec<_> = found.difference(expected).collect();
                let is_exact = lost.is_empty() && kept.is_empty();
                assert!(is_exact, "lost {lost:?}, not deleted {kept:?}: {one}");
            }
        }
    }
}

#[test]
fn deletes_take_exactly_the_named_points_while_rows_are_flushed_and_move() {
    let hbase = HBase::with_tables();
    let points = Points { hour: next_hour() };
    let mut nodes: Vec<_> = (0..3)
        .map(|at| {
            let data = directory();
            (deleting_node(&hbase, at, &data).start(), data)
        })
        .collect();
    let all = addresses(&nodes);
    wait_until_shared(&all);
    for instant in 0..INSTANTS {
        put_until_taken(&all[(instant % 3) as usize..], &points.at(instant));
    }
    let (last, data) = nodes.remove(2);
    let others = addresses(&nodes);
    let is_over = Arc::new(AtomicBool::new(false));
    let deleter = {
        let (is_over, others) = (Arc::clone(&is_over), others.clone());
        thread::spawn(move || {
            let mut left: BTreeSet<u64> = (0..INSTANTS).collect();
            for instant in (0..INSTANTS).step_by(2) {
                if is_over.load(Ordering::SeqCst) && instant > 0 {
                    break;
                }
                let of = (instant / 2 % 2) as usize;
                points.delete_at(others[of], instant);
                left.remove(&instant);
                if instant % 32 == 0 {
                    // The owner of a row holds points of it again.
                    let added = INSTANTS + instant;
                    put_until_taken(&others[1 - of..], &points.at(added));
                    left.insert(added);
                }
            }
            left
        })
    };
    assert!(last.terminate().success());
    wait_until_shared(&others);
    nodes.push((deleting_node(&hbase, 2, &data).start(), data));
    let all = addresses(&nodes);
    wait_until_shared(&all);
    is_over.store(true, Ordering::SeqCst);
    let expected = deleter.join().expect("the deletes");
    assert!(!expected.contains(&0));
    points.check(&all, &expected);
    flush_all(all[0]);
    points.check(&all, &expected);
    for (daemon, _) in nodes {
        assert!(daemon.terminate().success());
    }
}
