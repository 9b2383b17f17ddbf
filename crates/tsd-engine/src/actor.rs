//! The one place that knows actix.
//!
//! A *doer* is plain state with a handler of orders. This module gives it a mailbox on one of the
//! engine's threads, and keeps it alive: actix drops an actor for good when its handler panics, so
//! every entry into a doer's code is guarded here, and after a panic the doer is made anew by its
//! factory. The orders it held are dropped, which its askers see as [`AskError::Failed`].
//!
//! Mailboxes are bounded. Nothing here can bypass the bound: orders are sent by `try_send` alone,
//! and a full mailbox is an answer ([`TellError::Full`]).

use std::{
    fmt,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use actix::{
    Actor, ActorFutureExt, Addr, Arbiter, ArbiterHandle, AsyncContext, Context, Handler, Message,
    dev::channel::channel, fut::wrap_future,
};
use futures_util::FutureExt;
use tokio::sync::oneshot;

/// State that handles orders, one at a time.
pub(crate) trait Doer: Sized + Unpin + 'static {
    /// What it can be told to do. Orders that want an answer carry a [`Reply`].
    type Order: Send + 'static;

    /// Called when the doer is made, at start and after a panic.
    fn started(&mut self, _ctx: &mut Desk<'_, Self>) {}

    /// Carries an order out, or starts work that does.
    fn handle(&mut self, order: Self::Order, ctx: &mut Desk<'_, Self>);
}

/// Where an order's answer goes. Dropping it tells the asker that the doer failed.
pub(crate) type Reply<T> = oneshot::Sender<T>;

/// What a doer may ask of its surroundings.
pub(crate) struct Desk<'a, D: Doer> {
    ctx: &'a mut Context<Host<D>>,
    life: u64,
}

/// A doer's address. Cheap to clone; usable from any thread.
pub(crate) struct DoerRef<D: Doer> {
    addr: Addr<Host<D>>,
    vitals: Arc<Vitals>,
}

/// What is counted of a doer.
#[derive(Debug)]
pub(crate) struct Vitals {
    name: &'static str,
    waiting: AtomicUsize,
    restarts: AtomicU64,
    refused: AtomicU64,
}

/// Why an order was not taken. It hands the order back where that is possible.
#[derive(Debug)]
pub(crate) enum TellError<O> {
    /// The mailbox is full.
    Full(O),
    /// The doer is gone for good: the engine is down.
    Closed,
}

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskError {
    /// The mailbox is full.
    Full,
    /// The doer failed while it worked on the order.
    Failed,
    /// The engine is down.
    Closed,
}

/// The threads that doers live on.
pub(crate) struct Threads {
    arbiters: Vec<Arbiter>,
}

impl Threads {
    /// Starts `count` threads. Must be called inside an actix system.
    pub(crate) fn start(count: usize) -> Self {
        Self { arbiters: (0..count.max(1)).map(|_| Arbiter::new()).collect() }
    }

    /// The thread of the `i`-th doer of a kind.
    pub(crate) fn get(&self, i: usize) -> ArbiterHandle {
        self.arbiters
            .get(i % self.arbiters.len().max(1))
            .map_or_else(Arbiter::current, Arbiter::handle)
    }

    /// Stops the threads and waits for them.
    pub(crate) fn stop(self) {
        for arbiter in &self.arbiters {
            arbiter.stop();
        }
        for arbiter in self.arbiters {
            if arbiter.join().is_err() {
                tracing::error!("an engine thread ended in a panic");
            }
        }
    }
}

/// Starts a doer on a thread. `make` is called there, and again after a panic.
pub(crate) fn spawn<D: Doer>(
    thread: &ArbiterHandle,
    name: &'static str,
    mailbox: usize,
    make: impl Fn() -> D + Send + 'static,
) -> DoerRef<D> {
    let vitals = Arc::new(Vitals::new(name));
    let held = Arc::clone(&vitals);
    // Of its size from the first order on: one that grows when the thread comes to it has room for few
    // until then.
    let (sender, orders) = channel(mailbox.max(1));
    thread.spawn_fn(move || {
        let host = Host { doer: make(), make: Box::new(make), life: 0, vitals: held };
        actix::spawn(Context::with_receiver(orders).into_future(host));
    });
    DoerRef { addr: Addr::new(sender), vitals }
}

impl<D: Doer> DoerRef<D> {
    /// Gives an order without waiting.
    pub(crate) fn tell(&self, order: D::Order) -> Result<(), TellError<D::Order>> {
        self.vitals.waiting.fetch_add(1, Ordering::Relaxed);
        self.addr.try_send(Envelope(order)).map_err(|error| {
            self.vitals.waiting.fetch_sub(1, Ordering::Relaxed);
            match error {
                actix::prelude::SendError::Full(Envelope(order)) => {
                    self.vitals.refused.fetch_add(1, Ordering::Relaxed);
                    TellError::Full(order)
                }
                actix::prelude::SendError::Closed(_) => TellError::Closed,
            }
        })
    }

    /// Gives an order that carries a [`Reply`] and waits for the answer.
    pub(crate) async fn ask<T>(
        &self,
        order: impl FnOnce(Reply<T>) -> D::Order,
    ) -> Result<T, AskError> {
        let (reply, answer) = oneshot::channel();
        match self.tell(order(reply)) {
            Ok(()) => answer.await.map_err(|_| AskError::Failed),
            Err(TellError::Full(_)) => Err(AskError::Full),
            Err(TellError::Closed) => Err(AskError::Closed),
        }
    }

    /// Orders in the mailbox.
    pub(crate) fn waiting(&self) -> usize {
        self.vitals.waiting.load(Ordering::Relaxed)
    }

    /// Times the doer was made anew after a panic.
    pub(crate) fn restarts(&self) -> u64 {
        self.vitals.restarts.load(Ordering::Relaxed)
    }

    /// Orders a full mailbox refused.
    pub(crate) fn refused(&self) -> u64 {
        self.vitals.refused.load(Ordering::Relaxed)
    }
}

impl<D: Doer> Clone for DoerRef<D> {
    fn clone(&self) -> Self {
        Self { addr: self.addr.clone(), vitals: Arc::clone(&self.vitals) }
    }
}

impl<D: Doer> fmt::Debug for DoerRef<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DoerRef").field("vitals", &self.vitals).finish_non_exhaustive()
    }
}

