//! The file of retentions by metric (`tsd.storage.retention_file`), read at start and re-read while the
//! daemon runs.
//!
//! Each line has a pattern of metric names, in which `*` stands for any text, and a duration. The first
//! line that matches a metric applies. At start an invalid file is an error. Later it is reported, and the
//! rules stay unchanged: a file that is saved by halves must delete nothing.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::sync::Notify;
use tsd_storage::{MetricPattern, Retention, RetentionRule};

/// Maximum size of the file, bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Maximum number of rules: each metric is compared with all of them.
const MAX_RULES: usize = 1_000;
/// Keeps points without a limit.
const FOREVER: &str = "forever";
/// Cut-offs are full hours.
const MIN_SECS: u64 = 3_600;

/// A file of rules.
#[derive(Clone, Debug)]
pub struct RetentionFile {
    path: PathBuf,
    /// Content at the last read, valid or not.
    text: String,
    /// Polling interval.
    period: Duration,
}

/// The file of rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RetentionFileError {
    /// It cannot be read.
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is too large.
    #[error("the file is larger than {MAX_FILE_BYTES} bytes")]
    TooLarge,
    /// It has too many rules.
    #[error("the file has more than {MAX_RULES} rules")]
    TooManyRules,
    /// A line is no rule.
    #[error("line {line}: {what}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
}

/// A text that is no retention.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no retention: expected a number and a unit (h, d, w, n, y) such as 400d, one hour at least, or {FOREVER}"
)]
pub(crate) struct NoRetention(String);

/// Seconds of a retention; `None` for ever. Stricter than durations in queries, where OpenTSDB reads `1h30m`
/// as a minute: a mistake here deletes points.
pub(crate) fn parse_retention(text: &str) -> Result<Option<u64>, NoRetention> {
    if text == FOREVER {
        return Ok(None);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let parsed = text.split_at_checked(digits).and_then(|(number, unit)| {
        let unit = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            "w" => 7 * 86_400,
            "n" => 30 * 86_400,
            "y" => 365 * 86_400,
            _ => return None,
        };
        number.parse::<u64>().ok()?.checked_mul(unit)
    });
    match parsed.filter(|secs| *secs >= MIN_SECS) {
        Some(secs) => Ok(Some(secs)),
        None => Err(NoRetention(text.to_owned())),
    }
}

impl RetentionFile {
    /// Reads and parses the file.
    pub(crate) fn open(
        path: &Path,
        period: Duration,
    ) -> Result<(Self, Vec<RetentionRule>), RetentionFileError> {
        let text = read(path)?;
        let rules = parse(&text)?;
        Ok((Self { path: path.to_owned(), text, period }, rules))
    }

    /// Replaces the rules whenever the file changes; looks at it at every period and notification.
    /// Never returns.
    pub(crate) async fn follow(mut self, retention: Arc<Retention>, read_again: Arc<Notify>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.period) => {}
                () = read_again.notified() => {}
            }
            let path = self.path.clone();
            // An error here is a panic or a shutdown of the runtime.
            let Ok(text) = tokio::task::spawn_blocking(move || read(&path)).await else { return };
            self.apply(text, &retention);
        }
    }

    /// Applies what was read.
    fn apply(&mut self, text: Result<String, RetentionFileError>, retention: &Retention) {
        let file = self.path.display();
        let rules = match text {
            Ok(text) if text == self.text => {
                if retention.rules_problem().is_none() {
                    return;
                }
                // It could not be read in between.
                parse(&text)
            }
            Ok(text) => {
                let rules = parse(&text);
                self.text = text;
                rules
            }
            Err(error) => Err(error),
        };
        match rules {
            Ok(rules) => {
                tracing::info!(%file, rules = rules.len(), "retentions by metric replaced");
                retention.set_rules(rules);
                retention.set_rules_problem(None);
            }
            Err(error) => {
                let problem = format!(
                    "the file of retentions {file} is invalid, its former rules apply: {error}"
                );
                if retention.rules_problem().as_deref() != Some(&*problem) {
                    tracing::warn!("{problem}");
                }
                retention.set_rules_problem(Some(problem));
            }
        }
    }
}

fn read(path: &Path) -> Result<String, RetentionFileError> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(RetentionFileError::TooLarge);
    }
    Ok(text)
}

fn parse(text: &str) -> Result<Vec<RetentionRule>, RetentionFileError> {
    let mut rules = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        // No metric has this letter.
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let keep = match words[..] {
            [] => continue,
            [_, keep] => keep,
            _ => {
                let what = "expected a pattern and a retention such as 400d".to_owned();
                return Err(RetentionFileError::Line { line: number, what });
            }
        };
        let keep_secs = parse_retention(keep)
            .map_err(|error| RetentionFileError::Line { line: number, what: error.to_string() })?;
        let pattern = MetricPattern::new(words.first().copied().unwrap_or_default());
        rules.push(RetentionRule { pattern, keep_secs });
        if rules.len() > MAX_RULES {
            return Err(RetentionFileError::TooManyRules);
        }
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use tsd_model::TableSchema;
    use tsd_storage::RetentionRules;

    use super::*;

    fn keep(retention: &Retention) -> Vec<Option<u64>> {
        retention.rules().rules.iter().map(|rule| rule.keep_secs).collect()
    }

    #[test]
    fn errors_name_the_line_and_the_cause() {
        for (text, expected) in [
            ("a 1d\nb", "line 2: expected a pattern and a retention"),
            ("a 1d 2d", "line 1: expected a pattern and a retention"),
            ("\n\na 10", "line 3: \"10\" is no retention"),
            ("a 99999999999999999999d", "line 1: \"99999999999999999999d\" is no retention"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let many = "a 1d\n".repeat(MAX_RULES + 1);
        assert!(matches!(parse(&many), Err(RetentionFileError::TooManyRules)));
    }

    #[tokio::test]
    async fn a_changed_file_is_applied_and_a_broken_one_keeps_the_rules_and_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rules");
        fs::write(&path, "a 1d\n").unwrap();
        let (mut file, rules) = RetentionFile::open(&path, Duration::from_millis(1)).unwrap();
        let rules = RetentionRules { rules, default_secs: None };
        let retention = Arc::new(Retention::new(&TableSchema::opentsdb_default(), rules));
        for broken in ["a", "a 1d\nb 2"] {
            file.apply(Ok(broken.to_owned()), &retention);
            assert_eq!(keep(&retention), [Some(86_400)], "{broken}");
            assert!(retention.rules_problem().unwrap().contains("former rules apply"));
        }
        file.apply(Ok("a 2d".to_owned()), &retention);
        assert_eq!((keep(&retention), retention.rules_problem()), (vec![Some(172_800)], None));
        // Gone for a while.
        file.apply(read(&directory.path().join("other")), &retention);
        assert!(retention.rules_problem().unwrap().contains("cannot be read"));
        file.apply(Ok("a 2d".to_owned()), &retention);
        assert_eq!(retention.rules_problem(), None);
        let following = tokio::spawn(file.follow(Arc::clone(&retention), Arc::default()));
        fs::write(&path, "a 3d\nb forever\n").unwrap();
        while keep(&retention) != [Some(3 * 86_400), None] {
            tokio::task::yield_now().await;
        }
        following.abort();
    }
}
