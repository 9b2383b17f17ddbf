//! Ways to a secured cluster, as `cluster up` starts it with `--kerberos --tls mutual --no-plaintext
//! --zookeeper-sasl required --zookeeper-tls mutual --masters 2`. `HBASE_CLUSTER` is its directory, and `KRB5_CONFIG`
//! its `client/krb5.conf`. All but the refusals of ZooKeeper also pass without Kerberos, and with
//! `--property hbase.rpc.tls.enabledProtocols=TLSv1.3,TLSv1.2`.

use std::{collections::HashMap, env, fs, path::PathBuf, time::Duration};

use hbase_rs::{
    Client, ClientConfig,
    discovery::{Discovery, DiscoveryError, RegistryDiscovery, RegistryServer, ZooKeeperDiscovery},
    security::{
        Authentication, KerberosConfig, KerberosLogin, Protection, SecurityConfig, TlsConfig,
        ZooKeeperKerberos, ZooKeeperSasl, ZooKeeperSecurity,
    },
    transport::Role,
};

fn directory() -> PathBuf {
    env::var_os("HBASE_CLUSTER").unwrap().into()
}

/// The properties of the client's configuration.
fn site() -> HashMap<String, String> {
    let text = fs::read_to_string(directory().join("client/hbase-site.xml")).unwrap();
    let between = |text: &str, tag: &str| {
        let (_, rest) = text.split_once(&format!("<{tag}>"))?;
        Some(rest.split_once(&format!("</{tag}>"))?.0.trim().to_owned())
    };
    let property = |text: &str| Some((between(text, "name")?, between(text, "value")?));
    text.split("<property>").filter_map(property).collect()
}

fn quorum() -> String {
    let site = site();
    let port = &site["hbase.zookeeper.property.clientPort"];
    format!("{}:{port}", site["hbase.zookeeper.quorum"])
}

fn login() -> KerberosLogin {
    KerberosLogin::Keytab { file: directory().join("client/user.keytab"), principal: None }
}

fn tls(identity: &str) -> TlsConfig {
    TlsConfig {
        authorities: Some(directory().join("client/ca.pem")),
        identity: Some(directory().join(identity)),
        ..TlsConfig::default()
    }
}

fn zookeeper(identity: &str, sasl: ZooKeeperSasl) -> ZooKeeperDiscovery {
    let security = ZooKeeperSecurity { tls: Some(tls(identity)), sasl };
    ZooKeeperDiscovery::with_security(&quorum(), "/hbase", &security).unwrap()
}

fn has_kerberos() -> bool {
    site().get("hbase.security.authentication").is_some_and(|value| value == "kerberos")
}

fn kerberos() -> ZooKeeperSasl {
    if has_kerberos() {
        ZooKeeperSasl::Kerberos(ZooKeeperKerberos::new(login()))
    } else {
        ZooKeeperSasl::None
    }
}

fn authentication(protection: Protection) -> Authentication {
    if !has_kerberos() {
        return Authentication::Simple;
    }
    let principal = &site()["hbase.regionserver.kerberos.principal"];
    let mut kerberos = KerberosConfig::new(login(), principal.clone());
    kerberos.protections = vec![protection];
    Authentication::Kerberos(kerberos)
}

fn config(protection: Protection, identity: Option<&str>) -> ClientConfig {
    let mut tls = tls("");
    tls.identity = identity.map(|file| directory().join(file));
    let security = SecurityConfig {
        authentication: authentication(protection),
        tls: Some(tls),
        allow_simple_fallback: false,
    };
    let mut config = ClientConfig::new("nobody");
    config.transport = security.transport().unwrap();
    config.operation_timeout = Duration::from_secs(30);
    config
}

fn texts(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", texts(source)),
        None => error.to_string(),
    }
}

#[track_caller]
fn check(error: &DiscoveryError, expected: &str) {
    let text = texts(error);
    assert!(error.is_permanent() && text.contains(expected), "{text}");
    println!("{text}");
}

#[tokio::test]
#[ignore = "needs a secured cluster"]
async fn zookeeper_with_tls_and_kerberos() {
    let discovery = zookeeper("client/client.pem", kerberos());
    for _ in 0..3 {
        println!("{:?} {:?}", discovery.meta_server().await.unwrap(), discovery.master().await);
    }
}

