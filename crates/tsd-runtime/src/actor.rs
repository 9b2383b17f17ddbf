//! Supervised actors; the only module that uses actix.
//!
//! actix stops an actor whose handler panics. Here every call into an actor catches panics; after a panic, its factory
//! creates a new actor, the next *incarnation*. Messages that the old incarnation held are dropped, which their
//! senders see as [`AskError::Failed`].
//!
//! Mailboxes are bounded: senders use only `try_send`, and a full mailbox is an error ([`SendError::Full`]).

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
    ActorFutureExt, Addr, Arbiter, ArbiterHandle, AsyncContext, Context, Handler, Recipient,
    dev::channel::channel, fut::wrap_future,
};
use futures_util::FutureExt;
use tokio::sync::oneshot;

use crate::ThreadProbe;

/// State that handles messages, one at a time.
pub trait Actor: Sized + Unpin + 'static {
    /// The messages that it handles. A message that needs a response carries a [`Reply`].
    type Message: Send + 'static;

    /// Called once per incarnation, before its first message.
    fn started(&mut self, _ctx: &mut ActorContext<'_, Self>) {}

    /// Handles a message, or spawns work that handles it.
    fn handle(&mut self, message: Self::Message, ctx: &mut ActorContext<'_, Self>);
}

/// Sends the response to a message. Dropping it fails the request with [`AskError::Failed`].
pub type Reply<T> = oneshot::Sender<T>;

/// Spawns work and timers for the actor whose handler runs.
pub struct ActorContext<'a, A: Actor> {
    ctx: &'a mut Context<Supervised<A>>,
    incarnation: u64,
}

/// Address of an actor that handles messages `M`. Cheap to clone; usable from any thread.
pub struct ActorRef<M: Send + 'static> {
    recipient: Recipient<Envelope<M>>,
    stats: Arc<ActorStats>,
}

/// Counters of an actor.
#[derive(Debug)]
struct ActorStats {
    name: &'static str,
    mailbox_len: AtomicUsize,
    restarts: AtomicU64,
    rejected: AtomicU64,
}

/// Why a message was not sent.
#[derive(Debug)]
pub enum SendError<M> {
    /// The mailbox is full; the message is returned.
    Full(M),
    /// The engine is shut down.
    Closed,
}

/// Why a request has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskError {
    /// The mailbox is full.
    Full,
    /// The actor panicked before it responded.
    Failed,
    /// The engine is shut down.
    Closed,
}

/// The threads that actors run on.
#[derive(Debug)]
pub struct ActorThreads {
    arbiters: Vec<Arbiter>,
}

/// A thread that actors run on. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ActorThread(ArbiterHandle);

impl ActorThreads {
    /// Starts `count` threads. Must be called inside [`run_actors`].
    #[must_use]
    pub fn start(count: usize) -> Self {
        Self { arbiters: (0..count.max(1)).map(|_| Arbiter::new()).collect() }
    }

    /// The thread for the `i`-th actor of a kind.
    #[must_use]
    pub fn get(&self, i: usize) -> ActorThread {
        let arbiter = self.arbiters.get(i % self.arbiters.len().max(1));
        ActorThread(arbiter.map_or_else(Arbiter::current, Arbiter::handle))
    }

    /// All threads.
    pub fn all(&self) -> impl Iterator<Item = ActorThread> {
        self.arbiters.iter().map(|arbiter| ActorThread(arbiter.handle()))
    }

    /// Stops the threads and joins them.
    pub fn stop(self) {
        for arbiter in &self.arbiters {
            arbiter.stop();
        }
        for arbiter in self.arbiters {
            if arbiter.join().is_err() {
                tracing::error!("an actor thread panicked");
            }
        }
    }
}

impl ActorThread {
    /// Gives the thread a task, to see whether it runs its tasks. `threads` names the kind of the thread.
    #[must_use]
    pub fn probe(&self, threads: &'static str) -> ThreadProbe {
        ThreadProbe::send(threads, |task| {
            // A stopped thread drops the task.
            let _ = self.0.spawn_fn(task);
        })
    }

