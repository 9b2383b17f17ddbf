//! The configuration as text: sources, precedence and validation. `settings` gives it types.
//!
//! A value comes from the command line, the environment, the file or the table of defaults, in that
//! order. All values are validated before anything starts: the error for a bad value names its key
//! and source. Unknown keys are warnings, since OpenTSDB ignores them.

mod error;
mod file_check;
pub mod keys;
mod meanings;
mod origin;
mod plugins;
mod properties;
mod settings;

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

pub use error::ConfigError;
pub(crate) use file_check::{CheckedEntry, FileCheck, KeyVerdict, check_file};
pub use keys::{Key, KeyEffect, ValueKind};
pub(crate) use meanings::{meaning as key_meaning, why_without_effect};
pub use origin::Origin;
pub use properties::{PropertiesError, Property, parse as parse_properties};
pub use settings::{
    Ack, AuthenticationMethod, AuthenticationSettings, ClusterNetSettings, EngineKind,
    HBaseSettings, ImportSettings, LogFormat, LogSettings, PluginSettings, PointPluginSettings,
    RetentionSettings, Settings, StorageSettings,
};
pub(crate) use settings::{RULES_FILE, USERS_FILE, host_name};

/// Paths at which OpenTSDB searches for its file, in this order.
pub const SEARCH_PATH: [&str; 4] = [
    "./opentsdb.conf",
    "/etc/opentsdb.conf",
    "/etc/opentsdb/opentsdb.conf",
    "/opt/opentsdb/opentsdb.conf",
];

/// A value and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ConfigValue {
    value: String,
    origin: Origin,
}

/// All keys with their values, not yet typed.
#[derive(Clone, Debug, Default)]
pub struct Config {
    values: BTreeMap<String, ConfigValue>,
    file: Option<PathBuf>,
    unknown_variables: Vec<String>,
}

