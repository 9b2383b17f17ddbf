//! Runs a verification of the store on a thread of its own, and the repairs after it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tsd_storage::{
    RepairAction, Storage, StorageError, Verifier, VerifyFinding, VerifyRun, error_chain,
};

/// A verification that was started; dropping it stops it.
#[derive(Debug)]
pub struct Verification {
    shared: Arc<VerificationState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct VerificationState {
    run: VerifyRun,
    started: Instant,
    is_stopped: AtomicBool,
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    stage: VerificationStage,
    duration: Option<Duration>,
    /// Of the findings, in their order.
    outcomes: Vec<RepairOutcome>,
}

/// Where a verification is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VerificationStage {
    /// It reads.
    #[default]
    Reading,
    /// It repairs what it has found.
    Repairing,
    /// It is complete.
    Done,
    /// It could not read everything, for this reason.
    Failed(String),
}

/// What became of the repair of a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RepairOutcome {
    /// It was not asked for, not tried yet, or there is none.
    #[default]
    Open,
    /// It is repaired.
    Repaired,
    /// It failed, for this reason.
    Failed(String),
}

/// A finding with its repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationFinding {
    /// The finding.
    pub finding: VerifyFinding,
    /// What became of its repair.
    pub outcome: RepairOutcome,
}

/// A verification as it is now.
#[derive(Clone, Debug)]
pub struct VerificationStatus {
    /// Where it is.
    pub stage: VerificationStage,
    /// Bytes read.
    pub done_bytes: u64,
    /// Bytes to read in all, about.
    pub total_bytes: u64,
    /// Time since its start, or what it took.
    pub duration: Duration,
    /// Number of findings.
    pub found: u64,
    /// The findings, the first thousand of them.
    pub findings: Vec<VerificationFinding>,
}

/// Why no verification was started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerificationError {
    /// The store keeps no files of its own.
    #[error("the store keeps no files of its own; HBase has its own tools (hbase hbck)")]
    NotSupported,
    /// Another one is in progress.
    #[error("a verification is in progress")]
    InProgress,
    /// There is no thread for it.
    #[error("no thread can be started: {0}")]
    NoThread(String),
}

// No code panics while it owns one of the locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Verification {
    /// Starts a verification. With `repairs` everything that it finds is repaired at its end, which calls
    /// `repaired`. A paced one leaves others most of the processor and the disk.
    ///
    /// # Errors
    ///
    /// [`VerificationError::NoThread`].
    pub fn start(
        verifier: Arc<dyn Verifier>,
        repairs: bool,
        is_paced: bool,
        repaired: impl FnOnce() + Send + 'static,
    ) -> Result<Self, VerificationError> {
        let shared = Arc::new(VerificationState {
            run: VerifyRun::new(is_paced),
            started: Instant::now(),
            is_stopped: AtomicBool::new(false),
            progress: Mutex::default(),
        });
        let state = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("verify".to_owned())
            .spawn(move || {
                state.run(&*verifier, repairs);
                if repairs {
                    repaired();
                }
            })
            .map_err(|error| VerificationError::NoThread(error.to_string()))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// It as it is now.
    #[must_use]
    pub fn status(&self) -> VerificationStatus {
        let VerificationState { run, started, progress, .. } = &*self.shared;
        let progress = lock(progress);
        let (done_bytes, total_bytes) = run.progress();
        let outcomes =
            progress.outcomes.iter().cloned().chain(std::iter::repeat(RepairOutcome::Open));
        let findings = run.findings().into_iter().zip(outcomes);
        VerificationStatus {
            stage: progress.stage.clone(),
            done_bytes,
            total_bytes,
            duration: progress.duration.unwrap_or_else(|| started.elapsed()),
            found: run.found(),
            findings: findings
                .map(|(finding, outcome)| VerificationFinding { finding, outcome })
                .collect(),
        }
    }

    /// True if it has ended.
    #[must_use]
    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.shared.progress).duration.is_some()
    }

    /// Ends it, and waits until it has. Blocks.
    pub fn stop(&self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        self.shared.run.stop();
        let thread = lock(&self.thread).take();
        // Its own end may drop the last handle.
        let thread = thread.filter(|thread| thread.thread().id() != std::thread::current().id());
        if let Some(thread) = thread {
            // Its panic was reported.
            let _ = thread.join();
        }
    }
}

