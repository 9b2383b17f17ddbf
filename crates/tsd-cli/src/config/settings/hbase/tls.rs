//! TLS to HBase and to ZooKeeper: files of certificates and keys, verification.

use std::time::Duration;

use hbase_rs::security::TlsConfig;

use super::client_keys::ClientKeys;
use crate::config::ConfigError;

/// TLS of connections to HBase; `None` if it is off.
pub(super) fn of_rpc(keys: &ClientKeys<'_>) -> Result<Option<TlsConfig>, ConfigError> {
    if !keys.bool(&["hbase.client.netty.tls.enabled"], false)? {
        return Ok(None);
    }
    let timeout = keys.text(&["hbase.client.netty.tls.handshaketimeout"])?;
    let timeout = timeout.and_then(|text| text.parse().ok()).map(Duration::from_millis);
    let tls = TlsConfig {
        verify_host: keys.bool(&["hbase.client.netty.tls.verify.server.hostname"], true)?,
        ..with_files(keys, "hbase.rpc.tls.truststore.location", "hbase.rpc.tls.keystore.location")?
    };
    Ok(Some(TlsConfig { handshake_timeout: timeout.unwrap_or(tls.handshake_timeout), ..tls }))
}

/// TLS of the session with ZooKeeper; `None` if it is off.
pub(super) fn of_zookeeper(keys: &ClientKeys<'_>) -> Result<Option<TlsConfig>, ConfigError> {
    if !keys.bool(&["zookeeper.client.secure"], false)? {
        return Ok(None);
    }
    Ok(Some(TlsConfig {
        verify_host: keys.bool(&["zookeeper.ssl.hostnameVerification"], true)?,
        ..with_files(keys, "zookeeper.ssl.trustStore.location", "zookeeper.ssl.keyStore.location")?
    }))
}

/// TLS with the files of these keys. Their content decides about the format, whatever type is configured.
fn with_files(
    keys: &ClientKeys<'_>,
    authorities: &str,
    identity: &str,
) -> Result<TlsConfig, ConfigError> {
    let file = |key| Ok(keys.find(&[key])?.map(|found| found.path()));
    Ok(TlsConfig {
        authorities: file(authorities)?,
        identity: file(identity)?,
        ..TlsConfig::default()
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::path::PathBuf;

    use tsd_storage_hbase::HBaseDiscovery;

    use super::*;
    use crate::config::settings::hbase::test_values::{QUORUM, connection};

    fn of_zookeeper(text: &str) -> Option<TlsConfig> {
        match connection(text).unwrap().discovery {
            HBaseDiscovery::ZooKeeper { security, .. } => security.tls,
            HBaseDiscovery::Registry { .. } => None,
        }
    }

    #[test]
    fn tls_to_hbase_is_off_by_default_and_has_the_defaults_of_hbase() {
        let tls = |lines: &str| connection(&format!("{QUORUM}{lines}")).unwrap().security.tls;
        assert_eq!(tls("hbase.rpc.tls.truststore.location = /ca.pem\n"), None);
        assert_eq!(tls("hbase.client.netty.tls.enabled = false\n"), None);
        let on = "hbase.client.netty.tls.enabled = true\n";
        assert_eq!(tls(on), Some(TlsConfig::default()));
        let all = tls(&format!(
            "{on}hbase.client.netty.tls.verify.server.hostname = false\n\
             hbase.client.netty.tls.handshaketimeout = 1500\n\
             hbase.rpc.tls.truststore.location = certs/ca.pem\n\
             hbase.rpc.tls.keystore.location = client\n\
             hbase.rpc.tls.keystore.type = pkcs12\n\
             hbase.rpc.tls.keystore.password = changeit\n"
        ));
        assert_eq!(
            all,
            Some(TlsConfig {
                authorities: Some(PathBuf::from("certs/ca.pem")),
                identity: Some(PathBuf::from("client")),
                verify_host: false,
                handshake_timeout: Duration::from_millis(1500),
            })
        );
    }

    #[test]
    fn tls_to_zookeeper_has_files_of_its_own() {
        assert_eq!(of_zookeeper(QUORUM), None);
        let on = format!("{QUORUM}zookeeper.client.secure = true\n");
        assert_eq!(of_zookeeper(&on), Some(TlsConfig::default()));
        let all = of_zookeeper(&format!(
            "{on}zookeeper.ssl.hostnameVerification = false\n\
             zookeeper.ssl.trustStore.location = /ca\n\
             zookeeper.ssl.trustStore.type = PEM\n\
             zookeeper.ssl.trustStore.password = unused\n\
             zookeeper.ssl.keyStore.location = /client.p12\n\
             zookeeper.ssl.keyStore.password = p\n"
        ));
        let all = all.unwrap();
        assert!(!all.verify_host);
        assert_eq!(all.authorities, Some(PathBuf::from("/ca")));
        assert_eq!(all.identity, Some(PathBuf::from("/client.p12")));
        assert!(
            of_zookeeper(&format!(
                "{on}zookeeper.ssl.keyStore.location = /c\nzookeeper.ssl.keyStore.type = pem\n"
            ))
            .is_some()
        );
    }
}
