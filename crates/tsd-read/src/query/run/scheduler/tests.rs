#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::atomic::AtomicUsize;

use tokio::{
    sync::oneshot,
    task::{JoinHandle, yield_now},
};

use super::*;

/// Names of the queries whose slices ran, in order.
type RunLog = Arc<Mutex<String>>;

fn query_with_cpu(scheduler: &Arc<Scheduler>, millis: u64) -> Arc<SchedulerHandle> {
    let query = SchedulerHandle::new(scheduler);
    query.account.add_cpu(Duration::from_millis(millis));
    Arc::new(query)
}

/// Requests one slice, and logs `name` when it runs.
fn spawn_slice(query: &Arc<SchedulerHandle>, log: &RunLog, name: char) -> JoinHandle<()> {
    let (query, log) = (Arc::clone(query), Arc::clone(log));
    tokio::spawn(async move {
        let slice = query.acquire_slice().await;
        log.lock().push(name);
        drop(slice);
    })
}

async fn run_pending_tasks() {
    for _ in 0..100 {
        yield_now().await;
    }
}

#[tokio::test]
async fn least_cpu_time_runs_first_and_one_in_eight_is_the_longest_waiting() {
    let scheduler = Scheduler::new(1);
    let busy = [SchedulerHandle::new(&scheduler), SchedulerHandle::new(&scheduler)];
    let first = busy[0].acquire_slice().await;
    let second = busy[1].acquire_slice().await;
    let log = RunLog::default();
    for (millis, name) in [(1_000, 'h'), (50, 'c'), (0, 'd')] {
        let query = query_with_cpu(&scheduler, millis);
        for _ in 0..3 {
            spawn_slice(&query, &log, name);
        }
        run_pending_tasks().await;
    }
    assert_eq!(log.lock().as_str(), "");
    assert_eq!(scheduler.runnable(), 3);
    drop(second);
    run_pending_tasks().await;
    // The busy queries got the first two grants.
    assert_eq!(log.lock().as_str(), "dddcchchh");
    drop(first);
    assert_eq!(scheduler.state.lock().running, 0);
}

#[tokio::test]
async fn heavy_queries_never_use_all_permits() {
    let scheduler = Scheduler::new(2);
    let log = RunLog::default();
    let heavy: Vec<_> = (0..8).map(|_| query_with_cpu(&scheduler, 1_000)).collect();
    let first = heavy[0].acquire_slice().await;
    let second = heavy[1].acquire_slice().await;
    for query in &heavy {
        spawn_slice(query, &log, 'h');
    }
    spawn_slice(&query_with_cpu(&scheduler, 0), &log, 'l');
    run_pending_tasks().await;
    assert_eq!(log.lock().as_str(), "l");
    drop((first, second));
    run_pending_tasks().await;
    assert_eq!(log.lock().as_str(), "lhhhhhhhh");
}

#[tokio::test]
async fn permits_of_dropped_waiters_are_granted_to_others() {
    let scheduler = Scheduler::new(1);
    let log = RunLog::default();
    let busy = query_with_cpu(&scheduler, 0);
    let slices = [busy.acquire_slice().await, busy.acquire_slice().await];
    let dropped = spawn_slice(&query_with_cpu(&scheduler, 0), &log, 'd');
    spawn_slice(&query_with_cpu(&scheduler, 1), &log, 'w');
    run_pending_tasks().await;
    dropped.abort();
    drop(slices);
    run_pending_tasks().await;
    assert_eq!(log.lock().as_str(), "w");
    assert_eq!(scheduler.state.lock().running, 0);
    assert!(scheduler.state.lock().run_queues.is_empty());
}

