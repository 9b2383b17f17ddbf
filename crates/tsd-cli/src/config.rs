//! The configuration as text: sources, precedence and validation. `settings` gives it types.
//!
//! A value comes from the command line, the environment, the file or the table of defaults, in that
//! order. All values are validated before anything starts: the error for a bad value names its key
//! and source. Unknown keys are warnings, since OpenTSDB ignores them.

mod error;
mod file_check;
mod hbase_summary;
pub mod keys;
mod origin;
mod plugins;
mod properties;
mod settings;
mod size;

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

pub use error::ConfigError;
pub(crate) use error::UnusableConfiguration;
pub(crate) use file_check::{CheckedEntry, FileCheck, KeyVerdict, check_file};
pub use keys::{Key, KeyEffect, ValueKind};
pub use origin::Origin;
pub use properties::{PropertiesError, Property, parse as parse_properties};
pub(crate) use settings::{
    AUDIT_FILE, RULES_FILE, TLS_CERTIFICATE, TLS_CLIENT_CA, TLS_KEY, TOKEN_KEYS_FILE, USERS_FILE,
    host_name,
};
pub use settings::{
    Ack, AuthenticationMethod, AuthenticationSettings, ClusterNetSettings, EngineKind,
    HBaseSettings, ImportSettings, LogFormat, LogSettings, PluginSettings, PointPluginSettings,
    RetentionSettings, Settings, StorageSettings, TlsSettings, TokenSettings,
};
use size::parse_size;
use tsd_server::redacted;

/// Paths at which OpenTSDB searches for its file, in this order.
pub const SEARCH_PATH: [&str; 4] = [
    "./opentsdb.conf",
    "/etc/opentsdb.conf",
    "/etc/opentsdb/opentsdb.conf",
    "/opt/opentsdb/opentsdb.conf",
];

/// Keys that select HBase as the store.
const SELECT_HBASE: [&str; 4] = [
    "tsd.storage.hbase.zk_quorum",
    "tsd.storage.hbase.site",
    "hbase.client.bootstrap.servers",
    "hbase.masters",
];

/// Starts of the keys of HBase's client, and of what the client uses in Java.
const CLIENT_KEYS: [&str; 5] = ["hbase.", "zookeeper.", "java.security.", "hadoop.", "cloudtable."];

