//! Wrong settings, each of which must end a start with one error that names the cause and the setting to change.

use std::time::Duration;

use cluster::{Certificate, Cluster, Kerberos, Protection};
use tokio::task::block_in_place;

use crate::{
    TestResult,
    client::{ClientSettings, Discovery, Encryption, Login, SecureClient, await_settings},
    programs::{Watched, command, daemon},
};

/// A wrong setting.
pub(crate) struct Failure {
    pub(crate) name: &'static str,
    client: SecureClient,
    /// Makes the settings of the client wrong.
    change: fn(&Cluster, &mut ClientSettings),
    /// Parts of the error.
    expected: &'static [&'static str],
    /// False if the start goes on, since somebody else may repair the cause.
    is_permanent: bool,
}

const KEYTAB: SecureClient = SecureClient {
    discovery: Discovery::ZooKeeper,
    protection: Protection::Authentication,
    login: Login::Keytab,
    encryption: Encryption::Plain,
};
const TLS: SecureClient = SecureClient { encryption: Encryption::TlsOnly, ..KEYTAB };
const MASTERS: SecureClient = SecureClient { discovery: Discovery::Masters, ..KEYTAB };
const MUTUAL: SecureClient = SecureClient { encryption: Encryption::Mutual, ..KEYTAB };
const NOBODY: SecureClient = SecureClient { login: Login::Nobody, ..TLS };

const REGION_SERVERS: &str = "hbase.kerberos.regionserver.principal";
const IDENTITY: &str = "hbase.rpc.tls.keystore.location";

const fn permanent(
    name: &'static str,
    client: SecureClient,
    change: fn(&Cluster, &mut ClientSettings),
    expected: &'static [&'static str],
) -> Failure {
    Failure { name, client, change, expected, is_permanent: true }
}

/// At a cluster with Kerberos, all protections, TLS on request, rights, and SASL at ZooKeeper.
pub(crate) const OF_KERBEROS: &[Failure] = &[
    permanent(
        "wrong principal of the servers",
        MASTERS,
        |_, settings| settings.set(REGION_SERVERS, "hbsae/_HOST@CLUSTER.TEST"),
        &["localhost:", "hbsae/localhost@CLUSTER.TEST", "hbase.regionserver.kerberos.principal"],
    ),
    permanent(
        "wrong realm of the servers",
        MASTERS,
        |_, settings| settings.set(REGION_SERVERS, "hbase/_HOST@OTHER.TEST"),
        &["localhost:", "hbase/localhost@OTHER.TEST", "hbase.regionserver.kerberos.principal"],
    ),
    permanent(
        "no keytab",
        KEYTAB,
        |_, settings| settings.set("hbase.client.keytab.file", "/nowhere/user.keytab"),
        &["hbase.client.keytab.file", "/nowhere/user.keytab", "does not exist"],
    ),
    permanent(
        "keytab of another user",
        KEYTAB,
        |cluster, settings| {
            if let Some(realm) = cluster.realm() {
                let file = realm.keytab(Kerberos::GUEST);
                settings.set("hbase.client.keytab.file", file.display());
            }
        },
        &["tsdb@CLUSTER.TEST", "guest.keytab", "hbase.client.keytab.principal"],
    ),
    permanent(
        "plain client at a server with Kerberos",
        MASTERS,
        |_, settings| settings.set("hbase.security.auth.enable", false),
        &["localhost:", "Authentication is required", "hbase.security.auth.enable"],
    ),
    permanent(
        "no login at ZooKeeper, which requires one",
        KEYTAB,
        |_, settings| settings.set("zookeeper.sasl.client", false),
        &["localhost:", "zookeeper.sasl.client"],
    ),
    permanent(
        "wrong principal of ZooKeeper",
        KEYTAB,
        |_, settings| settings.set("zookeeper.server.principal", "zookeeper/elsewhere"),
        &["zookeeper/elsewhere", "zookeeper.server.principal"],
    ),
    permanent(
        "certificate of an unknown authority",
        TLS,
        |cluster, settings| {
            if let Some(certificates) = cluster.certificates() {
                let file = certificates.other_authority();
                settings.set("hbase.rpc.tls.truststore.location", file.display());
            }
        },
        &["localhost", "hbase.rpc.tls.truststore.location"],
    ),
    permanent(
        "certificate file without a certificate",
        TLS,
        |cluster, settings| {
            settings.set(
                "hbase.rpc.tls.truststore.location",
                cluster.client_files().hbase_site().display(),
            );
        },
        &["hbase.rpc.tls.truststore.location", "hbase-site.xml", "there is no certificate in it"],
    ),
    permanent(
        "certificate without the host",
        SecureClient { discovery: Discovery::OtherName, ..TLS },
        // With the host in it, the principal would be wrong too.
        |_, settings| settings.set(REGION_SERVERS, "hbase/localhost@CLUSTER.TEST"),
        &["elsewhere.test", "hbase.client.netty.tls.verify.server.hostname"],
    ),
    Failure {
        name: "expired ticket cache",
        client: SecureClient { login: Login::ExpiredCache, ..KEYTAB },
        change: |_, _| {},
        expected: &["expired", "kinit"],
        is_permanent: false,
    },
];

