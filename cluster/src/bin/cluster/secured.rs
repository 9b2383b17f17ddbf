//! What a client of a secured cluster needs.

use cluster::{Cluster, Kerberos, Tls};

use crate::print_line;

/// Prints principals, keytabs and certificates; nothing of a cluster without security.
pub(crate) fn print(cluster: &Cluster) {
    let files = cluster.client_files();
    let line =
        |name: &str, value: &dyn std::fmt::Display| print_line(format!("{name:<10} {value}"));
    let security = &cluster.config().security;
    if let (Some(kerberos), Some(realm)) = (&security.kerberos, cluster.realm()) {
        line(
            "servers",
            &format_args!("{} ({})", kerberos.hbase_principal(), kerberos.protection_list()),
        );
        line("user", &realm.principal(Kerberos::USER));
        line("keytab", &files.keytab().display());
        line("guest", &realm.keytab(Kerberos::GUEST).display());
        line("krb5.conf", &files.krb5_conf().display());
        line("kdc", &realm.kdc_address());
    }
    if let Some(certificates) = cluster.certificates() {
        line("authority", &files.authority().display());
        if security.tls == Tls::Mutual || security.zookeeper_tls == Tls::Mutual {
            line("identity", &files.certificate().display());
        }
        let directory = certificates.authority();
        line("others", &directory.parent().unwrap_or(&directory).display());
    }
    line("client", &files.directory().display());
}
