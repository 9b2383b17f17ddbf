//! How a daemon reaches a secured cluster: its configuration file and environment.

use std::{fmt, fs, path::Path};

use cluster::{Certificate, Cluster, Kerberos, Protection};

use crate::TestResult;

/// How the servers are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discovery {
    /// By the vendor's files, which name everything but the login.
    Site,
    ZooKeeper,
    Masters,
    /// Region servers.
    Bootstrap,
}

/// Where tickets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Login {
    Keytab,
    Jaas,
    Cache,
    Token,
    /// No authentication.
    Nobody,
}

/// TLS to the servers of HBase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    Plain,
    TlsOnly,
    /// With a certificate of the client.
    Mutual,
}

/// A client of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SecureClient {
    pub(crate) discovery: Discovery,
    pub(crate) protection: Protection,
    pub(crate) login: Login,
    pub(crate) encryption: Encryption,
}

impl fmt::Display for SecureClient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { discovery, protection, login, encryption } = self;
        write!(out, "{discovery:?}, {protection}, {login:?}, {encryption:?}")
    }
}

/// A configuration file, and the environment of daemon and tools.
#[derive(Debug, Default)]
pub(crate) struct ClientSettings {
    pub(crate) lines: Vec<(String, String)>,
    pub(crate) environment: Vec<(String, String)>,
}

impl ClientSettings {
    pub(crate) fn set(&mut self, key: &str, value: impl fmt::Display) {
        self.lines.retain(|(known, _)| known != key);
        self.lines.push((key.to_owned(), value.to_string()));
    }

    /// Writes the configuration file.
    pub(crate) fn write(&self, file: &Path) -> std::io::Result<()> {
        let lines: Vec<_> =
            self.lines.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        fs::write(file, lines.concat())
    }
}

impl SecureClient {
    /// The settings of the client. Files of the login are written to `directory`.
    pub(crate) async fn settings(
        self,
        cluster: &Cluster,
        directory: &Path,
    ) -> TestResult<ClientSettings> {
        let mut settings = ClientSettings::default();
        settings.set("tsd.core.auto_create_metrics", true);
        self.set_discovery(cluster, &mut settings);
        self.set_login(cluster, directory, &mut settings).await?;
        self.set_encryption(cluster, &mut settings);
        Ok(settings)
    }

    fn set_discovery(self, cluster: &Cluster, settings: &mut ClientSettings) {
        match self.discovery {
            Discovery::Site => {
                settings
                    .set("tsd.storage.hbase.site", cluster.client_files().directory().display());
            }
            Discovery::ZooKeeper => {
                settings.set("tsd.storage.hbase.zk_quorum", cluster.client_quorum());
            }
            Discovery::Masters => {
                // A server that does not exist is asked, too.
                let masters = [vec!["localhost:1".to_owned()], cluster.masters()].concat();
                settings.set(
                    "tsd.storage.hbase.zk_quorum",
                    format!("hbase+rpc://{}", masters.join(",")),
                );
            }
            Discovery::Bootstrap => {
                let server = cluster.server_name(0);
                let implementation = "org.apache.hadoop.hbase.client.RpcConnectionRegistry";
                settings.set("hbase.client.registry.impl", implementation);
                let address = format!("{}:{}", server.host(), server.port());
                settings.set("hbase.client.bootstrap.servers", address);
            }
        }
    }

    async fn set_login(
        self,
        cluster: &Cluster,
        directory: &Path,
        settings: &mut ClientSettings,
    ) -> TestResult<()> {
        let Some(realm) = cluster.realm() else { return Ok(()) };
        let files = cluster.client_files();
        settings.set("hbase.security.auth.enable", true);
        settings.set("hbase.security.authentication", "kerberos");
        settings.set("hbase.rpc.protection", self.protection);
        settings.set("java.security.krb5.conf", files.krb5_conf().display());
        let host = realm.principal(Kerberos::HBASE);
        let principal = if host.contains("/localhost@") {
            format!("{}/_HOST@{}", Kerberos::HBASE, realm.name())
        } else {
            host
        };
        settings.set("hbase.kerberos.regionserver.principal", principal);
        match self.login {
            Login::Keytab => {
                // Without a JAAS file, a login at ZooKeeper has to be asked for.
                settings.set("zookeeper.sasl.client", true);
                settings.set("hbase.client.keytab.file", files.keytab().display());
                settings.set("hbase.client.keytab.principal", realm.principal(Kerberos::USER));
            }
            Login::Jaas => {
                settings.set("java.security.auth.login.config", files.jaas().display());
                settings.set("hbase.sasl.clientconfig", "Client");
            }
            Login::Cache => {
                let cache = directory.join("tickets");
                realm.kinit(Kerberos::USER, &cache, None)?;
                settings.environment.push(("KRB5CCNAME".to_owned(), cache.display().to_string()));
            }
            Login::Token => {
                let file = directory.join("token");
                cluster.write_token(Kerberos::USER, &file).await?;
                settings.set("hbase.security.authentication", "token");
                let variable = "HADOOP_TOKEN_FILE_LOCATION".to_owned();
                settings.environment.push((variable, file.display().to_string()));
            }
            Login::Nobody => settings.set("hbase.security.auth.enable", false),
        }
        Ok(())
    }

    fn set_encryption(self, cluster: &Cluster, settings: &mut ClientSettings) {
        let is_on = self.encryption != Encryption::Plain;
        settings.set("hbase.client.netty.tls.enabled", is_on);
        let Some(certificates) = cluster.certificates().filter(|_| is_on) else { return };
        settings.set("hbase.rpc.tls.truststore.location", certificates.authority().display());
        if self.encryption == Encryption::Mutual {
            let identity = certificates.pem(Certificate::Client);
            settings.set("hbase.rpc.tls.keystore.location", identity.display());
        }
    }
}
