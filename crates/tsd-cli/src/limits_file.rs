//! The file of limits by metric (`tsd.query.limits.overrides.config`), read at start and again while the
//! daemon runs.
//!
//! At start a bad file is an error. Later it is a line in the log, and the rules stay as they are: an
//! editor that saves in two steps must not lift every limit for a while.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tsd_engine::{LimitOverride, LimitOverrides};

/// Bytes that the file may have.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A file of rules.
#[derive(Clone, Debug)]
pub struct LimitsFile {
    path: PathBuf,
    /// As it was read last, with good rules or bad.
    text: String,
    /// Time between two looks at it.
    period: Duration,
}

/// Why a file of rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LimitsFileError {
    /// It cannot be read.
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is too large.
    #[error("the file is larger than {MAX_FILE_BYTES} bytes")]
    TooLarge,
    /// It holds something else.
    #[error("expected a JSON array of rules with regex, byteLimit and dataPointsLimit: {0}")]
    Malformed(String),
}

impl LimitsFile {
    /// Reads the file, and its rules.
    pub(crate) fn open(
        path: &Path,
        period: Duration,
    ) -> Result<(Self, Vec<LimitOverride>), LimitsFileError> {
        let text = read(path)?;
        let rules = parse(&text)?;
        Ok((Self { path: path.to_owned(), text, period }, rules))
    }

    /// Hands new rules in whenever the file changed. Never ends by itself.
    pub(crate) async fn follow(mut self, rules: LimitOverrides) {
        loop {
            tokio::time::sleep(self.period).await;
            let path = self.path.clone();
            // A panic or a shutdown of the runtime leaves nothing to hand in.
            let Ok(text) = tokio::task::spawn_blocking(move || read(&path)).await else { return };
            self.take(text, &rules);
        }
    }

    /// Takes what was read.
    fn take(&mut self, text: Result<String, LimitsFileError>, rules: &LimitOverrides) {
        let file = self.path.display();
        let text = match text {
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(%file, %error, "limits by metric stay as they are");
                return;
            }
        };
        if text == self.text {
            return;
        }
        match parse(&text) {
            Ok(new) => {
                tracing::info!(%file, rules = new.len(), "new limits by metric");
                rules.replace(new);
            }
            Err(error) => tracing::warn!(%file, %error, "limits by metric stay as they are"),
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
    fn rules_are_read_in_their_order() {
        let rules = LimitOverrides::default();
        rules.replace(parse(RULES).unwrap());
        assert_eq!(rules.find("sys.cpu"), Some((10, 20)));
        assert_eq!(rules.find("app.cpu"), Some((0, 0)));
        assert_eq!(rules.find("app.mem"), None);
        assert!(parse("[]").unwrap().is_empty());
    }

    #[test]
    fn a_bad_rule_says_which_and_why() {
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
    async fn a_changed_file_is_taken_and_a_broken_one_keeps_the_rules() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("limits.json");
        assert!(LimitsFile::open(&path, Duration::ZERO).is_err());
        fs::write(&path, RULES).unwrap();
        let (mut file, first) = LimitsFile::open(&path, Duration::from_millis(1)).unwrap();
        let rules = LimitOverrides::default();
        rules.replace(first);
        for broken in ["[", "[{}]"] {
            file.take(Ok(broken.to_owned()), &rules);
            assert_eq!(rules.find("sys.cpu"), Some((10, 20)), "{broken}");
        }
        file.take(read(directory.path()), &rules);
        assert_eq!(rules.find("sys.cpu"), Some((10, 20)));
        let following = tokio::spawn(file.follow(rules.clone()));
        fs::write(&path, r#"[{"regex":"sys","byteLimit":1}]"#).unwrap();
        while rules.find("sys.cpu") != Some((1, 0)) {
            tokio::task::yield_now().await;
        }
        following.abort();
    }
}
