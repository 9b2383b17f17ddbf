//! TLS of connections, by rustls.
//!
//! The certificates and keys are files. They are read again for a new connection after one of them changed, so that
//! they can be renewed without a restart. Unusable new files are logged, and the former contents stay in use.
//!
//! | server | client |
//! |---|---|
//! | TLS 1.2, the default of HBase 2.6, with GCM or ChaCha20 suites | supported |
//! | TLS 1.3 | supported; a refused client certificate fails the first read, not the handshake |
//! | CBC suites only | not supported by rustls: the error says so |

#[cfg(feature = "rustls")]
mod connector;
#[cfg(feature = "rustls")]
mod failure;
#[cfg(feature = "rustls")]
mod files;
#[cfg(not(feature = "rustls"))]
mod missing;
#[cfg(feature = "rustls")]
mod socket;
#[cfg(all(test, feature = "rustls"))]
mod tests;
#[cfg(feature = "rustls")]
mod verifier;

#[cfg(not(feature = "rustls"))]
pub(crate) use self::missing::TlsConnector;
#[cfg(feature = "rustls")]
pub(crate) use self::{connector::TlsConnector, socket::TlsSocket};

/// Names of settings, for errors.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TlsSettingNames {
    /// Switch of TLS.
    pub(crate) enabled: &'static str,
    /// File of the trusted authorities.
    pub(crate) authorities: &'static str,
    /// File of the client's certificate and key.
    pub(crate) identity: &'static str,
    /// Switch of the host verification.
    pub(crate) verify_host: &'static str,
}

/// Settings of connections to HBase.
pub(crate) const HBASE_SETTINGS: TlsSettingNames = TlsSettingNames {
    enabled: "hbase.client.netty.tls.enabled",
    authorities: "hbase.rpc.tls.truststore.location",
    identity: "hbase.rpc.tls.keystore.location",
    verify_host: "hbase.client.netty.tls.verify.server.hostname",
};

/// Settings of connections to ZooKeeper.
#[cfg(any(feature = "zookeeper", test))]
pub(crate) const ZOOKEEPER_SETTINGS: TlsSettingNames = TlsSettingNames {
    enabled: "zookeeper.client.secure",
    authorities: "zookeeper.ssl.trustStore.location",
    identity: "zookeeper.ssl.keyStore.location",
    verify_host: "zookeeper.ssl.hostnameVerification",
};
