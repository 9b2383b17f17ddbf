//! Appends the groups of the committer thread.
//!
//! A record is sent until a segment has stored it: also a record whose group has failed, because it may be
//! stored already, and the next one must not overtake it. A replay may find such a group, as it may find one
//! whose sync of a file has failed.
//!
//! A record that is not answered soon is sent to a standby segment too, and then to the next one (a hedge): only a part
//! of the appends, since all are slow if HBase is. One that has failed is sent to all of them, and others are opened for
//! it: the servers of those that are open may be dead, or may have become the same.

use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::{Instant, sleep, sleep_until};
use tsd_cluster::{OpenSegment, SegmentToken, TableReply, TableRequest};
use tsd_storage::StorageError;

use crate::{
    appender::{APPENDS_A_HEDGE, Appender, MAX_SAVED_HEDGES, PendingRecord},
    calls::CallFailure,
    log::{LogInner, STREAM},
};

/// Bound of an append while one before has failed: senders learn soon that it still does.
const FAILING_TIMEOUT: Duration = Duration::from_millis(500);
/// Pause before an attempt is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// One attempt to store a record.
type Attempt<'a> = BoxFuture<'a, (OpenSegment, Result<TableReply, CallFailure>)>;

impl LogInner {
    /// Stores a group that is divided into payloads.
    pub(crate) async fn append_group(&self, payloads: Vec<Bytes>) -> Result<(), StorageError> {
        self.check_fence()?;
        if !self.owner().has_joined() {
            self.join(Instant::now() + self.config.append_timeout).await?;
        }
        let mut appender = self.appender.lock().await;
        self.send_pending(&mut appender).await?;
        let last = payloads.len().saturating_sub(1);
        for (at, payload) in payloads.into_iter().enumerate() {
            let record = self.owner().next_record(STREAM, payload, at == 0, at == last);
            appender.pending = record.map(PendingRecord::new);
            self.send_pending(&mut appender).await?;
        }
        Ok(())
    }

    /// Stores what an append has left in doubt, or proves that one would succeed.
    pub(crate) async fn append_rest(&self) -> Result<(), StorageError> {
        self.check_fence()?;
        let mut appender = self.appender.lock().await;
        if appender.pending.is_some() {
            return self.send_pending(&mut appender).await;
        }
        drop(appender);
        self.confirm().await
    }

    async fn send_pending(&self, appender: &mut Appender) -> Result<(), StorageError> {
        let Some(pending) = appender.pending.clone() else { return Ok(()) };
        let begun = Instant::now();
        let timeout = if pending.has_failed { FAILING_TIMEOUT } else { self.config.append_timeout };
        let sent = self.send(appender, &pending, begun + timeout).await;
        let segment = match sent {
            Ok(segment) => segment,
            Err(error) => {
                self.metrics.append_failures.increment(1);
                if let Some(pending) = &mut appender.pending {
                    pending.has_failed = true;
                }
                return Err(error);
            }
        };
        appender.pending = None;
        self.stored(segment, pending.cell.len() as u64, begun);
        Ok(())
    }

    fn stored(&self, segment: OpenSegment, bytes: u64, begun: Instant) {
        let mut owner = self.owner();
        owner.stored(segment.id, bytes);
        let wants_segment = owner.standby_count(STREAM) < self.wanted_standby();
        drop(owner);
        self.prove(begun);
        self.section_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.metrics.appends.increment(1);
        self.metrics.appended_bytes.increment(bytes);
        self.metrics.append_seconds.record(begun.elapsed());
        if wants_segment {
            self.wake.notify_one();
        }
    }