#[tokio::test]
#[ignore = "needs a secured cluster"]
async fn refusals_of_zookeeper_are_named() {
    let error = zookeeper("client/client.pem", ZooKeeperSasl::None).meta_server().await;
    check(&error.unwrap_err(), "requires SASL");
    let other = zookeeper("tls/other-authority.pem", kerberos()).meta_server().await;
    check(&other.unwrap_err(), "zookeeper.ssl.keyStore.location");
    let mut none = ZooKeeperSecurity { tls: Some(tls("")), sasl: kerberos() };
    none.tls.as_mut().unwrap().identity = None;
    let none = ZooKeeperDiscovery::with_security(&quorum(), "/hbase", &none).unwrap();
    check(&none.meta_server().await.unwrap_err(), "zookeeper.ssl.keyStore.location");
    let mut wrong = ZooKeeperKerberos::new(login());
    wrong.server_principal = Some("hbase/localhost".to_owned());
    let wrong = zookeeper("client/client.pem", ZooKeeperSasl::Kerberos(wrong));
    check(&wrong.meta_server().await.unwrap_err(), "zookeeper.server.principal");
    wrong_protocols().await;
}

/// TLS at a server of HBase, and a plain client at both.
async fn wrong_protocols() {
    let plain = ZooKeeperDiscovery::new(&quorum(), "/hbase").meta_server().await.unwrap_err();
    println!("{}", texts(&plain));
    assert!(texts(&plain).contains("zookeeper.client.secure"), "{plain:?}");
    let server = zookeeper("client/client.pem", kerberos()).meta_server().await.unwrap();
    let address = format!("{}:{}", server.host(), server.port());
    let hbase = ZooKeeperDiscovery::new(&address, "/hbase").meta_server().await.unwrap_err();
    println!("{}", texts(&hbase));
    let security = ZooKeeperSecurity { tls: Some(tls("client/client.pem")), sasl: kerberos() };
    let hbase = ZooKeeperDiscovery::with_security(&address, "/hbase", &security).unwrap();
    println!("{}", texts(&hbase.meta_server().await.unwrap_err()));
}

#[tokio::test]
#[ignore = "needs a secured cluster"]
async fn registry_with_tls_and_kerberos() {
    let server = zookeeper("client/client.pem", kerberos()).meta_server().await.unwrap();
    let master = zookeeper("client/client.pem", kerberos()).master().await.unwrap();
    for protection in [Protection::Authentication, Protection::Integrity, Protection::Privacy] {
        let config = config(protection, Some("client/client.pem"));
        for (asked, role) in [(&server, None), (&master, Some(Role::Master)), (&master, None)] {
            let asked = RegistryServer { host: asked.host().to_owned(), port: asked.port(), role };
            let dead = "127.0.0.1:1".parse().unwrap();
            let registry = RegistryDiscovery::new(vec![dead, asked], config.clone())
                .refresh_every(Duration::from_millis(200), Duration::from_millis(1));
            assert_eq!(registry.meta_server().await.unwrap(), server);
            assert_eq!(registry.master().await.unwrap(), master);
            println!("{}", registry.cluster_id().await.unwrap());
            tokio::time::sleep(Duration::from_millis(500)).await;
            println!("{:?}", registry.known_servers());
            let client = Client::new(config.clone(), registry);
            assert!(client.admin().cluster_status().await.is_ok());
        }
    }
}

#[tokio::test]
#[ignore = "needs a secured cluster"]
async fn refused_client_certificates_fail_operations_at_once() {
    for (identity, expected) in [
        (None, "hbase.rpc.tls.keystore.location"),
        (Some("tls/other-authority.pem"), "hbase.rpc.tls.keystore.location"),
        (Some("tls/other-host.pem"), "hbase.rpc.tls.keystore.location"),
        (Some("tls/expired.pem"), "hbase.rpc.tls.keystore.location"),
    ] {
        let discovery = zookeeper("client/client.pem", kerberos());
        let client = Client::new(config(Protection::Authentication, identity), discovery);
        let error = client
            .table("hbase:namespace".parse().unwrap())
            .get(&hbase_rs::Get::try_new("default").unwrap())
            .await
            .unwrap_err();
        let text = texts(&error);
        println!("{text}");
        assert!(error.attempts == 1 && text.contains(expected), "{identity:?} {text}");
    }
}
