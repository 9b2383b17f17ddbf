//! Changes the manifest, one change at a time: opens segments, trims the log, proves ownership.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, timeout};
use tsd_cluster::{
    ChangeOutcome, Heartbeat, LogOwner, ManifestChange, OpeningOutcome, RecoveryError, SegmentId,
    SegmentOpening, TableRequest,
};
use tsd_storage::{StorageError, boot_ms, system_clock_ms};

use crate::{
    calls::LogTable,
    log::{LogInner, STREAM, SharedRecovery},
    manifest_work::{BegunWork, Maintenance},
};

/// Timeout of a region lookup for the choice of a stripe.
const LOCATE_TIMEOUT: Duration = Duration::from_millis(200);
/// Maximum number of open segments: an active and two standby segments, and three more for a record that those
/// have not answered.
const MAX_OPEN_SEGMENTS: usize = 6;
/// Pause before the next attempt to open a standby segment.
const OPEN_PAUSE: Duration = Duration::from_secs(1);

impl LogInner {
    /// Number of standby segments that are kept open.
    pub(crate) fn wanted_standby(&self) -> usize {
        if self.config.hedge_after.is_some() { 2 } else { 1 }
    }

    /// Deadline of work that begins now.
    pub(crate) fn work_deadline(&self) -> Instant {
        Instant::now() + self.config.work_timeout
    }

    /// Opens segments until this many standby segments exist.
    pub(crate) async fn open_up_to(
        &self,
        count: usize,
        deadline: Instant,
    ) -> Result<(), StorageError> {
        let mut work = self.maintenance(deadline).await?;
        self.finish_begun(&mut work, deadline).await?;
        while self.wants_segment(count) {
            let stripe = self.choose_stripe(&mut work).await;
            let opening = self.owner().open_segment(STREAM, stripe);
            work.begun = opening.map(BegunWork::Open);
            self.finish_begun(&mut work, deadline).await?;
        }
        Ok(())
    }

    fn wants_segment(&self, standby: usize) -> bool {
        let owner = self.owner();
        owner.standby_count(STREAM) < standby
            && owner.open_segments(STREAM).len() < MAX_OPEN_SEGMENTS
    }

    /// Proves that this process owns the log.
    pub(crate) async fn confirm(&self) -> Result<(), StorageError> {
        let deadline = self.work_deadline();
        let mut work = self.maintenance(deadline).await?;
        self.change(&mut work, deadline, LogOwner::confirmation).await
    }

    /// Trims up to the goal.
    pub(crate) async fn trim(&self) -> Result<(), StorageError> {
        let deadline = self.work_deadline();
        let mut work = self.maintenance(deadline).await?;
        let goal = *self.trim_goal();
        // The commit time comes first: the commit time of an earlier owner must outlast its log.
        let trim = |owner: &LogOwner| owner.trim(STREAM, goal.watermark, goal.last_commit_ms);
        self.change(&mut work, deadline, trim).await?;
        let retired: Vec<(u64, SharedRecovery)> = {
            let former = self.former();
            let flushed = former.range(..=goal.former);
            flushed.map(|(incarnation, of)| (*incarnation, Arc::clone(of))).collect()
        };
        for (incarnation, recovery) in retired {
            if self.retire(&recovery, deadline).await? {
                tracing::info!(incarnation, "the rows of an earlier owner of the log are stored");
            } else {
                tracing::info!(incarnation, "another node has taken over the recovery of a log");
            }
            self.former().remove(&incarnation);
        }
        let removable = self.owner().removable();
        for segment in removable {
            self.table.ask(&TableRequest::RemoveSegment { segment }, deadline).await?;
            self.owner().removed(segment);
        }
        let mut reached = self.trim_goal();
        if reached.watermark == goal.watermark && reached.former == goal.former {
            reached.is_open = false;
        }
        Ok(())
    }

    /// Ends the log if all its rows are stored elsewhere; otherwise leaves it to the next owner. Returns true
    /// if it ended.
    pub(crate) async fn end(&self) -> Result<bool, StorageError> {
        if self.trim_goal().is_open {
            self.trim().await?;
        }
        let deadline = self.work_deadline();
        let mut work = self.maintenance(deadline).await?;
        self.finish_begun(&mut work, deadline).await?;
        let is_empty = {
            let owner = self.owner();
            let watermark = owner.manifest().streams.first().map_or(0, |stream| stream.watermark);
            watermark == owner.next_sequence(STREAM) && self.former().is_empty()
        };
        if is_empty {
            // Other nodes serve its slots as soon as the log is retired.
            self.lease().end();
            self.change(&mut work, deadline, LogOwner::retirement).await?;
        }
        Ok(is_empty)
    }

