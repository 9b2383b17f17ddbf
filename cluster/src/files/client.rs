//! The directory of files that a user of the cluster gets, as a vendor hands them out.
//!
//! `hbase-site.xml` and `core-site.xml` in every case; `krb5.conf`, `user.keytab` and `jaas.conf` with Kerberos;
//! `ca.pem`, and `client.pem` if the servers want a certificate.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    certificates::{Certificate, Certificates},
    config::ClusterConfig,
    error::ClusterError,
    files::{
        ClusterFiles,
        site::{self, Properties},
        zookeeper::jaas_section,
    },
    realm::Realm,
    security::{Kerberos, Security, Tls, ZooKeeperSasl},
    version::HBaseVersion,
};

/// Files of a user of the cluster, in one directory.
#[derive(Clone, Debug)]
pub struct ClientFiles {
    pub(crate) directory: PathBuf,
}

impl ClientFiles {
    /// The directory itself: a directory of configuration for Java's class path.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// HBase's properties.
    #[must_use]
    pub fn hbase_site(&self) -> PathBuf {
        self.directory.join("hbase-site.xml")
    }

    /// Kerberos configuration of a cluster with Kerberos.
    #[must_use]
    pub fn krb5_conf(&self) -> PathBuf {
        self.directory.join("krb5.conf")
    }

    /// Keytab of [`Kerberos::USER`] of a cluster with Kerberos.
    #[must_use]
    pub fn keytab(&self) -> PathBuf {
        self.directory.join("user.keytab")
    }

    /// JAAS file of a cluster with Kerberos; its section is `Client`.
    #[must_use]
    pub fn jaas(&self) -> PathBuf {
        self.directory.join("jaas.conf")
    }

    /// Certificate of the authority, of a cluster with TLS.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        Certificates::new(&self.directory).authority()
    }

    /// Certificate and key, of a cluster with mutual TLS.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        Certificates::new(&self.directory).pem(Certificate::Client)
    }

    /// System properties for a Java client, which reads neither Kerberos nor ZooKeeper's security
    /// from `hbase-site.xml`.
    pub(crate) fn java_flags(&self, security: &Security) -> Vec<String> {
        let mut flags = Vec::new();
        let mut set = |name: &str, value: String| flags.push(format!("-D{name}={value}"));
        if security.kerberos.is_some() {
            set("java.security.krb5.conf", self.krb5_conf().display().to_string());
        }
        for (name, value) in self.zookeeper_properties(security) {
            set(name, value);
        }
        flags
    }

    /// Settings of ZooKeeper's client by their names as system properties.
    fn zookeeper_properties(&self, security: &Security) -> Vec<(&'static str, String)> {
        let mut properties = Vec::new();
        if let Some(kerberos) = &security.kerberos {
            if security.zookeeper_sasl == ZooKeeperSasl::Off {
                properties.push(("zookeeper.sasl.client", "false".to_owned()));
            } else {
                properties
                    .push(("java.security.auth.login.config", self.jaas().display().to_string()));
                if kerberos.service_host.is_some() {
                    let principal = kerberos.principal(Kerberos::ZOOKEEPER);
                    properties.push(("zookeeper.server.principal", principal));
                }
            }
        }
        if security.zookeeper_tls != Tls::Off {
            let netty = "org.apache.zookeeper.ClientCnxnSocketNetty";
            properties.push(("zookeeper.client.secure", "true".to_owned()));
            properties.push(("zookeeper.clientCnxnSocket", netty.to_owned()));
            let authority = self.authority().display().to_string();
            properties.push(("zookeeper.ssl.trustStore.location", authority));
            properties.push(("zookeeper.ssl.trustStore.type", "PEM".to_owned()));
        }
        if security.zookeeper_tls == Tls::Mutual {
            let certificate = self.certificate().display().to_string();
            properties.push(("zookeeper.ssl.keyStore.location", certificate));
            properties.push(("zookeeper.ssl.keyStore.type", "PEM".to_owned()));
        }
        properties
    }
}

