#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::atomic::AtomicUsize;

use tokio::{
    sync::oneshot,
    task::{JoinHandle, yield_now},
};

use super::*;

/// Who had a turn, in order.
type Log = Arc<Mutex<String>>;

fn spent(scheduler: &Arc<Scheduler>, millis: u64) -> Arc<Turns> {
    let turns = scheduler.admit();
    turns.charge(Duration::from_millis(millis));
    Arc::new(turns)
}

/// Asks for one turn, and notes when it comes.
fn ask(turns: &Arc<Turns>, log: &Log, name: char) -> JoinHandle<()> {
    let (turns, log) = (Arc::clone(turns), Arc::clone(log));
    tokio::spawn(async move {
        let slice = turns.next().await;
        log.lock().unwrap().push(name);
        drop(slice);
    })
}

async fn settle() {
    for _ in 0..100 {
        yield_now().await;
    }
}

#[tokio::test]
async fn who_spent_least_goes_first_and_one_in_eight_waited_longest() {
    let scheduler = Scheduler::new(1, 10);
    let busy = [scheduler.admit(), scheduler.admit()];
    let first = busy[0].next().await.unwrap();
    let second = busy[1].next().await.unwrap();
    let log = Log::default();
    for (millis, name) in [(1_000, 'h'), (50, 'c'), (0, 'd')] {
        let turns = spent(&scheduler, millis);
        for _ in 0..3 {
            ask(&turns, &log, name);
        }
        settle().await;
    }
    assert_eq!(log.lock().unwrap().as_str(), "");
    assert_eq!(scheduler.waiting(), 3);
    drop(second);
    settle().await;
    // Two turns went to those that were busy.
    assert_eq!(log.lock().unwrap().as_str(), "dddcchchh");
    drop(first);
    assert_eq!(scheduler.lock().taken, 0);
}

#[tokio::test]
async fn heavy_queries_never_take_all_turns() {
    let scheduler = Scheduler::new(2, 10);
    let log = Log::default();
    let heavy: Vec<_> = (0..8).map(|_| spent(&scheduler, 1_000)).collect();
    let first = heavy[0].next().await.unwrap();
    let second = heavy[1].next().await.unwrap();
    for turns in &heavy {
        ask(turns, &log, 'h');
    }
    ask(&spent(&scheduler, 0), &log, 'l');
    settle().await;
    assert_eq!(log.lock().unwrap().as_str(), "l");
    drop((first, second));
    settle().await;
    assert_eq!(log.lock().unwrap().as_str(), "lhhhhhhhh");
}

#[tokio::test]
async fn a_heavy_query_too_many_pauses_and_the_next_is_turned_away() {
    let scheduler = Scheduler::new(1, 1);
    let log = Log::default();
    let first = spent(&scheduler, 1_000);
    drop(first.next().await.unwrap());
    let second = spent(&scheduler, 1_000);
    let paused = ask(&second, &log, '2');
    settle().await;
    assert_eq!(log.lock().unwrap().as_str(), "");
    assert_eq!(spent(&scheduler, 1_000).next().await.unwrap_err(), TooManyHeavy);
    assert!(spent(&scheduler, 1).next().await.is_ok());
    drop(first);
    paused.await.unwrap();
    drop(second);
    assert!(spent(&scheduler, 1_000).next().await.is_ok());
    assert_eq!(scheduler.lock().heavy, 0);
}

#[tokio::test]
async fn a_heavy_query_needs_no_place_to_write_its_answer() {
    let scheduler = Scheduler::new(1, 1);
    let [first, second, third] = [1_000; 3].map(|millis| spent(&scheduler, millis));
    for turns in [&first, &second, &third] {
        drop(turns.next().await.unwrap());
        turns.answered();
    }
    let working = spent(&scheduler, 1_000);
    drop(working.next().await.unwrap());
    assert_eq!(scheduler.lock().heavy, 1);
    drop(first.next().await.unwrap());
    let slice = second.next().await.unwrap();
    let log = Log::default();
    // Heavy work all the same: one turn a processor.
    ask(&third, &log, '3');
    settle().await;
    assert_eq!(log.lock().unwrap().as_str(), "");
    drop(slice);
    settle().await;
    assert_eq!(log.lock().unwrap().as_str(), "3");
    assert_eq!(scheduler.lock().heavy, 1);
}

