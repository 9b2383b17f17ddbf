//! The actor of one query: coordinates its work and computes nothing.
//!
//! It waits for admission, starts the work, opens the scans of each read and counts them down. It ends the query on
//! its deadline, a cancellation, a failure or a panic. A query that has outgrown its grant begins again: after all its
//! work has stopped, it waits for more memory.
//!
//! All this is messages and timers on a thread of its own, so the actor replies at once, however busy the query
//! threads are. The query threads work on rows and columns in time slices ([`super::scheduler`]). When the actor
//! stops, unfinished work and open scans are dropped at their next await point.

use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};

use tokio::{runtime, task::AbortHandle};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tsd_runtime::{Actor, ActorContext, ActorRef, ActorThread, Reply};

use super::{
    admission::Claim,
    context::QueryContext,
    query_message::{MakeQueryWork, QueryMessage, QueryWork},
};
use crate::query::failure::{QueryFailure, task_failure};

/// Most queued messages: reads of concurrent sub queries, and requests of operators.
const MAILBOX: usize = 256;

/// Properties with which an actor is created.
pub(crate) struct NewQueryActor {
    pub(crate) context: Arc<QueryContext>,
    /// Cancelled when nobody waits for the result.
    pub(crate) abandoned: CancellationToken,
    /// The query threads.
    pub(crate) runtime: runtime::Handle,
    /// Most open scans of one read.
    pub(crate) max_scans: usize,
}

/// Coordinates one query.
pub(crate) struct QueryActor {
    /// `None` after the query has ended.
    query: Option<ActiveQuery>,
}

/// A query that has no outcome yet.
struct ActiveQuery {
    new: NewQueryActor,
    /// Set when execution is requested.
    reply: Option<Reply<Result<(), QueryFailure>>>,
    /// Set when execution is requested.
    make_work: Option<MakeQueryWork>,
    reads: BTreeMap<u64, RunningRead>,
    last_read: u64,
}

/// A read whose scans are counted down. Dropping it aborts them.
struct RunningRead {
    pending: std::vec::IntoIter<QueryWork>,
    /// Scans that have not ended, including those that have not started.
    remaining: usize,
    scans: Vec<AbortHandle>,
    reply: Reply<Result<(), QueryFailure>>,
}

impl Drop for RunningRead {
    fn drop(&mut self) {
        for scan in &self.scans {
            scan.abort();
        }
    }
}

impl Drop for ActiveQuery {
    fn drop(&mut self) {
        self.new.context.set_ended();
    }
}

impl QueryActor {
    /// Starts the actor of a query. If it panics, the query fails, because its state is lost.
    pub(crate) fn start(thread: &ActorThread, new: NewQueryActor) -> ActorRef<QueryMessage> {
        let reads = BTreeMap::new();
        let query = ActiveQuery { new, reply: None, make_work: None, reads, last_read: 0 };
        let query = Mutex::new(Some(query));
        thread.spawn("query", MAILBOX, move || Self { query: query.lock().take() })
    }

    fn end(&mut self, outcome: Result<(), QueryFailure>, ctx: &mut ActorContext<'_, Self>) {
        if let Some(mut query) = self.query.take() {
            let reply = query.reply.take();
            drop(query);
            if let Some(reply) = reply {
                // Nobody may wait for the outcome any more.
                let _ = reply.send(outcome);
            }
        }
        ctx.stop();
    }

    fn execute(
        &mut self,
        make_work: MakeQueryWork,
        reply: Reply<Result<(), QueryFailure>>,
        ctx: &mut ActorContext<'_, Self>,
    ) {
        let Some(query) = &mut self.query else { return };
        (query.reply, query.make_work) = (Some(reply), Some(make_work));
        if query.new.abandoned.is_cancelled() {
            return self.end(Err(QueryFailure::Cancelled), ctx);
        }
        if !self.keep_deadline(ctx) {
            return;
        }
        let Some(ActiveQuery { new, .. }) = &self.query else { return };
        let claim = new.context.first_claim();
        ctx.spawn(new.abandoned.clone().cancelled_owned(), |actor, (), ctx| {
            actor.end(Err(QueryFailure::Cancelled), ctx);
        });
        self.await_admission(claim, ctx);
    }

    fn await_admission(&self, claim: Claim, ctx: &mut ActorContext<'_, Self>) {
        let Some(query) = &self.query else { return };
        let context = Arc::clone(&query.new.context);
        let admission = async move { context.admit(claim).await };
        ctx.spawn(admission, |actor, admitted, ctx| match admitted {
            Ok(()) => actor.begin(ctx),
            Err(failure) => actor.end_or_restart(Err(failure), ctx),
        });
    }