    /// Starts an actor on the thread. `make` is called there, and again after each panic.
    pub fn spawn<A: Actor>(
        &self,
        name: &'static str,
        mailbox: usize,
        make: impl Fn() -> A + Send + 'static,
    ) -> ActorRef<A::Message> {
        let stats = Arc::new(ActorStats::new(name));
        let host_stats = Arc::clone(&stats);
        // Created with its final capacity. Otherwise actix would grow it only when the thread runs, and reject messages
        // until then.
        let (sender, messages) = channel(mailbox.max(1));
        self.0.spawn_fn(move || {
            let host = Supervised {
                actor: make(),
                make: Box::new(make),
                incarnation: 0,
                stats: host_stats,
            };
            actix::spawn(Context::with_receiver(messages).into_future(host));
        });
        ActorRef { recipient: Addr::new(sender).recipient(), stats }
    }
}

/// Runs a future on the present thread, with the system that actor threads need. The system ends with the future.
pub fn run_actors<F: Future>(work: F) -> F::Output {
    actix::System::new().block_on(work)
}

impl<M: Send + 'static> ActorRef<M> {
    /// Sends a message without waiting.
    pub fn try_send(&self, message: M) -> Result<(), SendError<M>> {
        self.stats.mailbox_len.fetch_add(1, Ordering::Relaxed);
        self.recipient.try_send(Envelope(message)).map_err(|error| {
            self.stats.mailbox_len.fetch_sub(1, Ordering::Relaxed);
            match error {
                actix::prelude::SendError::Full(Envelope(message)) => {
                    self.stats.rejected.fetch_add(1, Ordering::Relaxed);
                    SendError::Full(message)
                }
                actix::prelude::SendError::Closed(_) => SendError::Closed,
            }
        })
    }

    /// Sends a message that carries a [`Reply`] and waits for the response.
    pub async fn ask<T>(&self, message: impl FnOnce(Reply<T>) -> M) -> Result<T, AskError> {
        let (reply, response) = oneshot::channel();
        match self.try_send(message(reply)) {
            Ok(()) => response.await.map_err(|_| AskError::Failed),
            Err(SendError::Full(_)) => Err(AskError::Full),
            Err(SendError::Closed) => Err(AskError::Closed),
        }
    }

    /// Messages in the mailbox.
    #[must_use]
    pub fn mailbox_len(&self) -> usize {
        self.stats.mailbox_len.load(Ordering::Relaxed)
    }

    /// Number of times that the actor was recreated after a panic.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.stats.restarts.load(Ordering::Relaxed)
    }

    /// Messages rejected by a full mailbox.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.stats.rejected.load(Ordering::Relaxed)
    }
}

impl<M: Send + 'static> Clone for ActorRef<M> {
    fn clone(&self) -> Self {
        Self { recipient: self.recipient.clone(), stats: Arc::clone(&self.stats) }
    }
}

impl<M: Send + 'static> fmt::Debug for ActorRef<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActorRef").field("stats", &self.stats).finish_non_exhaustive()
    }
}

impl ActorStats {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            mailbox_len: AtomicUsize::new(0),
            restarts: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
        }
    }
}

