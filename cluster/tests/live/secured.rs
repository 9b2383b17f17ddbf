//! Secured clusters: HBase's own client gets in with what the cluster hands out, and only with that.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use cluster::{
    Certificate, Cluster, ClusterConfig, HBaseVersion, JavaClient, Kerberos, Node, Protection, Tls,
    ZooKeeperSasl,
};

use crate::ALONE;

/// Installs the KDC if it is missing, which needs root.
fn install_kdc() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("install-kdc.sh");
    assert!(Command::new(script).status().unwrap().success(), "no KDC");
}

/// A cluster that starts with little memory.
fn small(region_servers: usize) -> ClusterConfig {
    let mut config = ClusterConfig::new(region_servers);
    config.region_server_heap_mb = 256;
    config.master_heap_mb = 256;
    config.start_timeout = Duration::from_mins(6);
    config
}

/// How a Java client logs in.
#[derive(Clone, Copy)]
enum Login {
    Keytab(&'static str),
    /// The token that [`token`] got.
    Token,
    Nobody,
}

const USER: Login = Login::Keytab(Kerberos::USER);

/// Outcomes of a Java client with these properties, a text for each.
async fn outcomes(cluster: &Cluster, login: Login, cases: &[&str], flags: &[&str]) -> Vec<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("java/CellCheck.java");
    let (login, file) = match login {
        Login::Keytab(user) => {
            let realm = cluster.realm().unwrap();
            (realm.principal(user), realm.keytab(user))
        }
        Login::Token => ("token".to_owned(), token_file(cluster)),
        Login::Nobody => ("-".to_owned(), "-".into()),
    };
    let file = file.display().to_string();
    let mut args = vec![login.as_str(), file.as_str()];
    args.extend(cases);
    let run = JavaClient { source: &source, args: &args, flags }.run(cluster).await.unwrap();
    let outcomes: Vec<_> = run.stdout.lines().map(str::to_owned).collect();
    assert_eq!(outcomes.len(), cases.len(), "{}", run.stdout);
    println!("{:.1} s: {outcomes:#?}", run.wall.as_secs_f64());
    outcomes
}

/// A client that knows nothing of Kerberos.
const SIMPLE: &str = "hbase.security.authentication=simple";
const PLAIN: &str = "hbase.client.netty.tls.enabled=false";

#[track_caller]
fn assert_refused(outcome: &str, reason: &str) {
    assert!(outcome.starts_with("refused") && outcome.contains(reason), "{outcome}");
}

/// One cluster that offers everything: each protection with and without TLS, two masters, SASL and TLS of ZooKeeper,
/// rights.
#[tokio::test]
async fn one_cluster_serves_all_protections_with_and_without_tls() {
    let _alone = ALONE.lock().await;
    install_kdc();
    let mut config = small(2);
    config.masters = 2;
    config.security.kerberos = Some(Kerberos::new());
    config.security.authorization = true;
    config.security.tls = Tls::On;
    config.security.zookeeper_sasl = ZooKeeperSasl::Required;
    config.security.zookeeper_tls = Tls::On;
    let mut cluster = Cluster::start(config).await.unwrap();
    assert_eq!(cluster.masters().len(), 2);

    let mut cases = Vec::new();
    for protection in ["authentication", "integrity", "privacy"] {
        for tls in ["true", "false"] {
            cases.push(format!(
                "hbase.rpc.protection={protection};hbase.client.netty.tls.enabled={tls}"
            ));
        }
    }
    let cases: Vec<_> = cases.iter().map(String::as_str).collect();
    assert_eq!(outcomes(&cluster, USER, &cases, &[]).await, ["ok"; 6]);

    let guest = outcomes(&cluster, Login::Keytab(Kerberos::GUEST), &[""], &[]).await;
    assert_refused(&guest[0], "AccessDeniedException: Insufficient permissions");
    let without_sasl = ["-Dzookeeper.sasl.client=false"];
    let refused = outcomes(&cluster, USER, &[""], &without_sasl).await;
    assert_refused(&refused[0], "failed to authenticate");
    let without_tls = ["-Dzookeeper.client.secure=false"];
    let refused = outcomes(&cluster, USER, &[""], &without_tls).await;
    assert_refused(&refused[0], "ConnectionLoss");

    faults(&mut cluster).await;
    tokens_and_keys(&cluster).await;
    cluster.shut_down().await.unwrap();
}

async fn faults(cluster: &mut Cluster) {
    // The table has one region.
    let table = "check".parse().unwrap();
    for to in [0, 1] {
        cluster.move_region(&table, b"", to).await.unwrap();
    }
    let moved = Node::RegionServer(1);
    cluster.kill(moved).unwrap();
    cluster.restart(moved).await.unwrap();
    cluster.kill(Node::Master).unwrap();
    recovered(cluster).await;
    cluster.restart(Node::Master).await.unwrap();
    cluster.pause(Node::Kdc).unwrap();
    cluster.resume(Node::Kdc).unwrap();
}

