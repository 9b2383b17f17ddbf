//! Properties of HBase's servers and clients.

use std::{fmt::Write, path::Path};

use crate::{
    certificates::{Certificate, Certificates},
    config::ClusterConfig,
    files::ClusterFiles,
    node::Node,
    security::{Kerberos, Security, Tls},
};

/// Ports that the configuration of a server names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    /// Port of the server itself.
    pub(crate) own: u16,
    /// Port of ZooKeeper for this server or client.
    pub(crate) zookeeper: u16,
}

/// Properties in their order; a later one replaces an earlier one of the same name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Properties(Vec<(String, String)>);

impl Properties {
    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.retain(|(other, _)| other != name);
        self.0.push((name.to_owned(), value.into()));
    }

    /// As an XML file of Hadoop.
    pub(crate) fn render(&self) -> String {
        let mut text = String::from("<?xml version=\"1.0\"?>\n<configuration>\n");
        for (name, value) in &self.0 {
            let (name, value) = (escaped(name), escaped(value));
            let _ =
                writeln!(text, "  <property><name>{name}</name><value>{value}</value></property>");
        }
        text + "</configuration>\n"
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// `hbase-site.xml` of a server.
pub(crate) fn hbase_site(
    files: &ClusterFiles,
    node: Node,
    config: &ClusterConfig,
    ports: Ports,
) -> Properties {
    let port = ports.own;
    let (master_port, server_port) = if node.is_master() { (port, 0) } else { (0, port) };
    let session = config.session_timeout.as_millis();
    let servers = config.region_servers;
    let root = files.root.display();
    let ours: [(&str, String); 31] = [
        ("hbase.cluster.distributed", "true".into()),
        ("hbase.rootdir", format!("file://{root}/data/hbase")),
        ("hbase.tmp.dir", format!("{root}/tmp/{node}")),
        ("hbase.zookeeper.quorum", zookeeper_host(&config.security).into()),
        ("hbase.zookeeper.property.clientPort", ports.zookeeper.to_string()),
        ("zookeeper.session.timeout", session.to_string()),
        // The local file system has no hflush and hsync, which the WAL requires by default.
        ("hbase.unsafe.stream.capability.enforce", "false".into()),
        ("hbase.wal.provider", "filesystem".into()),
        ("hbase.wal.meta_provider", "filesystem".into()),
        ("hbase.master.hostname", "localhost".into()),
        ("hbase.unsafe.regionserver.hostname", "localhost".into()),
        ("hbase.master.ipc.address", "127.0.0.1".into()),
        ("hbase.regionserver.ipc.address", "127.0.0.1".into()),
        ("hbase.master.port", master_port.to_string()),
        ("hbase.regionserver.port", server_port.to_string()),
        ("hbase.master.info.port", "-1".into()),
        ("hbase.regionserver.info.port", "-1".into()),
        ("hbase.master.wait.on.regionservers.mintostart", servers.to_string()),
        ("hbase.master.wait.on.regionservers.interval", "100".into()),
        ("hbase.master.wait.on.regionservers.timeout", "2000".into()),
        ("hbase.regionserver.msginterval", "500".into()),
        ("hbase.master.handler.count", "8".into()),
        ("hbase.regionserver.handler.count", if config.bench { "30" } else { "8" }.into()),
        ("hbase.regionserver.metahandler.count", "4".into()),
        ("hbase.procedure.threads", "8".into()),
        ("hbase.regionserver.executor.openregion.threads", "4".into()),
        ("hbase.regionserver.executor.closeregion.threads", "4".into()),
        ("hbase.regionserver.global.memstore.size", "0.35".into()),
        ("hfile.block.cache.size", "0.2".into()),
        (
            "hbase.hregion.memstore.flush.size",
            (if config.bench { 128 << 20 } else { 16 << 20 }).to_string(),
        ),
        // Removes files of split and merged regions soon, so that daughters can be merged again.
        ("hbase.catalogjanitor.interval", "5000".into()),
    ];
    let mut properties = Properties::default();
    for (name, value) in ours {
        properties.set(name, value);
    }
    let security = &config.security;
    if let Some(kerberos) = &security.kerberos {
        set_kerberos(&mut properties, kerberos, security.authorization);
        set_server_kerberos(&mut properties, files, kerberos, security.authorization);
    }
    if security.tls != Tls::Off {
        set_client_tls(&mut properties, &files.tls(), Some(Certificate::Server));
        set_server_tls(&mut properties, security);
    }
    for (name, value) in &config.properties {
        properties.set(name, value.as_str());
    }
    properties
}

/// Host of ZooKeeper as servers and clients name it: the host of its principal and certificate, if it has one.
pub(crate) const fn zookeeper_host(security: &Security) -> &'static str {
    if security.kerberos.is_some() || security.has_certificates() {
        "localhost"
    } else {
        "127.0.0.1"
    }
}

/// `core-site.xml`: Hadoop's login is configured by its own property.
pub(crate) fn core_site(security: &Security) -> Properties {
    let mut properties = Properties::default();
    if security.kerberos.is_some() {
        properties.set("hadoop.security.authentication", "kerberos");
    }
    properties
}

/// Properties of servers and clients.
pub(super) fn set_kerberos(properties: &mut Properties, kerberos: &Kerberos, authorization: bool) {
    properties.set("hbase.security.authentication", "kerberos");
    properties.set("hbase.security.authorization", authorization.to_string());
    properties.set("hbase.rpc.protection", kerberos.protection_list());
    for role in ["master", "regionserver"] {
        properties.set(&format!("hbase.{role}.kerberos.principal"), kerberos.hbase_principal());
    }
}

