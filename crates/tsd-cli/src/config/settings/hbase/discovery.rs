//! How the client finds the servers: through ZooKeeper, or through masters and region servers.

use hbase_rs::{
    discovery::{AddressError, ClusterAddress, RegistryServer},
    security::ZooKeeperSecurity,
};
use tsd_storage_hbase::HBaseDiscovery;

use super::{
    client_keys::{ClientKeys, Found},
    foreign,
};
use crate::config::ConfigError;

const QUORUM: &str = "tsd.storage.hbase.zk_quorum";
const ROOT: &str = "tsd.storage.hbase.zk_basedir";
const REGISTRY: &str = "hbase.client.registry.impl";
const BOOTSTRAP: &str = "hbase.client.bootstrap.servers";
const MASTERS: &str = "hbase.masters";
/// Names of the quorum in HBase's files. The first is an ensemble for clients only.
const SITE_QUORUMS: [&str; 2] = ["hbase.client.zookeeper.quorum", "hbase.zookeeper.quorum"];
/// Names of ZooKeeper's port for these quorums.
const CLIENT_PORT: &str = "hbase.client.zookeeper.property.clientPort";
const PORT: &str = "hbase.zookeeper.property.clientPort";
const SITE_ROOT: &str = "zookeeper.znode.parent";

/// What the servers are found by.
enum Registry {
    ZooKeeper,
    Master,
    Rpc,
}

/// The configured discovery; a session with ZooKeeper has no security yet.
pub(super) fn discovery(keys: &ClientKeys<'_>) -> Result<HBaseDiscovery, ConfigError> {
    foreign::check_keys(keys)?;
    if let Some(uri) = keys.own(&[QUORUM]).filter(|quorum| quorum.value.contains("://")) {
        return of_uri(keys, &uri);
    }
    match registry(keys)? {
        Registry::Rpc => match keys.find(&[BOOTSTRAP])? {
            Some(servers) => of_bootstrap(&servers),
            None => of_masters(keys),
        },
        Registry::Master => of_masters(keys),
        Registry::ZooKeeper => of_quorum(keys),
    }
}

/// The kind of discovery. The program's own keys decide before the site file; of one source, the class of the registry
/// decides before a quorum, and a quorum before servers.
fn registry(keys: &ClientKeys<'_>) -> Result<Registry, ConfigError> {
    if let Some(class) = keys.own(&[REGISTRY]) {
        return registry_of(&class);
    }
    if keys.own(&[QUORUM]).or_else(|| keys.own(&SITE_QUORUMS)).is_some() {
        return Ok(Registry::ZooKeeper);
    }
    if keys.own(&[BOOTSTRAP, MASTERS]).is_some() {
        return Ok(Registry::Rpc);
    }
    if let Some(class) = keys.of_site(&[REGISTRY])? {
        return registry_of(&class);
    }
    let is_by_servers =
        keys.of_site(&SITE_QUORUMS)?.is_none() && keys.of_site(&[BOOTSTRAP, MASTERS])?.is_some();
    Ok(if is_by_servers { Registry::Rpc } else { Registry::ZooKeeper })
}

/// The kind that a class of HBase implements.
fn registry_of(class: &Found) -> Result<Registry, ConfigError> {
    match class.value.rsplit('.').next().unwrap_or_default() {
        "ZKConnectionRegistry" => Ok(Registry::ZooKeeper),
        "RpcConnectionRegistry" => Ok(Registry::Rpc),
        "MasterRegistry" => Ok(Registry::Master),
        _ => Err(class.wrong(
            "expected ZKConnectionRegistry, RpcConnectionRegistry or MasterRegistry of \
             org.apache.hadoop.hbase.client",
        )),
    }
}

fn of_uri(keys: &ClientKeys<'_>, uri: &Found) -> Result<HBaseDiscovery, ConfigError> {
    match uri.value.parse().map_err(|error: AddressError| uri.wrong(error))? {
        ClusterAddress::Registry { servers } => Ok(HBaseDiscovery::Registry { servers }),
        ClusterAddress::ZooKeeper { quorum, root: path } => {
            foreign::check_quorum(uri, &quorum)?;
            let root = path.map_or_else(|| root(keys), Ok)?;
            Ok(HBaseDiscovery::ZooKeeper { quorum, root, security: ZooKeeperSecurity::default() })
        }
        _ => Err(uri.wrong("this version does not know such clusters")),
    }
}

fn of_quorum(keys: &ClientKeys<'_>) -> Result<HBaseDiscovery, ConfigError> {
    let own = keys.own(&[QUORUM]);
    let quorum = match (&own, keys.find(&SITE_QUORUMS)?) {
        (Some(own), _) => {
            foreign::check_quorum(own, &own.value)?;
            own.value.clone()
        }
        (None, Some(hosts)) => {
            let is_of_clients = hosts.key == SITE_QUORUMS.first().copied().unwrap_or_default();
            let names: &[&str] = if is_of_clients { &[CLIENT_PORT, PORT] } else { &[PORT] };
            let quorum = with_port(&hosts.value, keys.text(names)?.as_deref());
            foreign::check_quorum(&hosts, &quorum)?;
            quorum
        }
        (None, None) => keys.config.string(QUORUM),
    };
    Ok(HBaseDiscovery::ZooKeeper {
        quorum,
        root: root(keys)?,
        security: ZooKeeperSecurity::default(),
    })
}

