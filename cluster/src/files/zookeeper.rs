//! Configuration of ZooKeeper, and the JAAS files of its server and clients.

use std::{fmt::Write, path::Path, time::Duration};

use crate::{
    certificates::{Certificate, Certificates},
    config::ClusterConfig,
    files::ClusterFiles,
    node::Node,
    security::{Kerberos, Tls, ZooKeeperSasl},
};

/// Ports of ZooKeeper.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZooKeeperPorts {
    pub(crate) plain: u16,
    /// Port with TLS.
    pub(crate) secure: Option<u16>,
}

pub(super) fn zoo_cfg(
    files: &ClusterFiles,
    config: &ClusterConfig,
    ports: ZooKeeperPorts,
) -> String {
    // The default maximum is 20 ticks, less than clients request.
    let longest = config.session_timeout.max(Duration::from_secs(90)).as_millis();
    let data = files.data(Node::ZooKeeper);
    let (data, port) = (data.display(), ports.plain);
    let mut text = format!(
        "tickTime=500\ninitLimit=10\nsyncLimit=5\ndataDir={data}\nclientPort={port}\n\
         clientPortAddress=127.0.0.1\nminSessionTimeout=1000\nmaxSessionTimeout={longest}\n\
         admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n"
    );
    let security = &config.security;
    if security.zookeeper_sasl != ZooKeeperSasl::Off {
        text.push_str(
            "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n\
             kerberos.removeHostFromPrincipal=true\nkerberos.removeRealmFromPrincipal=true\n",
        );
    }
    if security.zookeeper_sasl == ZooKeeperSasl::Required {
        text.push_str("sessionRequireClientSASLAuth=true\n");
    }
    if let Some(port) = ports.secure {
        let certificates = Certificates::new(&files.tls());
        let certificate = certificates.pem(Certificate::Server);
        let (key_store, trust_store) = (certificate.display(), certificates.authority());
        let clients = if security.zookeeper_tls == Tls::Mutual { "need" } else { "none" };
        let _ = write!(
            text,
            "secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n\
             serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.location={key_store}\nssl.keyStore.type=PEM\n\
             ssl.trustStore.location={}\nssl.trustStore.type=PEM\nssl.clientAuth={clients}\n",
            trust_store.display()
        );
    }
    text
}

/// A JAAS section that logs in with a keytab.
pub(super) fn jaas_section(section: &str, keytab: &Path, principal: &str) -> String {
    let keytab = keytab.display();
    format!(
        "{section} {{\n  com.sun.security.auth.module.Krb5LoginModule required\n  \
         useKeyTab=true\n  keyTab=\"{keytab}\"\n  storeKey=true\n  useTicketCache=false\n  \
         principal=\"{principal}\";\n}};\n"
    )
}

/// The JAAS file of a server: `Server` of ZooKeeper, `Client` of HBase's servers.
pub(super) fn server_jaas(files: &ClusterFiles, kerberos: &Kerberos) -> String {
    let section = |section: &str, name: &str| {
        let keytab = files.kerberos().join(format!("{name}.keytab"));
        jaas_section(section, &keytab, &kerberos.principal(name))
    };
    section("Server", Kerberos::ZOOKEEPER) + &section("Client", Kerberos::HBASE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: ZooKeeperPorts = ZooKeeperPorts { plain: 1, secure: None };

    fn text(config: &ClusterConfig, ports: ZooKeeperPorts) -> String {
        zoo_cfg(&ClusterFiles { root: "/d".into() }, config, ports)
    }

    #[test]
    fn zookeeper_grants_the_requested_session_timeout() {
        for (session, longest) in [(10, "90000"), (120, "120000")] {
            let mut config = ClusterConfig::new(1);
            config.session_timeout = Duration::from_secs(session);
            let text = text(&config, PORTS);
            assert!(text.contains(&format!("maxSessionTimeout={longest}\n")), "{text}");
        }
    }

    #[test]
    fn sasl_and_tls_are_configured_on_demand() {
        let mut config = ClusterConfig::new(1);
        let plain = text(&config, PORTS);
        assert!(!plain.contains("SASL") && !plain.contains("secureClientPort"), "{plain}");
        config.security.zookeeper_sasl = ZooKeeperSasl::Offered;
        assert!(text(&config, PORTS).contains("SASLAuthenticationProvider\n"));
        assert!(!text(&config, PORTS).contains("sessionRequireClientSASLAuth"));
        config.security.zookeeper_sasl = ZooKeeperSasl::Required;
        config.security.zookeeper_tls = Tls::Mutual;
        let text = text(&config, ZooKeeperPorts { plain: 1, secure: Some(2) });
        for line in [
            "sessionRequireClientSASLAuth=true",
            "secureClientPort=2",
            "ssl.clientAuth=need",
            "ssl.keyStore.location=/d/tls/server.pem",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
