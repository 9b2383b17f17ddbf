//! Settings of rollups and histograms.
//!
//! Both are JSON, either the value itself or a file that the value names.

use std::{borrow::Cow, fs};

use tsd_engine::{HistogramCodecs, Rollups};
use tsd_model::RollupConfig;
use tsd_query::Aggregator;

use super::table_names;
use crate::config::{Config, ConfigError};

/// Rollups, if enabled.
pub(super) fn rollups(config: &Config) -> Result<Option<Rollups>, ConfigError> {
    const KEY: &str = "tsd.rollups.config";
    if !config.bool("tsd.rollups.enable") {
        return Ok(None);
    }
    let Some(json) = json(config, KEY)? else {
        let expected = "tsd.rollups.enable needs a JSON object, or the name of a .json file";
        return Err(config.bad_value(KEY, expected));
    };
    let is_aggregator = |name: &str| Aggregator::from_name(name).is_some();
    let intervals = RollupConfig::from_json(json.as_bytes(), is_aggregator)
        .map_err(|error| config.bad_value(KEY, error))?;
    let rollups = Rollups {
        aggregate_tag_key: config.string("tsd.rollups.agg_tag_key"),
        raw_tag_value: config.string("tsd.rollups.raw_agg_tag_value"),
        tag_raw: config.bool("tsd.rollups.tag_raw"),
        block_derived: config.bool("tsd.rollups.block_derived"),
        split_queries: config.bool("tsd.rollups.split_query.enable"),
        ..Rollups::new(intervals)
    };
    for table in rollups.tables() {
        table_names::check(config, KEY, &table)?;
    }
    for key in ["uid", "meta", "tree"].map(|table| format!("tsd.storage.hbase.{table}_table")) {
        let name = config.string(&key);
        if rollups.tables().iter().any(|table| table.as_str() == name) {
            let expected = format!("table {name} is already the table of {key}");
            return Err(config.bad_value(KEY, expected));
        }
    }
    Ok(Some(rollups))
}

/// Histogram codecs, if configured.
pub(super) fn histograms(config: &Config) -> Result<Option<HistogramCodecs>, ConfigError> {
    const KEY: &str = "tsd.core.histograms.config";
    let Some(json) = json(config, KEY)? else { return Ok(None) };
    HistogramCodecs::from_json(json.as_bytes())
        .map(Some)
        .map_err(|error| config.bad_value(KEY, error))
}

/// The JSON of a key with its members in order; a text that is not JSON stays as it is, and is an error elsewhere.
pub(super) fn canonical(config: &Config, key: &str) -> Result<String, ConfigError> {
    let text = json(config, key)?.unwrap_or_default();
    let Ok(mut value) = serde_json::from_str::<serde_json::Value>(&text) else {
        return Ok(text.into_owned());
    };
    value.sort_all_objects();
    Ok(value.to_string())
}

/// The JSON text of a key, from the file if it names one; `None` if the key is not set.
fn json<'a>(config: &'a Config, key: &str) -> Result<Option<Cow<'a, str>>, ConfigError> {
    let Some(value) = config.non_empty(key) else { return Ok(None) };
    let is_file = value.len() > 5
        && value.get(value.len() - 5..).is_some_and(|end| end.eq_ignore_ascii_case(".json"));
    if !is_file {
        return Ok(Some(Cow::Borrowed(value)));
    }
    let unreadable =
        |error: std::io::Error| config.bad_value(key, format!("the file cannot be read: {error}"));
    fs::read_to_string(value).map(|text| Some(Cow::Owned(text))).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::config::Settings;

    const INTERVALS: &str = r#"{"aggregationIds":{"sum":0,"Count":1},"intervals":[{"table":"tsdb","preAggregationTable":"tsdb-agg","interval":"1m","rowSpan":"1h","defaultInterval":true},{"table":"tsdb-1h","preAggregationTable":"tsdb-agg-1h","interval":"1h","rowSpan":"1n","delaySla":"2h"}]}"#;

    fn config(pairs: &[(&str, &str)]) -> Config {
        let mut config = Config::default();
        for (key, value) in pairs {
            config.set_flag("test", key, *value);
        }
        config
    }

    #[track_caller]
    fn check_rejected(pairs: &[(&str, &str)], expected: &str) {
        let error = Settings::from_config(&config(pairs)).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
        assert!(error.starts_with("tsd."), "{error} names its key");
    }

    #[test]
    fn rollups_are_off_unless_enabled() {
        let settings = Settings::from_config(&config(&[("tsd.rollups.config", "nonsense")]));
        assert!(settings.unwrap().engine.rollups.is_none());
    }

    #[test]
    fn rollups_are_read_from_the_value_or_from_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rollups.json");
        fs::write(&file, INTERVALS).unwrap();
        for value in [INTERVALS, file.to_str().unwrap()] {
            let config = config(&[
                ("tsd.rollups.enable", "true"),
                ("tsd.rollups.config", value),
                ("tsd.rollups.tag_raw", "yes"),
                ("tsd.rollups.agg_tag_key", "agg"),
                ("tsd.rollups.block_derived", "false"),
                ("tsd.rollups.split_query.enable", "true"),
            ]);
            let rollups = Settings::from_config(&config).unwrap().engine.rollups.unwrap();
            assert_eq!(rollups.config.aggregator_id("count"), Some(1));
            assert_eq!((rollups.aggregate_tag_key.as_str(), rollups.tag_raw), ("agg", true));
            assert_eq!((rollups.block_derived, rollups.split_queries), (false, true));
            assert_eq!(rollups.raw_tag_value, "RAW");
            assert_eq!(rollups.tables().len(), 4);
        }
    }

    #[test]
    fn bad_rollups_are_rejected() {
        let with = |value| [("tsd.rollups.enable", "true"), ("tsd.rollups.config", value)];
        check_rejected(&[("tsd.rollups.enable", "true")], "or the name of a .json file");
        check_rejected(&with("{}"), "rollup configuration lacks aggregationIds");
        check_rejected(
            &with("/no/such/file.json"),
            "cannot be read: No such file or directory (os error 2)",
        );
        let [uid_table, no_aggregator] = [("tsdb-1h", "tsdb-uid"), ("Count", "nope")]
            .map(|(old, new)| INTERVALS.replace(old, new));
        check_rejected(
            &with(&uid_table),
            "table tsdb-uid is already the table of tsd.storage.hbase.uid_table",
        );
        check_rejected(
            &with(&no_aggregator),
            "rollup configuration names the unknown aggregator \"nope\"",
        );
    }

    #[test]
    fn histogram_codecs_are_found_by_class_name() {
        let read = |value| {
            let config = config(&[("tsd.core.histograms.config", value)]);
            Settings::from_config(&config).unwrap().engine.histograms
        };
        assert_eq!(read(""), None);
        let json = r#"{"net.opentsdb.core.SimpleHistogramDecoder": 42}"#;
        assert_eq!(read(json).map(|codecs| codecs.simple_id()), Some(42));
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("codecs.JSON");
        fs::write(&file, json).unwrap();
        assert!(read(file.to_str().unwrap()).is_some());
        let other = [("tsd.core.histograms.config", r#"{"com.example.Sketch": 3}"#)];
        check_rejected(&other, "no histogram codec named com.example.Sketch");
    }
}
