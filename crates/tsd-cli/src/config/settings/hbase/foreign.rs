//! Refuses clusters that do not speak HBase's protocol, and logins that only a vendor's client has.

use super::client_keys::{ClientKeys, Found};
use crate::config::ConfigError;

/// Keys that only the clients of Lindorm and performance-enhanced clusters have.
const LINDORM_KEYS: [&str; 2] = ["hbase.client.username", "hbase.client.endpoint"];
/// Key with the class of a client.
const CONNECTION: &str = "hbase.client.connection.impl";
/// Part of the class names of the clients of Lindorm and performance-enhanced clusters.
const LINDORM_CLASS: &str = "AliHBase";
/// Keys of a login with an access key and a secret key.
const ACCESS_KEYS: [&str; 2] = ["cloudtable.iam.accesskey", "cloudtable.iam.secretkey"];

const LINDORM: &str = "Lindorm and performance-enhanced clusters speak their own protocol, which is not supported; \
                       expected Apache HBase, or a cluster of a vendor that speaks its protocol (of Aliyun: ApsaraDB \
                       for HBase, standard edition, and EMR)";
const IAM: &str = "logins with an access key and a secret key (AK/SK) need the vendor's own client and are not \
                   supported; expected a cluster without IAM authentication, or with Kerberos";

/// Refuses keys of such clusters.
pub(super) fn check_keys(keys: &ClientKeys<'_>) -> Result<(), ConfigError> {
    if let Some(found) = keys.find(&LINDORM_KEYS)? {
        return Err(found.wrong(LINDORM));
    }
    if let Some(class) = keys.find(&[CONNECTION])?
        && class.value.contains(LINDORM_CLASS)
    {
        return Err(class.wrong(LINDORM));
    }
    match keys.find(&ACCESS_KEYS)? {
        Some(found) => Err(found.wrong(IAM)),
        None => Ok(()),
    }
}

/// Refuses a quorum that is the proxy of such a cluster: a single host of `aliyuncs.com` whose name has `-proxy-` or
/// the name of the product.
pub(super) fn check_quorum(found: &Found, quorum: &str) -> Result<(), ConfigError> {
    let mut hosts = quorum.split(',').map(str::trim).filter(|host| !host.is_empty());
    let (Some(only), None) = (hosts.next(), hosts.next()) else { return Ok(()) };
    let host = only.split([':', '/']).next().unwrap_or_default().to_ascii_lowercase();
    let is_proxy = host.ends_with(".aliyuncs.com")
        && ["-proxy-", ".lindorm.", "hbaseue"].iter().any(|part| host.contains(part));
    if is_proxy { Err(found.wrong(LINDORM)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use crate::config::settings::hbase::test_values::{Files, QUORUM, check_refused, connection};

    #[test]
    fn proxies_of_lindorm_are_refused() {
        for host in [
            "ld-bp17j28j2y7pm-proxy-lindorm-pub.lindorm.rds.aliyuncs.com:30020",
            "hb-proxy-pub-bp15ttv4g8k160271-001.hbase.rds.aliyuncs.com:2181",
            "hb-bp1-proxy-hbaseue.HBASEUE.rds.aliyuncs.com",
            "ld-x.lindorm.aliyuncs.com:30020/hbase",
        ] {
            let expected =
                ["tsd.storage.hbase.zk_quorum", "line 1", "Lindorm", "their own protocol"];
            check_refused(&format!("tsd.storage.hbase.zk_quorum = {host}\n"), &expected);
            check_refused(
                &format!("tsd.storage.hbase.zk_quorum = hbase+zk://{host}\n"),
                &["Lindorm"],
            );
        }
        let files = Files::new();
        let site = files
            .site(&[("hbase.zookeeper.quorum", "ld-1-proxy-lindorm.lindorm.rds.aliyuncs.com")]);
        check_refused(&site, &["hbase.zookeeper.quorum", "hbase-site.xml line 2", "Lindorm"]);
    }

    #[test]
    fn ensembles_of_aliyun_are_not_proxies() {
        for quorum in [
            "hb-bp1-master1-001.hbase.rds.aliyuncs.com:2181,hb-bp1-master2-001.hbase.rds.aliyuncs.com:2181",
            "hb-bp1-master1-001.hbase.rds.aliyuncs.com:2181",
            "a-proxy-b.example.com",
        ] {
            assert!(
                connection(&format!("tsd.storage.hbase.zk_quorum = {quorum}\n")).is_ok(),
                "{quorum}"
            );
        }
    }

    #[test]
    fn keys_of_other_clients_are_refused() {
        for (key, value) in [
            ("hbase.client.username", "root"),
            ("hbase.client.endpoint", "ld-1.aliyuncs.com:30020"),
            (
                "hbase.client.connection.impl",
                "org.apache.hadoop.hbase.client.AliHBaseUEClusterConnection",
            ),
        ] {
            check_refused(&format!("{QUORUM}{key} = {value}\n"), &[key, "line 2", "Lindorm"]);
            let files = Files::new();
            let site = files.site(&[("hbase.zookeeper.quorum", "zk1"), (key, value)]);
            check_refused(&site, &[key, "hbase-site.xml line 3", "Lindorm"]);
        }
        let others = "hbase.client.connection.impl = org.apache.hadoop.hbase.client.ConnectionImplementation\n\
                      hbase.client.username =\n";
        assert!(connection(&format!("{QUORUM}{others}")).is_ok());
    }

    #[test]
    fn access_keys_are_refused() {
        check_refused(
            &format!("{QUORUM}cloudtable.iam.accesskey = AK\n"),
            &["cloudtable.iam.accesskey", "AK/SK", "IAM"],
        );
        let files = Files::new();
        let site = files
            .site(&[("hbase.zookeeper.quorum", "zk1"), ("cloudtable.iam.secretkey", "s3cret")]);
        check_refused(&site, &["cloudtable.iam.secretkey", "AK/SK"]);
        let error = connection(&site).map(|_| ()).unwrap_err();
        assert!(!error.contains("s3cret"), "{error}");
        let of_s3 = files.site(&[("hbase.zookeeper.quorum", "zk1"), ("fs.s3a.access.key", "AK")]);
        assert!(connection(&of_s3).is_ok());
    }
}
