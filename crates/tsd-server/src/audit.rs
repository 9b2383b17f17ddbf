//! The audit log: a JSON line for each act that changes or removes data or state, and for each refused sign-in.
//!
//! The table of requirements says which requests are acts (`auth/requirements.rs`). A line of an act is in the file
//! before the response is sent. Nothing is synced to the disk.
//!
//! No line is lost silently. A line that cannot be written goes to the log of the daemon, is counted, and becomes a
//! health problem. The next line that can be written tells how many are missing.

mod act;
mod line;
mod refusals;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use jiff::Timestamp;
use metrics::Counter;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::spawn_blocking;
use tracing::{error, warn};
use tsd_engine::FileProblems;

use self::refusals::Refusals;
pub(crate) use self::{
    act::{NotAudited, OpenAct},
    line::{ActOutcome, AuditLine, Protocol},
};
use crate::rotated_file::{RotatedFile, Rotation};

/// Permissions of a new file: only its owner may read it.
const MODE: u32 = 0o600;
/// Name of the file in the health of the daemon.
const WHAT: &str = "audit log";

/// Settings of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// The file (`tsd.audit.file`).
    pub file: PathBuf,
    /// Size at which the file is renamed, bytes (`tsd.audit.max_bytes`).
    pub max_bytes: u64,
    /// Age at which the file is renamed (`tsd.audit.max_age`); `None` for any age.
    pub max_age: Option<Duration>,
    /// Number of renamed files to keep (`tsd.audit.keep`).
    pub keep: u32,
    /// Refuses acts that cannot be logged (`tsd.audit.required`).
    pub required: bool,
}

tsd_engine::metrics_table! {
    #[derive(Debug)]
    pub(crate) struct AuditMetrics {
        counters {
            blocked: "tsd_audit_acts_blocked_total",
                "Acts refused because the audit log cannot be written (`tsd.audit.required`).";
            suppressed: "tsd_audit_refusals_suppressed_total",
                "Refused sign-ins and acts without an own line in the audit log, since too many came in a minute.";
        }
        counters by label {
            "tsd_audit_lines_total" by "result",
                "Lines for the audit log, by result: written, lost (the file could not be written; the line is in the log of the daemon)."
                => Counter { written: "written", lost: "lost" }
        }
    }
}

/// Writes the audit log.
#[derive(Debug)]
pub struct AuditLog {
    file: Mutex<AuditFile>,
    refusals: Mutex<Refusals>,
    required: bool,
    problems: FileProblems,
    metrics: AuditMetrics,
}

/// The open file, and the lines that are missing in it.
#[derive(Debug)]
struct AuditFile {
    file: RotatedFile,
    lost: u64,
}

impl AuditLog {
    /// Opens the file, or creates it. A failure of later writes goes to `problems`, for the health of the daemon.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened for writing.
    pub fn open(config: AuditConfig, problems: FileProblems) -> io::Result<Arc<Self>> {
        let AuditConfig { file, max_bytes, max_age, keep, required } = config;
        let rotation = Rotation { max_bytes, max_age, keep, mode: MODE };
        let file = AuditFile { file: RotatedFile::open(file, rotation)?, lost: 0 };
        Ok(Arc::new(Self {
            file: Mutex::new(file),
            refusals: Mutex::default(),
            required,
            problems,
            metrics: AuditMetrics::with_labels(&[]),
        }))
    }

    /// Writes a line about the daemon itself, which no client requested. Blocks.
    pub fn record(&self, act: &str, details: Value) {
        self.write_now(&AuditLine::of_daemon(act, details));
    }

    /// Writes a line about a refusal, unless too many came in this minute: then only counts it.
    pub(crate) async fn write_refusal(self: &Arc<Self>, line: AuditLine) {
        let admitted = self.refusals.lock().admit(Timestamp::now());
        if let Some(summary) = admitted.summary {
            self.write(summary).await;
        }
        if admitted.has_line {
            self.write(line).await;
        } else {
            self.metrics.suppressed.increment(1);
        }
    }

    /// Writes a line on a thread for blocking work; false if it is lost. The line is written even if the caller stops
    /// waiting.
    pub(crate) async fn write(self: &Arc<Self>, line: AuditLine) -> bool {
        let log = Arc::clone(self);
        let kept = line.clone();
        match spawn_blocking(move || log.write_now(&line)).await {
            Ok(is_written) => is_written,
            // The runtime ends.
            Err(_) => self.write_now(&kept),
        }
    }

    /// Writes the summary of refusals whose minute is over, and tells how many lines are missing. Blocks.
    pub(crate) fn catch_up(&self) {
        self.sum_up(Timestamp::now());
        let mut file = self.file.lock();
        if file.lost > 0 {
            let written = file.append("", Timestamp::now());
            self.tell(&file, written, "", 0);
        }
    }

    /// Writes the summary of refusals before the daemon ends. Blocks.
    pub(crate) fn close(&self) {
        self.sum_up(Timestamp::MAX);
    }

    /// Writes the summary of refusals whose minute is over at `now`.
    fn sum_up(&self, now: Timestamp) {
        let summary = self.refusals.lock().summary(now);
        if let Some(summary) = summary {
            self.write_now(&summary);
        }
    }