impl ClusterFiles {
    /// Writes the directory for clients, who reach ZooKeeper at this port.
    pub(crate) fn write_client(
        &self,
        config: &ClusterConfig,
        zookeeper: u16,
        realm: Option<&Realm>,
    ) -> Result<(), ClusterError> {
        let security = &config.security;
        let client = self.client();
        let directory = client.directory();
        fs::create_dir_all(directory).map_err(ClusterError::file("create", directory))?;
        if let Some(realm) = realm {
            let keytab = realm.keytab(Kerberos::USER);
            copy(&keytab, &client.keytab())?;
            copy(&realm.krb5_conf(), &client.krb5_conf())?;
            let principal = realm.principal(Kerberos::USER);
            write(&client.jaas(), &jaas_section("Client", &client.keytab(), &principal))?;
        }
        if security.has_certificates() {
            let certificates = Certificates::new(&self.tls());
            copy(&certificates.authority(), &client.authority())?;
            if security.tls == Tls::Mutual || security.zookeeper_tls == Tls::Mutual {
                copy(&certificates.pem(Certificate::Client), &client.certificate())?;
            }
        }
        write(&client.hbase_site(), &client_site(&client, config, zookeeper).render())?;
        let core_site = site::core_site(security).render();
        write(&directory.join("core-site.xml"), &core_site)
    }
}

fn client_site(client: &ClientFiles, config: &ClusterConfig, zookeeper: u16) -> Properties {
    let security = &config.security;
    let mut properties = Properties::default();
    properties.set("hbase.zookeeper.quorum", site::zookeeper_host(security));
    properties.set("hbase.zookeeper.property.clientPort", zookeeper.to_string());
    properties.set("zookeeper.znode.parent", "/hbase");
    if config.version == HBaseVersion::V3_0 {
        // Its default asks the masters instead.
        let registry = "org.apache.hadoop.hbase.client.ZKConnectionRegistry";
        properties.set("hbase.client.registry.impl", registry);
    }
    if let Some(kerberos) = &security.kerberos {
        site::set_kerberos(&mut properties, kerberos, security.authorization);
    }
    if security.tls != Tls::Off {
        let identity = (security.tls == Tls::Mutual).then_some(Certificate::Client);
        site::set_client_tls(&mut properties, client.directory(), identity);
    }
    for (name, value) in client.zookeeper_properties(security) {
        properties.set(name, value);
    }
    properties
}

fn write(path: &Path, text: &str) -> Result<(), ClusterError> {
    fs::write(path, text).map_err(ClusterError::file("write", path))
}

fn copy(from: &Path, to: &Path) -> Result<(), ClusterError> {
    fs::copy(from, to).map(|_| ()).map_err(ClusterError::file("copy", from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_follow_the_security() {
        let client = ClientFiles { directory: "/c".into() };
        let mut security = Security::default();
        let text = |security: &Security| {
            let mut config = ClusterConfig::new(1);
            config.security = security.clone();
            client_site(&client, &config, 5).render()
        };
        let plain = text(&security);
        assert!(plain.contains("127.0.0.1") && plain.contains(">5<"), "{plain}");
        assert!(!plain.contains("kerberos") && !plain.contains("secure"), "{plain}");
        assert_eq!(client.java_flags(&security), [""; 0]);

        security.kerberos = Some(Kerberos::new());
        assert!(client.java_flags(&security).contains(&"-Dzookeeper.sasl.client=false".into()));
        security.zookeeper_sasl = ZooKeeperSasl::Required;
        security.zookeeper_tls = Tls::On;
        let flags = client.java_flags(&security);
        assert!(flags.contains(&"-Djava.security.auth.login.config=/c/jaas.conf".into()));
        let site = text(&security);
        assert!(site.contains("<name>zookeeper.client.secure</name><value>true"), "{site}");
        assert!(!site.contains("keyStore") && !site.contains("keytab"), "{site}");
        security.zookeeper_tls = Tls::Mutual;
        assert!(text(&security).contains("<value>/c/client.pem</value>"));
    }
}