#[tokio::test]
async fn small_query_among_four_heavy_ones_waits_for_few_slices() {
    let scheduler = Scheduler::new(1);
    let slices = Arc::new(AtomicUsize::new(0));
    let mut heavy = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let query = query_with_cpu(&scheduler, 1_000);
        for _ in 0..20 {
            let (query, slices) = (Arc::clone(&query), Arc::clone(&slices));
            heavy.spawn(async move {
                loop {
                    let slice = query.acquire_slice().await;
                    slices.fetch_add(1, Ordering::Relaxed);
                    drop(slice);
                    yield_now().await;
                }
            });
        }
    }
    run_pending_tasks().await;
    let small = query_with_cpu(&scheduler, 0);
    let slices_before = Arc::new(AtomicUsize::new(0));
    let mut scans = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let (small, slices, slices_before) =
            (Arc::clone(&small), Arc::clone(&slices), Arc::clone(&slices_before));
        scans.spawn(async move {
            for _ in 0..4 {
                let at_request = slices.load(Ordering::Relaxed);
                drop(small.acquire_slice().await);
                let waited = slices.load(Ordering::Relaxed) - at_request;
                slices_before.fetch_add(waited, Ordering::Relaxed);
                yield_now().await;
            }
        });
    }
    scans.join_all().await;
    let slices_before = slices_before.load(Ordering::Relaxed);
    // In order of arrival, each of the twenty steps would wait for eighty slices.
    assert!(slices_before <= 20, "{slices_before} slices of heavy queries ran first");
}

/// Blocks this thread until `condition` is true or ten seconds have passed.
fn wait_until(condition: impl Fn() -> bool) -> bool {
    (0..10_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        condition()
    })
}

/// Renews an expired slice of a heavy query while another one is queued. Returns whether it was
/// renewed.
async fn is_renewed(is_cancelled: bool, other_keeps_its_permit: bool) -> bool {
    let scheduler = Scheduler::new(1);
    let (long, other) = (query_with_cpu(&scheduler, 2_000), query_with_cpu(&scheduler, 1_000));
    let (started, wait_for_start) = oneshot::channel();
    let working = tokio::spawn(async move {
        let slice = long.acquire_slice().await;
        started.send(()).unwrap();
        assert!(wait_until(|| slice.is_expired() && long.scheduler.runnable() > 0));
        long.renew(slice, || is_cancelled).is_some()
    });
    wait_for_start.await.unwrap();
    let other = tokio::spawn(async move {
        let slice = other.acquire_slice().await;
        if other_keeps_its_permit {
            std::mem::forget(slice);
        }
    });
    let renewed = working.await.unwrap();
    other.await.unwrap();
    assert_eq!(scheduler.blocked_threads.load(Ordering::Relaxed), 0);
    assert_eq!(scheduler.state.lock().running, usize::from(other_keeps_its_permit));
    renewed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_work_yields_to_others_and_resumes() {
    assert!(is_renewed(false, false).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_of_a_cancelled_query_waits_for_no_permit() {
    assert!(!is_renewed(true, true).await);
}

/// Renews an expired slice of a query while one of `other` is queued; it must keep its permit.
async fn keeps_its_permit(query: &Arc<SchedulerHandle>, other: &Arc<SchedulerHandle>) {
    let log = RunLog::default();
    let slice = query.acquire_slice().await;
    let queued = spawn_slice(other, &log, 'o');
    assert!(wait_until(|| slice.is_expired() && query.scheduler.runnable() == 1));
    let slice = query.renew(slice, || false).unwrap();
    assert_eq!(log.lock().as_str(), "", "the other slice waits");
    drop(slice);
    queued.await.unwrap();
    assert_eq!(log.lock().as_str(), "o");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_work_does_not_yield_to_its_own_query() {
    let query = query_with_cpu(&Scheduler::new(1), 1_000);
    keeps_its_permit(&query, &query).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_work_does_not_yield_while_enough_threads_are_blocked() {
    let scheduler = Scheduler::new(1);
    let (query, other) = (query_with_cpu(&scheduler, 2_000), query_with_cpu(&scheduler, 1_000));
    scheduler.blocked_threads.store(scheduler.max_blocked(), Ordering::Relaxed);
    keeps_its_permit(&query, &other).await;
}
