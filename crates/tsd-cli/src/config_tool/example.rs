//! An example of `opentsdb.conf`: every key that has an effect, as a comment with its default.

use std::fmt::Write as _;

use crate::{
    config::{
        KeyEffect,
        keys::{self, Scope},
    },
    version,
};

/// The key that `--data` sets.
const DATA_DIRECTORY: &str = "tsd.storage.data_directory";

const HEADER: &str = "\
# Every key that has an effect, with its default. To change a key, remove the # before it.
# Other sources win over this file: flags, and the environment (tsd.network.port is TSD_NETWORK_PORT).
# `tsdb config check FILE` checks a file, `tsdb config list` also lists keys of OpenTSDB without an effect.
";

/// The file. `data` is the data directory, the only key that is set.
pub(super) fn text(data: Option<&str>) -> String {
    let mut out =
        format!("# Configuration of Saltern {}.\n{HEADER}", version::build_facts().version);
    for key in keys::KEYS {
        let KeyEffect::Applied(scope) = key.effect else { continue };
        let values = key.values();
        let _ = writeln!(out, "\n# {}", key.meaning);
        let _ = match scope {
            Scope::All => writeln!(out, "# values: {values}"),
            store => writeln!(out, "# values: {values}; store: {}", store.text()),
        };
        let (mark, value) = match data {
            Some(data) if key.name == DATA_DIRECTORY => ("", data),
            _ => ("#", key.default.unwrap_or_default()),
        };
        let _ = writeln!(out, "{}", format!("{mark}{} = {}", key.name, escaped(value)).trim_end());
    }
    out
}

/// A value as a properties file has it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::{collections::BTreeMap, path::Path};

    use super::*;
    use crate::config::{Config, Settings, check_file, parse_properties};

    /// The assignments, also those in comments.
    fn uncommented(text: &str) -> String {
        let is_key = |line: &&str| line.starts_with('#') && !line.starts_with("# ");
        text.lines()
            .filter(is_key)
            .fold(String::new(), |out, line| out + line.trim_start_matches('#') + "\n")
    }

    #[test]
    fn the_file_sets_only_the_data_directory() {
        assert!(parse_properties(text(None).as_bytes()).unwrap().is_empty());
        let text = text(Some("/var/lib/tsdb"));
        let set = parse_properties(text.as_bytes()).unwrap();
        let set: Vec<_> = set.iter().map(|one| (one.key.as_str(), one.value.as_str())).collect();
        assert_eq!(set, [(DATA_DIRECTORY, "/var/lib/tsdb")]);
        let checked = check_file(Path::new("f"), text.as_bytes()).unwrap();
        assert_eq!((checked.count("honoured"), checked.problems.len()), (1, 0));
    }

    #[test]
    fn every_key_that_has_an_effect_is_a_comment_with_its_default() {
        let text = uncommented(&text(None));
        let set = parse_properties(text.as_bytes()).unwrap();
        let set: BTreeMap<_, _> = set.into_iter().map(|one| (one.key, one.value)).collect();
        let applied: BTreeMap<_, _> = keys::KEYS
            .iter()
            .filter(|key| key.is_applied())
            .map(|key| (key.name.to_owned(), key.default.unwrap_or_default().to_owned()))
            .collect();
        assert_eq!(set, applied);
    }

    #[test]
    fn the_defaults_are_a_valid_configuration() {
        let text = uncommented(&text(None));
        let with_default = text.lines().filter(|line| !line.ends_with('='));
        let text: String = with_default.flat_map(|line| [line, "\n"]).collect();
        let mut config = Config::default();
        config.add_file(Path::new("f"), text.as_bytes()).unwrap();
        Settings::from_config(&config).unwrap();
    }
}
