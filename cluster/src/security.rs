//! What the servers of a cluster demand of their clients: authentication, encryption, rights.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

/// Security of a cluster. The default demands nothing, as HBase itself does.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Security {
    /// Kerberos; `None` lets everybody in under any name.
    pub kerberos: Option<Kerberos>,
    /// True to check the rights of users, who have no rights by default. The user [`Kerberos::USER`] gets all.
    /// Needs Kerberos.
    pub authorization: bool,
    /// TLS of masters and region servers, on their ordinary ports.
    pub tls: Tls,
    /// True to accept connections without TLS too.
    pub plaintext: bool,
    /// SASL of ZooKeeper. Needs Kerberos.
    pub zookeeper_sasl: ZooKeeperSasl,
    /// TLS of ZooKeeper, on a second port that only clients use.
    pub zookeeper_tls: Tls,
}

impl Default for Security {
    fn default() -> Self {
        Self {
            kerberos: None,
            authorization: false,
            tls: Tls::Off,
            plaintext: true,
            zookeeper_sasl: ZooKeeperSasl::Off,
            zookeeper_tls: Tls::Off,
        }
    }
}

impl Security {
    /// True if the servers demand nothing.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.kerberos.is_none() && !self.has_certificates()
    }

    /// True if the servers need certificates.
    #[must_use]
    pub const fn has_certificates(&self) -> bool {
        !matches!((self.tls, self.zookeeper_tls), (Tls::Off, Tls::Off))
    }

    /// True if masters and region servers serve a client without credentials and encryption.
    #[must_use]
    pub const fn admits_plain_clients(&self) -> bool {
        self.kerberos.is_none() && (matches!(self.tls, Tls::Off) || self.plaintext)
    }

    /// Succeeds if the parts fit each other; the error names the contradiction.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let Some(kerberos) = &self.kerberos else {
            return if self.authorization {
                Err("authorization needs Kerberos, which proves the names of users")
            } else if self.zookeeper_sasl != ZooKeeperSasl::Off {
                Err("SASL of ZooKeeper needs Kerberos")
            } else {
                Ok(())
            };
        };
        if kerberos.protections.is_empty() {
            return Err("Kerberos needs at least one protection");
        }
        let plain = |text: &str| {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
            !text.is_empty() && text.bytes().all(known)
        };
        if !plain(&kerberos.realm) || !kerberos.service_host.as_deref().is_none_or(plain) {
            return Err("realm and service host are letters, digits, '.', '-' and '_'");
        }
        Ok(())
    }
}

/// Kerberos of a cluster: a realm of its own, with a KDC.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Kerberos {
    /// Protections that the servers offer; a client chooses one of them.
    pub protections: Vec<Protection>,
    /// Name of the realm.
    pub realm: String,
    /// Host in the principals of all servers, for example `hadoop.hadoop.com`, a name that no host uses.
    /// `None` selects the host of each server: `hbase/_HOST` in HBase's properties.
    pub service_host: Option<String>,
    /// Longest lifetime of a user's ticket, in whole seconds.
    pub ticket_lifetime: Duration,
    /// Longest lifetime of HBase's delegation tokens; `None` if the servers hand out none.
    pub token_lifetime: Option<Duration>,
}

impl Kerberos {
    /// Name of the user of tests.
    pub const USER: &str = "tsdb";
    /// Name of a user without rights.
    pub const GUEST: &str = "guest";
    /// Name of the service of masters and region servers.
    pub const HBASE: &str = "hbase";
    /// Name of ZooKeeper's service.
    pub const ZOOKEEPER: &str = "zookeeper";

    /// All protections, the host of each server in its principal, and tokens.
    #[must_use]
    pub fn new() -> Self {
        Self {
            protections: vec![
                Protection::Authentication,
                Protection::Integrity,
                Protection::Privacy,
            ],
            realm: "CLUSTER.TEST".to_owned(),
            service_host: None,
            ticket_lifetime: Duration::from_hours(10),
            token_lifetime: Some(Duration::from_hours(7 * 24)),
        }
    }

    /// Principal of a user, or of a service on the host of this machine's servers.
    #[must_use]
    pub fn principal(&self, name: &str) -> String {
        let realm = &self.realm;
        match name {
            Self::HBASE | Self::ZOOKEEPER => {
                let host = self.service_host.as_deref().unwrap_or("localhost");
                format!("{name}/{host}@{realm}")
            }
            user => format!("{user}@{realm}"),
        }
    }

    /// Principal of HBase's servers as in HBase's properties, with `_HOST` for their own hosts.
    #[must_use]
    pub fn hbase_principal(&self) -> String {
        let host = self.service_host.as_deref().unwrap_or("_HOST");
        format!("{}/{host}@{}", Self::HBASE, self.realm)
    }

    /// The protections as HBase's property `hbase.rpc.protection`.
    #[must_use]
    pub fn protection_list(&self) -> String {
        let names: Vec<_> = self.protections.iter().map(ToString::to_string).collect();
        names.join(",")
    }
}

impl Default for Kerberos {
    fn default() -> Self {
        Self::new()
    }
}