impl<A: Actor> ActorContext<'_, A> {
    /// Runs `work` on the actor's thread, concurrently with messages, then calls `done` with its
    /// result.
    ///
    /// If the actor was restarted meanwhile, `done` is not called. A panic in `work` restarts the
    /// actor.
    pub fn spawn<T: 'static>(
        &mut self,
        work: impl Future<Output = T> + 'static,
        done: impl FnOnce(&mut A, T, &mut ActorContext<'_, A>) + 'static,
    ) {
        let incarnation = self.incarnation;
        let work = wrap_future::<_, Supervised<A>>(AssertUnwindSafe(work).catch_unwind());
        self.ctx.spawn(work.map(move |result, host: &mut Supervised<A>, ctx| {
            if host.incarnation != incarnation {
                return;
            }
            match result {
                Ok(value) => host.call(ctx, |actor, ctx| done(actor, value, ctx)),
                Err(_) => host.restart(ctx),
            }
        }));
    }

    /// Stops the actor after the present call: its messages and work are dropped.
    pub fn stop(&mut self) {
        actix::ActorContext::stop(self.ctx);
    }

    /// Calls `done` after `delay`, unless the actor was restarted meanwhile.
    pub fn after(
        &mut self,
        delay: Duration,
        done: impl FnOnce(&mut A, &mut ActorContext<'_, A>) + 'static,
    ) {
        self.spawn(tokio::time::sleep(delay), move |actor, (), ctx| done(actor, ctx));
    }
}

struct Envelope<M>(M);

impl<M: Send> actix::Message for Envelope<M> {
    type Result = ();
}

/// The actix actor that runs one of these actors and restarts it after a panic.
struct Supervised<A: Actor> {
    actor: A,
    make: Box<dyn Fn() -> A + Send>,
    incarnation: u64,
    stats: Arc<ActorStats>,
}

impl<A: Actor> Supervised<A> {
    /// Calls the actor and restarts it if the call panics.
    fn call(
        &mut self,
        ctx: &mut Context<Self>,
        call: impl FnOnce(&mut A, &mut ActorContext<'_, A>),
    ) {
        if self.catch_panic(ctx, call).is_err() {
            self.restart(ctx);
        }
    }

    fn catch_panic(
        &mut self,
        ctx: &mut Context<Self>,
        call: impl FnOnce(&mut A, &mut ActorContext<'_, A>),
    ) -> std::thread::Result<()> {
        let mut ctx = ActorContext { ctx, incarnation: self.incarnation };
        let actor = &mut self.actor;
        std::panic::catch_unwind(AssertUnwindSafe(|| call(actor, &mut ctx)))
    }

    fn restart(&mut self, ctx: &mut Context<Self>) {
        self.stats.restarts.fetch_add(1, Ordering::Relaxed);
        tracing::error!(actor = self.stats.name, "actor panicked and was restarted");
        self.incarnation += 1;
        self.actor = (self.make)();
        if self.catch_panic(ctx, Actor::started).is_err() {
            tracing::error!(actor = self.stats.name, "actor panicked while starting");
        }
    }
}

impl<A: Actor> actix::Actor for Supervised<A> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.call(ctx, Actor::started);
    }
}

impl<A: Actor> Handler<Envelope<A::Message>> for Supervised<A> {
    type Result = ();

