//! The file of query limits by metric (`tsd.query.limits.overrides.config`), read at start and
//! re-read while the daemon runs.
//!
//! At start an invalid file is an error. Later it is logged and the rules stay unchanged: an editor
//! that saves in two steps must not remove all limits for a moment.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::sync::Notify;
use tsd_engine::{LimitOverride, LimitOverrides};

/// Maximum size of the file, bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A file of rules.
#[derive(Clone, Debug)]
pub struct LimitsFile {
    path: PathBuf,
    /// Content at the last read, valid or not.
    text: String,
    /// Polling interval.
    period: Duration,
}

/// The file of rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LimitsFileError {
    /// It cannot be read.
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is too large.
    #[error("the file is larger than {MAX_FILE_BYTES} bytes")]
    TooLarge,
    /// It is not a list of rules.
    #[error("expected a JSON array of rules with regex, byteLimit and dataPointsLimit: {0}")]
    Malformed(String),
}

impl LimitsFile {
    /// Reads and parses the file.
    pub(crate) fn open(
        path: &Path,
        period: Duration,
    ) -> Result<(Self, Vec<LimitOverride>), LimitsFileError> {
        let text = read(path)?;
        let rules = parse(&text)?;
        Ok((Self { path: path.to_owned(), text, period }, rules))
    }

    /// Replaces the rules whenever the file changes; looks at it at every period and notification.
    /// Never returns.
    pub(crate) async fn follow(mut self, rules: LimitOverrides, read_again: Arc<Notify>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.period) => {}
                () = read_again.notified() => {}
            }
            let path = self.path.clone();
            // An error here is a panic or a shutdown of the runtime.
            let Ok(text) = tokio::task::spawn_blocking(move || read(&path)).await else { return };
            self.apply(text, &rules);
        }
    }

    /// Applies what was read.
    fn apply(&mut self, text: Result<String, LimitsFileError>, rules: &LimitOverrides) {
        let file = self.path.display();
        let text = match text {
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(%file, %error, "invalid file; limits by metric are unchanged");
                return;
            }
        };
        if text == self.text {
            return;
        }
        match parse(&text) {
            Ok(new) => {
                tracing::info!(%file, rules = new.len(), "limits by metric replaced");
                rules.replace(new);
            }
            Err(error) => {
                tracing::warn!(%file, %error, "invalid file; limits by metric are unchanged");
            }
        }
        self.text = text;
    }
}

fn read(path: &Path) -> Result<String, LimitsFileError> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(LimitsFileError::TooLarge);
    }
    Ok(text)
}

fn parse(text: &str) -> Result<Vec<LimitOverride>, LimitsFileError> {
    let malformed = |what: String| LimitsFileError::Malformed(what);
    let value: Value = serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
    let rules = value.as_array().ok_or_else(|| malformed("it is no array".to_owned()))?;
    let rule = |(place, rule): (usize, &Value)| {
        let wrong = |what: &str| malformed(format!("rule {}: {what}", place + 1));
        let regex = rule.get("regex").and_then(Value::as_str);
        let regex = regex.ok_or_else(|| wrong("regex must be a text"))?;
        let limit = |name: &str| match rule.get(name) {
            None | Some(Value::Null) => Ok(0),
            Some(value) => value
                .as_u64()
                .ok_or_else(|| wrong(&format!("{name} must be a whole number of at least 0"))),
        };
        LimitOverride::try_new(regex, limit("byteLimit")?, limit("dataPointsLimit")?)
            .map_err(|error| wrong(&error.to_string()))
    };
    rules.iter().enumerate().map(rule).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;

    const RULES: &str =
        r#"[{"regex":"^sys\\.","byteLimit":10,"dataPointsLimit":20},{"regex":"cpu"}]"#;

    #[test]
    fn rules_are_read_in_file_order() {
        let rules = LimitOverrides::default();
        rules.replace(parse(RULES).unwrap());
        assert_eq!(rules.find("sys.cpu"), Some((10, 20)));
        assert_eq!(rules.find("app.cpu"), Some((0, 0)));
        assert_eq!(rules.find("app.mem"), None);
        assert!(parse("[]").unwrap().is_empty());
    }

    #[test]
    fn errors_name_the_rule_and_the_cause() {
        for (text, expected) in [
            ("{}", "it is no array"),
            ("[1]", "rule 1: regex must be a text"),
            (r#"[{"regex":"a"},{"regex":"(("}]"#, "rule 2: \"((\" is no pattern"),
            (r#"[{"regex":"a","byteLimit":-1}]"#, "rule 1: byteLimit must be a whole number"),
            (r#"[{"regex":"a","dataPointsLimit":"1"}]"#, "rule 1: dataPointsLimit must be"),
            ("[", "EOF while parsing"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[tokio::test]
    async fn a_changed_file_is_applied_and_a_broken_one_keeps_the_rules() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("limits.json");
        assert!(LimitsFile::open(&path, Duration::ZERO).is_err());
        fs::write(&path, RULES).unwrap();
        let (mut file, first) = LimitsFile::open(&path, Duration::from_millis(1)).unwrap();
        let rules = LimitOverrides::default();
        rules.replace(first);
        for broken in ["[", "[{}]"] {
            file.apply(Ok(broken.to_owned()), &rules);
            assert_eq!(rules.find("sys.cpu"), Some((10, 20)), "{broken}");
        }
        file.apply(read(directory.path()), &rules);
        assert_eq!(rules.find("sys.cpu"), Some((10, 20)));
        let following = tokio::spawn(file.follow(rules.clone(), Arc::default()));
        fs::write(&path, r#"[{"regex":"sys","byteLimit":1}]"#).unwrap();
        while rules.find("sys.cpu") != Some((1, 0)) {
            tokio::task::yield_now().await;
        }
        following.abort();
    }

    #[tokio::test]
    async fn a_notification_reads_the_file_before_its_period() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("limits.json");
        fs::write(&path, "[]").unwrap();
        let (file, _) = LimitsFile::open(&path, Duration::from_hours(24)).unwrap();
        let (rules, read_again) = (LimitOverrides::default(), Arc::new(Notify::new()));
        let following = tokio::spawn(file.follow(rules.clone(), Arc::clone(&read_again)));
        fs::write(&path, RULES).unwrap();
        read_again.notify_one();
        while rules.find("sys.cpu").is_none() {
            tokio::task::yield_now().await;
        }
        following.abort();
    }
}
