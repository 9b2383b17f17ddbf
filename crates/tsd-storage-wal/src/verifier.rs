//! Verifies the segments of a log, even while the log is in use.

use std::{path::Path, sync::Arc, time::Duration};

use tsd_files::DiskDir;
use tsd_storage::{LogMark, RepairAction, StorageError, Verifier, VerifyFinding, VerifyRun};

use crate::{
    files::LogDir,
    log::{ContinuityCheck, FoundState, StateFile, VerifiedLog, segment_of_name, verify_with},
    report::LostRange,
    survivors::Survivors,
};

/// Number of attempts to read an open log, whose last segment is written and whose first segment is removed
/// meanwhile.
const ATTEMPTS: usize = 3;
const PAUSE: Duration = Duration::from_millis(200);

/// Verifies an open log, then its backend.
#[derive(Debug)]
pub(crate) struct LogVerifier {
    dir: Arc<dyn LogDir>,
    backend: Arc<dyn Verifier>,
}

impl LogVerifier {
    pub(crate) fn new(dir: Arc<dyn LogDir>, backend: Arc<dyn Verifier>) -> Self {
        Self { dir, backend }
    }

    /// Damage that every attempt finds.
    fn lost(&self, run: &VerifyRun) -> Result<Vec<LostRange>, StorageError> {
        let mut lost: Option<Vec<LostRange>> = None;
        for attempt in 1..=ATTEMPTS {
            let found = match verify_with(&*self.dir, &mut |bytes| run.read(bytes)) {
                Ok(found) => found?.lost,
                // A segment was removed meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    if attempt == ATTEMPTS {
                        return Ok(Vec::new());
                    }
                    continue;
                }
                Err(source) => return Err(failed(&*self.dir, source)),
            };
            let both = match lost.take() {
                None => found,
                Some(before) => before.into_iter().filter(|range| found.contains(range)).collect(),
            };
            if both.is_empty() {
                return Ok(both);
            }
            lost = Some(both);
            std::thread::sleep(PAUSE);
        }
        Ok(lost.unwrap_or_default())
    }
}

impl Verifier for LogVerifier {
    fn verify(&self, run: &VerifyRun) -> Result<(), StorageError> {
        run.plan(log_bytes(&*self.dir)?);
        let cost = "nothing while the daemon runs: its memory has the rows, and the next flush stores \
                    them; if it is killed before that, the records are lost";
        report(run, self.lost(run)?, cost);
        self.backend.verify(run)
    }

    fn repair(&self, action: &RepairAction) -> Result<(), StorageError> {
        self.backend.repair(action)
    }
}

/// Verifies the log in a directory that no process has open, as its replay would, without any change. `mark` is
/// the mark of the log in the store. Files of another release look damaged, so
/// [`unknown_version`](crate::unknown_version) must be called first.
///
/// # Errors
///
/// An error of the disk, or [`StorageError::Closed`] if the run was stopped.
pub fn verify_log(directory: &Path, mark: &LogMark, run: &VerifyRun) -> Result<(), StorageError> {
    let failed_here = |source| StorageError::io(format!("reading {}", directory.display()), source);
    // A missing directory has no records, which the mark of the store may contradict.
    let (mut log, mut found) = (VerifiedLog::default(), FoundState::Missing);
    let mut lost = Vec::new();
    if directory.exists() {
        let dir: Arc<dyn LogDir> = Arc::new(DiskDir::unlocked(directory).map_err(failed_here)?);
        run.plan(log_bytes(&*dir)?);
        log = verify_with(&*dir, &mut |bytes| run.read(bytes)).map_err(failed_here)??;
        (_, found) = StateFile::load(&dir).map_err(failed_here)?;
        lost = Survivors::find(&*dir, found).map_err(failed_here)?.lost(&*dir);
    }
    // Only the identity of a new log is random.
    ContinuityCheck { directory, log: &mut log }.run(found, mark, || 0, 0);
    let cost = "these records are lost; the daemon starts only with --accept-damage";
    log.lost.extend(lost);
    report(run, log.lost, cost);
    Ok(())
}

fn report(run: &VerifyRun, lost: Vec<LostRange>, cost: &str) {
    for range in lost {
        run.report(VerifyFinding {
            file: range.file.display().to_string(),
            what: range.to_string(),
            cost: cost.to_owned(),
            action: None,
        });
    }
}

fn failed(dir: &dyn LogDir, source: std::io::Error) -> StorageError {
    StorageError::io(format!("reading {}", dir.path().display()), source)
}

/// Total size of all segments.
fn log_bytes(dir: &dyn LogDir) -> Result<u64, StorageError> {
    let names = dir.list().map_err(|source| failed(dir, source))?;
    let segments = names.iter().filter(|name| segment_of_name(name).is_some());
    // A segment that was removed meanwhile counts as 0 bytes.
    let size = |name: &String| dir.open_reader(name).and_then(|file| file.size()).unwrap_or(0);
    Ok(segments.map(size).sum())
}
