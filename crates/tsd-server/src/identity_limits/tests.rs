#![expect(clippy::unwrap_used, reason = "tests")]

use std::{net::IpAddr, sync::Arc, time::Duration};

use tokio::time::advance;
use tsd_engine::{SeriesAllowance, SystemClock};

use super::*;
use crate::auth::UserLine;

fn table(limits: IdentityLimits) -> IdentityTable {
    IdentityTable::new(limits, Arc::new(SystemClock))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn user(name: &str, fields: &str) -> crate::Identity {
    let line = format!("{name} certificate WRITER {fields}");
    UserLine::parse(&line).unwrap().unwrap().identity().clone()
}

fn off() -> IdentityLimits {
    IdentityLimits::default()
}

#[test]
fn nobody_is_tracked_while_all_limits_are_off() {
    let table = table(off());
    assert!(table.sender(None, ip("10.0.0.1")).is_none());
    assert!(table.sender(Some(&user("a", "")), ip("10.0.0.1")).is_none());
    assert_eq!(table.len(), 0);
    assert!(table.sender(Some(&user("a", "queries=1")), ip("10.0.0.1")).is_some());
    let measuring = self::table(IdentityLimits { measure: true, ..off() });
    let sender = measuring.sender(None, ip("10.0.0.1")).unwrap();
    assert_eq!(sender.count_points(1 << 40), None);
    assert!(sender.admit_points(1).is_ok() && sender.take().is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_connections_of_an_identity_share_its_rate() {
    let table = table(IdentityLimits { points_per_second: 100, ..off() });
    let sender = |peer: &str| table.sender(None, ip(peer)).unwrap();
    assert_eq!(sender("10.0.0.1").count_points(1_000), None, "the burst of ten seconds");
    let pause = sender("10.0.0.200").count_points(500).unwrap();
    assert_eq!(pause.as_secs_f64().round() as u64, 5);
    assert_eq!(sender("10.0.1.1").count_points(1_000), None, "another network");
    let refused = sender("::ffff:10.0.0.7").admit_points(1).unwrap_err();
    assert_eq!(refused.retry_after.as_secs_f64().round() as u64, 5);
    assert!(refused.to_string().contains("the network 10.0.0.0/24 sends more than 100 points"));
    advance(Duration::from_secs(5)).await;
    // A request larger than the burst is stored as a whole, and the next one waits.
    assert_eq!(sender("10.0.0.1").admit_points(100_000), Ok(()));
    assert!(sender("10.0.0.1").check_points().is_err());
    let v6 = |peer: &str| table.sender(None, ip(peer)).unwrap();
    assert_eq!(v6("2001:db8::1").admit_points(2_000), Ok(()));
    assert!(v6("2001:db8::2").check_points().is_err());
    assert!(v6("2001:db8:0:1::2").check_points().is_ok());
}

#[tokio::test(start_paused = true)]
async fn new_series_are_refused_with_the_time_of_the_next_one() {
    let table = table(IdentityLimits { new_series_per_hour: 60, ..off() });
    let sender = table.sender(Some(&user("app", "")), ip("10.0.0.1")).unwrap();
    assert_eq!((0..100).filter(|_| sender.take().is_ok()).count(), 60);
    let refused = sender.take().unwrap_err();
    assert!(refused.starts_with("user \"app\" has added 60 series within an hour"), "{refused}");
    assert!(
        refused.contains("the next one is accepted at 2") && refused.ends_with('Z'),
        "{refused}"
    );
    assert_eq!(sender.new_series_wait().as_secs_f64().round() as u64, 60);
    sender.put_back();
    assert!(sender.take().is_ok());
    advance(Duration::from_mins(1)).await;
    assert!(sender.take().is_ok() && sender.take().is_err());
}

#[test]
fn a_query_counts_until_it_is_dropped() {
    let table = table(IdentityLimits { concurrent_queries: 2, ..off() });
    let sender = |name: &str| table.sender(Some(&user(name, "")), ip("10.0.0.1")).unwrap();
    let first = sender("a").begin_query().unwrap();
    let _second = sender("a").begin_query().unwrap();
    let refused = sender("a").begin_query().unwrap_err();
    assert!(refused.to_string().starts_with("user \"a\" has 2 concurrent queries"), "{refused}");
    assert!(sender("b").begin_query().is_ok(), "another user");
    drop(first);
    assert!(sender("a").begin_query().is_ok());
}

#[tokio::test(start_paused = true)]
async fn limits_of_a_user_replace_the_configured_ones() {
    let configured = IdentityLimits { points_per_second: 10, concurrent_queries: 1, ..off() };
    let table = table(configured);
    let fast = user("fast", "points=1k/s queries=off bytes=1MiB memory=2MiB");
    let sender = table.sender(Some(&fast), ip("10.0.0.1")).unwrap();
    assert_eq!(sender.admit_points(10_000), Ok(()));
    assert_eq!(sender.check_points(), Ok(()));
    let queries: Vec<_> = (0..9).map(|_| sender.begin_query().unwrap()).collect();
    assert_eq!(queries.len(), 9);
    let bounds = sender.query_bounds();
    assert_eq!((bounds.max_bytes, bounds.max_memory_bytes), (1 << 20, 2 << 20));
    // The former limit of the same user counts after a change of the file.
    let slow = table.sender(Some(&user("fast", "")), ip("10.0.0.1")).unwrap();
    assert!(slow.admit_points(1).is_err() && slow.begin_query().is_err());
}

#[tokio::test(start_paused = true)]
async fn the_table_is_bounded_and_keeps_who_owes() {
    let table = table(IdentityLimits { points_per_second: 1, ..off() });
    let peer = |n: u32| IpAddr::from(std::net::Ipv4Addr::from_bits(n << 8));
    let flooding = table.sender(None, peer(0)).unwrap();
    flooding.count_points(1 << 30);
    drop(flooding);
    for n in 1..20_000 {
        advance(Duration::from_millis(1)).await;
        assert!(table.sender(None, peer(n)).unwrap().admit_points(1).is_ok());
    }
    assert!(table.len() <= 4_096, "{}", table.len());
    assert!(table.sender(None, peer(0)).unwrap().check_points().is_err());
    advance(Duration::from_hours(1)).await;
    assert!(table.sender(None, peer(30_000)).is_some());
    assert_eq!(table.len(), 2, "who rests is forgotten");
}