    /// Writes a line; false if it is lost. Blocks.
    pub(crate) fn write_now(&self, line: &AuditLine) -> bool {
        let mut file = self.file.lock();
        let now = Timestamp::now();
        let text = line.render(now);
        let written = file.append(&text, now);
        let is_written = written.is_ok();
        if !is_written {
            file.lost += 1;
        }
        self.tell(&file, written, &text, 1);
        is_written
    }

    /// Counts and reports the result of a write.
    fn tell(&self, file: &AuditFile, written: io::Result<()>, text: &str, lines: u64) {
        let Err(error) = written else {
            self.metrics.written.increment(lines);
            self.problems.report(WHAT, None);
            return;
        };
        let (path, lost) = (file.file.path().display(), file.lost);
        self.metrics.lost.increment(lines);
        if lines > 0 {
            error!(file = %path, %error, lost, line = text.trim_end(), "a line of the audit log is lost");
        }
        let problem =
            format!("the audit log {path} lacks {lost} lines: it cannot be written: {error}");
        self.problems.report(WHAT, Some(problem));
    }
}

impl AuditFile {
    /// Appends a line, and before it a line about lost ones.
    fn append(&mut self, text: &str, now: Timestamp) -> io::Result<()> {
        self.file.reopen_if_moved()?;
        let mut lines = String::new();
        if self.lost > 0 {
            lines = AuditLine::lost(self.lost).render(now);
        }
        lines.push_str(text);
        if let Err(error) = self.file.rotate_if_due(lines.len(), now.into()) {
            // The line fits into the file that should have been renamed.
            warn!(file = %self.file.path().display(), %error, "the audit log cannot be renamed");
        }
        self.file.append(lines.as_bytes())?;
        self.lost = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use std::{fs, path::Path};

    use serde_json::json;

    use super::*;

    fn config(file: &Path, required: bool) -> AuditConfig {
        let file = file.to_owned();
        AuditConfig { file, max_bytes: 1 << 20, max_age: None, keep: 3, required }
    }

    fn acts(path: &Path) -> Vec<(String, String)> {
        let text = fs::read_to_string(path).unwrap();
        let parsed = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let field = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
        parsed.map(|line| (field(&line, "act"), field(&line, "outcome"))).collect()
    }

    fn pair(act: &str, outcome: &str) -> (String, String) {
        (act.to_owned(), outcome.to_owned())
    }

    /// Makes each write fail until the directory exists again.
    fn remove(directory: &Path) {
        fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test]
    async fn a_lost_line_is_a_problem_until_the_next_line_tells_of_it() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("audit");
        fs::create_dir(&directory).unwrap();
        let path = directory.join("log");
        let problems = FileProblems::default();
        let log = AuditLog::open(config(&path, false), problems.clone()).unwrap();
        log.record("start", json!({}));
        remove(&directory);
        let act = log.begin(AuditLine::new("uid rename")).await.unwrap();
        act.end(ActOutcome::Done).await;
        log.record("users replaced", json!({}));
        let problem = problems.list().concat();
        assert!(problem.contains("log lacks 2 lines: it cannot be written"), "{problem}");
        fs::create_dir(&directory).unwrap();
        log.catch_up();
        assert!(problems.list().is_empty());
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("\"act\":\"audit log\"") && text.contains("2 lines are lost"),
            "{text}"
        );
        log.record("next", json!({}));
        assert_eq!(acts(&path), [pair("audit log", "failed"), pair("next", "done")]);
    }

    #[tokio::test]
    async fn a_required_log_has_a_line_before_the_act_or_refuses_it() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("audit");
        fs::create_dir(&directory).unwrap();
        let path = directory.join("log");
        let log = AuditLog::open(config(&path, true), FileProblems::default()).unwrap();
        let act = log.begin(AuditLine::new("a")).await.unwrap();
        assert_eq!(acts(&path), [pair("a", "started")]);
        act.end(ActOutcome::Done).await;
        let second = log.begin_now(AuditLine::new("b")).unwrap();
        second.end(ActOutcome::Failed { status: 500, reason: "r".to_owned() }).await;
        let expected =
            [pair("a", "started"), pair("a", "done"), pair("b", "started"), pair("b", "failed")];
        assert_eq!(acts(&path), expected);
        remove(&directory);
        assert!(log.begin(AuditLine::new("c")).await.is_err());
        assert!(log.begin_now(AuditLine::new("c")).is_err());
    }

    #[tokio::test]
    async fn an_act_without_an_end_has_a_line() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("log");
        let log = AuditLog::open(config(&path, false), FileProblems::default()).unwrap();
        drop(log.begin(AuditLine::new("a")).await.unwrap());
        assert_eq!(acts(&path), [pair("a", "unknown")]);
    }

    #[tokio::test]
    async fn many_refusals_are_summed_up() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("log");
        let log = AuditLog::open(config(&path, false), FileProblems::default()).unwrap();
        let refusal = || AuditLine::new("sign-in").ended(&ActOutcome::refused(401, "wrong"));
        for _ in 0..200 {
            log.write_refusal(refusal()).await;
        }
        let before = acts(&path).len();
        log.close();
        let lines = acts(&path);
        assert_eq!(lines.len(), before + 1);
        assert_eq!(lines.last(), Some(&pair("refusals", "refused")));
        let text = fs::read_to_string(&path).unwrap();
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(last["count"], 200 - before);
    }
}
