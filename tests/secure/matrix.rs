//! The clusters, the rows that run on each, and the table of results.

use std::time::{Duration, Instant};

use cluster::{
    Cluster, ClusterConfig, HBaseVersion, Kerberos, Protection, Security, Tls, ZooKeeperSasl,
};

use crate::{
    TestResult,
    client::{Discovery, Encryption, Login, SecureClient},
    failures, rows,
};

/// A cluster, and clients of it.
struct Group {
    name: &'static str,
    version: HBaseVersion,
    security: Security,
    clients: Vec<SecureClient>,
    /// True if failures are tested on it, too.
    has_failures: bool,
    /// True if it runs without `--all`.
    is_usual: bool,
}

/// Runs the rows whose names contain one of the texts. Returns the number of failed ones.
pub(crate) async fn run(is_all: bool, texts: &[String]) -> usize {
    println!("| cluster | client | result | s |\n| --- | --- | --- | --- |");
    let mut failed = 0;
    for group in groups() {
        if is_all || group.is_usual {
            failed += run_group(&group, texts).await;
        }
    }
    println!("secure: {failed} failed");
    failed
}

async fn run_group(group: &Group, texts: &[String]) -> usize {
    let is_chosen = |client: &str| {
        let name = format!("{} {client}", group.name);
        texts.is_empty() || texts.iter().any(|text| name.contains(text.as_str()))
    };
    let clients = group.clients.iter().filter(|client| is_chosen(&client.to_string()));
    let clients: Vec<_> = clients.collect();
    let failures = failures::ALL.iter().filter(|one| group.has_failures && is_chosen(one.name));
    let failures: Vec<_> = failures.collect();
    if clients.is_empty() && failures.is_empty() {
        return 0;
    }
    let mut config = ClusterConfig::new(1);
    config.version = group.version;
    config.security = group.security.clone();
    config.masters = 2;
    (config.region_server_heap_mb, config.master_heap_mb) = (384, 256);
    config.start_timeout = Duration::from_mins(6);
    let begun = Instant::now();
    let cluster = match Cluster::start(config).await {
        Ok(cluster) => cluster,
        Err(error) => {
            let result = Err(error.into());
            return print(group.name, "start", begun, &result);
        }
    };
    let mut failed = print(group.name, "start", begun, &Ok(()));
    for (at, client) in clients.into_iter().enumerate() {
        let begun = Instant::now();
        let result = rows::run(&cluster, *client, at).await;
        failed += print(group.name, &client.to_string(), begun, &result);
    }
    for failure in failures {
        let begun = Instant::now();
        let result = failures::run(&cluster, failure);
        failed += print(group.name, failure.name, begun, &result);
    }
    if let Err(error) = cluster.shut_down().await {
        println!("secure: {error}");
    }
    failed
}

/// Prints a row; returns 1 for a failed one.
fn print(cluster: &str, client: &str, begun: Instant, result: &TestResult<()>) -> usize {
    let text = match result {
        Ok(()) => "ok".to_owned(),
        Err(error) => format!("FAILED: {error}"),
    };
    println!("| {cluster} | {client} | {text} | {:.1} |", begun.elapsed().as_secs_f64());
    usize::from(result.is_err())
}

fn kerberos(change: impl FnOnce(&mut Kerberos, &mut Security)) -> Security {
    let (mut kerberos, mut security) = (Kerberos::new(), Security::default());
    change(&mut kerberos, &mut security);
    security.kerberos = Some(kerberos);
    security
}

fn groups() -> Vec<Group> {
    use Discovery::{Bootstrap, Masters, Site, ZooKeeper};
    use Encryption::{Mutual, Plain, TlsOnly};
    use Login::{Cache, Jaas, Keytab, Nobody, Token};
    use Protection::{Authentication, Integrity, Privacy};
    let client = |discovery, protection, login, encryption| SecureClient {
        discovery,
        protection,
        login,
        encryption,
    };
    let one = |discovery, protection, login| client(discovery, protection, login, Plain);
    let mut groups = vec![
        Group {
            name: "2.6, all protections, TLS, authorization",
            version: HBaseVersion::V2_6,
            security: kerberos(|_, security| {
                (security.tls, security.authorization) = (Tls::On, true);
                security.zookeeper_sasl = ZooKeeperSasl::Required;
            }),
            // Every pair of values of two columns.
            clients: vec![
                client(Site, Authentication, Keytab, Plain),
                client(ZooKeeper, Integrity, Jaas, TlsOnly),
                client(Masters, Privacy, Cache, Mutual),
                client(Bootstrap, Authentication, Token, TlsOnly),
                client(ZooKeeper, Privacy, Keytab, Mutual),
                client(Masters, Integrity, Token, Plain),
                client(Bootstrap, Privacy, Jaas, Plain),
                client(Masters, Authentication, Cache, TlsOnly),
                client(Bootstrap, Integrity, Keytab, Mutual),
            ],
            has_failures: true,
            is_usual: true,
        },
        Group {
            name: "2.6, mutual TLS only, ZooKeeper with mutual TLS",
            version: HBaseVersion::V2_6,
            security: {
                let mut security = Security::default();
                (security.tls, security.plaintext) = (Tls::Mutual, false);
                security.zookeeper_tls = Tls::Mutual;
                security
            },
            clients: vec![client(Site, Authentication, Nobody, Mutual)],
            has_failures: false,
            is_usual: false,
        },
        Group {
            name: "2.6, as Huawei MRS",
            version: HBaseVersion::V2_6,
            security: kerberos(|kerberos, security| {
                "HADOOP.COM".clone_into(&mut kerberos.realm);
                kerberos.service_host = Some("hadoop.hadoop.com".to_owned());
                kerberos.protections = vec![Privacy];
                security.zookeeper_sasl = ZooKeeperSasl::Required;
            }),
            clients: vec![one(Site, Privacy, Jaas), one(Masters, Privacy, Keytab)],
            has_failures: false,
            is_usual: false,
        },
    ];
    for protection in [Authentication, Integrity] {
        groups.push(Group {
            name: match protection {
                Authentication => "2.6, authentication only",
                _ => "2.6, integrity only",
            },
            version: HBaseVersion::V2_6,
            security: kerberos(|kerberos, _| kerberos.protections = vec![protection]),
            clients: vec![one(ZooKeeper, protection, Keytab)],
            has_failures: false,
            is_usual: false,
        });
    }
    for (name, version) in [
        ("2.4, all protections", HBaseVersion::V2_4),
        ("2.5, all protections", HBaseVersion::V2_5),
        ("3.0, all protections", HBaseVersion::V3_0),
    ] {
        groups.push(Group {
            name,
            version,
            security: kerberos(|_, _| {}),
            clients: vec![
                one(ZooKeeper, Privacy, Keytab),
                one(Masters, Authentication, Cache),
                one(ZooKeeper, Integrity, Token),
            ],
            has_failures: false,
            is_usual: false,
        });
    }
    groups
}