/// HBase's root znode.
fn root(keys: &ClientKeys<'_>) -> Result<String, ConfigError> {
    if let Some(root) = keys.own(&[ROOT]) {
        return Ok(root.value);
    }
    Ok(keys.text(&[SITE_ROOT])?.unwrap_or_else(|| keys.config.string(ROOT)))
}

/// The hosts of a quorum, each with a port if one is given.
fn with_port(hosts: &str, port: Option<&str>) -> String {
    let hosts = hosts.split([',', ';']).map(str::trim).filter(|host| !host.is_empty());
    let with_port = |host: &str| match port {
        Some(port) if !host.rsplit(']').next().unwrap_or(host).contains(':') => {
            format!("{host}:{port}")
        }
        _ => host.to_owned(),
    };
    hosts.map(with_port).collect::<Vec<_>>().join(",")
}

fn of_masters(keys: &ClientKeys<'_>) -> Result<HBaseDiscovery, ConfigError> {
    let Some(masters) = keys.find(&[MASTERS])? else {
        let expected = "expected the masters, host[:port],..., or region servers in \
                        hbase.client.bootstrap.servers, because hbase.client.registry.impl \
                        excludes ZooKeeper";
        return Err(keys.config.bad_value(MASTERS, expected));
    };
    servers(&masters, |text| RegistryServer::master(text).map_err(|error| masters.wrong(error)))
}

fn of_bootstrap(found: &Found) -> Result<HBaseDiscovery, ConfigError> {
    servers(found, |text| text.parse().map_err(|error| found.wrong(error)))
}

