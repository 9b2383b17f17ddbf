//! How a daemon reaches a secured cluster: its configuration file and environment.

use std::{fmt, fs, path::Path, time::Duration};

use cluster::{Certificate, Cluster, Kerberos, Protection, Tls};
use tokio::{runtime::Handle, task::block_in_place, time::sleep};

use crate::TestResult;

/// How the servers are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discovery {
    /// By the vendor's files, which name everything but the login.
    Site,
    ZooKeeper,
    /// Masters, after a server that does not exist.
    Masters,
    /// Masters by HBase's own keys.
    MasterKeys,
    /// Region servers, after a server that does not exist.
    Bootstrap,
    /// A region server by a name that neither its principal nor its certificate has.
    OtherName,
}

/// Where tickets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Login {
    Keytab,
    Jaas,
    Cache,
    Token,
    /// Tickets that nobody has renewed.
    ExpiredCache,
    /// A token of no cluster.
    ForeignToken,
    /// No authentication.
    Nobody,
}

/// Lifetime of tickets that expire before they are used.
const EXPIRED_AFTER: Duration = Duration::from_secs(1);

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
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientSettings {
    pub(crate) lines: Vec<(String, String)>,
    pub(crate) environment: Vec<(String, String)>,
}

impl ClientSettings {
    pub(crate) fn set(&mut self, key: &str, value: impl fmt::Display) {
        self.lines.retain(|(known, _)| known != key);
        self.lines.push((key.to_owned(), value.to_string()));
    }

    /// Names the tables, as `NAME-data` and so on.
    pub(crate) fn set_tables(&mut self, name: &str) {
        for table in ["data", "uid", "tree", "meta"] {
            self.set(&format!("tsd.storage.hbase.{table}_table"), format!("{name}-{table}"));
        }
        self.set("tsd.storage.hbase.series_table", format!("{name}-series"));
        self.set("tsd.cluster.log_table", format!("{name}-log"));
    }

    /// Writes the configuration file.
    pub(crate) fn write(&self, file: &Path) -> std::io::Result<()> {
        let lines: Vec<_> =
            self.lines.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        fs::write(file, lines.concat())
    }
}

/// [`SecureClient::settings`] for a caller that is not asynchronous.
pub(crate) fn await_settings(
    client: SecureClient,
    cluster: &Cluster,
    directory: &Path,
) -> TestResult<ClientSettings> {
    block_in_place(|| Handle::current().block_on(client.settings(cluster, directory)))
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
                set_zookeeper_tls(cluster, settings);
            }
            Discovery::Masters => {
                let masters = [vec![NO_SERVER.to_owned()], cluster.masters()].concat();
                settings.set(
                    "tsd.storage.hbase.zk_quorum",
                    format!("hbase+rpc://{}", masters.join(",")),
                );
            }
            Discovery::MasterKeys => {
                let implementation = "org.apache.hadoop.hbase.client.MasterRegistry";
                settings.set("hbase.client.registry.impl", implementation);
                settings.set("hbase.masters", cluster.masters().join(","));
            }
            Discovery::Bootstrap => {
                let port = cluster.server_name(0).port();
                set_bootstrap(settings, &format!("{NO_SERVER},localhost:{port}"));
            }
            Discovery::OtherName => {
                let port = cluster.server_name(0).port();
                let name = format!("elsewhere.test:{port}");
                settings.set("tsd.storage.hbase.hosts", format!("{name}=127.0.0.1:{port}"));
                set_bootstrap(settings, &name);
            }
        }
    }

    async fn set_login(
        self,
        cluster: &Cluster,
        directory: &Path,
        settings: &mut ClientSettings,
    ) -> TestResult<()> {
        if self.login == Login::ForeignToken {
            let file = directory.join("token");
            fs::write(&file, FOREIGN_TOKEN)?;
            settings.set("hbase.security.auth.enable", true);
            settings.set("hbase.security.authentication", "token");
            settings.set("hadoop.token.files", file.display());
            return Ok(());
        }
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
                settings.set("hbase.client.keytab.file", files.keytab().display());
                settings.set("hbase.client.keytab.principal", realm.principal(Kerberos::USER));
            }
            Login::Jaas => {
                settings.set("java.security.auth.login.config", files.jaas().display());
                settings.set("hbase.sasl.clientconfig", "Client");
            }
            Login::Cache | Login::ExpiredCache => {
                let cache = directory.join("tickets");
                let is_expired = self.login == Login::ExpiredCache;
                realm.kinit(Kerberos::USER, &cache, is_expired.then_some(EXPIRED_AFTER))?;
                if is_expired {
                    sleep(EXPIRED_AFTER * 2).await;
                }
                settings.environment.push(("KRB5CCNAME".to_owned(), cache.display().to_string()));
            }
            Login::Token => {
                let file = directory.join("token");
                cluster.write_token(Kerberos::USER, &file).await?;
                settings.set("hbase.security.authentication", "token");
                let variable = "HADOOP_TOKEN_FILE_LOCATION".to_owned();
                settings.environment.push((variable, file.display().to_string()));
            }
            Login::ForeignToken | Login::Nobody => {
                settings.set("hbase.security.auth.enable", false);
            }
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

/// The address of no server.
const NO_SERVER: &str = "localhost:1";

/// A token file of Hadoop with one token: alias, identifier, password, kind and service.
const FOREIGN_TOKEN: &[u8] =
    b"HDTS\0\x01\x05alias\x08nobody's\x08password\x10HBASE_AUTH_TOKEN\x07nowhere\0";

fn set_bootstrap(settings: &mut ClientSettings, servers: &str) {
    let implementation = "org.apache.hadoop.hbase.client.RpcConnectionRegistry";
    settings.set("hbase.client.registry.impl", implementation);
    settings.set("hbase.client.bootstrap.servers", servers);
}

/// What a client of ZooKeeper needs if its port has TLS.
fn set_zookeeper_tls(cluster: &Cluster, settings: &mut ClientSettings) {
    let tls = cluster.config().security.zookeeper_tls;
    let Some(certificates) = cluster.certificates().filter(|_| tls != Tls::Off) else { return };
    settings.set("zookeeper.client.secure", true);
    settings.set("zookeeper.ssl.trustStore.location", certificates.authority().display());
    if tls == Tls::Mutual {
        let identity = certificates.pem(Certificate::Client);
        settings.set("zookeeper.ssl.keyStore.location", identity.display());
    }
}