impl Drop for Verification {
    fn drop(&mut self) {
        self.stop();
    }
}

impl VerificationState {
    fn run(&self, verifier: &dyn Verifier, repairs: bool) {
        let mut stage = match verifier.verify(&self.run) {
            Ok(()) => VerificationStage::Done,
            Err(StorageError::Closed) => VerificationStage::Failed("it was stopped".to_owned()),
            Err(error) => VerificationStage::Failed(error_chain(&error)),
        };
        if repairs && stage == VerificationStage::Done {
            lock(&self.progress).stage = VerificationStage::Repairing;
            stage = self.repair(verifier);
        }
        let found = self.run.found();
        tracing::info!(
            found,
            seconds = self.started.elapsed().as_secs(),
            ?stage,
            "verification ended"
        );
        let mut progress = lock(&self.progress);
        progress.stage = stage;
        progress.duration = Some(self.started.elapsed());
    }

    fn repair(&self, verifier: &dyn Verifier) -> VerificationStage {
        let findings = self.run.findings();
        let mut outcomes = vec![RepairOutcome::Open; findings.len()];
        // An index is built when no part is in quarantine any more.
        let is_last = |action: &RepairAction| matches!(action, RepairAction::RebuildIndex { .. });
        let mut order: Vec<(usize, &RepairAction)> = findings
            .iter()
            .enumerate()
            .filter_map(|(at, finding)| Some((at, finding.action.as_ref()?)))
            .collect();
        order.sort_by_key(|(at, action)| (is_last(action), *at));
        for (at, action) in order {
            if self.is_stopped.load(Ordering::Acquire) {
                return VerificationStage::Failed("it was stopped".to_owned());
            }
            let outcome = match verifier.repair(action) {
                Ok(()) => RepairOutcome::Repaired,
                Err(error) => RepairOutcome::Failed(error_chain(&error)),
            };
            if let (Some(finding), Some(slot)) = (findings.get(at), outcomes.get_mut(at)) {
                tracing::warn!(file = finding.file, what = finding.what, %action, ?outcome, "repair");
                *slot = outcome;
            }
            lock(&self.progress).outcomes.clone_from(&outcomes);
        }
        VerificationStage::Done
    }
}

/// The verification that was started last, if there was one.
#[derive(Debug, Default)]
pub(crate) struct VerificationSlot(Mutex<Option<Arc<Verification>>>);

impl VerificationSlot {
    /// Starts a paced verification, unless one is in progress. With `repairs` everything that it finds is
    /// repaired at its end, which calls `repaired`.
    pub(crate) fn start_verification(
        &self,
        storage: &dyn Storage,
        repairs: bool,
        repaired: impl FnOnce() + Send + 'static,
    ) -> Result<(), VerificationError> {
        let mut last = lock(&self.0);
        if last.as_ref().is_some_and(|last| !last.has_ended()) {
            return Err(VerificationError::InProgress);
        }
        let verifier = storage.verifier().ok_or(VerificationError::NotSupported)?;
        *last = Some(Arc::new(Verification::start(verifier, repairs, true, repaired)?));
        Ok(())
    }

    /// The verification that was started last; `None` before the first.
    pub(crate) fn last(&self) -> Option<Arc<Verification>> {
        lock(&self.0).clone()
    }

    /// Ends the verification in progress, if there is one.
    pub(crate) async fn stop(&self) {
        if let Some(verification) = self.last() {
            // It may be in the middle of a repair.
            let _ = tokio::task::spawn_blocking(move || verification.stop()).await;
        }
    }
}
