//! Checks the names of tables in the configuration.
//!
//! The embedded store escapes table names in its file names, so only the length is limited. HBase allows few
//! characters.

use hbase_rs::TableName;
use tsd_storage::Table;

use crate::config::{Config, ConfigError};

/// Keys of OpenTSDB's tables.
pub(super) const KEYS: [&str; 4] = [
    "tsd.storage.hbase.data_table",
    "tsd.storage.hbase.uid_table",
    "tsd.storage.hbase.meta_table",
    "tsd.storage.hbase.tree_table",
];

/// The table that a key names.
pub(super) fn table(config: &Config, key: &'static str) -> Result<Table, ConfigError> {
    let table = Table::new(config.text(key).unwrap_or_default());
    check(config, key, &table)?;
    Ok(table)
}

/// Fails if the store rejects the name of a table. The value of `key` is or contains the name.
pub(super) fn check(config: &Config, key: &str, table: &Table) -> Result<(), ConfigError> {
    let name = table.as_str();
    let bytes = table.file_name().len();
    let expected = if name.is_empty() {
        "expected the name of a table".to_owned()
    } else if config.is_on_hbase() && name.parse::<TableName>().is_err() {
        format!(
            "{name:?} is not a table name of HBase; expected letters, digits, _, - and ., not beginning with - or ., \
             after at most one NAMESPACE: of letters, digits and _"
        )
    } else if name.chars().any(char::is_control) {
        format!(
            "table {name:?} has a control character; expected a name without control characters"
        )
    } else if bytes > Table::MAX_FILE_NAME {
        format!(
            "table {name:?} is {bytes} bytes as a file name, in which characters other than letters, digits, -, _ \
             and . take 3 bytes or more; the limit is {}",
            Table::MAX_FILE_NAME
        )
    } else {
        return Ok(());
    };
    Err(config.bad_value(key, expected))
}

/// Fails if two keys name the same table, because the embedded store keeps the tables in different ways.
pub(super) fn check_distinct(config: &Config) -> Result<(), ConfigError> {
    for (at, key) in KEYS.iter().enumerate() {
        let other = KEYS.iter().take(at).find(|other| config.text(other) == config.text(key));
        if let Some(other) = other.filter(|_| !config.is_on_hbase()) {
            return Err(config.bad_value(key, format!("expected another table than {other}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::Settings;

    fn check(engine: &str, key: &str, value: &str) -> Option<String> {
        Settings::with(&[("tsd.storage.engine", engine), (key, value)]).err()
    }

    /// Issue 37, case C15.
    #[test]
    fn names_of_tables_that_the_store_does_not_take_are_refused_by_key_value_and_limit() {
        const DATA: &str = "tsd.storage.hbase.data_table";
        for name in ["/user/mapr/tsdb", "..", "x/../../../../escaped", "wasb://a@b/c", "\u{e4}"] {
            assert_eq!(check("embedded", DATA, name), None);
            let error = check("hbase", DATA, name).unwrap_or_default();
            assert!(error.contains(DATA) && error.contains("NAMESPACE:"), "{name}: {error}");
        }
        assert_eq!(check("hbase", DATA, "ns:tsdb-1.x"), None);
        assert_eq!(check("embedded", DATA, &"x".repeat(198)), None);
        for (name, limit) in [("x".repeat(199), "limit is 200"), ("/".repeat(67), "203 bytes")] {
            let error = check("embedded", DATA, &name).unwrap_or_default();
            assert!(error.contains(&name) && error.contains(limit), "{error}");
        }
        for name in ["", "a\nb", "tsdb-uid"] {
            assert!(check("embedded", DATA, name).is_some(), "{name:?}");
        }
        let rollups = |name: &str, engine| {
            let json = format!(
                r#"{{"aggregationIds":{{"sum":0}},"intervals":[{{"table":"{name}","preAggregationTable":"a","interval":"1m","rowSpan":"1h","defaultInterval":true}}]}}"#
            );
            let values = [
                ("tsd.storage.engine", engine),
                ("tsd.rollups.enable", "true"),
                ("tsd.rollups.config", &json),
            ];
            Settings::with(&values).err()
        };
        assert_eq!(rollups("/r/1h", "embedded"), None);
        for (name, engine) in [("/r/1h", "hbase"), (&"r".repeat(300), "embedded")] {
            let error = rollups(name, engine).unwrap_or_default();
            assert!(error.contains("tsd.rollups.config") && error.contains(name), "{error}");
        }
        for key in ["tsd.storage.hbase.series_table", "tsd.cluster.log_table"] {
            assert!(check("hbase", key, "a/b").is_some_and(|error| error.contains(key)));
        }
    }
}
