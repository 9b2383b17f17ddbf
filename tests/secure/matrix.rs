//! The clusters, the rows that run on each, and the table of results.

use std::time::{Duration, Instant};

use cluster::{
    Cluster, ClusterConfig, HBaseVersion, Kerberos, Protection, Security, Tls, ZooKeeperSasl,
};
use tsd_testkit::hbase_workload::error_chain;

use crate::{
    TestResult,
    client::{Discovery, Encryption, Login, SecureClient},
    failures::{self, Failure},
    live,
    load_faults::{self, LoadFault},
    programs::one_line,
    quick_start, rights, rows,
};

/// A cluster, and the rows that run on it.
struct Group {
    name: &'static str,
    version: HBaseVersion,
    security: Security,
    /// Number of region servers.
    servers: usize,
    /// Additional properties of HBase.
    properties: &'static [(&'static str, &'static str)],
    /// Rows that run without `--all`, too.
    usual: Vec<Row>,
    /// Other rows.
    more: Vec<Row>,
}

/// A test on a cluster.
#[derive(Clone, Copy)]
enum Row {
    /// Tables, points and queries of a client.
    Client(SecureClient),
    /// The tests of hbase-rs for a real HBase.
    Live(Protection),
    /// Two daemons that form a cluster.
    Nodes(SecureClient),
    /// A daemon under load during a fault.
    Load(LoadFault, SecureClient),
    /// A wrong setting.
    Failure(&'static Failure),
    /// Missing rights.
    Rights(SecureClient),
    /// The commands of the documentation.
    QuickStart,
}

impl Row {
    fn name(self) -> String {
        match self {
            Self::Client(client) => client.to_string(),
            Self::Live(protection) => format!("tests of hbase-rs, {protection}"),
            Self::Nodes(client) => format!("two nodes, {client}"),
            Self::Load(fault, client) => format!("{}, {}", fault.name(), client.protection),
            Self::Failure(failure) => failure.name.to_owned(),
            Self::Rights(_) => "missing rights".to_owned(),
            Self::QuickStart => "commands of the quick start".to_owned(),
        }
    }

