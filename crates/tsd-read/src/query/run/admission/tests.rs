#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Waker},
};

use tsd_query::{LimitError, QueryError};

use super::*;
use crate::query::{failure::QueryFailure, run::memory_budget::MemoryBudget};

const LIMIT: u64 = 800;
/// Memory that only small queries get.
const SHARE: u64 = 100;
const SMALL: u64 = 50;

fn admission() -> Arc<Admission> {
    Admission::new(LIMIT, ProcessMemory::unlimited(), (4, 8))
}

fn now<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

/// Admits a query at once.
fn admitted(admission: &Arc<Admission>, order: u64, bytes: u64) -> Grant {
    now(pin!(admission.admit(order, admission.claim(bytes)))).unwrap().unwrap()
}

fn grow(
    admission: &Arc<Admission>,
    grant: Grant,
    order: u64,
    bytes: u64,
) -> (Grant, Result<(), Shortage>) {
    let mut grant = Some(grant);
    let grown = admission.grow(&mut grant, order, (admission.claim(bytes), 0));
    (grant.unwrap(), grown)
}

#[tokio::test]
async fn wide_queries_never_take_the_share_of_small_ones() {
    let admission = admission();
    let wide = admitted(&admission, 1, LIMIT - SHARE);
    let mut next = pin!(admission.admit(2, admission.claim(SMALL + 1)));
    assert!(now(next.as_mut()).is_none());
    assert!(admission.is_memory_awaited());
    let small = [3, 4].map(|order| admitted(&admission, order, SMALL));
    let mut third = pin!(admission.admit(5, admission.claim(1)));
    assert!(now(third.as_mut()).is_none());
    drop(small);
    assert!(now(third.as_mut()).unwrap().is_ok());
    drop(wide);
    assert!(!admission.is_memory_awaited());
    assert!(now(next.as_mut()).unwrap().is_ok());
}

#[tokio::test]
async fn small_queries_take_what_is_free_unless_a_wide_one_waits_for_it() {
    let admission = admission();
    let small: Vec<_> = (0..10).map(|order| admitted(&admission, order, SMALL)).collect();
    let mut wide = pin!(admission.admit(20, admission.claim(600)));
    assert!(now(wide.as_mut()).is_none());
    let mut late = pin!(admission.admit(21, admission.claim(SMALL)));
    assert!(now(late.as_mut()).is_none());
    drop(small);
    assert!(now(wide.as_mut()).unwrap().is_ok());
    assert!(now(late.as_mut()).unwrap().is_ok());
    assert_eq!(admission.granted(), 0);
}

#[tokio::test]
async fn the_first_in_line_is_not_overtaken_and_a_restart_keeps_its_place() {
    let admission = admission();
    let first = admitted(&admission, 1, 300);
    let second = admitted(&admission, 2, 300);
    let mut large = pin!(admission.admit(4, admission.claim(500)));
    let mut less = pin!(admission.admit(5, admission.claim(SMALL + 1)));
    assert!(now(large.as_mut()).is_none());
    assert!(now(less.as_mut()).is_none());
    // A small query does not become wide before earlier wide queries.
    let small = admitted(&admission, 6, SMALL);
    let (small, grown) = grow(&admission, small, 6, SMALL + 1);
    assert_eq!(grown, Err(Shortage::Queries));
    // An earlier query begins again before them.
    let (first, grown) = grow(&admission, first, 1, 500);
    assert_eq!(grown, Err(Shortage::Queries));
    drop((first, small));
    let mut again = pin!(admission.admit(1, admission.claim(500)));
    assert!(now(again.as_mut()).is_none());
    drop(second);
    let again = now(again.as_mut()).unwrap().unwrap();
    assert!(now(large.as_mut()).is_none());
    drop(again);
    let large = now(large.as_mut()).unwrap().unwrap();
    assert_eq!((large.class(), large.bytes()), (QueryClass::Wide, 500));
    assert!(now(less.as_mut()).unwrap().is_ok());
}