    fn handle(&mut self, message: Envelope<A::Message>, ctx: &mut Self::Context) {
        self.stats.mailbox_len.fetch_sub(1, Ordering::Relaxed);
        self.call(ctx, |actor, ctx| actor.handle(message.0, ctx));
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::sync::mpsc as std_mpsc;

    use super::*;

    enum AdderMessage {
        Add(u64, Reply<u64>),
        Panic(Reply<u64>),
        PanicLater(Reply<u64>),
        Sleep(Duration, Reply<u64>),
        Block(std_mpsc::Receiver<()>),
    }

    struct Adder {
        sum: u64,
    }

    impl Actor for Adder {
        type Message = AdderMessage;

        fn handle(&mut self, message: AdderMessage, ctx: &mut ActorContext<'_, Self>) {
            match message {
                AdderMessage::Add(n, reply) => {
                    self.sum += n;
                    let _ = reply.send(self.sum);
                }
                AdderMessage::Panic(_reply) => panic!("requested by the test"),
                AdderMessage::PanicLater(reply) => ctx.spawn(
                    async move {
                        let _reply = reply;
                        tokio::task::yield_now().await;
                        panic!("requested by the test");
                    },
                    |_, (), _| {},
                ),
                AdderMessage::Sleep(pause, reply) => {
                    ctx.spawn(tokio::time::sleep(pause), |adder, (), _| {
                        let _ = reply.send(adder.sum);
                    });
                }
                AdderMessage::Block(until) => {
                    let _ = until.recv();
                }
            }
        }
    }

    /// An adder on its own thread, used from the test's runtime.
    async fn with_adder<F: Future<Output = ()>>(
        mailbox: usize,
        test: impl FnOnce(ActorRef<AdderMessage>) -> F,
    ) {
        let (to_test, from_system) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            run_actors(async move {
                let threads = ActorThreads::start(1);
                let adder = threads.get(0).spawn("adder", mailbox, || Adder { sum: 0 });
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
    async fn panic_fails_the_request_and_restarts_the_actor() {
        with_adder(16, async |adder| {
            assert_eq!(adder.ask(|r| AdderMessage::Add(2, r)).await, Ok(2));
            assert_eq!(adder.ask(AdderMessage::Panic).await, Err(AskError::Failed));
            assert_eq!(adder.ask(|r| AdderMessage::Add(3, r)).await, Ok(3), "state is new");
            assert_eq!(adder.ask(AdderMessage::PanicLater).await, Err(AskError::Failed));
            assert_eq!(adder.ask(|r| AdderMessage::Add(4, r)).await.map(|n| n % 4), Ok(0));
            // A panic of spawned work is seen when the actor polls it next.
            while adder.restarts() < 2 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    #[tokio::test]
    async fn work_of_an_earlier_incarnation_is_dropped_with_its_reply() {
        with_adder(16, async |adder| {
            let slow = adder.ask(|r| AdderMessage::Sleep(Duration::from_millis(20), r));
            let (slow, panic) = tokio::join!(slow, adder.ask(AdderMessage::Panic));
            assert_eq!((slow, panic), (Err(AskError::Failed), Err(AskError::Failed)));
        })
        .await;
    }

    #[tokio::test]
    async fn full_mailbox_rejects_and_counts() {
        with_adder(2, async |adder| {
            let (release, blocked) = std_mpsc::channel();
            assert!(adder.try_send(AdderMessage::Block(blocked)).is_ok());
            while adder.mailbox_len() > 0 {
                tokio::task::yield_now().await;
            }
            let mut accepted = Vec::new();
            let rejected = loop {
                let (reply, response) = oneshot::channel();
                match adder.try_send(AdderMessage::Add(1, reply)) {
                    Ok(()) => accepted.push(response),
                    Err(error) => break error,
                }
                assert!(accepted.len() < 8, "the mailbox is bounded");
            };
            assert!(matches!(rejected, SendError::Full(AdderMessage::Add(1, _))));
            assert_eq!((adder.rejected(), adder.mailbox_len()), (1, accepted.len()));
            release.send(()).unwrap();
            for (i, response) in accepted.into_iter().enumerate() {
                assert_eq!(response.await, Ok(i as u64 + 1));
            }
        })
        .await;
    }

    #[test]
    fn mailbox_has_its_capacity_before_its_thread_runs() {
        run_actors(async {
            let threads = ActorThreads::start(1);
            let new = |mailbox| threads.get(0).spawn("adder", mailbox, || Adder { sum: 0 });
            let (release, blocked) = std_mpsc::channel();
            assert!(new(1).try_send(AdderMessage::Block(blocked)).is_ok());
            let late = new(100);
            let mut responses = Vec::new();
            for _ in 0..100 {
                let (reply, response) = oneshot::channel();
                assert!(late.try_send(AdderMessage::Add(1, reply)).is_ok());
                responses.push(response);
            }
            release.send(()).unwrap();
            for (i, response) in (1..).zip(responses) {
                assert_eq!(response.await, Ok(i));
            }
            threads.stop();
        });
    }
}
