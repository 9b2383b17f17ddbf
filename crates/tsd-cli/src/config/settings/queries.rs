//! Settings of queries.

use std::{path::Path, time::Duration};

use tsd_engine::{QueryConfig, SeriesIndexUse};

use crate::{
    config::{Config, ConfigError},
    followed_file::FollowedFile,
    limits_file::parse_limits,
};

/// Settings of the query engine; [`limits_file`] adds the limits by metric.
pub(super) fn queries(config: &Config) -> QueryConfig {
    QueryConfig {
        timeout: match config.int("tsd.query.timeout") {
            0 => None,
            ms => Some(Duration::from_millis(ms)),
        },
        slow_log: match config.int("tsd.query.slow_log") {
            0 => None,
            ms => Some(Duration::from_millis(ms)),
        },
        max_bytes: config.int("tsd.query.limits.bytes.default"),
        max_data_points: config.int("tsd.query.limits.data_points.default"),
        allow_bytes_override: config.bool("tsd.query.limits.bytes.allow_override"),
        allow_data_points_override: config.bool("tsd.query.limits.data_points.allow_override"),
        max_memory_bytes: config.int("tsd.query.max_memory_bytes"),
        max_sub_queries: config.int("tsd.query.max_sub_queries"),
        allow_duplicates: config.bool("tsd.query.allow_simultaneous_duplicates"),
        filter_expansion_limit: config.int("tsd.query.filter.expansion_limit"),
        allow_damaged: config.bool("tsd.query.allow_damaged"),
        delete_whole_rows: config.bool("tsd.query.delete.whole_rows"),
        skip_unresolved_tagvs: config.bool("tsd.query.skip_unresolved_tagvs"),
        series_keep_bucket: !config.bool("tsd.query.multi_get.get_all_salts"),
        series_index: match config.text("tsd.query.series_index") {
            Some("always") => SeriesIndexUse::Always,
            Some("never") => SeriesIndexUse::Never,
            _ => SeriesIndexUse::Auto,
        },
        enable_fuzzy_filter: config.bool("tsd.query.enable_fuzzy_filter"),
        scan_batch_rows: config.int("tsd.storage.hbase.scanner.maxNumRows"),
        max_scans: config.int("tsd.query.max_scans"),
        max_running: config.int("tsd.query.max_running"),
        max_waiting: config.int("tsd.query.max_waiting"),
        threads: config.int("tsd.query.threads"),
        ..QueryConfig::default()
    }
}

/// Loads the limits by metric and returns the file to follow.
pub(super) fn limits_file(
    config: &Config,
    queries: &QueryConfig,
) -> Result<Option<FollowedFile>, ConfigError> {
    const KEY: &str = "tsd.query.limits.overrides.config";
    let Some(path) = config.non_empty(KEY) else { return Ok(None) };
    let period = Duration::from_secs(config.int("tsd.query.limits.overrides.interval"));
    let (file, rules) = FollowedFile::open(Path::new(path), "limits by metric", parse_limits)
        .map_err(|error| config.bad_value(KEY, error))?;
    queries.overrides.replace(rules);
    Ok(Some(file.with_period(period)))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;
    use crate::config::Settings;

    fn settings(key: &str, value: &str) -> Result<Settings, ConfigError> {
        let mut config = Config::default();
        config.set_flag("test", key, value);
        Settings::from_config(&config)
    }

    #[test]
    fn limits_are_on_by_default() {
        let queries = settings("tsd.mode", "rw").unwrap().engine.query;
        assert_eq!(queries.timeout, Some(Duration::from_mins(10)));
        assert_eq!(queries.max_data_points, 500_000_000);
        assert_eq!(queries.max_memory_bytes, 1 << 30);
        assert!(queries.max_total_memory_bytes > 0);
        assert_eq!(settings("tsd.query.timeout", "0").unwrap().engine.query.timeout, None);
    }

    #[test]
    fn negative_limits_are_rejected() {
        for key in ["tsd.query.limits.bytes.default", "tsd.query.limits.data_points.default"] {
            let error = settings(key, "-1").unwrap_err().to_string();
            assert!(
                error.starts_with(key) && error.contains("from 0 to 9223372036854775807"),
                "{error}"
            );
        }
    }

    #[test]
    fn limits_by_metric_come_from_a_file_that_must_be_valid_at_start() {
        const KEY: &str = "tsd.query.limits.overrides.config";
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("limits.json");
        let path = path.to_str().unwrap();
        let error = settings(KEY, path).unwrap_err().to_string();
        assert!(error.contains("the file cannot be read"), "{error}");
        fs::write(path, "[{}]").unwrap();
        let error = settings(KEY, path).unwrap_err().to_string();
        assert!(error.starts_with(KEY) && error.contains("rule 1: regex"), "{error}");
        fs::write(path, r#"[{"regex":"cpu","dataPointsLimit":7}]"#).unwrap();
        let settings = settings(KEY, path).unwrap();
        assert_eq!(settings.engine.query.overrides.find("sys.cpu"), Some((0, 7)));
        assert!(settings.limits_file.is_some());
    }
}
