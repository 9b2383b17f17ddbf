//! How the daemon would reach HBase, in words, for `tsdb config check`.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use hbase_rs::security::{
    Authentication, KerberosLogin, Protection, TlsConfig, ZooKeeperSasl, ZooKeeperSecurity,
};
use tsd_storage_hbase::HBaseDiscovery;

use super::HBaseSettings;

/// One line for each subject.
pub(super) fn lines(hbase: &HBaseSettings) -> Vec<String> {
    let cluster = &hbase.cluster;
    let security = &cluster.security;
    let mut lines = vec![format!("HBase: {}", servers(&cluster.discovery))];
    match &security.authentication {
        Authentication::Simple => {
            lines.push(format!("authentication: none; the user name is {}", cluster.user));
        }
        Authentication::Kerberos(kerberos) => {
            lines.push(format!("authentication: Kerberos {}", login(&kerberos.login)));
            let masters =
                kerberos.master_principal.as_ref().unwrap_or(&kerberos.region_server_principal);
            lines.push(format!(
                "principals: region servers {}, masters {masters}",
                kerberos.region_server_principal
            ));
            lines.push(format!("protection: {}", protections(&kerberos.protections)));
        }
        Authentication::Token(token) => {
            lines.push(format!("authentication: token of {}", token.file.display()));
            lines.push(format!("protection: {}", protections(&token.protections)));
        }
    }
    if security.allow_simple_fallback {
        lines.push("servers without authentication are accepted".to_owned());
    }
    lines.push(format!("TLS to HBase: {}", tls(security.tls.as_ref())));
    if let HBaseDiscovery::ZooKeeper { security, .. } = &cluster.discovery {
        lines.push(format!("login at ZooKeeper: {}", zookeeper_login(security)));
        lines.push(format!("TLS to ZooKeeper: {}", tls(security.tls.as_ref())));
    }
    lines
}

fn servers(discovery: &HBaseDiscovery) -> String {
    match discovery {
        HBaseDiscovery::ZooKeeper { quorum, root, .. } => {
            format!("through ZooKeeper at {quorum}, root znode {root}")
        }
        HBaseDiscovery::Registry { servers } => {
            let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
            format!("through its servers {}, without ZooKeeper", servers.join(", "))
        }
    }
}

fn login(login: &KerberosLogin) -> String {
    match login {
        KerberosLogin::Keytab { file, principal: Some(principal) } => {
            format!("as {principal} by keytab {}", file.display())
        }
        KerberosLogin::Keytab { file, principal: None } => {
            format!("as the first principal of keytab {}", file.display())
        }
        KerberosLogin::Cache { file: Some(file) } => {
            format!("by ticket cache {}, which another program renews", file.display())
        }
        KerberosLogin::Cache { file: None } => {
            "by the ticket cache of KRB5CCNAME or krb5.conf, which another program renews"
                .to_owned()
        }
    }
}

fn protections(protections: &[Protection]) -> String {
    let words: Vec<&str> = protections.iter().map(|one| one.name()).collect();
    words.join(", else ")
}

fn tls(tls: Option<&TlsConfig>) -> String {
    let Some(TlsConfig { authorities, identity, verify_host, .. }) = tls else {
        return "off".to_owned();
    };
    let authorities = shown(authorities.as_deref(), "of the system");
    let identity = shown(identity.as_deref(), "none");
    let hosts = if *verify_host { "verified" } else { "not verified" };
    format!("on; authorities {authorities}; client certificate {identity}; host names {hosts}")
}

fn shown(file: Option<&Path>, without: &str) -> String {
    file.map_or_else(|| without.to_owned(), |file| file.display().to_string())
}

fn zookeeper_login(security: &ZooKeeperSecurity) -> String {
    let ZooKeeperSasl::Kerberos(sasl) = &security.sasl else { return "none".to_owned() };
    let server = sasl.server_principal.clone().unwrap_or_else(|| format!("{}/HOST", sasl.service));
    let otherwise = if sasl.is_required { "" } else { "; if it fails, none" };
    format!("Kerberos {}; servers are {server}{otherwise}", login(&sasl.login))
}

/// Files that the daemon needs and that this process cannot read, with the reasons.
pub(super) fn unreadable_files(hbase: &HBaseSettings) -> Vec<String> {
    let unreadable = |(what, path): (&str, PathBuf)| {
        let error = open(&path).err()?;
        Some(format!("cannot read {what} {}: {error}", path.display()))
    };
    files(hbase).into_iter().filter_map(unreadable).collect()
}

fn open(path: &Path) -> std::io::Result<()> {
    if File::open(path)?.metadata()?.is_dir() {
        return Err(std::io::Error::other("it is a directory"));
    }
    Ok(())
}