    /// Runs the row, the one with this number of its cluster. Returns what to print.
    async fn run(self, cluster: &mut Cluster, at: usize) -> TestResult<String> {
        match self {
            Self::Client(client) => rows::run(cluster, client, at).await,
            Self::Live(protection) => live::run(cluster, protection),
            Self::Nodes(client) => rows::run_nodes(cluster, client).await,
            Self::Load(fault, client) => load_faults::run(cluster, client, fault, at).await,
            Self::Failure(failure) => failures::run(cluster, failure),
            Self::Rights(client) => rights::run(cluster, client).await,
            Self::QuickStart => quick_start::run(cluster),
        }
    }
}

/// Runs the rows whose names contain one of the texts. Returns the number of failed ones.
pub(crate) async fn run(is_all: bool, texts: &[String]) -> usize {
    let (begun, mut failed) = (Instant::now(), Vec::new());
    println!("| cluster | row | result | s |\n| --- | --- | --- | --- |");
    for group in groups() {
        let more = group.more.iter().filter(|_| is_all);
        let chosen = group.usual.iter().chain(more).copied();
        let chosen = chosen.filter(|row| {
            let name = format!("{} {}", group.name, row.name());
            texts.is_empty() || texts.iter().any(|text| name.contains(text.as_str()))
        });
        let chosen: Vec<_> = chosen.collect();
        if !chosen.is_empty() {
            run_group(&group, chosen, &mut failed).await;
        }
    }
    // Last, so that they end a long report.
    for failure in &failed {
        println!("secure: failed: {failure}");
    }
    println!("secure: {} failed, {} s", failed.len(), begun.elapsed().as_secs());
    failed.len()
}

async fn run_group(group: &Group, chosen: Vec<Row>, failed: &mut Vec<String>) {
    let begun = Instant::now();
    let started = Cluster::start(config(group, &chosen)).await;
    let mut cluster = match started {
        Ok(cluster) => cluster,
        Err(error) => return failed.extend(print(group, "start", begun, Err(error.into()))),
    };
    failed.extend(print(group, "start", begun, Ok(group.version.to_string())));
    for (at, row) in chosen.into_iter().enumerate() {
        let begun = Instant::now();
        let result = row.run(&mut cluster, at).await;
        failed.extend(print(group, &row.name(), begun, result));
    }
    if let Err(error) = cluster.shut_down().await {
        failed.push(format!("{}: the stop: {}", group.name, error_chain(&error)));
    }
}

fn config(group: &Group, rows: &[Row]) -> ClusterConfig {
    let mut config = ClusterConfig::new(group.servers);
    config.version = group.version;
    config.security = group.security.clone();
    // A second master takes memory and time, so one cluster has it.
    config.masters = if group.usual.is_empty() { 1 } else { 2 };
    config.proxied = rows.iter().any(|row| matches!(row, Row::Load(..)));
    (config.region_server_heap_mb, config.master_heap_mb) = (384, 256);
    // For a machine that other work keeps busy: a server that stands still loses its session, and ends.
    config.session_timeout = Duration::from_secs(30);
    config.start_timeout = Duration::from_mins(15);
    config.properties = vec![
        // A server's log must survive SIGKILL: the checksummed local file system buffers in memory.
        ("fs.file.impl".to_owned(), "org.apache.hadoop.fs.RawLocalFileSystem".to_owned()),
    ];
    let more = group.properties.iter();
    let more = more.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    config.properties.extend(more);
    config
}

/// Prints a row; returns the failure, if it is one.
fn print(group: &Group, row: &str, begun: Instant, result: TestResult<String>) -> Option<String> {
    let (text, failure) = match result {
        Ok(text) => (text, None),
        Err(error) => {
            let text = one_line(&error_chain(&*error));
            (format!("FAILED: {text}"), Some(format!("{}: {row}: {text}", group.name)))
        }
    };
    println!("| {} | {row} | {text} | {:.1} |", group.name, begun.elapsed().as_secs_f64());
    failure
}

fn kerberos(change: impl FnOnce(&mut Kerberos, &mut Security)) -> Security {
    let (mut kerberos, mut security) = (Kerberos::new(), Security::default());
    change(&mut kerberos, &mut security);
    security.kerberos = Some(kerberos);
    security
}

const fn client(
    discovery: Discovery,
    protection: Protection,
    login: Login,
    encryption: Encryption,
) -> SecureClient {
    SecureClient { discovery, protection, login, encryption }
}

fn failures_of(list: &'static [Failure]) -> impl Iterator<Item = Row> {
    list.iter().map(Row::Failure)
}

fn groups() -> Vec<Group> {
    let mut groups = vec![everything(), tls_1_2(), tls_1_3(), huawei(), integrity(), under_load()];
    groups.extend([HBaseVersion::V2_4, HBaseVersion::V2_5, HBaseVersion::V3_0].map(of_version));
    groups
}

/// One cluster for most rows: it accepts each protection, with and without TLS.
fn everything() -> Group {
    use Discovery::{Bootstrap, Masters, Site, ZooKeeper};
    use Encryption::{Mutual, Plain, TlsOnly};
    use Login::{Cache, Jaas, Keytab, Token};
    use Protection::{Authentication, Integrity, Privacy};
    // Every pair of values of two columns.
    let clients = [
        client(Site, Authentication, Keytab, Plain),
        client(ZooKeeper, Integrity, Jaas, TlsOnly),
        client(Masters, Privacy, Cache, Mutual),
        client(Bootstrap, Authentication, Token, TlsOnly),
        client(ZooKeeper, Privacy, Keytab, Mutual),
        client(Masters, Integrity, Token, Plain),
        client(Bootstrap, Privacy, Jaas, Plain),
        client(Masters, Authentication, Cache, TlsOnly),
        client(Bootstrap, Integrity, Keytab, Mutual),
    ];
    let rows = [Row::QuickStart].into_iter().chain(clients.map(Row::Client));
    Group {
        name: "2.6, all protections, TLS, authorization, SASL at ZooKeeper",
        version: HBaseVersion::V2_6,
        security: kerberos(|_, security| {
            (security.tls, security.authorization) = (Tls::On, true);
            security.zookeeper_sasl = ZooKeeperSasl::Required;
        }),
        servers: 1,
        properties: &[],
        usual: rows.chain(failures_of(failures::OF_KERBEROS)).collect(),
        more: vec![Row::Rights(client(ZooKeeper, Authentication, Keytab, Plain))],
    }
}

fn tls_1_2() -> Group {
    use Discovery::{Masters, Site};
    let nobody = |discovery| {
        client(discovery, Protection::Authentication, Login::Nobody, Encryption::Mutual)
    };
    let rows = [Row::Client(nobody(Site)), Row::Client(nobody(Masters))].into_iter();
    Group {
        name: "2.6, mutual TLS 1.2 only, no Kerberos, mutual TLS at ZooKeeper",
        version: HBaseVersion::V2_6,
        security: {
            let mut security = Security::default();
            (security.tls, security.plaintext) = (Tls::Mutual, false);
            security.zookeeper_tls = Tls::Mutual;
            security
        },
        servers: 1,
        properties: &[("hbase.rpc.tls.enabledProtocols", "TLSv1.2")],
        usual: Vec::new(),
        more: rows.chain(failures_of(failures::OF_TLS_1_2)).collect(),
    }
}

fn tls_1_3() -> Group {
    use Discovery::{Bootstrap, Site};
    let keytab = |discovery| {
        client(discovery, Protection::Authentication, Login::Keytab, Encryption::Mutual)
    };
    let rows = [Row::Client(keytab(Site)), Row::Client(keytab(Bootstrap))].into_iter();
    Group {
        name: "2.6, authentication only, mutual TLS 1.3 only, TLS at ZooKeeper",
        version: HBaseVersion::V2_6,
        security: kerberos(|kerberos, security| {
            kerberos.protections = vec![Protection::Authentication];
            (security.tls, security.plaintext) = (Tls::Mutual, false);
            security.zookeeper_tls = Tls::On;
        }),
        servers: 1,
        properties: &[
            ("hbase.rpc.tls.protocol", "TLSv1.3"),
            ("hbase.rpc.tls.enabledProtocols", "TLSv1.3"),
        ],
        usual: Vec::new(),
        more: rows.chain(failures_of(failures::OF_TLS_1_3)).collect(),
    }
}

/// The made-up host and the realm of Huawei MRS.
fn huawei() -> Group {
    use Discovery::{Masters, Site};
    let privacy = |discovery, login| {
        Row::Client(client(discovery, Protection::Privacy, login, Encryption::Plain))
    };
    Group {
        name: "2.6, as Huawei MRS, privacy only, SASL at ZooKeeper",
        version: HBaseVersion::V2_6,
        security: kerberos(|kerberos, security| {
            "HADOOP.COM".clone_into(&mut kerberos.realm);
            kerberos.service_host = Some("hadoop.hadoop.com".to_owned());
            kerberos.protections = vec![Protection::Privacy];
            security.zookeeper_sasl = ZooKeeperSasl::Required;
        }),
        servers: 1,
        properties: &[],
        usual: Vec::new(),
        more: vec![privacy(Site, Login::Jaas), privacy(Masters, Login::Keytab)],
    }
}

fn integrity() -> Group {
    let row = Row::Client(client(
        Discovery::ZooKeeper,
        Protection::Integrity,
        Login::Keytab,
        Encryption::Plain,
    ));
    Group {
        name: "2.6, integrity only",
        version: HBaseVersion::V2_6,
        security: kerberos(|kerberos, _| kerberos.protections = vec![Protection::Integrity]),
        servers: 1,
        properties: &[],
        usual: Vec::new(),
        more: [row].into_iter().chain(failures_of(failures::OF_NO_TLS)).collect(),
    }
}

fn under_load() -> Group {
    let login = |login| client(Discovery::ZooKeeper, Protection::Privacy, login, Encryption::Plain);
    let load = |fault| Row::Load(fault, login(Login::Keytab));
    Group {
        name: "2.6, two region servers, under load",
        version: HBaseVersion::V2_6,
        security: kerberos(|_, security| security.zookeeper_sasl = ZooKeeperSasl::Required),
        servers: 2,
        properties: &[],
        usual: Vec::new(),
        more: vec![
            Row::Load(LoadFault::CacheRenewed, login(Login::ExpiredCache)),
            load(LoadFault::ServerKilled),
            load(LoadFault::ShortTickets),
            load(LoadFault::ServerKilledWithoutKdc),
            // Last: the servers keep tickets for their former key, and refuse those of each other.
            load(LoadFault::Rekeyed),
        ],
    }
}

/// Each value of `tsd.storage.ack` has its row.
fn of_version(version: HBaseVersion) -> Group {
    use Discovery::{Bootstrap, MasterKeys, ZooKeeper};
    use Login::{Cache, Keytab, Token};
    use Protection::{Authentication, Integrity, Privacy};
    let plain =
        |discovery, protection, login| client(discovery, protection, login, Encryption::Plain);
    let killed = plain(ZooKeeper, Integrity, Keytab);
    let mut more = vec![
        Row::Client(plain(ZooKeeper, Privacy, Keytab)),
        Row::Client(plain(MasterKeys, Authentication, Cache)),
        Row::Client(plain(ZooKeeper, Integrity, Token)),
        Row::Nodes(plain(ZooKeeper, Authentication, Keytab)),
        Row::Live(Privacy),
        Row::Load(LoadFault::ServerKilled, killed),
    ];
    if version != HBaseVersion::V2_4 {
        more.push(Row::Client(plain(Bootstrap, Authentication, Keytab)));
    }
    Group {
        name: match version {
            HBaseVersion::V2_4 => "2.4, all protections",
            HBaseVersion::V2_5 => "2.5, all protections",
            HBaseVersion::V2_6 => "2.6, all protections",
            HBaseVersion::V3_0 => "3.0, all protections",
        },
        version,
        security: kerberos(|_, _| {}),
        servers: 2,
        properties: &[],
        usual: Vec::new(),
        more,
    }
}