impl Config {
    /// Reads the file `path`, or else the first readable of [`SEARCH_PATH`], or nothing.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        if let Some(path) = path {
            let text = fs::read(path)
                .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
            config.add_file(path, &text)?;
            return Ok(config);
        }
        // An unreadable file is skipped, as in OpenTSDB.
        for path in SEARCH_PATH.map(Path::new) {
            if let Ok(text) = fs::read(path) {
                config.add_file(path, &text)?;
                break;
            }
        }
        Ok(config)
    }

    /// Adds the assignments of a file.
    pub fn add_file(&mut self, path: &Path, text: &[u8]) -> Result<(), ConfigError> {
        let properties = parse_properties(text)
            .map_err(|source| ConfigError::Malformed { path: path.to_owned(), source })?;
        for Property { key, value, line } in properties {
            let origin = Origin::File { path: path.to_owned(), line };
            self.values.insert(key, ConfigValue { value, origin });
        }
        self.file = Some(path.to_owned());
        Ok(())
    }

    /// Adds values from environment variables: `TSD_NETWORK_PORT` is `tsd.network.port`.
    pub fn add_environment(&mut self, variables: impl IntoIterator<Item = (String, String)>) {
        let by_variable: BTreeMap<String, &Key> =
            keys::KEYS.iter().map(|key| (key.environment_variable(), key)).collect();
        for (name, value) in variables {
            if let Some(key) = by_variable.get(&name) {
                let origin = Origin::Environment(name);
                self.values.insert(key.name.to_owned(), ConfigValue { value, origin });
            } else if name.starts_with("TSD_") {
                self.unknown_variables.push(name);
            }
        }
    }

    /// Sets a key as a flag of the command line does.
    pub fn set_flag(&mut self, flag: &'static str, key: &str, value: impl Into<String>) {
        let given = ConfigValue { value: value.into(), origin: Origin::Flag(flag) };
        self.values.insert(key.to_owned(), given);
    }

    /// The file that was read.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Takes the value of a key, or that it is not set, from another configuration.
    pub fn copy_value(&mut self, from: &Self, key: &str) {
        match from.values.get(key) {
            Some(value) => self.values.insert(key.to_owned(), value.clone()),
            None => self.values.remove(key),
        };
    }

    /// True if any source sets the key.
    #[must_use]
    pub fn is_set(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Warnings for the operator, one line each, at most one per key.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (key, given) in &self.values {
            let origin = &given.origin;
            lines.push(match keys::find(key) {
                // Keys of the HBase client; they matter only with HBase.
                _ if key.starts_with("hbase.") && !self.is_on_hbase() => {
                    format!("{key} ({origin}) has no effect on the embedded store")
                }
                None => format!("unknown key {key} ({origin})"),
                Some(Key { kind: ValueKind::Exactly(word), .. })
                    if is_true(&given.value) == (*word == "true")
                        && given.value.trim() != *word =>
                {
                    let value = &given.value;
                    format!(
                        "{key} = {value:?} ({origin}) is not the exact text {word:?}, so it has the \
                         opposite effect, as in OpenTSDB"
                    )
                }
                Some(Key { effect: KeyEffect::None, default, .. })
                    if *default != Some(given.value.trim()) =>
                {
                    format!("{key} ({origin}) has no effect: {}", why_without_effect(key))
                }
                Some(_) => continue,
            });
        }
        let unknown = self.unknown_variables.iter();
        lines.extend(unknown.map(|name| format!("unknown environment variable {name}")));
        lines
    }

    /// Every key with its effective value, for `/api/config`.
    #[must_use]
    pub fn effective(&self) -> BTreeMap<String, String> {
        let defaults = keys::KEYS
            .iter()
            .filter_map(|key| Some((key.name.to_owned(), key.default?.to_owned())));
        let by_engine = keys::KEYS.iter().filter_map(|key| {
            Some((key.name.to_owned(), self.default_by_engine(key.name)?.to_owned()))
        });
        let given = self.values.iter().map(|(key, given)| (key.clone(), given.value.clone()));
        defaults.chain(by_engine).chain(given).collect()
    }

    /// Where the value of each key comes from, for `/api/config/sources`.
    #[must_use]
    pub fn sources(&self) -> BTreeMap<String, String> {
        let source = |key: String| {
            let given = self.values.get(&key);
            let text = given.map_or(Origin::Default, |given| given.origin.clone()).to_string();
            (key, text)
        };
        self.effective().into_keys().map(source).collect()
    }

    /// Checks every value by its kind.
    pub fn check(&self) -> Result<(), ConfigError> {
        for (name, given) in &self.values {
            if let Some(key) = keys::find(name) {
                key.kind.check(&given.value).map_err(|expected| ConfigError::BadValue {
                    key: name.clone(),
                    value: given.value.clone(),
                    origin: given.origin.clone(),
                    expected,
                })?;
            }
        }
        Ok(())
    }

    /// The effective value of a key as text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.values.get(name) {
            Some(given) => Some(given.value.trim()),
            None => self.default_by_engine(name).or(keys::find(name)?.default),
        }
    }

    /// The value of a key as text, unless it is empty.
    fn non_empty(&self, name: &str) -> Option<&str> {
        self.text(name).filter(|text| !text.is_empty())
    }

    /// The value of a key as a text of its own, which must not be empty.
    fn required(&self, name: &str, expected: &str) -> Result<String, ConfigError> {
        self.non_empty(name).map(str::to_owned).ok_or_else(|| self.bad_value(name, expected))
    }

    /// The value of a key as a text of its own, which is empty without one.
    fn string(&self, name: &str) -> String {
        self.text(name).unwrap_or_default().to_owned()
    }

    /// True if HBase is the store: it is the configured engine, or its quorum is set.
    #[must_use]
    pub fn is_on_hbase(&self) -> bool {
        match self.values.get("tsd.storage.engine") {
            Some(engine) => engine.value.trim() == "hbase",
            None => self
                .values
                .get("tsd.storage.hbase.zk_quorum")
                .is_some_and(|quorum| !quorum.value.trim().is_empty()),
        }
    }

    /// True if points are sent to HBase without a log.
    fn writes_directly(&self) -> bool {
        self.is_on_hbase() && !matches!(self.text("tsd.storage.ack"), Some("log" | "cluster"))
    }

    /// Defaults that differ on HBase, where tables may be OpenTSDB's and have its key layout.
    fn default_by_engine(&self, name: &str) -> Option<&'static str> {
        let value = match name {
            "tsd.storage.engine" => "hbase",
            "tsd.storage.salt.width" => "0",
            // The rows of one to ten minutes, or of an hour while HBase is unavailable.
            "tsd.storage.memtable.size" => "536870912",
            // A replay reads all of it, from HBase.
            "tsd.storage.log.max_size" if self.text("tsd.storage.ack") == Some("cluster") => {
                "1073741824"
            }
            // OpenTSDB's. A log flushes an hour as one column, beside which a correction is a cell of its
            // own: there the newest wins.
            "tsd.storage.fix_duplicates" if self.writes_directly() => "false",
            _ => return None,
        };
        self.is_on_hbase().then_some(value)
    }

    /// A value as a boolean, by OpenTSDB's rules.
    fn bool(&self, name: &str) -> bool {
        self.text(name).is_some_and(is_true)
    }

    /// A value as a number. [`Self::check`] has validated it.
    fn int<T: TryFrom<i64> + Default>(&self, name: &str) -> T {
        self.text(name)
            .and_then(|text| text.parse::<i64>().ok())
            .and_then(|n| T::try_from(n).ok())
            .unwrap_or_default()
    }

    /// A value as a duration. [`Self::check`] has validated it.
    fn seconds(&self, name: &str) -> Duration {
        self.text(name)
            .and_then(|text| text.parse().ok())
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .unwrap_or_default()
    }

    /// The error for a value that only its consumer can validate.
    pub(crate) fn bad_value(&self, name: &str, expected: impl fmt::Display) -> ConfigError {
        let given = self.values.get(name);
        ConfigError::BadValue {
            key: name.to_owned(),
            value: self.text(name).unwrap_or_default().to_owned(),
            origin: given.map_or(Origin::Default, |g| g.origin.clone()),
            expected: expected.to_string(),
        }
    }
}