    /// Ends the recovery of a log whose rows are stored. Returns false if another node has taken over the
    /// recovery.
    pub(crate) async fn retire(
        &self,
        recovery: &SharedRecovery,
        deadline: Instant,
    ) -> Result<bool, StorageError> {
        let mut recovery = recovery.lock().await;
        recovery.flushed();
        while let Some(request) = recovery.request() {
            let reply = self.table.ask(&request, deadline).await?;
            match recovery.reply(reply) {
                Ok(()) => {}
                Err(RecoveryError::Taken { .. }) => return Ok(false),
                Err(error) => return Err(self.recovery_error(&error)),
            }
        }
        Ok(true)
    }

    /// Shows others that this node is alive, and proves that it was not fenced.
    pub(crate) async fn heartbeat(&self) -> Result<(), StorageError> {
        let deadline = self.work_deadline();
        let mut work = self.maintenance(deadline).await?;
        let may_join = self.is_admitted() && self.recoverer().is_some();
        let is_joining = may_join && !self.owner().has_joined();
        let now_ms = system_clock_ms();
        let (unreached, is_leaving) = (self.members.unreached(), self.members.watch().must_leave());
        let address = self.address.get().cloned().unwrap_or_default();
        let beat = |owner: &LogOwner| {
            if is_joining {
                owner.joining(now_ms)
            } else {
                owner.heartbeat(Heartbeat { now_ms, unreached, is_leaving, address })
            }
        };
        self.finish_begun(&mut work, deadline).await?;
        let change = beat(&self.owner());
        work.begun = Some(BegunWork::Beat(change, boot_ms()));
        self.finish_begun(&mut work, deadline).await
    }

    /// Ends the start of this node, before its first record.
    pub(crate) async fn join(&self, deadline: Instant) -> Result<(), StorageError> {
        if !self.is_admitted() {
            let text = "the other nodes of the cluster have not admitted this one yet";
            return Err(StorageError::Unavailable(text.into()));
        }
        let mut work = self.maintenance(deadline).await?;
        self.finish_begun(&mut work, deadline).await?;
        if self.owner().has_joined() {
            return Ok(());
        }
        let now_ms = system_clock_ms();
        self.change(&mut work, deadline, |owner| owner.joining(now_ms)).await
    }

    /// Records the last commit time of a log that this node has recovered, before that log is removed.
    pub(crate) async fn outlast(
        &self,
        last_commit_ms: i64,
        deadline: Instant,
    ) -> Result<(), StorageError> {
        let mut work = self.maintenance(deadline).await?;
        self.change(&mut work, deadline, |owner| owner.outlast(last_commit_ms)).await
    }

    /// Abandons a start: any node may remove the segments that this node has listed.
    pub(crate) async fn give_up(&self) -> Result<(), StorageError> {
        let deadline = self.work_deadline();
        let mut work = self.maintenance(deadline).await?;
        self.lease().end();
        self.change(&mut work, deadline, LogOwner::retirement).await
    }

    pub(crate) fn recovery_error(&self, error: &RecoveryError) -> StorageError {
        let text = format!("{}: {}", self.name(), tsd_storage::error_chain(error));
        match error {
            RecoveryError::Taken { .. } => StorageError::Unavailable(text.into()),
            _ => StorageError::Damaged(text.into()),
        }
    }