    /// Sends a record until a segment has stored it. Returns that segment.
    async fn send(
        &self,
        appender: &mut Appender,
        pending: &PendingRecord,
        deadline: Instant,
    ) -> Result<OpenSegment, StorageError> {
        let first = self.segment_for(pending.cell.len() as u64, deadline).await?;
        let hedged = self.owner().hedged_segments(STREAM);
        let begin = |to| self.attempt(to, pending, Duration::ZERO, deadline);
        let mut attempts: FuturesUnordered<Attempt<'_>> =
            std::iter::once(first).chain(hedged).map(begin).collect();
        let mut hedge_after = self.config.hedge_after;
        let mut hedge_at = hedge_after.map(|after| Instant::now() + after);
        appender.saved_appends =
            (appender.saved_appends + 1).min(MAX_SAVED_HEDGES * APPENDS_A_HEDGE);
        loop {
            let hedge_due = async {
                match hedge_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let attempt = tokio::select! {
                attempt = attempts.next() => attempt,
                () = hedge_due => {
                    let may_hedge = pending.has_failed || appender.saved_appends >= APPENDS_A_HEDGE;
                    hedge_after = hedge_after.filter(|_| may_hedge).map(|after| after * 2);
                    hedge_at = hedge_after.map(|after| Instant::now() + after);
                    if may_hedge {
                        attempts.extend(self.hedge(appender).map(begin));
                    } else {
                        self.metrics.hedges_suppressed.increment(1);
                    }
                    continue;
                }
            };
            let Some((segment, reply)) = attempt else {
                return Err(self.table.unavailable("no attempt is left"));
            };
            match reply {
                Ok(TableReply::Applied(true)) => return Ok(segment),
                Ok(TableReply::Applied(false)) => self.refused(segment, deadline).await?,
                Ok(_) => {}
                Err(CallFailure::Fail(error)) => return Err(error),
                Err(CallFailure::Repeat(text)) => {
                    self.metrics.repeats.increment(1);
                    if Instant::now() + RETRY_PAUSE >= deadline && attempts.is_empty() {
                        return Err(self.table.unavailable(&text));
                    }
                }
            }
            if Instant::now() + RETRY_PAUSE < deadline {
                attempts.push(self.attempt(segment, pending, RETRY_PAUSE, deadline));
            }
        }
    }

    fn attempt<'a>(
        &'a self,
        segment: OpenSegment,
        pending: &'a PendingRecord,
        pause: Duration,
        deadline: Instant,
    ) -> Attempt<'a> {
        Box::pin(async move {
            // A timer of no time still waits for its next tick, up to a millisecond.
            if !pause.is_zero() {
                sleep(pause).await;
            }
            let PendingRecord { record, cell, .. } = pending;
            (segment, self.table.append_until(segment, record.sequence, cell, deadline).await)
        })
    }

    /// The segment that gets the record; opened now if there is none.
    async fn segment_for(
        &self,
        bytes: u64,
        deadline: Instant,
    ) -> Result<OpenSegment, StorageError> {
        loop {
            let found = self.owner().segment_for(STREAM, bytes);
            if let Some(segment) = found {
                return Ok(segment);
            }
            self.open_up_to(1, deadline).await?;
        }
    }

    /// Another segment for the record in flight. One is opened for the next hedge if none is left.
    fn hedge(&self, appender: &mut Appender) -> Option<OpenSegment> {
        let (segment, left) = {
            let mut owner = self.owner();
            (owner.hedge_segment(STREAM), owner.standby_count(STREAM))
        };
        if left == 0 {
            self.wake.notify_one();
        }
        let segment = segment?;
        appender.saved_appends = appender.saved_appends.saturating_sub(APPENDS_A_HEDGE);
        self.metrics.hedges.increment(1);
        Some(segment)
    }

    /// A segment has refused a record: another process has fenced it.
    async fn refused(&self, segment: OpenSegment, deadline: Instant) -> Result<(), StorageError> {
        let request = TableRequest::ReadToken { segment: segment.id };
        match self.table.ask(&request, deadline).await? {
            TableReply::Token(SegmentToken::Owner { incarnation, attempt })
                if (incarnation, attempt) == (segment.id.incarnation, segment.attempt) =>
            {
                Ok(())
            }
            TableReply::Token(SegmentToken::Fence(by)) => Err(self.fenced(Some(by))),
            _ => Err(self.fenced(None)),
        }
    }
}
