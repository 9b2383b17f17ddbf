//! Appends the groups of the committer thread.
//!
//! A record is sent until a segment has stored it, even if its group has failed: it may be stored already, and the
//! next record must not overtake it. A replay may find such a group, just as a file log may replay a group whose sync
//! failed.
//!
//! If a record gets no answer soon, a standby segment gets it too, and later the next one (a hedge). Only a fraction
//! of the appends is hedged, because all appends are slow if HBase is slow. A failed record goes to all standby
//! segments, and further segments are opened for it: the servers of the open segments may be dead, or all of them may
//! be on one server.

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

/// Timeout of an append after a failed one, so that senders soon learn that the log still fails.
const FAILING_TIMEOUT: Duration = Duration::from_millis(500);
/// Pause before an attempt is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// One attempt to store a record.
type Attempt<'a> = BoxFuture<'a, (OpenSegment, Result<TableReply, CallFailure>)>;

impl LogInner {
    /// Stores a group that was divided into payloads.
    pub(crate) async fn append_group(&self, payloads: Vec<Bytes>) -> Result<(), StorageError> {
        self.check_fence()?;
        self.condition.check()?;
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

    /// Stores the record that an append has left in doubt. Without such a record, proves that an append would
    /// succeed.
    pub(crate) async fn append_rest(&self) -> Result<(), StorageError> {
        self.check_fence()?;
        self.condition.check()?;
        let mut appender = self.appender.lock().await;
        if appender.pending.is_some() {
            return self.send_pending(&mut appender).await;
        }
        drop(appender);
        self.confirm().await
    }

    /// Proves that this process owns the log, by putting the token of an open segment again. If its server does not
    /// answer soon, the standby segments are tried as well.
    pub(crate) async fn confirm_segments(&self) -> Result<(), StorageError> {
        let (begun, deadline) = (Instant::now(), self.work_deadline());
        let segments = self.owner().open_tokens(STREAM);
        let stagger = self.config.hedge_after.unwrap_or(Duration::from_millis(50));
        let confirm = |(at, segment): (usize, &OpenSegment)| {
            let segment = *segment;
            async move {
                sleep(stagger * at as u32).await;
                loop {
                    let request = TableRequest::ConfirmSegment { segment };
                    if self.table.ask(&request, deadline).await? == TableReply::Applied(true) {
                        return Ok(());
                    }
                    if !self.owner().open_tokens(STREAM).contains(&segment) {
                        // It may be trimmed meanwhile.
                        return Err(self.table.unavailable("a segment was closed meanwhile"));
                    }
                    self.refused(segment, deadline).await?;
                }
            }
        };
        let mut attempts: FuturesUnordered<_> = segments.iter().enumerate().map(confirm).collect();
        // Without an open segment, the manifest has to answer.
        let mut outcome = None;
        while let Some(attempt) = attempts.next().await {
            let is_proven = attempt.is_ok();
            outcome = Some(attempt);
            if is_proven {
                self.prove(begun);
                break;
            }
            self.check_fence()?;
        }
        match outcome {
            Some(outcome) => outcome,
            None => self.confirm().await,
        }
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
            // Even a zero timer waits for the next tick, up to a millisecond.
            if !pause.is_zero() {
                sleep(pause).await;
            }
            let PendingRecord { record, cell, .. } = pending;
            (segment, self.table.append_until(segment, record.sequence, cell, deadline).await)
        })
    }

    /// Returns the segment for a record of this size; opens a segment if necessary.
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

    /// Returns another segment for the record in flight. If it was the last standby segment, another one is opened
    /// for the next hedge.
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
        Some(segment)
    }

    /// Handles a rejected append: returns an error unless the segment still has its owner's token.
    async fn refused(&self, segment: OpenSegment, deadline: Instant) -> Result<(), StorageError> {
        let request = TableRequest::ReadToken { segment: segment.id };
        match self.table.ask(&request, deadline).await? {
            TableReply::Token(SegmentToken::Owner { incarnation, attempt })
                if (incarnation, attempt) == (segment.id.incarnation, segment.attempt) =>
            {
                Ok(())
            }
            TableReply::Token(SegmentToken::Fence(by)) => Err(self.fenced(Some(by))),
            _ => Err(self.refusal().await),
        }
    }
}
