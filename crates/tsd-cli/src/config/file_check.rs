//! Checks each line of a configuration file (`tsdb config check`) without starting anything.

use std::{collections::BTreeMap, path::Path};

use tsd_query::nearest_name;
use tsd_server::redacted;

use super::{
    Config, ConfigError, EngineKind, KeyEffect, Property, Settings, ValueKind, hbase_summary,
    is_client_key, is_true, keys, parse_properties,
};

/// Maximum wrong keys that a check finds.
const MAX_ROUNDS: usize = 1_000;

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileCheck {
    /// Each assignment, in the order of the file.
    pub(crate) entries: Vec<CheckedEntry>,
    /// Errors of the file as a whole.
    pub(crate) problems: Vec<String>,
    /// Warnings about the file as a whole.
    pub(crate) warnings: Vec<String>,
    /// How the daemon would reach HBase, in words; empty for other stores, and for a file with errors.
    pub(crate) hbase: Vec<String>,
}

/// An assignment of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckedEntry {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) line: usize,
    pub(crate) verdict: KeyVerdict,
}

/// The effect of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyVerdict {
    /// It has an effect.
    Honoured {
        /// The value in effect.
        effective: String,
        /// A remark for the operator.
        note: Option<String>,
    },
    /// It has no effect.
    Ignored {
        /// The reason.
        why: String,
    },
    /// The key does not exist, so it has no effect.
    Unknown {
        /// A key of a similar name.
        nearest: Option<&'static str>,
    },
    /// A daemon does not start with this value.
    Wrong {
        /// The reason.
        why: String,
    },
}

impl KeyVerdict {
    /// The verdict as one word.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Honoured { .. } => "honoured",
            Self::Ignored { .. } => "ignored",
            Self::Unknown { .. } => "unknown",
            Self::Wrong { .. } => "wrong",
        }
    }
}

impl FileCheck {
    /// Number of assignments with a verdict.
    pub(crate) fn count(&self, word: &str) -> usize {
        self.entries.iter().filter(|entry| entry.verdict.word() == word).count()
    }
}

/// Checks the assignments of a file.
pub(crate) fn check_file(path: &Path, text: &[u8]) -> Result<FileCheck, ConfigError> {
    let properties = parse_properties(text)
        .map_err(|source| ConfigError::Malformed { path: path.to_owned(), source })?;
    let mut config = Config::default();
    config.add_file(path, text)?;
    let (wrong, problems, settings) = wrong_keys(&config);
    let last_lines: BTreeMap<&str, usize> =
        properties.iter().map(|property| (property.key.as_str(), property.line)).collect();
    let entries = properties
        .iter()
        .map(|Property { key, value, line }| {
            let last = last_lines.get(key.as_str()).copied().unwrap_or(*line);
            let verdict = if last == *line {
                verdict(&config, key, &wrong, settings.as_ref())
            } else {
                KeyVerdict::Ignored { why: format!("line {last} sets it again") }
            };
            CheckedEntry { key: key.clone(), value: redacted(key, value), line: *line, verdict }
        })
        .collect();
    let mut checked = FileCheck {
        entries,
        problems,
        warnings: config.embedded_by_default().into_iter().collect(),
        hbase: Vec::new(),
    };
    if let Some(settings) = settings.filter(|_| wrong.is_empty() && checked.problems.is_empty())
        && settings.storage.engine == EngineKind::HBase
    {
        let hbase = &settings.storage.hbase;
        checked.hbase = hbase_summary::lines(hbase);
        checked.problems = hbase_summary::unreadable_files(hbase);
        if checked.problems.is_empty()
            && let Err(error) = hbase.cluster.check_security()
        {
            checked.problems.push(error.to_string());
        }
        checked.warnings.extend(hbase.warnings.iter().cloned());
    }
    Ok(checked)
}

type WrongKeys = BTreeMap<String, String>;

/// The keys with which a daemon does not start and the reasons, other problems, and the settings without these keys.
fn wrong_keys(config: &Config) -> (WrongKeys, Vec<String>, Option<Settings>) {
    let mut rest = config.clone();
    let mut wrong = WrongKeys::new();
    // Each round finds one error: first values that are invalid by themselves, then contradicting values and
    // plug-ins.
    for _ in 0..MAX_ROUNDS {
        match Settings::from_config(&rest) {
            Ok(settings) => return (wrong, Vec::new(), Some(settings)),
            Err(ConfigError::BadValue { key, expected, .. })
                if rest.values.remove(&key).is_some() =>
            {
                wrong.insert(key, expected);
            }
            // The error follows from a wrong key that an earlier round removed and reported.
            Err(ConfigError::BadValue { key, .. }) if wrong.contains_key(&key) => {
                return (wrong, Vec::new(), None);
            }
            Err(error) => return (wrong, vec![error.to_string()], None),
        }
    }
    (wrong, Vec::new(), None)
}

