//! Operations on a secured cluster by HBase's own client, which runs in a process of its own and can log in there.

use std::{fmt::Write, fs, path::Path};

use hbase_rs::{ServerName, TableName};

use super::Cluster;
use crate::{error::ClusterError, node::Node, programs::JavaClient, security::Kerberos};

const PROGRAM: &str = include_str!("../../java/ClusterAdmin.java");

impl Cluster {
    /// Grants all rights to a user of a cluster with authorization, by its name without realm.
    ///
    /// # Errors
    ///
    /// If the cluster has no Kerberos, or HBase rejects it.
    pub async fn grant(&self, user: &str) -> Result<(), ClusterError> {
        self.administer(Kerberos::HBASE, &["grant", user, "RWXCA"]).await
    }

    /// Sets the rights of a user on some tables: letters of `RWXCA`, as in HBase's shell.
    ///
    /// # Errors
    ///
    /// As [`Self::grant`].
    pub async fn grant_on(
        &self,
        user: &str,
        rights: &str,
        tables: &[&str],
    ) -> Result<(), ClusterError> {
        let all = [&["grant", user, rights][..], tables].concat();
        self.administer(Kerberos::HBASE, &all).await
    }

    /// Gets a delegation token for a user with a keytab, and writes it to a credentials file of Hadoop.
    ///
    /// # Errors
    ///
    /// If the cluster has no Kerberos, or HBase hands out no tokens.
    pub async fn write_token(&self, user: &str, file: &Path) -> Result<(), ClusterError> {
        let file = std::path::absolute(file).map_err(ClusterError::file("find", file))?;
        self.administer(user, &["token", &file.display().to_string()]).await
    }

    /// Moves the region of a row to a region server, and waits until it is open there.
    pub(super) async fn move_secured_region(
        &self,
        table: &TableName,
        row: &[u8],
        server: &ServerName,
    ) -> Result<(), ClusterError> {
        let row = row.iter().fold(String::new(), |mut digits, byte| {
            let _ = write!(digits, "{byte:02x}");
            digits
        });
        let (table, server) = (table.to_string(), server.to_string());
        self.administer(Kerberos::HBASE, &["move", &table, &row, &server]).await
    }

    /// Runs the program as a user or service.
    async fn administer(&self, user: &str, args: &[&str]) -> Result<(), ClusterError> {
        let realm = self.realm().ok_or(ClusterError::NoNode { node: Node::Kdc })?;
        let source = self.directory().join("tmp/ClusterAdmin.java");
        fs::write(&source, PROGRAM).map_err(ClusterError::file("write", &source))?;
        let (principal, keytab) = (realm.principal(user), realm.keytab(user).display().to_string());
        let mut all = vec![principal.as_str(), keytab.as_str()];
        all.extend(args);
        JavaClient { source: &source, args: &all, flags: &[] }.run(self).await.map(|_| ())
    }
}
