//! The query actor: lets queries run, so many at once, and keeps the others waiting in order.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use tsd_query::Query;

use super::{QueryAnswer, QueryContext, QueryFailure, budget::Limits};
use crate::actor::{Desk, Doer, Reply};

/// A query and who asked it.
pub(crate) struct QueryJob {
    pub(crate) query: Query,
    pub(crate) limits: Limits,
    pub(crate) cancel: CancellationToken,
    pub(crate) reply: Reply<Result<QueryAnswer, QueryFailure>>,
}

/// Orders to the query actor.
pub(crate) enum QueryOrder {
    /// Answer a query.
    Run(Box<QueryJob>),
}

/// State of the query actor.
pub(crate) struct QueryRunner {
    context: Arc<QueryContext>,
    waiting: VecDeque<QueryJob>,
    running: usize,
}

impl QueryRunner {
    pub(crate) const fn new(context: Arc<QueryContext>) -> Self {
        Self { context, waiting: VecDeque::new(), running: 0 }
    }

    fn is_full(&self) -> bool {
        self.running >= self.context.config.max_running.max(1)
    }

    fn pump(&mut self, desk: &mut Desk<'_, Self>) {
        while !self.is_full()
            && let Some(job) = self.waiting.pop_front()
        {
            if job.reply.is_closed() {
                continue;
            }
            self.running += 1;
            let task = self.context.runtime.spawn(run(Arc::clone(&self.context), job));
            desk.spawn(task, |runner, ended, desk| {
                if ended.is_err() {
                    tracing::error!("a query ended in a panic");
                }
                runner.running -= 1;
                runner.pump(desk);
            });
        }
    }
}

/// Answers one query, unless it is ended early.
async fn run(context: Arc<QueryContext>, job: QueryJob) {
    let QueryJob { query, limits, cancel, mut reply } = job;
    let result = tokio::select! {
        biased;
        () = cancel.cancelled_owned() => Err(QueryFailure::Cancelled),
        () = reply.closed() => Err(QueryFailure::Cancelled),
        () = sleep(limits.time_left()) => Err(limits.timed_out().into()),
        result = context.answer(&query, limits) => result,
    };
    // An asker that went away needs no answer.
    let _ = reply.send(result);
}

async fn sleep(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

impl Doer for QueryRunner {
    type Order = QueryOrder;

    fn handle(&mut self, order: QueryOrder, desk: &mut Desk<'_, Self>) {
        let QueryOrder::Run(job) = order;
        self.waiting.retain(|job| !job.reply.is_closed());
        if self.is_full() && self.waiting.len() >= self.context.config.max_waiting {
            // An asker that went away needs no answer.
            let _ = job.reply.send(Err(QueryFailure::Busy));
            return;
        }
        self.waiting.push_back(*job);
        self.pump(desk);
    }
}