fn verdict(
    config: &Config,
    name: &str,
    wrong: &WrongKeys,
    settings: Option<&Settings>,
) -> KeyVerdict {
    if let Some(why) = wrong.get(name) {
        return KeyVerdict::Wrong { why: why.clone() };
    }
    if is_client_key(name) && !config.is_on_hbase() {
        let why = "the store is not HBase, so the key has no effect".to_owned();
        return KeyVerdict::Ignored { why };
    }
    let Some(key) = keys::find(name) else {
        return KeyVerdict::Unknown { nearest: nearest(name) };
    };
    if let KeyEffect::None(reason) = key.effect {
        return KeyVerdict::Ignored { why: reason.to_owned() };
    }
    let value = config.text(name).unwrap_or_default();
    let (effective, note) = match key.kind {
        ValueKind::Bool => (is_true(value).to_string(), None),
        ValueKind::Exactly(word) => exactly(value, word),
        _ => (redacted(name, value), None),
    };
    // The memory limit may have changed a size.
    let shown = settings.and_then(|settings| settings.server.properties.get(name));
    let is_changed = |shown: &&String| shown.trim() != value;
    match shown.filter(is_changed) {
        Some(limited) => KeyVerdict::Honoured {
            note: Some(format!("{value} is more than tsd.memory.limit leaves")),
            effective: redacted(name, limited),
        },
        None => KeyVerdict::Honoured { effective, note },
    }
}

/// The effect of a value that is compared with a word, with a note if the effect is the opposite of what the value
/// suggests.
fn exactly(value: &str, word: &str) -> (String, Option<String>) {
    let is_word = value == word;
    let effective = if is_word == (word == "true") { "true" } else { "false" };
    let is_surprising = !is_word && is_true(value) == (word == "true");
    let note =
        is_surprising.then(|| format!("only the exact text {word:?} is {word}, as in OpenTSDB"));
    (effective.to_owned(), note)
}