/// What SASL does with the bytes after the authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protection {
    /// Nothing.
    Authentication,
    /// Checksums.
    Integrity,
    /// Encryption.
    Privacy,
}

impl fmt::Display for Protection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Authentication => "authentication",
            Self::Integrity => "integrity",
            Self::Privacy => "privacy",
        })
    }
}

/// A text that is not one of the words of a setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not one of {known}")]
pub struct SecurityError {
    given: String,
    known: &'static str,
}

impl FromStr for Protection {
    type Err = SecurityError;

    fn from_str(text: &str) -> Result<Self, SecurityError> {
        match text {
            "authentication" => Ok(Self::Authentication),
            "integrity" => Ok(Self::Integrity),
            "privacy" => Ok(Self::Privacy),
            _ => Err(SecurityError {
                given: text.to_owned(),
                known: "authentication, integrity, privacy",
            }),
        }
    }
}

/// TLS of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tls {
    /// No TLS.
    #[default]
    Off,
    /// The server has a certificate.
    On,
    /// The client must have a certificate too.
    Mutual,
}

impl FromStr for Tls {
    type Err = SecurityError;

    fn from_str(text: &str) -> Result<Self, SecurityError> {
        match text {
            "off" => Ok(Self::Off),
            "on" => Ok(Self::On),
            "mutual" => Ok(Self::Mutual),
            _ => Err(SecurityError { given: text.to_owned(), known: "off, on, mutual" }),
        }
    }
}

/// SASL of ZooKeeper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ZooKeeperSasl {
    /// No SASL.
    #[default]
    Off,
    /// HBase's servers use it. Clients without it read what they need.
    Offered,
    /// Sessions without it are closed.
    Required,
}

impl FromStr for ZooKeeperSasl {
    type Err = SecurityError;

    fn from_str(text: &str) -> Result<Self, SecurityError> {
        match text {
            "off" => Ok(Self::Off),
            "offered" => Ok(Self::Offered),
            "required" => Ok(Self::Required),
            _ => Err(SecurityError { given: text.to_owned(), known: "off, offered, required" }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn principals_have_the_host_of_the_server_or_the_given_one() {
        let mut kerberos = Kerberos::new();
        assert_eq!(kerberos.principal("tsdb"), "tsdb@CLUSTER.TEST");
        assert_eq!(kerberos.principal("hbase"), "hbase/localhost@CLUSTER.TEST");
        assert_eq!(kerberos.hbase_principal(), "hbase/_HOST@CLUSTER.TEST");
        kerberos.realm = "HADOOP.COM".into();
        kerberos.service_host = Some("hadoop.hadoop.com".into());
        assert_eq!(kerberos.principal("zookeeper"), "zookeeper/hadoop.hadoop.com@HADOOP.COM");
        assert_eq!(kerberos.hbase_principal(), "hbase/hadoop.hadoop.com@HADOOP.COM");
    }

    #[test]
    fn contradictions_are_rejected() {
        let with = |change: fn(&mut Security)| {
            let mut security = Security::default();
            change(&mut security);
            security.check()
        };
        assert_eq!(with(|_| ()), Ok(()));
        with(|security| security.authorization = true).unwrap_err();
        with(|security| security.zookeeper_sasl = ZooKeeperSasl::Offered).unwrap_err();
        with(|security| {
            security.kerberos = Some(Kerberos { protections: Vec::new(), ..Kerberos::new() });
        })
        .unwrap_err();
        with(|security| {
            security.kerberos = Some(Kerberos { realm: "A}B".into(), ..Kerberos::new() });
        })
        .unwrap_err();
        let all = with(|security| {
            security.kerberos = Some(Kerberos::new());
            security.authorization = true;
            security.zookeeper_sasl = ZooKeeperSasl::Required;
            security.zookeeper_tls = Tls::Mutual;
        });
        assert_eq!(all, Ok(()));
    }

    #[test]
    fn only_clusters_without_demands_admit_plain_clients() {
        let mut security = Security::default();
        assert!(security.admits_plain_clients() && !security.has_certificates());
        security.tls = Tls::On;
        assert!(security.admits_plain_clients() && security.has_certificates());
        security.plaintext = false;
        assert!(!security.admits_plain_clients());
        let security = Security { kerberos: Some(Kerberos::new()), ..Security::default() };
        assert!(!security.admits_plain_clients());
    }

    #[test]
    fn words_are_parsed() {
        let list = Kerberos::new().protection_list();
        let parsed: Result<Vec<Protection>, _> = list.split(',').map(str::parse).collect();
        assert_eq!(parsed, Ok(Kerberos::new().protections));
        assert_eq!("mutual".parse(), Ok(Tls::Mutual));
        assert_eq!("required".parse(), Ok(ZooKeeperSasl::Required));
        let error = "secret".parse::<Protection>().unwrap_err();
        assert!(error.to_string().contains("'secret'"), "{error}");
        "yes".parse::<Tls>().unwrap_err();
        "on".parse::<ZooKeeperSasl>().unwrap_err();
    }
}