    async fn maintenance(
        &self,
        deadline: Instant,
    ) -> Result<tokio::sync::MutexGuard<'_, Maintenance>, StorageError> {
        self.check_fence()?;
        let locked = tokio::time::timeout_at(deadline, self.maintenance.lock()).await;
        locked.map_err(|_| self.table.unavailable("its manifest is being changed"))
    }

    /// Makes a change of the manifest, after completing the change begun before.
    async fn change(
        &self,
        work: &mut Maintenance,
        deadline: Instant,
        change: impl FnOnce(&LogOwner) -> ManifestChange,
    ) -> Result<(), StorageError> {
        self.finish_begun(work, deadline).await?;
        work.begun = Some(BegunWork::Change(change(&self.owner())));
        self.finish_begun(work, deadline).await
    }

    async fn finish_begun(
        &self,
        work: &mut Maintenance,
        deadline: Instant,
    ) -> Result<(), StorageError> {
        let begun = Instant::now();
        match &mut work.begun {
            None => return Ok(()),
            Some(BegunWork::Change(change) | BegunWork::Beat(change, _)) => {
                let outcome = drive_change(&self.table, change, deadline).await?;
                if outcome == ChangeOutcome::Refused {
                    work.begun = None;
                    return Err(self.refusal().await);
                }
                self.owner().changed(change.manifest().clone());
            }
            Some(BegunWork::Open(opening)) => match self.drive_opening(opening, deadline).await {
                Ok(OpeningOutcome::Open(segment, manifest)) => {
                    self.owner().opened(segment, manifest);
                }
                Ok(OpeningOutcome::Fenced) => {
                    work.begun = None;
                    return Err(self.refusal().await);
                }
                Err(error) => {
                    if let Some(manifest) = opening.listed() {
                        // Another stripe may answer.
                        self.owner().given_up(opening.id(), manifest.clone());
                        work.begun = None;
                    }
                    return Err(error);
                }
            },
        }
        if let Some(BegunWork::Beat(_, begun_ms)) = work.begun.take() {
            self.lease().extend(begun_ms);
        }
        self.prove(begun);
        self.condition.is_unfenced_until(begun);
        Ok(())
    }

    async fn drive_opening(
        &self,
        opening: &mut SegmentOpening,
        deadline: Instant,
    ) -> Result<OpeningOutcome, StorageError> {
        loop {
            let request = opening.request();
            // Each attempt puts its own token.
            let reply = if matches!(request, TableRequest::OpenSegment { .. }) {
                self.table.ask_once(&request, deadline).await?
            } else {
                self.table.ask(&request, deadline).await?
            };
            if let Some(outcome) = opening.reply(&reply) {
                return Ok(outcome);
            }
        }
    }

    /// Chooses a stripe, if possible on a server without another open segment.
    async fn choose_stripe(&self, work: &mut Maintenance) -> u8 {
        let stripes = self.table.keys.stripes();
        let open = self.owner().open_segments(STREAM);
        let mut used = Vec::new();
        for segment in open {
            used.extend(self.server_of(segment).await);
        }
        let first = work.next_stripe % stripes;
        work.next_stripe = (first + 1) % stripes;
        for at in 0..stripes {
            let stripe = (first + at) % stripes;
            let id = SegmentId { incarnation: 0, stream: STREAM, number: 0, stripe };
            if let Some(server) = self.server_of(id).await
                && !used.contains(&server)
            {
                work.next_stripe = (stripe + 1) % stripes;
                return stripe;
            }
        }
        first
    }

    async fn server_of(&self, segment: SegmentId) -> Option<hbase_rs::ServerName> {
        let row = self.table.keys.segment(segment);
        let table = self.table.table.clone().with_timeout(LOCATE_TIMEOUT);
        Some(table.locate(row).await.ok()?.server)
    }
}

/// Sends the requests of a change until it is made or refused.
pub(crate) async fn drive_change(
    table: &LogTable,
    change: &mut ManifestChange,
    deadline: Instant,
) -> Result<ChangeOutcome, StorageError> {
    loop {
        let reply = table.ask(&change.request(), deadline).await?;
        if let Some(outcome) = change.reply(&reply) {
            return Ok(outcome);
        }
    }
}

/// Keeps standby segments open, until the log is closed or fenced.
pub(crate) async fn keep_standby(log: Weak<LogInner>) {
    let mut pause = Duration::ZERO;
    loop {
        let Some(inner) = log.upgrade().filter(|inner| !inner.is_over()) else { return };
        let wake = Arc::clone(&inner.wake);
        drop(inner);
        if pause.is_zero() {
            wake.notified().await;
        } else {
            let _ = timeout(pause, wake.notified()).await;
        }
        let Some(inner) = log.upgrade().filter(|inner| !inner.is_over()) else { return };
        let deadline = inner.work_deadline();
        pause = match inner.open_up_to(inner.wanted_standby(), deadline).await {
            Ok(()) => Duration::ZERO,
            Err(error) => {
                tracing::debug!(log = inner.name(), %error, "no segment can be opened");
                OPEN_PAUSE
            }
        };
    }
}