fn set_server_kerberos(
    properties: &mut Properties,
    files: &ClusterFiles,
    kerberos: &Kerberos,
    authorization: bool,
) {
    const TOKENS: &str = "org.apache.hadoop.hbase.security.token.TokenProvider";
    const RIGHTS: &str = "org.apache.hadoop.hbase.security.access.AccessController";
    let keytab = files.kerberos().join(format!("{}.keytab", Kerberos::HBASE));
    for role in ["master", "regionserver"] {
        let name = format!("hbase.{role}.keytab.file");
        properties.set(&name, keytab.display().to_string());
    }
    let mut of_regions = Vec::new();
    if let Some(lifetime) = kerberos.token_lifetime {
        of_regions.push(TOKENS);
        let lifetime = lifetime.as_millis().to_string();
        properties.set("hbase.auth.token.max.lifetime", lifetime);
    }
    if authorization {
        of_regions.push(RIGHTS);
        properties.set("hbase.coprocessor.master.classes", RIGHTS);
        properties.set("hbase.coprocessor.regionserver.classes", RIGHTS);
    }
    if !of_regions.is_empty() {
        properties.set("hbase.coprocessor.region.classes", of_regions.join(","));
    }
}

/// Properties of clients, and of servers as clients of each other. `identity` is the certificate to show.
pub(super) fn set_client_tls(
    properties: &mut Properties,
    directory: &Path,
    identity: Option<Certificate>,
) {
    let certificates = Certificates::new(directory);
    properties.set("hbase.client.netty.tls.enabled", "true");
    let mut store = |kind: &str, file: std::path::PathBuf| {
        properties.set(&format!("hbase.rpc.tls.{kind}.location"), file.display().to_string());
        properties.set(&format!("hbase.rpc.tls.{kind}.type"), "PEM");
    };
    store("truststore", certificates.authority());
    if let Some(identity) = identity {
        store("keystore", certificates.pem(identity));
    }
}

fn set_server_tls(properties: &mut Properties, security: &Security) {
    properties.set("hbase.server.netty.tls.enabled", "true");
    properties.set("hbase.server.netty.tls.supportplaintext", security.plaintext.to_string());
    let mode = if security.tls == Tls::Mutual { "NEED" } else { "NONE" };
    properties.set("hbase.server.netty.tls.client.auth.mode", mode);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::Protection;

    fn site(node: Node, config: &ClusterConfig) -> String {
        let files = ClusterFiles { root: "/d".into() };
        hbase_site(&files, node, config, Ports { own: 2, zookeeper: 1 }).render()
    }

    fn property(name: &str, value: &str) -> String {
        format!("<name>{name}</name><value>{value}</value>")
    }

    #[test]
    fn given_properties_take_precedence() {
        let mut config = ClusterConfig::new(2);
        config.properties = vec![("hbase.wal.provider".into(), "a<b&c".into())];
        let server = site(Node::RegionServer(0), &config);
        assert_eq!(server.matches("<name>hbase.wal.provider</name>").count(), 1);
        assert!(server.contains(&property("hbase.wal.provider", "a&lt;b&amp;c")));
        assert!(server.contains(&property("hbase.regionserver.port", "2")));
        assert!(server.contains(&property("hbase.master.port", "0")));
        for master in [Node::Master, Node::OtherMaster(1)] {
            assert!(site(master, &config).contains(&property("hbase.master.port", "2")));
        }
    }

    #[test]
    fn servers_without_security_have_no_property_of_it() {
        let text = site(Node::Master, &ClusterConfig::new(1));
        for word in ["kerberos", "security", "tls", "coprocessor"] {
            assert!(!text.contains(word), "{word}");
        }
        assert!(text.contains(&property("hbase.zookeeper.quorum", "127.0.0.1")));
        assert!(!core_site(&Security::default()).render().contains("kerberos"));
    }

    #[test]
    fn a_secured_server_has_keytab_protections_and_coprocessors() {
        let mut config = ClusterConfig::new(1);
        let mut kerberos = Kerberos::new();
        kerberos.protections = vec![Protection::Privacy, Protection::Integrity];
        config.security.kerberos = Some(kerberos);
        config.security.authorization = true;
        config.security.tls = Tls::Mutual;
        config.security.plaintext = false;
        let text = site(Node::RegionServer(0), &config);
        for (name, value) in [
            ("hbase.rpc.protection", "privacy,integrity"),
            ("hbase.regionserver.kerberos.principal", "hbase/_HOST@CLUSTER.TEST"),
            ("hbase.master.keytab.file", "/d/kerberos/hbase.keytab"),
            ("hbase.zookeeper.quorum", "localhost"),
            ("hbase.server.netty.tls.client.auth.mode", "NEED"),
            ("hbase.server.netty.tls.supportplaintext", "false"),
            ("hbase.rpc.tls.keystore.location", "/d/tls/server.pem"),
            ("hbase.rpc.tls.truststore.location", "/d/tls/ca.pem"),
        ] {
            assert!(text.contains(&property(name, value)), "{name} in {text}");
        }
        assert!(text.contains("TokenProvider,org.apache.hadoop.hbase.security.access"));
        assert!(core_site(&config.security).render().contains("kerberos"));
    }
}
