//! Problems of the files that are re-read while the daemon runs (users, rules, limits, retentions), and of the audit log.

use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};

use metrics::gauge;

/// Reasons why files are not in force, by their content. The followers of the files and the health of the daemon share
/// it.
#[derive(Clone, Debug, Default)]
pub struct FileProblems(Arc<Mutex<BTreeMap<&'static str, String>>>);

impl FileProblems {
    /// Sets the reason why the file of `what` is not in force; `None` if it is in force.
    pub fn set(&self, what: &'static str, problem: Option<String>) {
        gauge!("tsd_file_invalid", "file" => what).set(f64::from(u8::from(problem.is_some())));
        self.report(what, problem);
    }

    /// Sets the reason why `what` cannot be written; `None` if it can.
    pub fn report(&self, what: &'static str, problem: Option<String>) {
        match problem {
            Some(problem) => self.0.lock().insert(what, problem),
            None => self.0.lock().remove(what),
        };
    }

    /// Every problem.
    #[must_use]
    pub fn list(&self) -> Vec<String> {
        self.0.lock().values().cloned().collect()
    }
}