    /// Ends the query at its deadline, which other queries that share it may extend. Returns false if the query has
    /// ended.
    fn keep_deadline(&mut self, ctx: &mut ActorContext<'_, Self>) -> bool {
        let Some(query) = &self.query else { return false };
        let Some(time) = query.new.context.time_left() else { return true };
        if time.is_zero() {
            let timeout = query.new.context.timeout_error().into();
            self.end(Err(timeout), ctx);
            return false;
        }
        ctx.after(time, |actor, ctx| {
            actor.keep_deadline(ctx);
        });
        true
    }

    /// Starts the work of an admitted query.
    fn begin(&self, ctx: &mut ActorContext<'_, Self>) {
        let Some(query) = &self.query else { return };
        let Some(make_work) = &query.make_work else { return };
        let work = query.new.context.track(make_work());
        let task = AbortOnDropHandle::new(query.new.runtime.spawn(work));
        ctx.spawn(task, |actor, ended, ctx| {
            actor.end_or_restart(ended.unwrap_or_else(|error| Err(task_failure(error))), ctx);
        });
    }

    /// Ends the query. If it has outgrown its grant, it waits for more memory instead and begins again.
    fn end_or_restart(
        &mut self,
        outcome: Result<(), QueryFailure>,
        ctx: &mut ActorContext<'_, Self>,
    ) {
        let Some(query) = &mut self.query else { return };
        if outcome.is_ok() || !query.new.context.must_restart() {
            return self.end(outcome, ctx);
        }
        query.reads.clear();
        let context = Arc::clone(&query.new.context);
        let stopped = async move { context.stop_to_restart().await };
        ctx.spawn(stopped, |actor, claim, ctx| {
            let Some(query) = &actor.query else { return };
            metrics::counter!("tsd_query_restarts_total").increment(1);
            query.new.context.mark_queued();
            actor.await_admission(claim.unwrap_or_default(), ctx);
        });
    }

    fn read(
        &mut self,
        scans: Vec<QueryWork>,
        reply: Reply<Result<(), QueryFailure>>,
        ctx: &mut ActorContext<'_, Self>,
    ) {
        let Some(query) = &mut self.query else { return };
        query.last_read += 1;
        let read = query.last_read;
        query.new.context.add_scans(scans.len());
        let remaining = scans.len();
        let running =
            RunningRead { remaining, pending: scans.into_iter(), scans: Vec::new(), reply };
        query.reads.insert(read, running);
        for _ in 0..query.new.max_scans {
            self.scan_next(read, ctx);
        }
        self.reply_if_done(read);
    }

    /// Starts the next scan of a read.
    fn scan_next(&mut self, read: u64, ctx: &mut ActorContext<'_, Self>) {
        let Some(query) = &mut self.query else { return };
        let Some(running) = query.reads.get_mut(&read) else { return };
        let Some(scan) = running.pending.next() else { return };
        let task = query.new.runtime.spawn(query.new.context.track(scan));
        running.scans.push(task.abort_handle());
        ctx.spawn(task, move |actor, ended, ctx| {
            let ended = ended.unwrap_or_else(|error| Err(task_failure(error)));
            actor.scan_ended(read, ended, ctx);
        });
    }

    fn scan_ended(
        &mut self,
        read: u64,
        ended: Result<(), QueryFailure>,
        ctx: &mut ActorContext<'_, Self>,
    ) {
        let Some(query) = &mut self.query else { return };
        let Some(running) = query.reads.get_mut(&read) else { return };
        if ended.is_err() {
            return self.reply(read, ended);
        }
        running.remaining -= 1;
        self.scan_next(read, ctx);
        self.reply_if_done(read);
    }

    fn reply_if_done(&mut self, read: u64) {
        let running = self.query.as_ref().and_then(|query| query.reads.get(&read));
        if running.is_some_and(|running| running.remaining == 0) {
            self.reply(read, Ok(()));
        }
    }

    /// Ends a read and replies with its result.
    fn reply(&mut self, read: u64, result: Result<(), QueryFailure>) {
        let running = self.query.as_mut().and_then(|query| query.reads.remove(&read));
        if let Some(mut running) = running {
            let (closed, _) = tokio::sync::oneshot::channel();
            // A failure of another read may have ended the sub query.
            let _ = std::mem::replace(&mut running.reply, closed).send(result);
        }
    }
}

impl Actor for QueryActor {
    type Message = QueryMessage;

    fn started(&mut self, ctx: &mut ActorContext<'_, Self>) {
        // An actor that restarts after a panic has no query.
        if self.query.is_none() {
            ctx.stop();
        }
    }

    fn handle(&mut self, message: QueryMessage, ctx: &mut ActorContext<'_, Self>) {
        match message {
            QueryMessage::Execute { make_work, reply } => {
                self.execute(make_work, reply, ctx);
            }
            QueryMessage::Read { scans, reply } => self.read(scans, reply, ctx),
            QueryMessage::Cancel(failure) => self.end(Err(failure), ctx),
            QueryMessage::Progress(reply) => {
                if let Some(query) = &self.query {
                    // The operator may have disconnected.
                    let _ = reply.send(query.new.context.snapshot());
                }
            }
        }
    }
}