fn servers(
    found: &Found,
    parse: impl Fn(&str) -> Result<RegistryServer, ConfigError>,
) -> Result<HBaseDiscovery, ConfigError> {
    let texts = found.value.split(',').map(str::trim).filter(|text| !text.is_empty());
    let servers = texts.map(parse).collect::<Result<Vec<_>, _>>()?;
    if servers.is_empty() {
        return Err(found.wrong("expected at least one server, host:port"));
    }
    Ok(HBaseDiscovery::Registry { servers })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::config::settings::hbase::test_values::{
        Files, QUORUM as ZK1, check_refused, connection,
    };

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let discovery = connection(text).unwrap().discovery;
        assert_eq!(discovery.to_string(), expected, "{text}");
    }

    fn own(lines: &[&str]) -> String {
        lines.join("\n")
    }

    #[test]
    fn an_own_quorum_is_taken_as_it_is() {
        check("tsd.storage.hbase.zk_quorum = zk1,zk2:2182/chroot", "zk1,zk2:2182/chroot /hbase");
        check(&own(&[ZK1, "tsd.storage.hbase.zk_basedir = /other"]), "zk1 /other");
        check(&own(&[ZK1, "zookeeper.znode.parent = /other"]), "zk1 /other");
        check(
            &own(&[ZK1, "hbase.masters = m1", "hbase.client.bootstrap.servers = r1:1"]),
            "zk1 /hbase",
        );
        check(
            &own(&[ZK1, "hbase.zookeeper.quorum = zk9", "hbase.zookeeper.property.clientPort = 9"]),
            "zk1 /hbase",
        );
        check("tsd.storage.engine = hbase", "localhost /hbase");
    }

    #[test]
    fn the_quorum_of_hbase_has_ports() {
        let engine = "tsd.storage.engine = hbase";
        check(&own(&[engine, "hbase.zookeeper.quorum = zk1, zk2:7"]), "zk1,zk2:7 /hbase");
        let port = "hbase.zookeeper.property.clientPort = 24002";
        check(
            &own(&[engine, "hbase.zookeeper.quorum = zk1, zk2:7 ,[::1],[::2]:8", port]),
            "zk1:24002,zk2:7,[::1]:24002,[::2]:8 /hbase",
        );
        check(
            &own(&[
                engine,
                "hbase.client.zookeeper.quorum = zk3",
                port,
                "hbase.zookeeper.quorum = zk1",
            ]),
            "zk3:24002 /hbase",
        );
        check_refused(
            &own(&[engine, "hbase.zookeeper.property.clientPort = 0"]),
            &["from 1 to 65535"],
        );
        let files = Files::new();
        let site = files.site(&[
            ("hbase.zookeeper.quorum", "zk1,zk2"),
            ("hbase.zookeeper.property.clientPort", "24002"),
            ("hbase.client.zookeeper.quorum", "zk3"),
            ("hbase.client.zookeeper.property.clientPort", "24003"),
            ("zookeeper.znode.parent", "/hbase-secure"),
        ]);
        check(&site, "zk3:24003 /hbase-secure");
        check(&own(&[&site, ZK1]), "zk1 /hbase-secure");
        check(&own(&[&site, "tsd.storage.hbase.zk_basedir = /hbase"]), "zk3:24003 /hbase");
    }

    #[test]
    fn masters_and_bootstrap_servers_replace_zookeeper() {
        check("hbase.masters = m1, m2:21300", "hbase+rpc://m1:16000,m2:21300");
        check(
            "hbase.client.bootstrap.servers = r1:16020,m1:16000",
            "hbase+rpc://r1:16020,m1:16000",
        );
        check(
            &own(&["hbase.masters = m1", "hbase.client.bootstrap.servers = r1:16020"]),
            "hbase+rpc://r1:16020",
        );
        let masters = connection("hbase.masters = m1").unwrap().discovery;
        assert_eq!(
            masters,
            HBaseDiscovery::Registry { servers: vec![RegistryServer::master("m1").unwrap()] }
        );
        check_refused(
            "hbase.client.bootstrap.servers = r1\n",
            &["hbase.client.bootstrap.servers", "host:port"],
        );
        check_refused("hbase.masters = a b\n", &["hbase.masters", "host:port"]);
        check_refused("hbase.masters = ,\n", &["at least one server"]);
    }

    #[test]
    fn the_class_of_the_registry_decides() {
        let class = |name: &str| {
            format!("hbase.client.registry.impl = org.apache.hadoop.hbase.client.{name}")
        };
        let servers = "hbase.client.bootstrap.servers = r1:16020\nhbase.masters = m1";
        check(&own(&[ZK1, servers, &class("ZKConnectionRegistry")]), "zk1 /hbase");
        check(&own(&[ZK1, servers, &class("RpcConnectionRegistry")]), "hbase+rpc://r1:16020");
        check(
            &own(&[ZK1, "hbase.masters = m1", &class("RpcConnectionRegistry")]),
            "hbase+rpc://m1:16000",
        );
        check(&own(&[ZK1, servers, &class("MasterRegistry")]), "hbase+rpc://m1:16000");
        check_refused(
            &own(&[ZK1, &class("RpcConnectionRegistry")]),
            &["hbase.masters", "excludes ZooKeeper"],
        );
        check_refused(
            &own(&[ZK1, "hbase.client.registry.impl = org.example.Mine"]),
            &["org.example.Mine", "ZKConnectionRegistry"],
        );
    }

    #[test]
    fn own_keys_decide_before_the_site_file() {
        let files = Files::new();
        let rpc = "org.apache.hadoop.hbase.client.RpcConnectionRegistry";
        let site = files.site(&[
            ("hbase.client.registry.impl", rpc),
            ("hbase.client.bootstrap.servers", "r1:16020"),
            ("hbase.zookeeper.quorum", "zk9"),
        ]);
        check(&site, "hbase+rpc://r1:16020");
        check(&own(&[&site, ZK1]), "zk1 /hbase");
        check(&own(&[&site, "hbase.client.registry.impl = ZKConnectionRegistry"]), "zk9 /hbase");
        let site = files.site(&[("hbase.zookeeper.quorum", "zk9"), ("hbase.masters", "m9")]);
        check(&site, "zk9 /hbase");
        check(&own(&[&site, "hbase.masters = m1"]), "hbase+rpc://m1:16000");
        let site = files.site(&[("hbase.masters", "m9")]);
        check(&site, "hbase+rpc://m9:16000");
    }

    #[test]
    fn uris_name_either_kind() {
        let check_uri = |uri: &str, expected: &str| {
            check(&format!("tsd.storage.hbase.zk_quorum = {uri}"), expected);
        };
        check_uri("hbase+zk://zk1:2181,zk2:2181/secure", "zk1:2181,zk2:2181 /secure");
        check_uri("hbase+zk://zk1/a/b/", "zk1 /a/b");
        check_uri("hbase+zk://zk1", "zk1 /hbase");
        check_uri("hbase+rpc://m1:16000,r1:16020/", "hbase+rpc://m1:16000,r1:16020");
        for wrong in [
            "hbase+zk:///hbase",
            "hbase+rpc://m1",
            "hbase+rpc://",
            "http://zk1",
            "hbase+zk://zk1/a?b=c",
            "hbase+zk://u@zk1",
        ] {
            check_refused(
                &format!("tsd.storage.hbase.zk_quorum = {wrong}\n"),
                &["tsd.storage.hbase.zk_quorum", "hbase+rpc://host:port"],
            );
        }
        check(
            &own(&[
                "tsd.storage.hbase.zk_quorum = hbase+rpc://m1:16000",
                "hbase.client.registry.impl = ZKConnectionRegistry",
            ]),
            "hbase+rpc://m1:16000",
        );
    }
}
