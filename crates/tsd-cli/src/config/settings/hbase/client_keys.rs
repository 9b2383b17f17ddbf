//! Values of HBase's client from the configuration of this program and from the site file of the cluster.
//!
//! The program's own values (file, environment, flags) win over the site file, also over its `final` properties.

use std::{fmt, path::PathBuf};

use tsd_storage_hbase::client_files::{SiteProperties, SiteProperty};

use super::process_user::process_user;
use crate::config::{Config, ConfigError, Origin, is_true, keys};

/// Key of the site file.
pub(super) const SITE: &str = "tsd.storage.hbase.site";

/// Start of ZooKeeper's names, and of the names that HBase gives the same settings in a site file.
const ZOOKEEPER_PREFIXES: [&str; 2] = ["zookeeper.", "hbase.zookeeper.property."];

/// The sources of the values.
pub(super) struct ClientKeys<'a> {
    pub(super) config: &'a Config,
    site: SiteProperties,
}

/// A value with its name and source.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) origin: Origin,
}

impl Found {
    /// The error for this value.
    pub(super) fn wrong(&self, expected: impl fmt::Display) -> ConfigError {
        ConfigError::BadValue {
            key: self.key.clone(),
            value: self.value.clone(),
            origin: self.origin.clone(),
            expected: expected.to_string(),
        }
    }

    /// The value as a path. Java also takes `file:` and the second `=` of `-Dname==value`.
    pub(super) fn path(&self) -> PathBuf {
        let text = self.value.trim_start_matches('=');
        match text.strip_prefix("file:") {
            Some(url) => PathBuf::from(url.strip_prefix("//").unwrap_or(url)),
            None => PathBuf::from(text),
        }
    }

    /// Key and source, for a warning.
    pub(super) fn place(&self) -> String {
        format!("{} ({})", self.key, self.origin)
    }

    fn is_true(&self) -> bool {
        is_true(&self.value)
    }
}

impl<'a> ClientKeys<'a> {
    /// Reads the site file, if one is configured and HBase is the store.
    pub(super) fn load(config: &'a Config) -> Result<Self, ConfigError> {
        let site = match config.non_empty(SITE).filter(|_| config.is_on_hbase()) {
            Some(path) => SiteProperties::read(path.as_ref())
                .map_err(|error| config.bad_value(SITE, error))?,
            None => SiteProperties::default(),
        };
        Ok(Self { config, site })
    }

    /// The first of these keys that the program's own configuration sets.
    pub(super) fn own(&self, names: &[&str]) -> Option<Found> {
        names.iter().find_map(|name| {
            let given = self.config.values.get(*name)?;
            let value = given.value.trim();
            (!value.is_empty()).then(|| Found {
                key: (*name).to_owned(),
                value: value.to_owned(),
                origin: given.origin.clone(),
            })
        })
    }

