//! The actor of one query: it coordinates, and computes nothing.
//!
//! It waits for admission, starts the work, opens the scans of each read and counts them down, and ends
//! the query on its deadline, a cancellation, a failure or a panic. These are messages and timers on a
//! thread that does nothing else, so it answers at once however busy the query threads are; rows and
//! columns are worked on there, in time slices ([`super::scheduler`]). When it stops, unfinished work
//! and open scans are dropped at their next await point.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use actix::ArbiterHandle;
use tokio::{
    runtime,
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    context::QueryContext,
    query_message::{QueryMessage, QueryWork},
};
use crate::{
    actor::{self, Actor, ActorContext, ActorRef, Reply},
    query::failure::{QueryFailure, task_failure},
};

/// Messages that wait at most: reads of concurrent sub queries, and questions of operators.
const MAILBOX: usize = 256;

/// What an actor is made of.
pub(crate) struct NewQueryActor {
    pub(crate) context: Arc<QueryContext>,
    /// Cancelled when nobody waits for the result any more.
    pub(crate) abandoned: CancellationToken,
    pub(crate) admission: Arc<Semaphore>,
    /// The query threads.
    pub(crate) runtime: runtime::Handle,
    /// Scans of one read that are open at a time.
    pub(crate) max_scans: usize,
}

/// Coordinates one query.
pub(crate) struct QueryActor {
    /// `None` once the query has ended.
    query: Option<ActiveQuery>,
}

/// A query without an outcome yet.
struct ActiveQuery {
    new: NewQueryActor,
    /// Set when it is executed.
    reply: Option<Reply<Result<(), QueryFailure>>>,
    /// Held until the query has ended.
    permit: Option<OwnedSemaphorePermit>,
    reads: BTreeMap<u64, RunningRead>,
    last_read: u64,
}

/// A read whose scans are counted down. Dropping it ends them.
struct RunningRead {
    pending: std::vec::IntoIter<QueryWork>,
    /// Scans that have not ended.
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
    /// Starts the actor of a query. After a panic there is nothing to go on with: the query fails.
    pub(crate) fn start(thread: &ArbiterHandle, new: NewQueryActor) -> ActorRef<QueryMessage> {
        let reads = BTreeMap::new();
        let query = ActiveQuery { new, reply: None, permit: None, reads, last_read: 0 };
        let query = Mutex::new(Some(query));
        actor::spawn(thread, "query", MAILBOX, move || Self {
            query: query.lock().unwrap_or_else(PoisonError::into_inner).take(),
        })
    }

    fn end(&mut self, outcome: Result<(), QueryFailure>, ctx: &mut ActorContext<'_, Self>) {
        if let Some(mut query) = self.query.take() {
            let reply = query.reply.take();
            drop(query);
            if let Some(reply) = reply {
                // Nobody may wait for it any more.
                let _ = reply.send(outcome);
            }
        }
        ctx.stop();
    }

    fn execute(
        &mut self,
        work: QueryWork,
        reply: Reply<Result<(), QueryFailure>>,
        ctx: &mut ActorContext<'_, Self>,
    ) {
        let Some(ActiveQuery { new, reply: outcome, .. }) = &mut self.query else { return };
        *outcome = Some(reply);
        if new.abandoned.is_cancelled() {
            return self.end(Err(QueryFailure::Cancelled), ctx);
        }
        if !self.keep_deadline(ctx) {
            return;
        }
        let Some(ActiveQuery { new, .. }) = &self.query else { return };
        ctx.spawn(new.abandoned.clone().cancelled_owned(), |actor, (), ctx| {
            actor.end(Err(QueryFailure::Cancelled), ctx);
        });
        let admission = Arc::clone(&new.admission).acquire_owned();
        ctx.spawn(admission, |actor, permit, ctx| actor.admitted(work, permit, ctx));
    }

    /// Ends the query when its time is up, which others who share it may extend. False if it is up.
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

    fn admitted(
        &mut self,
        work: QueryWork,
        permit: Result<OwnedSemaphorePermit, AcquireError>,
        ctx: &mut ActorContext<'_, Self>,
    ) {
        let Some(query) = &mut self.query else { return };
        let Ok(permit) = permit else { return self.end(Err(QueryFailure::Closed), ctx) };
        query.permit = Some(permit);
        query.new.context.mark_admitted();
        let task = AbortOnDropHandle::new(query.new.runtime.spawn(work));
        ctx.spawn(task, |actor, ended, ctx| {
            actor.end(ended.unwrap_or_else(|error| Err(task_failure(error))), ctx);
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
        let task = query.new.runtime.spawn(scan);
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

    /// Ends a read.
    fn reply(&mut self, read: u64, result: Result<(), QueryFailure>) {
        let running = self.query.as_mut().and_then(|query| query.reads.remove(&read));
        if let Some(mut running) = running {
            let (closed, _) = tokio::sync::oneshot::channel();
            // The sub query may have ended with a failure of another read.
            let _ = std::mem::replace(&mut running.reply, closed).send(result);
        }
    }
}

impl Actor for QueryActor {
    type Message = QueryMessage;

    fn started(&mut self, ctx: &mut ActorContext<'_, Self>) {
        // After a panic there is none.
        if self.query.is_none() {
            ctx.stop();
        }
    }

    fn handle(&mut self, message: QueryMessage, ctx: &mut ActorContext<'_, Self>) {
        match message {
            QueryMessage::Execute { work, reply } => self.execute(work, reply, ctx),
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
