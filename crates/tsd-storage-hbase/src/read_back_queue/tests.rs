//! Tests of the waiting points.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use tsd_model::Family;

use super::*;
use crate::superseded::Basis;

fn point(second: u8, value: u8, written_ms: i64) -> WrittenPoint {
    let qualifier = [second >> 4, second << 4];
    WrittenPoint::new(Family::T, &qualifier, &[value], written_ms, written_ms).unwrap()
}

fn row(key: &'static str, points: Vec<WrittenPoint>) -> DueRow {
    (Bytes::from_static(key.as_bytes()), points)
}

fn read_backs() -> ReadBacks {
    ReadBacks::new(Duration::from_secs(1))
}

#[test]
fn points_are_read_back_when_they_are_due() {
    let read_backs = read_backs();
    let (first, second) = (point(0, 1, 5), point(1, 2, 5));
    read_backs.add_rows([row("a", vec![first]), row("b", vec![first, second])], 5);
    read_backs.add_rows([row("a", vec![second])], 6);
    read_backs.add_rows([row("a", vec![point(2, 3, 9)])], 9);
    assert!(read_backs.take_due(1_004).is_empty());
    // A row is read once for all its due points.
    let due = read_backs.take_due(1_006);
    assert_eq!(due, [row("a", vec![first, second]), row("b", vec![first, second])]);
    assert!(read_backs.is_waiting(b"a"));
    assert!(!read_backs.is_waiting(b"b"));
    assert_eq!(read_backs.waiting().0, 1);
    assert_eq!(read_backs.take_due(1_010), [row("a", vec![point(2, 3, 9)])]);
    assert!(read_backs.take_due(i64::MAX).is_empty());
    assert_eq!(read_backs.waiting(), (0, 0));
}

#[test]
fn last_point_of_an_instant_is_read_back() {
    let read_backs = read_backs();
    let last = [point(0, 3, 9), point(1, 5, 5)];
    read_backs.add_rows([row("a", vec![point(0, 1, 5), point(1, 2, 5)])], 5);
    read_backs.add_rows([row("a", vec![point(0, 3, 9)])], 9);
    // A second value of one millisecond, and a flush of an older value.
    read_backs.add_rows([row("a", vec![point(1, 5, 5)]), row("a", vec![point(0, 4, 7)])], 10);
    assert!(read_backs.take_due(1_008).is_empty());
    assert_eq!(read_backs.take_due(1_009), [row("a", vec![last[0]])]);
    // The rest of the queue has the older value, and the last value of the other instant.
    read_backs.add_rows([row("a", vec![point(0, 3, 9)])], 11);
    assert_eq!(read_backs.take_due(1_010), [row("a", vec![last[1]])]);
    // A point that was read already is added again, unless a later point waits.
    read_backs.add_rows([row("a", vec![point(0, 1, 5)])], 12);
    assert_eq!(read_backs.take_due(i64::MAX), [row("a", vec![last[0]])]);
    assert_eq!(read_backs.waiting(), (0, 0));
}

/// An operation of a history.
#[derive(Clone, Debug)]
enum QueueOperation {
    /// Row, second, milliseconds by which the write is older than the operation.
    Add(Vec<(usize, u8, i64)>),
    Forget(usize),
    Take,
}

fn operation() -> impl Strategy<Value = QueueOperation> {
    let point = (0..3_usize, 0..5_u8, 0..4_i64);
    prop_oneof![
        4 => prop::collection::vec(point, 1..6).prop_map(QueueOperation::Add),
        1 => (0..3_usize).prop_map(QueueOperation::Forget),
        2 => Just(QueueOperation::Take),
    ]
}

proptest! {
    /// A map of the last write of each instant is the model.
    #[test]
    fn only_last_writes_are_read_back(operations in prop::collection::vec(operation(), 1..60)) {
        const ROWS: [&str; 3] = ["a", "b", "c"];
        let read_backs = ReadBacks::new(Duration::from_millis(5));
        let mut model: BTreeMap<(usize, u32), (WrittenPoint, i64)> = BTreeMap::new();
        let mut value = 0;
        for (now_ms, operation) in (0..).zip(operations) {
            match operation {
                QueueOperation::Add(points) => {
                    let mut rows = Vec::new();
                    for (of, second, age_ms) in points {
                        value += 1;
                        let point = point(second, value, now_ms - age_ms);
                        rows.push(row(ROWS[of], vec![point]));
                        let last = model.entry((of, point.offset_ms())).or_insert((point, now_ms));
                        if last.0.written_ms <= point.written_ms {
                            *last = (point, now_ms);
                        }
                    }
                    read_backs.add_rows(rows, now_ms);
                }
                QueueOperation::Forget(of) => {
                    read_backs.forget(ROWS[of].as_bytes());
                    model.retain(|(row, _), _| *row != of);
                }
                QueueOperation::Take => {
                    let mut due: Vec<(usize, WrittenPoint)> = Vec::new();
                    for (key, points) in read_backs.take_due(now_ms) {
                        let of = ROWS.iter().position(|row| row.as_bytes() == key).unwrap();
                        due.extend(points.into_iter().map(|point| (of, point)));
                    }
                    due.sort_by_key(|(of, point)| (*of, point.offset_ms()));
                    let is_due = |added: i64| added + 5 <= now_ms;
                    let expected: Vec<_> = model
                        .iter()
                        .filter(|(_, (_, added))| is_due(*added))
                        .map(|((of, _), (point, _))| (*of, *point))
                        .collect();
                    prop_assert_eq!(due, expected);
                    model.retain(|_, (_, added)| !is_due(*added));
                }
            }
            for (of, key) in ROWS.iter().enumerate() {
                let waits = model.keys().any(|(row, _)| *row == of);
                prop_assert!(!waits || read_backs.is_waiting(key.as_bytes()));
            }
        }
    }
}