impl Vitals {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            waiting: AtomicUsize::new(0),
            restarts: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }
}

impl<D: Doer> Desk<'_, D> {
    /// Runs `work` on the doer's thread, beside other orders, and then `done` with its result.
    ///
    /// If the doer was made anew in between, `done` is not called: the result belongs to a life
    /// that is over. A panic in `work` counts as one of the doer.
    pub(crate) fn spawn<T: 'static>(
        &mut self,
        work: impl Future<Output = T> + 'static,
        done: impl FnOnce(&mut D, T, &mut Desk<'_, D>) + 'static,
    ) {
        let life = self.life;
        let work = wrap_future::<_, Host<D>>(AssertUnwindSafe(work).catch_unwind());
        self.ctx.spawn(work.map(move |result, host: &mut Host<D>, ctx| {
            if host.life != life {
                return;
            }
            match result {
                Ok(value) => host.guard(ctx, |doer, desk| done(doer, value, desk)),
                Err(_) => host.revive(ctx),
            }
        }));
    }

    /// Calls `done` after `delay`, unless the doer was made anew.
    pub(crate) fn after(
        &mut self,
        delay: Duration,
        done: impl FnOnce(&mut D, &mut Desk<'_, D>) + 'static,
    ) {
        self.spawn(tokio::time::sleep(delay), move |doer, (), desk| done(doer, desk));
    }
}

struct Envelope<O>(O);

impl<O: Send> Message for Envelope<O> {
    type Result = ();
}

struct Host<D: Doer> {
    doer: D,
    make: Box<dyn Fn() -> D + Send>,
    life: u64,
    vitals: Arc<Vitals>,
}

impl<D: Doer> Host<D> {
    fn guard(&mut self, ctx: &mut Context<Self>, call: impl FnOnce(&mut D, &mut Desk<'_, D>)) {
        let mut desk = Desk { ctx, life: self.life };
        let doer = &mut self.doer;
        if std::panic::catch_unwind(AssertUnwindSafe(|| call(doer, &mut desk))).is_err() {
            self.revive(ctx);
        }
    }

    fn revive(&mut self, ctx: &mut Context<Self>) {
        self.vitals.restarts.fetch_add(1, Ordering::Relaxed);
        tracing::error!(actor = self.vitals.name, "an actor failed and was made anew");
        self.life += 1;
        self.doer = (self.make)();
        let mut desk = Desk { ctx, life: self.life };
        let doer = &mut self.doer;
        if std::panic::catch_unwind(AssertUnwindSafe(|| doer.started(&mut desk))).is_err() {
            tracing::error!(actor = self.vitals.name, "an actor failed as it started");
        }
    }
}

impl<D: Doer> Actor for Host<D> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.guard(ctx, Doer::started);
    }
}

impl<D: Doer> Handler<Envelope<D::Order>> for Host<D> {
    type Result = ();

    fn handle(&mut self, msg: Envelope<D::Order>, ctx: &mut Self::Context) {
        self.vitals.waiting.fetch_sub(1, Ordering::Relaxed);
        self.guard(ctx, |doer, desk| doer.handle(msg.0, desk));
    }
}

#[cfg(test)]
mod tests {
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
}