#[tokio::test]
async fn turns_of_those_that_left_go_to_others() {
    let scheduler = Scheduler::new(1, 1);
    let log = Log::default();
    let busy = spent(&scheduler, 0);
    let held = [busy.next().await.unwrap(), busy.next().await.unwrap()];
    let gone = ask(&spent(&scheduler, 0), &log, 'g');
    ask(&spent(&scheduler, 1), &log, 's');
    settle().await;
    gone.abort();
    drop(held);
    settle().await;
    assert_eq!(log.lock().unwrap().as_str(), "s");
    assert_eq!(scheduler.lock().taken, 0);
    assert!(scheduler.lock().lines.is_empty());
}

#[tokio::test]
async fn a_small_query_among_four_heavy_ones_needs_few_slices_of_them() {
    let scheduler = Scheduler::new(1, 16);
    let slices = Arc::new(AtomicUsize::new(0));
    let mut heavy = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let turns = spent(&scheduler, 1_000);
        for _ in 0..20 {
            let (turns, slices) = (Arc::clone(&turns), Arc::clone(&slices));
            heavy.spawn(async move {
                loop {
                    let slice = turns.next().await.unwrap();
                    slices.fetch_add(1, Ordering::Relaxed);
                    drop(slice);
                    yield_now().await;
                }
            });
        }
    }
    settle().await;
    let small = spent(&scheduler, 0);
    let before_it = Arc::new(AtomicUsize::new(0));
    let mut scans = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let (small, slices, before_it) =
            (Arc::clone(&small), Arc::clone(&slices), Arc::clone(&before_it));
        scans.spawn(async move {
            for _ in 0..4 {
                let asked = slices.load(Ordering::Relaxed);
                drop(small.next().await.unwrap());
                let waited = slices.load(Ordering::Relaxed) - asked;
                before_it.fetch_add(waited, Ordering::Relaxed);
                yield_now().await;
            }
        });
    }
    scans.join_all().await;
    let before_it = before_it.load(Ordering::Relaxed);
    // In order of arrival, each of the twenty steps would wait for eighty slices.
    assert!(before_it <= 20, "{before_it} slices of heavy queries went before");
}

/// Waits on this thread until something holds; gives up in the end.
fn wait_until(holds: impl Fn() -> bool) -> bool {
    (0..10_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        holds()
    })
}

/// A heavy query in the middle of something, once another waits for its turn: what `renew` came to.
async fn renewed(has_ended: bool, other_keeps_its_turn: bool) -> bool {
    let scheduler = Scheduler::new(1, 2);
    let (long, other) = (spent(&scheduler, 2_000), spent(&scheduler, 1_000));
    let (began, wait_for_it) = oneshot::channel();
    let working = tokio::spawn(async move {
        let slice = long.next().await.unwrap();
        began.send(()).unwrap();
        assert!(wait_until(|| slice.is_over() && long.scheduler.waiting() > 0));
        long.renew(slice, || has_ended).is_some()
    });
    wait_for_it.await.unwrap();
    let turn = tokio::spawn(async move {
        let slice = other.next().await.unwrap();
        if other_keeps_its_turn {
            std::mem::forget(slice);
        }
    });
    let renewed = working.await.unwrap();
    turn.await.unwrap();
    assert_eq!(scheduler.held_threads.load(Ordering::Relaxed), 0);
    assert_eq!(scheduler.lock().taken, usize::from(other_keeps_its_turn));
    renewed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_cannot_stop_lets_others_go_and_comes_back() {
    assert!(renewed(false, false).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_whose_query_ended_waits_for_no_turn() {
    assert!(!renewed(true, true).await);
}