#[test]
fn points_of_a_deleted_row_are_forgotten() {
    let read_backs = read_backs();
    let points = vec![point(0, 1, 5)];
    for now_ms in [5, 6] {
        read_backs.add_rows([row("a", points.clone()), row("b", points.clone())], now_ms);
    }
    read_backs.forget(b"a");
    assert!(!read_backs.is_waiting(b"a"));
    // Written after the delete.
    read_backs.add_rows([row("a", vec![point(1, 1, 7)])], 7);
    assert!(read_backs.is_waiting(b"a"));
    let due = read_backs.take_due(i64::MAX);
    assert_eq!(due, [row("b", points), row("a", vec![point(1, 1, 7)])]);
    assert_eq!(read_backs.waiting().0, 0);
}

#[test]
fn rows_of_a_call_are_limited() {
    let read_backs = read_backs();
    let key = |number: usize| Bytes::from(number.to_be_bytes().to_vec());
    let rows = (0..=CALL_ROWS * 2).map(|number| (key(number), vec![point(0, 1, 5)]));
    read_backs.add_rows(rows, 5);
    let counts: Vec<_> = (0..4).map(|_| read_backs.take_due(i64::MAX).len()).collect();
    assert_eq!(counts, [CALL_ROWS, CALL_ROWS, 1, 0]);
}

#[test]
fn points_beyond_the_limit_are_counted() {
    let read_backs = read_backs();
    let rows = || {
        let keys = (0..100_000_u32).map(|key| Bytes::from(key.to_be_bytes().to_vec()));
        keys.map(|key| (key, vec![point(0, 1, 5)]))
    };
    while read_backs.waiting().1 < MAX_BYTES {
        read_backs.add_rows(rows(), 5);
    }
    let waiting = read_backs.waiting();
    assert!(waiting.1 < MAX_BYTES + (32 << 20), "{waiting:?}");
    // A later write of the first row is dropped, so the older one must not be put again over it.
    read_backs.add_rows([(rows().next().unwrap().0, vec![point(0, 2, 6)])], 6);
    assert_eq!(read_backs.waiting(), waiting);
    let due = read_backs.take_due(i64::MAX);
    assert_eq!(due.first().unwrap().0, rows().nth(1).unwrap().0);
    while !read_backs.take_due(i64::MAX).is_empty() {}
    assert_eq!(read_backs.waiting(), (0, 0));
}

#[test]
fn times_of_points_that_were_put_again_are_remembered() {
    let read_backs = read_backs();
    let key = Bytes::from_static(b"a");
    let cell = |timestamp_ms| Cell {
        family: Family::T,
        qualifier: Bytes::from_static(&[0, 0]),
        value: Bytes::from_static(&[7]),
        timestamp_ms,
    };
    let restored_at = |at, written_ms| RestoredPoint {
        point: 0,
        cell: cell(at),
        written_ms,
        basis: Basis::EmptyRow,
    };
    for (at, written_ms) in [(20, 5), (30, 6)] {
        let restored = restored_at(at, written_ms);
        assert!(read_backs.remember(&key, &restored));
    }
    let written = [20, 25, 30].map(|at| read_backs.written_ms(&key, &cell(at)));
    assert_eq!(written, [5, 25, 6]);
    read_backs.forget_restored(&key, &restored_at(30, 6));
    assert_eq!(read_backs.written_ms(&key, &cell(30)), 30, "it was not put");
    assert_eq!(read_backs.written_ms(&key, &cell(20)), 5);
    // This process has written a later value since, and an older one was added again.
    read_backs.add_rows([row("a", vec![point(0, 8, 9)])], 9);
    read_backs.add_rows([row("a", vec![point(0, 7, 5)])], 10);
    assert!(!read_backs.remember(&key, &restored_at(40, 6)));
    // Another value of the same millisecond waits.
    assert!(!read_backs.remember(&key, &restored_at(40, 9)));
    assert!(read_backs.remember(&key, &restored_at(40, 10)));
    for instant in 0..MAX_RESTORED as u64 {
        let restored = restored_at(20, 5);
        let key = Bytes::from(instant.to_be_bytes().to_vec());
        assert!(read_backs.remember(&key, &restored));
    }
    assert_eq!(read_backs.written_ms(&key, &cell(20)), 20, "the oldest is forgotten");
}
