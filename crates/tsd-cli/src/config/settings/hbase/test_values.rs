//! Configurations and files for the tests of HBase's settings.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{fs, path::Path};

use hbase_rs::security::{Authentication, KerberosConfig};
use tempfile::TempDir;

use super::Connection;
use crate::config::Config;

/// Selects HBase.
pub(super) const QUORUM: &str = "tsd.storage.hbase.zk_quorum = zk1\n";
/// Turns Kerberos on, with the keys of OpenTSDB.
pub(super) const KERBEROS: &str = "tsd.storage.hbase.zk_quorum = zk1\n\
                                   hbase.security.auth.enable = true\n\
                                   hbase.security.authentication = kerberos\n\
                                   hbase.kerberos.regionserver.principal = hbase/_HOST@LAB.TEST\n";

/// The connection of an `opentsdb.conf`, or the text of the error.
pub(super) fn connection(text: &str) -> Result<Connection, String> {
    let mut config = Config::default();
    config.add_file(Path::new("opentsdb.conf"), text.as_bytes()).unwrap();
    config.check().map_err(|error| error.to_string())?;
    super::connection(&config).map_err(|error| error.to_string())
}

#[track_caller]
pub(super) fn kerberos(text: &str) -> KerberosConfig {
    match connection(text).unwrap().security.authentication {
        Authentication::Kerberos(kerberos) => kerberos,
        other => panic!("{other:?}"),
    }
}

/// Fails unless the error has all of these texts.
#[track_caller]
pub(super) fn check_refused(text: &str, expected: &[&str]) {
    let error = connection(text).map(|_| ()).unwrap_err();
    for part in expected {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

/// A directory with files of a cluster.
pub(super) struct Files(TempDir);

impl Files {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a file; returns its path.
    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Writes `hbase-site.xml` with these properties, one a line from line 2; returns the line that names it.
    pub(super) fn site(&self, properties: &[(&str, &str)]) -> String {
        let property = |(name, value): &(&str, &str)| {
            format!("\n<property><name>{name}</name><value>{value}</value></property>")
        };
        let properties: String = properties.iter().map(property).collect();
        let text = format!("<configuration>{properties}</configuration>");
        format!("tsd.storage.hbase.site = {}\n", self.write("hbase-site.xml", text))
    }

    /// Writes a JAAS file with one section; returns the line that names it.
    pub(super) fn jaas(&self, section: &str, options: &str) -> String {
        let class = "com.sun.security.auth.module.Krb5LoginModule";
        let text = format!("{section} {{\n  {class} required\n  {options};\n}};\n");
        format!("java.security.auth.login.config = {}\n", self.write("jaas.conf", text))
    }
}