/// At a cluster without Kerberos that demands certificates, with TLS 1.2.
pub(crate) const OF_TLS_1_2: &[Failure] = &[
    permanent("no client certificate, TLS 1.2", NOBODY, |_, _| {}, &["localhost", IDENTITY]),
    permanent(
        "client certificate of another authority",
        NOBODY,
        |cluster, settings| set_identity(cluster, settings, Certificate::OtherAuthority),
        &["localhost", IDENTITY],
    ),
    permanent(
        "client certificate without the client's host",
        NOBODY,
        |cluster, settings| set_identity(cluster, settings, Certificate::OtherHost),
        &["localhost", IDENTITY, "subject alternative name"],
    ),
    permanent(
        "expired client certificate",
        NOBODY,
        |cluster, settings| set_identity(cluster, settings, Certificate::Expired),
        &["localhost", IDENTITY],
    ),
    permanent(
        "Kerberos at a server without security",
        SecureClient { login: Login::ForeignToken, ..MUTUAL },
        |_, _| {},
        &[
            "localhost",
            "the server has no authentication",
            "hbase.security.auth.enable",
            "hbase.ipc.client.fallback-to-simple-auth-allowed",
        ],
    ),
    Failure {
        name: "plain client at a server with TLS alone",
        client: NOBODY,
        change: |_, settings| settings.set("hbase.client.netty.tls.enabled", false),
        expected: &["localhost", "hbase.client.netty.tls.enabled"],
        is_permanent: false,
    },
];

/// At a cluster with Kerberos that demands certificates, with TLS 1.3 and one protection.
pub(crate) const OF_TLS_1_3: &[Failure] = &[
    // The refusal is an alert after the handshake.
    permanent("no client certificate, TLS 1.3", TLS, |_, _| {}, &["localhost", IDENTITY]),
    permanent(
        "protection that the servers do not offer",
        SecureClient { protection: Protection::Privacy, ..MUTUAL },
        |_, _| {},
        &["localhost", "\"authentication\"", "\"privacy\"", "hbase.rpc.protection"],
    ),
];

/// At a cluster with Kerberos and without TLS.
pub(crate) const OF_NO_TLS: &[Failure] = &[permanent(
    "TLS at a server without TLS",
    SecureClient { protection: Protection::Integrity, ..KEYTAB },
    |_, settings| settings.set("hbase.client.netty.tls.enabled", true),
    &["localhost", "hbase.client.netty.tls.enabled"],
)];

fn set_identity(cluster: &Cluster, settings: &mut ClientSettings, certificate: Certificate) {
    if let Some(certificates) = cluster.certificates() {
        settings.set(IDENTITY, certificates.pem(certificate).display());
    }
}

/// Creates tables, then starts a daemon; both must fail. Returns the times from the start to the error.
pub(crate) fn run(cluster: &Cluster, failure: &Failure) -> TestResult<String> {
    let directory = tempfile::tempdir()?;
    let mut settings = await_settings(failure.client, cluster, directory.path())?;
    (failure.change)(cluster, &mut settings);
    settings.set_tables("refused");
    let file = directory.path().join("opentsdb.conf");
    settings.write(&file)?;
    let log = directory.path().join("log");
    block_in_place(|| {
        let mut texts = Vec::new();
        let create = command(&settings, &file, &["table", "create"]);
        let start = daemon(&settings, &file, directory.path());
        for (name, program) in [("table create", create), ("tsd", start)] {
            let mut program = Watched::start(program, &log)?;
            if failure.is_permanent && program.await_exit()?.0.success() {
                return Err(format!("{name} succeeded").into());
            }
            let after = program.await_texts(failure.expected)?;
            texts.push(format!("{name} {}", seconds(after)));
        }
        Ok(texts.join(", "))
    })
}

pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
