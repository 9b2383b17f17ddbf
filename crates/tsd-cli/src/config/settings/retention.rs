//! How long points are kept (`tsd.storage.retention`, `tsd.storage.retention_file`).

use std::path::Path;

use tsd_storage::RetentionRules;

use super::storage::EngineKind;
use crate::{
    config::{Config, ConfigError},
    followed_file::FollowedFile,
    retention_file::{parse_retention, parse_rules},
};

pub(crate) const RETENTION_KEY: &str = "tsd.storage.retention";
const FILE_KEY: &str = "tsd.storage.retention_file";

/// How long points are kept.
#[derive(Clone, Debug, Default)]
pub struct RetentionSettings {
    /// The rules at the start.
    pub rules: RetentionRules,
    /// File with rules by metric, if one is configured.
    pub file: Option<FollowedFile>,
    /// Trusts the clock even if it is far ahead of the newest stored time.
    pub accept_clock: bool,
}

pub(super) fn retention(
    config: &Config,
    engine: EngineKind,
) -> Result<RetentionSettings, ConfigError> {
    for key in [RETENTION_KEY, FILE_KEY] {
        if config.non_empty(key).is_some() && engine != EngineKind::Embedded {
            let expected = match engine {
                EngineKind::HBase => {
                    "only the embedded store has a retention; on HBase the TTL of a table's column family limits the \
                     age of its cells: alter 'tsdb', {NAME => 't', TTL => seconds}"
                }
                _ => "only the embedded store has a retention",
            };
            return Err(config.bad_value(key, expected));
        }
    }
    let accept_clock = config.bool("tsd.storage.accept_clock");
    let mut settings = RetentionSettings { accept_clock, ..RetentionSettings::default() };
    if let Some(text) = config.non_empty(RETENTION_KEY) {
        let keep_secs =
            parse_retention(text).map_err(|error| config.bad_value(RETENTION_KEY, error))?;
        settings.rules.default_secs = keep_secs;
    }
    if let Some(path) = config.non_empty(FILE_KEY) {
        let (file, rules) =
            FollowedFile::open(Path::new(path), "retentions by metric", parse_rules)
                .map_err(|error| config.bad_value(FILE_KEY, error))?;
        settings.rules.rules = rules;
        settings.file = Some(file);
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;
    use crate::config::Settings;

    fn settings(values: &[(&str, &str)]) -> Result<RetentionSettings, ConfigError> {
        let mut config = Config::default();
        for (key, value) in values {
            config.set_flag("test", key, *value);
        }
        Ok(Settings::from_config(&config)?.retention)
    }

    #[test]
    fn nothing_expires_by_default() {
        let settings = settings(&[]).unwrap();
        assert_eq!(settings.rules, RetentionRules::default());
        assert!(settings.file.is_none());
    }

    #[test]
    fn a_retention_is_a_number_and_a_unit() {
        let days = |text| settings(&[(RETENTION_KEY, text)]).unwrap().rules.default_secs;
        assert_eq!(days("400d"), Some(400 * 86_400));
        assert_eq!(days("forever"), None);
        for text in ["400", "1h30m", "0d", "59m", "-1d", "1x", "d"] {
            let error = settings(&[(RETENTION_KEY, text)]).unwrap_err().to_string();
            assert!(error.starts_with(RETENTION_KEY), "{error}");
            assert!(error.contains("such as 400d"), "{error}");
        }
    }

    #[test]
    fn other_stores_refuse_a_retention_and_name_what_they_have() {
        for (key, value) in [(RETENTION_KEY, "400d"), (FILE_KEY, "/rules")] {
            let error = settings(&[("tsd.storage.engine", "hbase"), (key, value)]).unwrap_err();
            let error = error.to_string();
            assert!(
                error.starts_with(key) && error.contains("TTL of a table's column family"),
                "{error}"
            );
            let error = settings(&[("tsd.storage.engine", "memory"), (key, value)]).unwrap_err();
            assert!(error.to_string().contains("only the embedded store"), "{error}");
        }
    }

    #[test]
    fn the_file_must_be_valid_at_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rules");
        let path = path.to_str().unwrap();
        let error = settings(&[(FILE_KEY, path)]).unwrap_err().to_string();
        assert!(error.contains("the file cannot be read"), "{error}");
        fs::write(path, "sys.* 30d\nsys.cpu\n").unwrap();
        let error = settings(&[(FILE_KEY, path)]).unwrap_err().to_string();
        assert!(error.starts_with(FILE_KEY) && error.contains("line 2"), "{error}");
        fs::write(path, "# rules\n\nsys.* 30d # a month\naudit.* forever\n").unwrap();
        let settings = settings(&[(FILE_KEY, path), (RETENTION_KEY, "1y")]).unwrap();
        assert_eq!(settings.rules.default_secs, Some(365 * 86_400));
        let keep: Vec<_> = settings.rules.rules.iter().map(|rule| rule.keep_secs).collect();
        assert_eq!(keep, [Some(30 * 86_400), None]);
        assert!(settings.file.is_some());
    }
}