/// The known key whose name differs least, if it is similar.
fn nearest(name: &str) -> Option<&'static str> {
    nearest_name(name, keys::KEYS.iter().map(|key| key.name))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn check(text: &str) -> FileCheck {
        check_file(Path::new("opentsdb.conf"), text.as_bytes()).unwrap()
    }

    /// One line per entry: verdict, key and details.
    fn lines(text: &str) -> Vec<String> {
        let line = |entry: &CheckedEntry| {
            let detail = match &entry.verdict {
                KeyVerdict::Honoured { effective, note } => {
                    format!(
                        "{effective}{}",
                        note.as_deref().map_or(String::new(), |n| format!(" ({n})"))
                    )
                }
                KeyVerdict::Ignored { why } | KeyVerdict::Wrong { why } => why.clone(),
                KeyVerdict::Unknown { nearest } => nearest.unwrap_or("-").to_owned(),
            };
            format!("{} {} {}: {detail}", entry.line, entry.verdict.word(), entry.key)
        };
        check(text).entries.iter().map(line).collect()
    }

    #[test]
    fn every_assignment_has_a_verdict() {
        let text = "tsd.network.port = 1\n\
                    tsd.network.port = 4243\n\
                    tsd.http.cachedir = /usr/share/opentsdb\n\
                    tsd.network.prot = 2\n\
                    my.own.key = 3\n\
                    tsd.core.auto_create_metrics = Yes\n\
                    tsd.core.enable_api = TRUE\n\
                    tsd.storage.salt.width = 9\n\
                    tsd.startup.enable = true\n\
                    hbase.rpc.timeout = 5\n";
        assert_eq!(
            lines(text),
            [
                "1 ignored tsd.network.port: line 2 sets it again",
                "2 honoured tsd.network.port: 4243",
                "3 ignored tsd.http.cachedir: no files of graphs are kept",
                "4 unknown tsd.network.prot: tsd.network.port",
                "5 unknown my.own.key: -",
                "6 honoured tsd.core.auto_create_metrics: true",
                "7 honoured tsd.core.enable_api: false (only the exact text \"true\" is true, as in \
                 OpenTSDB)",
                "8 wrong tsd.storage.salt.width: expected a whole number from 0 to 8",
                "9 wrong tsd.startup.enable: no start-up plug-in is built in (a supervisor can start other \
                 programs before the daemon, and /api/health/ready tells when it serves); expected false",
                "10 ignored hbase.rpc.timeout: the store is not HBase, so the key has no effect",
            ]
        );
    }

    #[test]
    fn no_credentials_are_shown() {
        let text = "tsd.rtpublisher.url = http://me:s3cret@host/in\n\
                    my.password = s3cret\n\
                    tsd.rtpublisher.queue_size = http://me:s3cret@host/\n";
        let checked = check(text);
        assert!(!format!("{checked:?}").contains("s3cret"), "{checked:?}");
        let error = {
            let mut config = Config::default();
            config.set_flag("test", "tsd.network.port", "http://me:s3cret@host/");
            config.check().unwrap_err().to_string()
        };
        assert!(error.contains("http://***@host/"), "{error}");
    }

    #[test]
    fn values_that_contradict_each_other_are_found() {
        let checked = check(
            "tsd.storage.engine = hbase\ntsd.storage.ack = log\ntsd.storage.use_otsdb_timestamp = true\n\
             tsd.log.level = loud\n",
        );
        assert_eq!((checked.count("wrong"), checked.count("honoured")), (2, 2));
        assert!(checked.problems.is_empty(), "{:?}", checked.problems);
    }

    #[test]
    fn what_follows_from_a_wrong_key_is_no_other_problem() {
        let text = "tsd.rollups.enable = true\ntsd.rollups.config = /nonexistent/rollups.json\n";
        let checked = check(text);
        assert_eq!((checked.count("wrong"), checked.count("honoured")), (1, 1));
        assert!(checked.problems.is_empty(), "{:?}", checked.problems);
    }

    /// Issue 37, case C14.
    #[test]
    fn keys_of_hbase_without_a_quorum_are_surprising() {
        let stock = "tsd.network.port = 4242\ntsd.storage.hbase.data_table = tsdb\n";
        let warning = check(stock).warnings.pop().unwrap();
        for part in ["tsd.storage.hbase.data_table", "line 2", "zk_quorum = localhost"] {
            assert!(warning.contains(part), "{warning}");
        }
        for decided in ["tsd.storage.hbase.zk_quorum = zk", "tsd.storage.engine = embedded"] {
            assert!(check(&format!("{stock}{decided}\n")).warnings.is_empty(), "{decided}");
        }
        assert!(check("tsd.network.port = 1\n").warnings.is_empty());
        assert_eq!(check("google.bigtable.project.id = x\n").warnings.len(), 1);
    }

    /// Issue 37, case C16.
    #[test]
    fn empty_numbers_and_words_are_the_default() {
        let text = "tsd.network.worker_threads=\ntsd.storage.max_tags =\ntsd.storage.ack=\n";
        let checked = check(text);
        assert_eq!((checked.count("honoured"), checked.problems.len()), (3, 0), "{checked:?}");
        assert_eq!(
            lines("tsd.network.port = 1\ntsd.network.port =\n"),
            [
                "1 ignored tsd.network.port: line 2 sets it again",
                "2 honoured tsd.network.port: 4242"
            ]
        );
    }

    #[test]
    fn the_way_to_hbase_is_described_unless_the_file_is_wrong() {
        let kerberos = "tsd.storage.hbase.zk_quorum = zk1\n\
                        hbase.security.auth.enable = true\n\
                        hbase.security.authentication = kerberos\n\
                        hbase.kerberos.regionserver.principal = hbase/_HOST@R\n\
                        hbase.client.keytab.file = /no/such.keytab\n";
        let checked = check(kerberos);
        assert_eq!((checked.count("honoured"), checked.warnings.len()), (5, 0), "{checked:?}");
        assert!(checked.hbase.iter().any(|line| line.contains("Kerberos")), "{checked:?}");
        assert!(
            checked.problems.iter().any(|line| line.contains("/no/such.keytab")),
            "{checked:?}"
        );
        let wrong = check(&format!("{kerberos}hbase.rpc.protection = much\n"));
        assert_eq!((wrong.count("wrong"), wrong.hbase.len()), (1, 0), "{wrong:?}");
        let missing = check(&kerberos.replace("hbase.kerberos.regionserver.principal", "#"));
        assert!(missing.problems.iter().any(|line| line.contains("principal")), "{missing:?}");
        let off = check("tsd.storage.hbase.zk_quorum = zk1\nhbase.client.keytab.file = /k\n");
        assert!(off.warnings.iter().any(|line| line.contains("has no effect")), "{off:?}");
        assert!(check("tsd.network.port = 1\n").hbase.is_empty());
        assert_eq!(
            lines("zookeeper.client.secure = true\njava.security.krb5.conf = /k\n"),
            [
                "1 ignored zookeeper.client.secure: the store is not HBase, so the key has no effect",
                "2 ignored java.security.krb5.conf: the store is not HBase, so the key has no effect",
            ]
        );
    }

    #[test]
    fn a_file_of_defaults_is_honoured() {
        let checked = check("tsd.network.port=4242\ntsd.mode=rw\n");
        assert_eq!(checked.count("honoured"), 2);
        assert!(check("").entries.is_empty());
        assert!(check_file(Path::new("f"), b"a=\\u12").is_err());
    }

    #[test]
    fn similar_names_are_near() {
        assert_eq!(nearest("tsd.core.auto_create_metric"), Some("tsd.core.auto_create_metrics"));
        assert_eq!(nearest("tsd.storage.fix_duplicate"), Some("tsd.storage.fix_duplicates"));
        assert_eq!(nearest("something.else.entirely"), None);
    }
}