/// Waits until the other master has taken over, and has assigned the regions of the killed server.
async fn recovered(cluster: &Cluster) {
    let deadline = Instant::now() + Duration::from_mins(3);
    loop {
        let other = outcomes(cluster, USER, &[""], &[]).await;
        if other == ["ok"] {
            return;
        }
        assert!(Instant::now() < deadline, "the other master does not serve: {other:?}");
    }
}

fn token_file(cluster: &Cluster) -> PathBuf {
    cluster.directory().join("tmp/token")
}

/// A token serves as a ticket does.
async fn token(cluster: &Cluster) {
    cluster.write_token(Kerberos::USER, &token_file(cluster)).await.unwrap();
    let found = outcomes(cluster, Login::Token, &["", "hbase.rpc.protection=privacy"], &[]).await;
    assert_eq!(found, ["ok"; 2]);
}

async fn tokens_and_keys(cluster: &Cluster) {
    token(cluster).await;
    let realm = cluster.realm().unwrap();
    realm.rekey(Kerberos::HBASE).unwrap();
    let after = outcomes(cluster, USER, &[""], &[]).await;
    assert_eq!(after, ["ok"], "the servers read the new keytab");
}

/// The names of Huawei's clusters, one protection, certificates on both sides.
#[tokio::test]
async fn a_strict_cluster_refuses_other_protections_and_clients_without_certificate() {
    let _alone = ALONE.lock().await;
    install_kdc();
    let mut config = small(1);
    let mut kerberos = Kerberos::new();
    kerberos.protections = vec![Protection::Privacy];
    kerberos.realm = "HADOOP.COM".into();
    kerberos.service_host = Some("hadoop.hadoop.com".into());
    config.security.kerberos = Some(kerberos);
    config.security.tls = Tls::Mutual;
    config.security.plaintext = false;
    config.security.zookeeper_sasl = ZooKeeperSasl::Required;
    config.security.zookeeper_tls = Tls::Mutual;
    let cluster = Cluster::start(config).await.unwrap();
    let certificates = cluster.certificates().unwrap();
    let identity = |certificate| {
        format!("hbase.rpc.tls.keystore.location={}", certificates.pem(certificate).display())
    };
    let (foreign, expired) =
        (identity(Certificate::OtherAuthority), identity(Certificate::Expired));
    let other_host = identity(Certificate::OtherHost);
    let cases = ["", "hbase.rpc.protection=authentication", PLAIN, &foreign, &expired, &other_host];
    let found = outcomes(&cluster, USER, &cases, &[]).await;
    assert_eq!(found[0], "ok");
    for outcome in &found[1..3] {
        assert_refused(outcome, "");
    }
    assert_refused(&found[3], "bad_certificate");
    for outcome in &found[4..] {
        assert_refused(outcome, "certificate_unknown");
    }
    let without_certificate = ["-Dzookeeper.ssl.keyStore.location="];
    let refused = outcomes(&cluster, USER, &[""], &without_certificate).await;
    assert_refused(&refused[0], "ConnectionLoss");
    cluster.shut_down().await.unwrap();
}

/// TLS without Kerberos.
#[tokio::test]
async fn a_cluster_with_tls_alone_serves_simple_clients_with_tls_only() {
    let _alone = ALONE.lock().await;
    let mut config = small(1);
    config.security.tls = Tls::On;
    config.security.plaintext = false;
    let cluster = Cluster::start(config).await.unwrap();
    let found = outcomes(&cluster, Login::Nobody, &["", PLAIN], &[]).await;
    assert_eq!(found[0], "ok");
    assert_refused(&found[1], "");
    cluster.shut_down().await.unwrap();
}

#[tokio::test]
async fn each_version_serves_users_with_a_ticket_only() {
    let _alone = ALONE.lock().await;
    install_kdc();
    for version in HBaseVersion::ALL {
        let mut config = small(1);
        config.version = version;
        config.security.kerberos = Some(Kerberos::new());
        let cluster = Cluster::start(config).await.unwrap();
        let cases = [
            "hbase.rpc.protection=authentication",
            "hbase.rpc.protection=integrity",
            "hbase.rpc.protection=privacy",
        ];
        let found = outcomes(&cluster, USER, &cases, &[]).await;
        assert_eq!(found, ["ok"; 3], "{version}");
        token(&cluster).await;
        let refused = outcomes(&cluster, Login::Nobody, &[SIMPLE], &[]).await;
        assert_refused(&refused[0], "");
        cluster.shut_down().await.unwrap();
    }
}