#[tokio::test]
async fn a_grant_grows_where_it_is_while_there_is_memory() {
    let admission = admission();
    let small = admitted(&admission, 1, 10);
    let (grant, grown) = grow(&admission, small, 1, SMALL);
    assert_eq!((grown, grant.class(), grant.bytes()), (Ok(()), QueryClass::Small, SMALL));
    let (mut grant, grown) = grow(&admission, grant, 1, 600);
    assert_eq!((grown, grant.class(), grant.bytes()), (Ok(()), QueryClass::Wide, 600));
    assert_eq!(QueryClass::ALL.map(|class| admission.count(class)), [(0, 0), (1, 0)]);
    grant.end_run(200);
    assert_eq!((admission.granted(), admission.count(QueryClass::Wide)), (200, (0, 0)));
    drop(grant);
    assert_eq!(admission.granted(), 0);
}

#[tokio::test]
async fn a_wait_that_ends_lets_others_in_and_the_newest_is_shed() {
    let admission = Admission::new(LIMIT, ProcessMemory::unlimited(), (4, 2));
    let held = admitted(&admission, 1, LIMIT - SHARE);
    let mut first = Box::pin(admission.admit(2, admission.claim(LIMIT - SHARE)));
    let mut second = pin!(admission.admit(4, admission.claim(SMALL + 1)));
    assert!(now(first.as_mut()).is_none());
    assert!(now(second.as_mut()).is_none());
    let mut newest = pin!(admission.admit(9, admission.claim(SMALL + 1)));
    assert_eq!(now(newest.as_mut()).unwrap().unwrap_err(), Shortage::Full);
    // A query that begins again came before the newest.
    let mut again = pin!(admission.admit(3, admission.claim(SMALL + 1)));
    assert!(now(again.as_mut()).is_none());
    assert_eq!(now(second.as_mut()).unwrap().unwrap_err(), Shortage::Full);
    drop(held);
    drop(first);
    assert!(now(again.as_mut()).unwrap().is_ok());
}

#[tokio::test]
async fn wide_queries_leave_the_share_of_small_ones_in_the_memory_of_the_process() {
    let process = ProcessMemory::new(1_600, Vec::new());
    let admission = Admission::new(0, process.clone(), (4, 8));
    assert_eq!((admission.limit(), admission.key()), (LIMIT, MEMORY_LIMIT_KEY));
    // Connections leave queries their minimum, 400.
    let connections = process.try_reserve(MemoryConsumer::Connections, 800).unwrap();
    let wide = admitted(&admission, 1, 600);
    assert_eq!(wide.bytes(), 300, "what there is");
    let small = [2, 3].map(|order| admitted(&admission, order, SMALL));
    let (wide, grown) = grow(&admission, wide, 1, 301);
    assert_eq!(
        grown,
        Err(Shortage::Process),
        "no other wide query has memory that it could wait for"
    );
    drop(connections);
    let (wide, grown) = grow(&admission, wide, 1, 600);
    assert_eq!((grown, wide.bytes()), (Ok(()), 600));
    drop((wide, small));
    assert_eq!(process.reserved(MemoryConsumer::Queries), 0);
    let _all = process.try_reserve(MemoryConsumer::Queries, 800).unwrap();
    let refused = now(pin!(admission.admit(4, admission.claim(1)))).unwrap();
    assert_eq!(refused.unwrap_err(), Shortage::Process);
}

#[tokio::test]
async fn a_query_that_outgrows_its_grant_claims_more_until_it_has_its_limit() {
    let admission = admission();
    let budget = MemoryBudget::new(Arc::clone(&admission), 1 << 10, 600, "a.key");
    budget.set_order(7);
    let mut other = admitted(&admission, 1, 550);
    let mut claims = Vec::new();
    let mut claim = budget.claim_of(10);
    loop {
        now(pin!(budget.admit(claim))).unwrap().unwrap();
        let failure = loop {
            if let Err(failure) = budget.reserve(10) {
                break failure;
            }
        };
        let Some(larger) = budget.take_larger_claim() else {
            let expected = QueryError::from(LimitError::Memory { limit_mb: 0, key: "a.key" });
            assert!(matches!(failure, QueryFailure::Rejected(error) if error == expected));
            break;
        };
        assert!(matches!(failure, QueryFailure::NoMemory { limit_mb: 0, key: TOTAL_KEY }));
        assert_eq!(budget.reserved(), 0);
        other.end_run(100);
        claims.push(larger.bytes);
        claim = larger;
    }
    assert!(claims.is_sorted() && claims.len() <= 3, "{claims:?}");
    assert_eq!((budget.reserved(), budget.peak()), (600, 600));
    drop(budget);
    assert_eq!(admission.granted(), other.bytes());
}
