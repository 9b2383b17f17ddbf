#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::mpsc as std_mpsc;

use super::*;

enum Order {
    Add(u64, Reply<u64>),
    Panic(Reply<u64>),
    PanicLater(Reply<u64>),
    Sleep(Duration, Reply<u64>),
    Block(std_mpsc::Receiver<()>),
}

struct Adder {
    sum: u64,
}

impl Doer for Adder {
    type Order = Order;

    fn handle(&mut self, order: Order, desk: &mut Desk<'_, Self>) {
        match order {
            Order::Add(n, reply) => {
                self.sum += n;
                let _ = reply.send(self.sum);
            }
            Order::Panic(_reply) => panic!("told to"),
            Order::PanicLater(reply) => desk.spawn(
                async move {
                    let _reply = reply;
                    tokio::task::yield_now().await;
                    panic!("told to");
                },
                |_, (), _| {},
            ),
            Order::Sleep(pause, reply) => {
                desk.spawn(tokio::time::sleep(pause), |adder, (), _| {
                    let _ = reply.send(adder.sum);
                });
            }
            Order::Block(until) => {
                let _ = until.recv();
            }
        }
    }
}

/// An adder on a thread of its own, used from the test's runtime.
async fn with_adder<F: Future<Output = ()>>(
    mailbox: usize,
    test: impl FnOnce(DoerRef<Adder>) -> F,
) {
    let (to_test, from_system) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        actix::System::new().block_on(async move {
            let threads = Threads::start(1);
            let adder = spawn(&threads.get(0), "adder", mailbox, || Adder { sum: 0 });
            let _ = to_test.send(adder);
            let _ = stopped.await;
            threads.stop();
        });
    });
    test(from_system.await.unwrap()).await;
    let _ = stop.send(());
    thread.join().unwrap();
}

#[tokio::test]
async fn a_panic_answers_the_asker_and_the_actor_is_back() {
    with_adder(16, async |adder| {
        assert_eq!(adder.ask(|r| Order::Add(2, r)).await, Ok(2));
        assert_eq!(adder.ask(Order::Panic).await, Err(AskError::Failed));
        assert_eq!(adder.ask(|r| Order::Add(3, r)).await, Ok(3), "made anew");
        assert_eq!(adder.ask(Order::PanicLater).await, Err(AskError::Failed));
        assert_eq!(adder.ask(|r| Order::Add(4, r)).await.map(|n| n % 4), Ok(0));
        // The failure of spawned work is noted when the actor polls it next.
        while adder.restarts() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn work_of_a_past_life_is_dropped_with_its_asker() {
    with_adder(16, async |adder| {
        let slow = adder.ask(|r| Order::Sleep(Duration::from_millis(20), r));
        let (slow, panic) = tokio::join!(slow, adder.ask(Order::Panic));
        assert_eq!((slow, panic), (Err(AskError::Failed), Err(AskError::Failed)));
    })
    .await;
}

#[tokio::test]
async fn a_full_mailbox_refuses_and_counts() {
    with_adder(2, async |adder| {
        let (release, blocked) = std_mpsc::channel();
        assert!(adder.tell(Order::Block(blocked)).is_ok());
        while adder.waiting() > 0 {
            tokio::task::yield_now().await;
        }
        let mut taken = Vec::new();
        let refused = loop {
            let (reply, answer) = oneshot::channel();
            match adder.tell(Order::Add(1, reply)) {
                Ok(()) => taken.push(answer),
                Err(error) => break error,
            }
            assert!(taken.len() < 8, "the mailbox has a bound");
        };
        assert!(matches!(refused, TellError::Full(Order::Add(1, _))));
        assert_eq!((adder.refused(), adder.waiting()), (1, taken.len()));
        release.send(()).unwrap();
        for (i, answer) in taken.into_iter().enumerate() {
            assert_eq!(answer.await, Ok(i as u64 + 1));
        }
    })
    .await;
}

#[test]
fn a_mailbox_has_its_size_before_its_thread_comes_to_it() {
    actix::System::new().block_on(async {
        let threads = Threads::start(1);
        let new = |mailbox| spawn(&threads.get(0), "adder", mailbox, || Adder { sum: 0 });
        let (release, blocked) = std_mpsc::channel();
        assert!(new(1).tell(Order::Block(blocked)).is_ok());
        let late = new(100);
        let mut answers = Vec::new();
        for _ in 0..100 {
            let (reply, answer) = oneshot::channel();
            assert!(late.tell(Order::Add(1, reply)).is_ok());
            answers.push(answer);
        }
        release.send(()).unwrap();
        for (i, answer) in (1..).zip(answers) {
            assert_eq!(answer.await, Ok(i));
        }
        threads.stop();
    });
}
