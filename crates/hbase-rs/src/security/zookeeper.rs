//! Encryption and authentication of sessions with ZooKeeper.

use std::{fmt, time::Duration};

use super::{KerberosLogin, TlsConfig};

/// Encryption and authentication of sessions with ZooKeeper.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZooKeeperSecurity {
    /// TLS from the first byte, for a `secureClientPort` (`zookeeper.client.secure`); `None` for plain text.
    pub tls: Option<TlsConfig>,
    /// Authentication of the client.
    pub sasl: ZooKeeperSasl,
}

/// Authentication at ZooKeeper.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum ZooKeeperSasl {
    /// None. HBase's znodes are readable by everyone, so most ensembles need no more.
    #[default]
    None,
    /// Kerberos: SASL GSSAPI.
    Kerberos(ZooKeeperKerberos),
    /// User and password of the ensemble's JAAS file: SASL DIGEST-MD5.
    Digest {
        /// User.
        user: String,
        /// Password.
        password: String,
    },
}

/// Kerberos login at ZooKeeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZooKeeperKerberos {
    /// Where the client's tickets come from.
    pub login: KerberosLogin,
    /// First part of the servers' principals, before the host of the quorum (`zookeeper.sasl.client.username`).
    pub service: String,
    /// Principal of all servers (`zookeeper.server.principal`); `None`: service and host. `_HOST` is replaced with the
    /// host of the quorum.
    pub server_principal: Option<String>,
    /// If false, a session whose login fails continues without it, as in Java's client.
    pub is_required: bool,
    /// Timeout of a login, which waits for key distribution centres.
    pub login_timeout: Duration,
}

impl ZooKeeperKerberos {
    /// A required login at servers whose principals are `zookeeper` and their host, with a login timeout of 30 s.
    #[must_use]
    pub fn new(login: KerberosLogin) -> Self {
        Self {
            login,
            service: "zookeeper".to_owned(),
            server_principal: None,
            is_required: true,
            login_timeout: Duration::from_secs(30),
        }
    }
}

/// Without the password.
impl fmt::Debug for ZooKeeperSasl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => out.write_str("None"),
            Self::Kerberos(kerberos) => out.debug_tuple("Kerberos").field(kerberos).finish(),
            Self::Digest { user, .. } => {
                out.debug_struct("Digest").field("user", user).finish_non_exhaustive()
            }
        }
    }
}