    /// The first of these keys in the site file. ZooKeeper's names may have HBase's prefix there.
    pub(super) fn of_site(&self, names: &[&str]) -> Result<Option<Found>, ConfigError> {
        let [plain, prefixed] = ZOOKEEPER_PREFIXES;
        for name in names {
            let alias = name.strip_prefix(plain).map(|rest| format!("{prefixed}{rest}"));
            for spelling in [Some((*name).to_owned()), alias].into_iter().flatten() {
                if let Some(found) = self.property(&spelling)? {
                    check_kind(name, &found)?;
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    fn property(&self, name: &str) -> Result<Option<Found>, ConfigError> {
        let found = self.site.get(name, &variable);
        let found = found.map_err(|error| self.config.bad_value(SITE, error))?;
        Ok(found.map(|SiteProperty { value, path, line }| Found {
            key: name.to_owned(),
            value,
            origin: Origin::File { path, line },
        }))
    }

    /// The first of these keys that is set: the program's own configuration before the site file.
    pub(super) fn find(&self, names: &[&str]) -> Result<Option<Found>, ConfigError> {
        match self.own(names) {
            Some(found) => Ok(Some(found)),
            None => self.of_site(names),
        }
    }

    /// The text of a key, if it is set.
    pub(super) fn text(&self, names: &[&str]) -> Result<Option<String>, ConfigError> {
        Ok(self.find(names)?.map(|found| found.value))
    }

    /// A boolean of the first key that is set.
    pub(super) fn bool(&self, names: &[&str], default: bool) -> Result<bool, ConfigError> {
        Ok(self.find(names)?.map_or(default, |found| found.is_true()))
    }

    /// A boolean, if it is set.
    pub(super) fn set_bool(&self, names: &[&str]) -> Result<Option<bool>, ConfigError> {
        Ok(self.find(names)?.map(|found| found.is_true()))
    }
}

/// Checks a value of the site file as the configuration checks its own values.
fn check_kind(name: &str, found: &Found) -> Result<(), ConfigError> {
    match keys::find(name) {
        Some(key) => key.kind.check(&found.value).map_err(|expected| found.wrong(expected)),
        None => Ok(()),
    }
}

/// The system properties of Java that files of clusters use, and environment variables (`env.NAME`).
pub(super) fn variable(name: &str) -> Option<String> {
    match name {
        "user.home" => std::env::var("HOME").ok(),
        "user.name" => process_user(),
        "user.dir" => Some(std::env::current_dir().ok()?.to_str()?.to_owned()),
        "java.io.tmpdir" => Some("/tmp".to_owned()),
        _ => std::env::var(name.strip_prefix("env.")?).ok(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::path::Path;

    use super::*;
    use crate::config::settings::hbase::test_values::{Files, check_refused, connection};

    fn found(value: &str) -> Found {
        let origin = Origin::Default;
        Found { key: "k".to_owned(), value: value.to_owned(), origin }
    }

    #[test]
    fn own_values_come_before_the_site_file() {
        let files = Files::new();
        let site = files.site(&[("hbase.masters", "m9"), ("zookeeper.znode.parent", "/secure")]);
        let mut config = Config::default();
        let own = format!("{site}hbase.masters = m1\n");
        config.add_file(Path::new("opentsdb.conf"), own.as_bytes()).unwrap();
        let keys = ClientKeys::load(&config).unwrap();
        assert_eq!(keys.text(&["hbase.masters"]).unwrap().as_deref(), Some("m1"));
        assert_eq!(keys.text(&["zookeeper.znode.parent"]).unwrap().as_deref(), Some("/secure"));
        assert_eq!(
            keys.text(&["absent", "zookeeper.znode.parent"]).unwrap().as_deref(),
            Some("/secure")
        );
        config.set_flag("test", "hbase.masters", "m2");
        let keys = ClientKeys::load(&config).unwrap();
        assert_eq!(keys.text(&["hbase.masters"]).unwrap().as_deref(), Some("m2"));
    }

    #[test]
    fn zookeepers_names_may_have_the_prefix_of_hbase_in_the_site_file() {
        let files = Files::new();
        let site = files.site(&[("hbase.zookeeper.property.client.secure", "true")]);
        let mut config = Config::default();
        config.add_file(Path::new("opentsdb.conf"), site.as_bytes()).unwrap();
        let keys = ClientKeys::load(&config).unwrap();
        assert!(keys.bool(&["zookeeper.client.secure"], false).unwrap());
    }

    #[test]
    fn errors_name_file_and_line_of_the_site_file() {
        let files = Files::new();
        let site = files.site(&[
            ("hbase.zookeeper.quorum", "zk1"),
            ("hbase.client.netty.tls.enabled", "maybe"),
        ]);
        let expected = "hbase.client.netty.tls.enabled = \"maybe\" (";
        check_refused(&site, &[expected, "hbase-site.xml line 3): expected true"]);
        let site = files.site(&[("hbase.zookeeper.quorum", "${no.such}")]);
        check_refused(&site, &["tsd.storage.hbase.site", "hbase-site.xml line 2", "${no.such}"]);
        check_refused("tsd.storage.hbase.site = /no/such\n", &["cannot read /no/such"]);
    }

    #[test]
    fn the_site_file_selects_hbase_and_is_read_only_there() {
        assert!(
            connection("tsd.storage.hbase.site = /no\ntsd.storage.engine = embedded\n").is_ok()
        );
        let files = Files::new();
        let site = files.site(&[("hbase.zookeeper.quorum", "zk1,zk2")]);
        let place = connection(&site).unwrap().discovery.to_string();
        assert_eq!(place, "zk1,zk2 /hbase");
    }

    #[test]
    fn paths_may_be_urls_of_files() {
        for (text, expected) in [
            ("a/b", "a/b"),
            ("/a", "/a"),
            ("file:/a", "/a"),
            ("file:///a", "/a"),
            ("=/a", "/a"),
            ("//a", "//a"),
        ] {
            assert_eq!(found(text).path().to_str(), Some(expected), "{text}");
        }
    }

    #[test]
    fn variables_are_those_of_java_and_of_the_environment() {
        assert_eq!(variable("user.home"), std::env::var("HOME").ok());
        assert_eq!(variable("env.PATH"), std::env::var("PATH").ok());
        assert!(variable("user.dir").is_some() && variable("java.io.tmpdir").is_some());
        assert_eq!(variable("fs.defaultFS"), None);
    }
}
