//! Verification of everything that a store keeps: a run with its progress and findings, and repairs.

use parking_lot::Mutex;
use std::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use crate::{StorageError, Table};

/// Most findings that a run keeps; further findings are only counted.
const MAX_FINDINGS: usize = 1_000;
/// Work between two pauses of a paced run.
const WORK_SLICE: Duration = Duration::from_millis(5);
/// Pause of a paced run, as a multiple of its work: it leaves three quarters of a core and of the disk to others.
const PAUSES: u32 = 3;

/// Verifies a store. Its calls block on the disk.
pub trait Verifier: fmt::Debug + Send + Sync {
    /// Reads all data of the store and reports damage to `run`. Read-only.
    ///
    /// # Errors
    ///
    /// An error other than a damaged file, or [`StorageError::Closed`] if the run was stopped.
    fn verify(&self, run: &VerifyRun) -> Result<(), StorageError>;

    /// Executes the repair of a finding. An outdated repair changes nothing.
    ///
    /// # Errors
    ///
    /// An error of the disk; the repair can be repeated.
    fn repair(&self, action: &RepairAction) -> Result<(), StorageError>;
}

/// A finding of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyFinding {
    /// Path of the file.
    pub file: String,
    /// The damage, with its offset.
    pub what: String,
    /// Cost of the damage.
    pub cost: String,
    /// Repair of the damage; `None` if the store cannot repair it.
    pub action: Option<RepairAction>,
}

/// A repair of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairAction {
    /// Accepts the loss of a file in quarantine and keeps its intact data.
    AcceptLoss {
        /// Name of the file in the quarantine.
        name: String,
    },
    /// Quarantines a damaged section of a part, accepts its loss, and keeps its intact data.
    SalvageSection {
        /// The table.
        table: Table,
        /// Number of the file.
        file: u64,
        /// Index of the section.
        section: u32,
        /// The damage.
        what: String,
    },
    /// Copies all sections of a part with a damaged footer to a new file.
    CopyPart {
        /// The table.
        table: Table,
        /// Number of the file.
        file: u64,
    },
    /// Writes the manifest of a table and its copy again.
    RewriteManifest {
        /// The table.
        table: Table,
    },
    /// Rebuilds the manifest of a table from its files. The store must not be open.
    RebuildManifest {
        /// The table.
        table: Table,
    },
    /// Accepts that a table is missing, so that it begins again without points. The store must not be open.
    ForgetTable {
        /// The table.
        table: Table,
    },
    /// Accepts that a table is an older copy without its later rows. The store must not be open.
    AcceptOlderTable {
        /// The table.
        table: Table,
    },
    /// Builds the series index of a table again from its rows.
    RebuildIndex {
        /// The table.
        table: Table,
    },
    /// Copies the intact data of a file of a small table to a new file, and accepts the loss of the rest.
    SalvageFile {
        /// The table.
        table: Table,
        /// Number of the file.
        file: u64,
        /// The damage.
        what: String,
    },
    /// Writes the recorded retention of the open store again.
    RewriteRetention,
    /// Leaves the file; the next start of the store restores or quarantines it.
    Reopen,
}

impl fmt::Display for RepairAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AcceptLoss { name } => {
                write!(f, "accept the loss of {name}, and keep what is intact")
            }
            Self::SalvageSection { .. } | Self::SalvageFile { .. } => {
                f.write_str("copy what is intact to a new file, and remove the rest")
            }
            Self::CopyPart { .. } => f.write_str("copy all of it to a new file"),
            Self::RewriteManifest { .. } => f.write_str("write the manifest and its copy anew"),
            Self::RebuildManifest { .. } => f.write_str("make the manifest from the part files"),
            Self::ForgetTable { .. } => f.write_str("begin the table again, without points"),
            Self::AcceptOlderTable { .. } => f.write_str("go on with the older table"),
            Self::RebuildIndex { .. } => f.write_str("build the series index again"),
            Self::RewriteRetention => f.write_str("write it anew"),
            Self::Reopen => f.write_str("open the store, which restores it"),
        }
    }
}

/// A verification, shared by its runner and its observers.
#[derive(Debug)]
pub struct VerifyRun {
    is_paced: bool,
    total_bytes: AtomicU64,
    done_bytes: AtomicU64,
    is_stopped: AtomicBool,
    /// Start of the work since the last pause.
    slice: Mutex<Instant>,
    findings: Mutex<Vec<VerifyFinding>>,
    found: AtomicU64,
}

impl VerifyRun {
    /// A run that has not begun. A paced run leaves most of the processor and the disk to others.
    #[must_use]
    pub fn new(is_paced: bool) -> Self {
        Self {
            is_paced,
            total_bytes: AtomicU64::new(0),
            done_bytes: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            slice: Mutex::new(Instant::now()),
            findings: Mutex::default(),
            found: AtomicU64::new(0),
        }
    }

    /// Adds bytes that are to be read.
    pub fn plan(&self, bytes: u64) {
        self.total_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that were read, and pauses if it is time.
    ///
    /// # Errors
    ///
    /// [`StorageError::Closed`] if the run was stopped.
    pub fn read(&self, bytes: u64) -> Result<(), StorageError> {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.is_paced {
            let worked = self.slice.lock().elapsed();
            if worked >= WORK_SLICE {
                std::thread::sleep(worked.min(WORK_SLICE * 20) * PAUSES);
                *self.slice.lock() = Instant::now();
            }
        }
        if self.is_stopped.load(Ordering::Acquire) { Err(StorageError::Closed) } else { Ok(()) }
    }

    /// Adds a finding.
    pub fn report(&self, finding: VerifyFinding) {
        self.found.fetch_add(1, Ordering::Relaxed);
        let mut findings = self.findings.lock();
        if findings.len() < MAX_FINDINGS {
            findings.push(finding);
        }
    }

    /// Ends the run.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }

    /// Bytes read so far, and approximate bytes to read in total.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        let done = self.done_bytes.load(Ordering::Relaxed);
        (done, self.total_bytes.load(Ordering::Relaxed).max(done))
    }

    /// The first thousand findings so far.
    #[must_use]
    pub fn findings(&self) -> Vec<VerifyFinding> {
        self.findings.lock().clone()
    }

    /// Number of findings.
    #[must_use]
    pub fn found(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_run_counts_and_stops() {
        let run = VerifyRun::new(true);
        run.plan(10);
        run.read(4).unwrap();
        assert_eq!(run.progress(), (4, 10));
        // The planned bytes are an estimate.
        run.read(8).unwrap();
        assert_eq!(run.progress(), (12, 12));
        run.stop();
        assert!(matches!(run.read(0), Err(StorageError::Closed)));
    }

    #[test]
    fn findings_beyond_the_limit_are_counted() {
        let run = VerifyRun::new(false);
        for at in 0..MAX_FINDINGS + 5 {
            let (file, what, cost) = (at.to_string(), String::new(), String::new());
            run.report(VerifyFinding { file, what, cost, action: None });
        }
        assert_eq!(run.findings().len(), MAX_FINDINGS);
        assert_eq!(run.found(), 1_005);
    }
}
