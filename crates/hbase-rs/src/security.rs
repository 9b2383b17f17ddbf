//! Configuration of encryption and authentication of a cluster's connections.

mod error;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::{path::PathBuf, str::FromStr, time::Duration};

pub use self::error::{FilePlace, SecurityError};
#[cfg(feature = "zookeeper")]
pub use self::zookeeper::{ZooKeeperKerberos, ZooKeeperSasl, ZooKeeperSecurity};
pub use crate::transport::token_file::DelegationToken;

/// Encryption and authentication of all connections of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecurityConfig {
    /// How the client proves who it is.
    pub authentication: Authentication,
    /// TLS from the first byte of a connection; `None` for plain text.
    pub tls: Option<TlsConfig>,
    /// Continue without authentication if a server does not authenticate
    /// (`hbase.ipc.client.fallback-to-simple-auth-allowed`).
    pub allow_simple_fallback: bool,
}

/// How a client proves who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Authentication {
    /// User name without proof.
    #[default]
    Simple,
    /// Kerberos: SASL GSSAPI.
    Kerberos(KerberosConfig),
    /// Delegation token: SASL DIGEST-MD5.
    Token(TokenConfig),
}

/// Kerberos login, principals of the servers, and protection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KerberosConfig {
    /// Where the client's tickets come from.
    pub login: KerberosLogin,
    /// Principal of region servers (`hbase.regionserver.kerberos.principal`). `_HOST` is replaced with the host of the
    /// server's name; without a realm, the default realm of krb5.conf applies.
    pub region_server_principal: String,
    /// Principal of masters (`hbase.master.kerberos.principal`); `None`: as region servers.
    pub master_principal: Option<String>,
    /// Accepted protections in order of preference (`hbase.rpc.protection`).
    pub protections: Vec<Protection>,
    /// Timeout of a login, which waits for key distribution centres.
    pub login_timeout: Duration,
}

/// Where tickets come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KerberosLogin {
    /// A keytab; the client gets and renews the tickets by itself.
    Keytab {
        /// The file.
        file: PathBuf,
        /// Principal of the client; `None`: the first one of the keytab.
        principal: Option<String>,
    },
    /// A ticket cache that another process renews.
    Cache {
        /// The file; `None`: `KRB5CCNAME`, or the default of krb5.conf.
        file: Option<PathBuf>,
    },
}

/// Protection of the stream after the authentication, as in `hbase.rpc.protection`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protection {
    /// Plain text.
    Authentication,
    /// Each message has a checksum.
    Integrity,
    /// Each message is encrypted.
    Privacy,
}

/// A delegation token and protection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenConfig {
    /// Hadoop token file.
    pub file: PathBuf,
    /// Accepted protections in order of preference.
    pub protections: Vec<Protection>,
}

/// Trust, identity and verification of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// PEM file with the certificates of trusted authorities; `None`: those of the system. Files are read again after
    /// they changed.
    pub authorities: Option<PathBuf>,
    /// PEM file with certificate and key of the client; `None`: no client certificate.
    pub identity: Option<PathBuf>,
    /// Verify that the certificate has the host of the server.
    pub verify_host: bool,
    /// Timeout of the handshake.
    pub handshake_timeout: Duration,
}

impl Default for TlsConfig {
    /// The system's authorities, no client certificate, and verified hosts.
    fn default() -> Self {
        Self {
            authorities: None,
            identity: None,
            verify_host: true,
            handshake_timeout: Duration::from_secs(5),
        }
    }
}

impl KerberosConfig {
    /// Authentication without further protection, with a login timeout of 30 s.
    pub fn new(login: KerberosLogin, region_server_principal: impl Into<String>) -> Self {
        Self {
            login,
            region_server_principal: region_server_principal.into(),
            master_principal: None,
            protections: vec![Protection::Authentication],
            login_timeout: Duration::from_secs(30),
        }
    }
}

impl Protection {
    /// Returns the word of `hbase.rpc.protection`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Authentication => "authentication",
            Self::Integrity => "integrity",
            Self::Privacy => "privacy",
        }
    }

    /// Returns the bit of the protection in SASL messages.
    #[must_use]
    pub const fn layer(self) -> u8 {
        match self {
            Self::Authentication => 1,
            Self::Integrity => 2,
            Self::Privacy => 4,
        }
    }

    /// Parses a list such as `privacy,integrity`, in order of preference.
    ///
    /// # Errors
    ///
    /// For an unknown word, and for an empty list.
    pub fn parse_list(list: &str) -> Result<Vec<Self>, UnknownProtection> {
        list.split(',').map(|word| word.trim().parse()).collect()
    }
}

/// A word that is not a [`Protection`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown protection {0:?}; expected authentication, integrity or privacy")]
pub struct UnknownProtection(String);

impl FromStr for Protection {
    type Err = UnknownProtection;

    fn from_str(word: &str) -> Result<Self, UnknownProtection> {
        let all = [Self::Authentication, Self::Integrity, Self::Privacy];
        let found = all.into_iter().find(|one| one.name().eq_ignore_ascii_case(word));
        found.ok_or_else(|| UnknownProtection(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protections_are_lists_in_order_of_preference() {
        let list = Protection::parse_list("privacy, Integrity,authentication").unwrap();
        assert_eq!(list, [Protection::Privacy, Protection::Integrity, Protection::Authentication]);
        assert_eq!(list.iter().map(|one| one.layer()).sum::<u8>(), 7);
        for bad in ["", "auth", "privacy,,integrity"] {
            assert!(Protection::parse_list(bad).is_err(), "{bad}");
        }
    }
}