/// Environment variable with flags of the JVM, which OpenTSDB's start script passes on.
const JVM_FLAGS: &str = "JVMARGS";
/// Starts of the keys that OpenTSDB gets as flags of the JVM (`-Dkey=value`).
const JVM_KEYS: [&str; 2] = ["java.security.", "zookeeper."];
/// Variable of Hadoop that names the file of a delegation token, and its key.
const TOKEN_VARIABLE: (&str, &str) = ("HADOOP_TOKEN_FILE_LOCATION", "hadoop.token.files");

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
            self.set(key, value, origin);
        }
        self.file = Some(path.to_owned());
        Ok(())
    }

    /// Adds values from environment variables: `TSD_NETWORK_PORT` is `tsd.network.port`. Variables of a key win over
    /// the flags of the JVM in `JVMARGS`.
    pub fn add_environment(&mut self, variables: impl IntoIterator<Item = (String, String)>) {
        let by_variable: BTreeMap<String, &Key> =
            keys::KEYS.iter().map(|key| (key.environment_variable(), key)).collect();
        let (of_jvm, variables): (Vec<_>, Vec<_>) =
            variables.into_iter().partition(|(name, _)| name == JVM_FLAGS);
        for (name, flags) in of_jvm {
            self.add_jvm_flags(&name, &flags);
        }
        for (name, value) in variables {
            let (of_hadoop, key) = TOKEN_VARIABLE;
            if name == of_hadoop {
                self.set(key.to_owned(), value, Origin::Environment(name));
                continue;
            }
            if let Some(key) = by_variable.get(&name) {
                self.set(key.name.to_owned(), value, Origin::Environment(name));
            } else if name.starts_with("TSD_") {
                self.unknown_variables.push(name);
            }
        }
    }

    /// Adds the keys of Kerberos and ZooKeeper among flags of the JVM. Its start script splits them at white space.
    fn add_jvm_flags(&mut self, variable: &str, flags: &str) {
        for flag in flags.split_whitespace() {
            if let Some((key, value)) =
                flag.strip_prefix("-D").and_then(|flag| flag.split_once('='))
                && JVM_KEYS.iter().any(|prefix| key.starts_with(prefix))
            {
                let origin = Origin::Environment(variable.to_owned());
                self.set(key.to_owned(), value.to_owned(), origin);
            }
        }
    }

    /// Sets a key of a file or a variable. An empty number or word selects the default: files made from `/api/config`
    /// have such lines, and OpenTSDB uses the default for most empty keys.
    fn set(&mut self, key: String, value: String, origin: Origin) {
        let is_default = value.trim().is_empty()
            && keys::find(&key).is_some_and(|known| !known.kind.accepts_empty());
        if is_default {
            self.values.remove(&key);
        } else {
            self.values.insert(key, ConfigValue { value, origin });
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

    /// Copies a key from another configuration, also if it is not set there.
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

    /// A warning that the daemon uses the embedded store although the file has keys of HBase. `None` without such
    /// keys, or if the configuration names an engine.
    #[must_use]
    pub fn embedded_by_default(&self) -> Option<String> {
        const OF_HBASE: [&str; 3] = ["tsd.storage.hbase.", "hbase.", "google.bigtable."];
        if self.is_on_hbase() || self.values.contains_key("tsd.storage.engine") {
            return None;
        }
        let of_hbase = |key: &str| OF_HBASE.iter().any(|prefix| key.starts_with(prefix));
        let (key, given) = self
            .values
            .iter()
            .find(|(key, given)| of_hbase(key) && matches!(given.origin, Origin::File { .. }))?;
        Some(format!(
            "{key} ({}) is a key of HBase, but points go to the embedded store, because neither \
             tsd.storage.hbase.zk_quorum nor tsd.storage.engine is set; add tsd.storage.hbase.zk_quorum = localhost \
             (OpenTSDB's default) for HBase, or tsd.storage.engine = embedded for this store",
            given.origin
        ))
    }

    /// Keys that have no effect, one line each.
    #[must_use]
    pub fn without_effect(&self) -> Vec<String> {
        let line = |(key, given): (&String, &ConfigValue)| {
            let origin = &given.origin;
            match keys::find(key) {
                // Keys of the HBase client have an effect only on HBase.
                _ if is_client_key(key) && !self.is_on_hbase() => {
                    Some(format!("{key} ({origin}) has no effect on the embedded store"))
                }
                Some(Key { effect: KeyEffect::None(reason), default, .. })
                    if *default != Some(given.value.trim()) =>
                {
                    Some(format!("{key} ({origin}) has no effect: {reason}"))
                }
                _ => None,
            }
        };
        self.values.iter().filter_map(line).collect()
    }

    /// Warnings for the operator, one line each, at most one per key.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.embedded_by_default().into_iter().collect();
        for (key, given) in &self.values {
            let origin = &given.origin;
            lines.push(match keys::find(key) {
                None if is_client_key(key) && !self.is_on_hbase() => continue,
                None => format!("unknown key {key} ({origin})"),
                Some(Key { kind: ValueKind::Exactly(word), .. })
                    if is_true(&given.value) == (*word == "true")
                        && given.value.trim() != *word =>
                {
                    let value = redacted(key, &given.value);
                    format!(
                        "{key} = {value:?} ({origin}) is not the exact text {word:?}, so it has the opposite effect, \
                         as in OpenTSDB"
                    )
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

    /// Checks every value by its kind. The error names all wrong ones.
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |(name, given): (&String, &ConfigValue)| {
            let expected = keys::find(name)?.kind.check(&given.value).err()?;
            Some(ConfigError::BadValue {
                key: name.clone(),
                value: given.value.clone(),
                origin: given.origin.clone(),
                expected: expected.to_string(),
            })
        };
        let mut errors: Vec<_> = self.values.iter().filter_map(wrong).collect();
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(ConfigError::BadValues(errors)),
        }
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

    /// The value of a key as an owned text, which must not be empty.
    fn required(&self, name: &str, expected: &str) -> Result<String, ConfigError> {
        self.non_empty(name).map(str::to_owned).ok_or_else(|| self.bad_value(name, expected))
    }

    /// The value of a key as an owned text; empty without a value.
    fn string(&self, name: &str) -> String {
        self.text(name).unwrap_or_default().to_owned()
    }

    /// True if HBase is the store: it is the configured engine, or a key is set that says where HBase is.
    #[must_use]
    pub fn is_on_hbase(&self) -> bool {
        let is_given =
            |key: &str| self.values.get(key).is_some_and(|given| !given.value.trim().is_empty());
        match self.values.get("tsd.storage.engine") {
            Some(engine) => engine.value.trim() == "hbase",
            None => SELECT_HBASE.iter().any(|key| is_given(key)),
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
            // Holds the rows of one to ten minutes, or of an hour while HBase is unavailable.
            "tsd.storage.memtable.size" => "536870912",
            // A replay reads the whole log from HBase.
            "tsd.storage.log.max_size" if self.text("tsd.storage.ack") == Some("cluster") => {
                "1073741824"
            }
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
        let is_size =
            keys::find(name).is_some_and(|key| matches!(key.kind, ValueKind::Size { .. }));
        self.text(name)
            .and_then(|text| if is_size { parse_size(text) } else { text.parse().ok() })
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

/// True for a key of HBase's client, which has an effect only on HBase.
fn is_client_key(key: &str) -> bool {
    CLIENT_KEYS.iter().any(|prefix| key.starts_with(prefix))
}

/// `1`, `true` and `yes` in any case.
fn is_true(text: &str) -> bool {
    ["1", "true", "yes"].iter().any(|word| text.trim().eq_ignore_ascii_case(word))
}

/// `0`, `false` and `no` in any case, and the empty text. OpenTSDB also reads every other text as false, so a
/// misspelt `true` disables what it should enable.
fn is_false(text: &str) -> bool {
    ["0", "false", "no", ""].iter().any(|word| text.trim().eq_ignore_ascii_case(word))
}

/// A text is not a value of a kind. The message names what is expected.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidValueError {
    /// A boolean by OpenTSDB's rules.
    #[error("expected true, 1 or yes, or false, 0, no or the empty text")]
    Bool,
    /// A boolean of which OpenTSDB knows one exact text.
    #[error("expected true or false")]
    Exactly,
    /// A whole number.
    #[error("expected a whole number from {min} to {max}")]
    Int {
        /// Least value.
        min: i64,
        /// Greatest value.
        max: i64,
    },
    /// A number of bytes.
    #[error("expected bytes from {min} to {max}, also with a unit, such as 512MiB or 2GB")]
    Size {
        /// Least value.
        min: i64,
        /// Greatest value.
        max: i64,
    },
    /// A time in seconds.
    #[error("expected seconds from {min} to {max}")]
    Seconds {
        /// Least value.
        min: f64,
        /// Greatest value.
        max: f64,
    },
    /// One of these words.
    #[error("expected one of {}", .0.join(", "))]
    OneOf(&'static [&'static str]),
}

impl ValueKind {
    /// True if the empty text is a value.
    const fn accepts_empty(self) -> bool {
        matches!(self, Self::Text | Self::Bool | Self::Exactly(_))
    }

    /// Validates a value; the error names what is expected.
    pub fn check(self, value: &str) -> Result<(), InvalidValueError> {
        let value = value.trim();
        match self {
            Self::Text => Ok(()),
            Self::Bool | Self::Exactly(_) if is_true(value) || is_false(value) => Ok(()),
            Self::Bool => Err(InvalidValueError::Bool),
            Self::Exactly(_) => Err(InvalidValueError::Exactly),
            Self::Int { min, max } => match value.parse::<i64>() {
                Ok(n) if (min..=max).contains(&n) => Ok(()),
                _ => Err(InvalidValueError::Int { min, max }),
            },
            Self::Size { min, max } => match parse_size(value) {
                Some(bytes) if (min..=max).contains(&bytes) => Ok(()),
                _ => Err(InvalidValueError::Size { min, max }),
            },
            Self::Seconds { min, max } => match value.parse::<f64>() {
                Ok(n) if (min..=max).contains(&n) => Ok(()),
                _ => Err(InvalidValueError::Seconds { min, max }),
            },
            Self::OneOf(words) if words.contains(&value) => Ok(()),
            Self::OneOf(words) => Err(InvalidValueError::OneOf(words)),
        }
    }
}

#[cfg(test)]
mod tests;