/// `1`, `true` and `yes` in any case.
fn is_true(text: &str) -> bool {
    ["1", "true", "yes"].iter().any(|word| text.trim().eq_ignore_ascii_case(word))
}

/// `0`, `false` and `no` in any case, and the empty text. OpenTSDB reads every other text as false,
/// too, so that a misspelt `true` switches off what it should switch on.
fn is_false(text: &str) -> bool {
    ["0", "false", "no", ""].iter().any(|word| text.trim().eq_ignore_ascii_case(word))
}

impl ValueKind {
    /// Validates a value; the error names what is expected.
    pub fn check(self, value: &str) -> Result<(), String> {
        let value = value.trim();
        match self {
            Self::Text => Ok(()),
            Self::Bool | Self::Exactly(_) if is_true(value) || is_false(value) => Ok(()),
            Self::Bool => {
                Err("expected true, 1 or yes, or false, 0, no or the empty text".to_owned())
            }
            Self::Exactly(_) => Err("expected true or false".to_owned()),
            Self::Int { min, max } => match value.parse::<i64>() {
                Ok(n) if (min..=max).contains(&n) => Ok(()),
                _ => Err(format!("expected a whole number from {min} to {max}")),
            },
            Self::Seconds { min, max } => match value.parse::<f64>() {
                Ok(n) if (min..=max).contains(&n) => Ok(()),
                _ => Err(format!("expected seconds from {min} to {max}")),
            },
            Self::OneOf(words) if words.contains(&value) => Ok(()),
            Self::OneOf(words) => Err(format!("expected one of {}", words.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests;
