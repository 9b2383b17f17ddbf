//! Wrong settings, each of which must end a start with an error that names the cause.

use cluster::{Cluster, Kerberos};
use tokio::{runtime::Handle, task::block_in_place};

use crate::{
    TestResult,
    client::{ClientSettings, Discovery, Encryption, Login, SecureClient},
    rows::{command, one_line},
};

/// A wrong setting.
pub(crate) struct Failure {
    pub(crate) name: &'static str,
    client: SecureClient,
    /// Makes the settings of the client wrong.
    change: fn(&Cluster, &mut ClientSettings),
    /// Parts of the error.
    expected: &'static [&'static str],
}

const KEYTAB: SecureClient = SecureClient {
    discovery: Discovery::ZooKeeper,
    protection: cluster::Protection::Authentication,
    login: Login::Keytab,
    encryption: Encryption::Plain,
};
const TLS: SecureClient = SecureClient { encryption: Encryption::TlsOnly, ..KEYTAB };
const MASTERS: SecureClient = SecureClient { discovery: Discovery::Masters, ..KEYTAB };

pub(crate) const ALL: &[Failure] = &[
    Failure {
        name: "wrong principal of the servers",
        client: MASTERS,
        change: |_, settings| {
            settings.set("hbase.kerberos.regionserver.principal", "hbsae/_HOST@CLUSTER.TEST");
        },
        expected: &["hbsae/localhost@CLUSTER.TEST", "hbase.regionserver.kerberos.principal"],
    },
    Failure {
        name: "wrong realm of the servers",
        client: MASTERS,
        change: |_, settings| {
            settings.set("hbase.kerberos.regionserver.principal", "hbase/_HOST@OTHER.TEST");
        },
        expected: &["OTHER.TEST", "hbase.regionserver.kerberos.principal"],
    },
    Failure {
        name: "no keytab",
        client: KEYTAB,
        change: |_, settings| settings.set("hbase.client.keytab.file", "/nowhere/user.keytab"),
        expected: &["/nowhere/user.keytab"],
    },
    Failure {
        name: "keytab of another user",
        client: KEYTAB,
        change: |cluster, settings| {
            if let Some(realm) = cluster.realm() {
                let file = realm.keytab(Kerberos::GUEST);
                settings.set("hbase.client.keytab.file", file.display());
            }
        },
        expected: &["tsdb@CLUSTER.TEST", "guest.keytab"],
    },
    Failure {
        name: "plain client at a server with Kerberos",
        client: MASTERS,
        change: |_, settings| settings.set("hbase.security.auth.enable", false),
        expected: &["hbase.security.auth.enable"],
    },
    Failure {
        name: "certificate of an unknown authority",
        client: TLS,
        change: |cluster, settings| {
            if let Some(certificates) = cluster.certificates() {
                let file = certificates.other_authority();
                settings.set("hbase.rpc.tls.truststore.location", file.display());
            }
        },
        expected: &["hbase.rpc.tls.truststore.location"],
    },
    Failure {
        name: "certificate file without a certificate",
        client: TLS,
        change: |cluster, settings| {
            settings.set(
                "hbase.rpc.tls.truststore.location",
                cluster.client_files().hbase_site().display(),
            );
        },
        expected: &["hbase-site.xml"],
    },
    Failure {
        name: "user without rights",
        client: KEYTAB,
        change: |cluster, settings| {
            if let Some(realm) = cluster.realm() {
                settings.set("hbase.client.keytab.file", realm.keytab(Kerberos::GUEST).display());
                settings.set("hbase.client.keytab.principal", realm.principal(Kerberos::GUEST));
            }
        },
        expected: &["guest", "permission"],
    },
];

/// Creates tables, which must fail.
pub(crate) fn run(cluster: &Cluster, failure: &Failure) -> TestResult<()> {
    let directory = tempfile::tempdir()?;
    let settings = failure.client.settings(cluster, directory.path());
    let mut settings = block_in_place(|| Handle::current().block_on(settings))?;
    (failure.change)(cluster, &mut settings);
    for table in ["data", "uid", "tree", "meta"] {
        settings.set(&format!("tsd.storage.hbase.{table}_table"), format!("refused-{table}"));
    }
    let file = directory.path().join("opentsdb.conf");
    settings.write(&file)?;
    let mut create = command(&settings, &file, &["table", "create"]);
    let output = block_in_place(|| create.output())?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Err("it succeeded".into());
    }
    match failure.expected.iter().find(|part| !stderr.contains(*part)) {
        None => Ok(()),
        Some(part) => Err(format!("{part:?} is not in: {}", one_line(&stderr)).into()),
    }
}
