//! Realm, certificates and client files of a cluster, and the JVM flags of its secured servers.

use super::Cluster;
use crate::{
    certificates::Certificates,
    error::ClusterError,
    files::ClientFiles,
    node::Node,
    realm::Realm,
    security::{Kerberos, ZooKeeperSasl},
};

impl Cluster {
    /// The realm of a cluster with Kerberos. Its KDC is the process [`Node::Kdc`].
    #[must_use]
    pub fn realm(&self) -> Option<Realm> {
        let kerberos = self.config.security.kerberos.as_ref()?;
        Some(Realm::new(&self.layout.kerberos(), kerberos, self.port(Node::Kdc)?))
    }

    /// The certificates of a cluster with TLS.
    #[must_use]
    pub fn certificates(&self) -> Option<Certificates> {
        let has = self.config.security.has_certificates();
        has.then(|| Certificates::new(&self.layout.tls()))
    }

    /// The files that a client of the cluster needs.
    #[must_use]
    pub fn client_files(&self) -> ClientFiles {
        self.layout.client()
    }

    /// Addresses of the masters, as `localhost:PORT`.
    #[must_use]
    pub fn masters(&self) -> Vec<String> {
        let masters = self.nodes().filter(|node| node.is_master());
        masters.filter_map(|node| self.port(node)).map(|port| format!("localhost:{port}")).collect()
    }

    /// Creates realm and certificates, starts the KDC, and writes the files for clients.
    pub(super) async fn prepare_security(&mut self) -> Result<(), ClusterError> {
        let (realm, certificates) = (self.realm(), self.certificates());
        let java = self.java.clone();
        let created = tokio::task::spawn_blocking(move || {
            if let Some(realm) = realm {
                realm.create()?;
            }
            certificates.map_or(Ok(()), |certificates| certificates.create(&java))
        });
        created.await.map_err(|error| ClusterError::Spawn {
            what: "a thread".into(),
            source: std::io::Error::other(error),
        })??;
        if self.config.security.kerberos.is_some() {
            // The servers log in when they start.
            self.launch(Node::Kdc)?;
            self.await_serving(&[Node::Kdc]).await?;
        }
        let port = self.zookeeper_port_of_clients();
        self.layout.write_client(&self.config, port, self.realm().as_ref())
    }

    /// JVM flags of ZooKeeper and HBase's servers.
    pub(super) fn security_flags(&self, node: Node) -> Vec<String> {
        let security = &self.config.security;
        let (Some(kerberos), Some(realm)) = (&security.kerberos, self.realm()) else {
            return Vec::new();
        };
        let mut flags = vec![format!("-Djava.security.krb5.conf={}", realm.krb5_conf().display())];
        if security.zookeeper_sasl == ZooKeeperSasl::Off {
            flags.push("-Dzookeeper.sasl.client=false".to_owned());
            return flags;
        }
        let jaas = self.layout.jaas(node);
        flags.push(format!("-Djava.security.auth.login.config={}", jaas.display()));
        if kerberos.service_host.is_some() {
            let principal = kerberos.principal(Kerberos::ZOOKEEPER);
            flags.push(format!("-Dzookeeper.server.principal={principal}"));
        }
        flags
    }
}