fn files(hbase: &HBaseSettings) -> Vec<(&'static str, PathBuf)> {
    let mut files = Vec::new();
    let mut of_login = |login: &KerberosLogin| match login {
        KerberosLogin::Keytab { file, .. } => files.push(("the keytab", file.clone())),
        KerberosLogin::Cache { file: Some(file) } => files.push(("the ticket cache", file.clone())),
        KerberosLogin::Cache { file: None } => {}
    };
    let security = &hbase.cluster.security;
    if let Authentication::Kerberos(kerberos) = &security.authentication {
        of_login(&kerberos.login);
    }
    let of_zookeeper = match &hbase.cluster.discovery {
        HBaseDiscovery::ZooKeeper { security, .. } => Some(security),
        HBaseDiscovery::Registry { .. } => None,
    };
    if let Some(ZooKeeperSasl::Kerberos(sasl)) = of_zookeeper.map(|security| &security.sasl) {
        of_login(&sasl.login);
    }
    if let Authentication::Token(token) = &security.authentication {
        files.push(("the token file", token.file.clone()));
    }
    let of_tls = security.tls.iter().chain(of_zookeeper.and_then(|security| security.tls.as_ref()));
    for TlsConfig { authorities, identity, .. } in of_tls {
        let stores = [("the trust store", authorities), ("the key store", identity)];
        let stores = stores.into_iter().filter_map(|(what, store)| Some((what, store.as_ref()?)));
        files.extend(stores.map(|(what, store)| (what, store.clone())));
    }
    files.extend(hbase.krb5_conf.iter().map(|path| ("krb5.conf", path.clone())));
    files.dedup();
    files
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;
    use crate::config::Settings;

    const KERBEROS: [(&str, &str); 4] = [
        ("tsd.storage.hbase.zk_quorum", "zk1:2181"),
        ("hbase.security.auth.enable", "true"),
        ("hbase.security.authentication", "kerberos"),
        ("hbase.kerberos.regionserver.principal", "hbase/_HOST@LAB.TEST"),
    ];

    fn hbase(values: &[(&str, &str)]) -> HBaseSettings {
        Settings::with(values).unwrap().storage.hbase
    }

    #[test]
    fn a_cluster_without_security_has_four_facts() {
        let values = [("tsd.storage.hbase.zk_quorum", "zk1"), ("tsd.storage.hbase.user", "me")];
        assert_eq!(
            lines(&hbase(&values)),
            [
                "HBase: through ZooKeeper at zk1, root znode /hbase",
                "authentication: none; the user name is me",
                "TLS to HBase: off",
                "login at ZooKeeper: none",
                "TLS to ZooKeeper: off",
            ]
        );
        assert!(unreadable_files(&hbase(&values)).is_empty());
    }

    #[test]
    fn security_is_described_in_words() {
        let more = [
            ("hbase.rpc.protection", "privacy,integrity"),
            ("hbase.client.keytab.file", "/no/tsdb.keytab"),
            ("hbase.client.keytab.principal", "tsdb@LAB.TEST"),
            ("hbase.ipc.client.fallback-to-simple-auth-allowed", "true"),
            ("hbase.client.netty.tls.enabled", "true"),
            ("hbase.rpc.tls.truststore.location", "/no/ca.pem"),
            ("hbase.rpc.tls.keystore.location", "/no/me.pem"),
            ("zookeeper.sasl.client", "true"),
            ("zookeeper.server.principal", "zookeeper/hadoop.lab.test"),
            ("zookeeper.client.secure", "true"),
            ("zookeeper.ssl.hostnameVerification", "false"),
            ("java.security.krb5.conf", "/no/krb5.conf"),
        ];
        let secured = hbase(&[&KERBEROS[..], &more[..]].concat());
        assert_eq!(
            lines(&secured),
            [
                "HBase: through ZooKeeper at zk1:2181, root znode /hbase",
                "authentication: Kerberos as tsdb@LAB.TEST by keytab /no/tsdb.keytab",
                "principals: region servers hbase/_HOST@LAB.TEST, masters hbase/_HOST@LAB.TEST",
                "protection: privacy, else integrity",
                "servers without authentication are accepted",
                "TLS to HBase: on; authorities /no/ca.pem; client certificate /no/me.pem; host names verified",
                "login at ZooKeeper: Kerberos as tsdb@LAB.TEST by keytab /no/tsdb.keytab; servers are \
                 zookeeper/hadoop.lab.test",
                "TLS to ZooKeeper: on; authorities of the system; client certificate none; host names not verified",
            ]
        );
        let missing = unreadable_files(&secured);
        let expected = [
            "the keytab /no/tsdb.keytab",
            "the trust store /no/ca.pem",
            "the key store /no/me.pem",
            "krb5.conf /no/krb5.conf",
        ];
        assert_eq!(missing.len(), expected.len(), "{missing:?}");
        for (line, file) in missing.iter().zip(expected) {
            assert_eq!(
                line,
                &format!("cannot read {file}: No such file or directory (os error 2)")
            );
        }
    }

    #[test]
    fn tokens_and_caches_are_named() {
        let masters = [
            ("hbase.masters", "m1,m2:1"),
            ("hbase.security.auth.enable", "true"),
            ("hbase.security.authentication", "token"),
            ("hadoop.token.files", "/no/token"),
        ];
        assert_eq!(
            lines(&hbase(&masters)),
            [
                "HBase: through its servers m1:16000, m2:1, without ZooKeeper",
                "authentication: token of /no/token",
                "protection: authentication",
                "TLS to HBase: off",
            ]
        );
        assert_eq!(unreadable_files(&hbase(&masters)).len(), 1);
        let by_cache = lines(&hbase(&KERBEROS));
        assert!(
            by_cache.iter().any(|line| line.contains("ticket cache of KRB5CCNAME")),
            "{by_cache:?}"
        );
        let directory = tempfile::tempdir().unwrap();
        let keytab = directory.path().join("k");
        let file = ("hbase.client.keytab.file", keytab.to_str().unwrap());
        let by_keytab = hbase(&[&KERBEROS[..], &[file]].concat());
        assert!(lines(&by_keytab).iter().any(|line| line.contains("first principal of keytab")));
        fs::create_dir(&keytab).unwrap();
        assert!(
            unreadable_files(&by_keytab).iter().any(|line| line.ends_with("it is a directory"))
        );
        fs::remove_dir(&keytab).unwrap();
        fs::write(&keytab, b"\x05\x02").unwrap();
        assert!(unreadable_files(&by_keytab).is_empty());
    }
}
