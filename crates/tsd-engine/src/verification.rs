//! Runs a verification of the store on a thread of its own, and then the repairs.

use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tsd_storage::{
    RepairAction, Storage, StorageError, Verifier, VerifyFinding, VerifyRun, error_chain,
};

/// A verification that was started. Dropping it stops the verification.
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
    /// Outcomes of the findings, in their order.
    outcomes: Vec<RepairOutcome>,
}

/// Stage of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VerificationStage {
    /// It reads.
    #[default]
    Reading,
    /// It repairs its findings.
    Repairing,
    /// It is complete.
    Done,
    /// It could not read everything, for this reason.
    Failed(String),
}

/// Outcome of the repair of a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RepairOutcome {
    /// Not requested or not tried yet, or no repair exists.
    #[default]
    Open,
    /// The finding is repaired.
    Repaired,
    /// The repair failed, for this reason.
    Failed(String),
}

/// A finding with its repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationFinding {
    /// The finding.
    pub finding: VerifyFinding,
    /// Outcome of its repair.
    pub outcome: RepairOutcome,
}

/// The present state of a verification.
#[derive(Clone, Debug)]
pub struct VerificationStatus {
    /// Its stage.
    pub stage: VerificationStage,
    /// Bytes read.
    pub done_bytes: u64,
    /// Approximate number of bytes to read in all.
    pub total_bytes: u64,
    /// Time since its start; after its end, its duration.
    pub duration: Duration,
    /// Number of findings.
    pub found: u64,
    /// The first thousand findings.
    pub findings: Vec<VerificationFinding>,
}

/// Cause why no verification was started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerificationError {
    /// The store has no files of its own.
    #[error("the store keeps no files of its own; HBase has its own tools (hbase hbck)")]
    NotSupported,
    /// Another verification is in progress.
    #[error("a verification is in progress")]
    InProgress,
    /// No thread could be started for it.
    #[error("no thread can be started: {0}")]
    NoThread(String),
}

impl Verification {
    /// Starts a verification. With `repairs`, it repairs all findings at its end and then calls `repaired`. A paced
    /// verification leaves most of the processor and the disk to others.
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

    /// The present state.
    #[must_use]
    pub fn status(&self) -> VerificationStatus {
        let VerificationState { run, started, progress, .. } = &*self.shared;
        let progress = progress.lock();
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

    /// True if the verification has ended.
    #[must_use]
    pub(crate) fn has_ended(&self) -> bool {
        self.shared.progress.lock().duration.is_some()
    }

    /// Stops the verification and waits for its end. Blocks.
    pub fn stop(&self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        self.shared.run.stop();
        let thread = self.thread.lock().take();
        // The thread itself may drop the last handle, and cannot join itself.
        let thread = thread.filter(|thread| thread.thread().id() != std::thread::current().id());
        if let Some(thread) = thread {
            // A panic of the thread was reported already.
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
            self.progress.lock().stage = VerificationStage::Repairing;
            stage = self.repair(verifier);
        }
        let found = self.run.found();
        tracing::info!(
            found,
            seconds = self.started.elapsed().as_secs(),
            ?stage,
            "verification ended"
        );
        let mut progress = self.progress.lock();
        progress.stage = stage;
        progress.duration = Some(self.started.elapsed());
    }

    fn repair(&self, verifier: &dyn Verifier) -> VerificationStage {
        let findings = self.run.findings();
        let mut outcomes = vec![RepairOutcome::Open; findings.len()];
        // The index is rebuilt last, when no part is in quarantine any more.
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
            self.progress.lock().outcomes.clone_from(&outcomes);
        }
        VerificationStage::Done
    }
}

/// The last verification, if there was one.
#[derive(Debug, Default)]
pub(crate) struct VerificationSlot(Mutex<Option<Arc<Verification>>>);

impl VerificationSlot {
    /// Starts a paced verification, unless one is in progress. With `repairs`, it repairs all findings at its end and
    /// then calls `repaired`.
    pub(crate) fn start_verification(
        &self,
        storage: &dyn Storage,
        repairs: bool,
        repaired: impl FnOnce() + Send + 'static,
    ) -> Result<(), VerificationError> {
        let mut last = self.0.lock();
        if last.as_ref().is_some_and(|last| !last.has_ended()) {
            return Err(VerificationError::InProgress);
        }
        let verifier = storage.maintenance().verifier().ok_or(VerificationError::NotSupported)?;
        *last = Some(Arc::new(Verification::start(verifier, repairs, true, repaired)?));
        Ok(())
    }

    /// The last verification; `None` before the first.
    pub(crate) fn last(&self) -> Option<Arc<Verification>> {
        self.0.lock().clone()
    }

    /// Stops the verification in progress, if there is one.
    pub(crate) async fn stop(&self) {
        if let Some(verification) = self.last() {
            // A repair may be in progress, so stopping may take long.
            let _ = tokio::task::spawn_blocking(move || verification.stop()).await;
        }
    }
}
