//! Options of the security of a new cluster.

use std::time::Duration;

use clap::Args;
use cluster::{Kerberos, Protection, Security, Tls, ZooKeeperSasl};

/// What the servers demand of their clients.
#[derive(Debug, Args)]
#[command(next_help_heading = "Security")]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(crate) struct SecurityArgs {
    /// Start a KDC with users `tsdb` and `guest`, and demand Kerberos
    #[arg(long)]
    kerberos: bool,
    /// Protections that the servers offer [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "kerberos")]
    protection: Vec<Protection>,
    /// Name of the realm
    #[arg(long, default_value = "CLUSTER.TEST", requires = "kerberos")]
    realm: String,
    /// Host in the principals of all servers, such as hadoop.hadoop.com [default: _HOST]
    #[arg(long, value_name = "HOST", requires = "kerberos")]
    service_host: Option<String>,
    /// Longest lifetime of the tickets of users
    #[arg(long, value_name = "SECONDS", default_value_t = 36_000, requires = "kerberos")]
    ticket_lifetime: u64,
    /// Longest lifetime of delegation tokens
    #[arg(long, value_name = "SECONDS", default_value_t = 604_800, requires = "kerberos")]
    token_lifetime: u64,
    /// Hand out no delegation tokens
    #[arg(long, requires = "kerberos")]
    no_tokens: bool,
    /// Check the rights of users; `tsdb` gets all, `guest` none
    #[arg(long, requires = "kerberos")]
    authorization: bool,
    /// TLS of masters and region servers: off, on, mutual
    #[arg(long, value_name = "MODE", default_value = "off")]
    tls: Tls,
    /// Refuse connections without TLS
    #[arg(long, requires = "tls")]
    no_plaintext: bool,
    /// SASL of ZooKeeper: off, offered, required
    #[arg(long, value_name = "MODE", default_value = "off")]
    zookeeper_sasl: ZooKeeperSasl,
    /// TLS of ZooKeeper, on a second port: off, on, mutual
    #[arg(long, value_name = "MODE", default_value = "off")]
    zookeeper_tls: Tls,
}

impl SecurityArgs {
    pub(super) fn security(self) -> Security {
        let mut security = Security::default();
        if self.kerberos {
            let mut kerberos = Kerberos::new();
            if !self.protection.is_empty() {
                kerberos.protections = self.protection;
            }
            kerberos.realm = self.realm;
            kerberos.service_host = self.service_host;
            kerberos.ticket_lifetime = Duration::from_secs(self.ticket_lifetime);
            kerberos.token_lifetime =
                (!self.no_tokens).then_some(Duration::from_secs(self.token_lifetime));
            security.kerberos = Some(kerberos);
        }
        security.authorization = self.authorization;
        security.tls = self.tls;
        security.plaintext = !self.no_plaintext;
        security.zookeeper_sasl = self.zookeeper_sasl;
        security.zookeeper_tls = self.zookeeper_tls;
        security
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        security: SecurityArgs,
    }

    fn parse(line: &str) -> Result<Security, clap::Error> {
        Line::try_parse_from(line.split(' ')).map(|line| line.security.security())
    }

    #[test]
    fn options_are_mapped_to_the_security() {
        let security = parse("up").unwrap();
        assert!(security.admits_plain_clients() && security.plaintext);
        let security = parse(
            "up --kerberos --protection privacy,integrity --realm HADOOP.COM \
             --service-host hadoop.hadoop.com --ticket-lifetime 20 --no-tokens --authorization \
             --tls mutual --no-plaintext --zookeeper-sasl required --zookeeper-tls on",
        )
        .unwrap();
        let kerberos = security.kerberos.unwrap();
        assert_eq!(kerberos.protection_list(), "privacy,integrity");
        assert_eq!(kerberos.hbase_principal(), "hbase/hadoop.hadoop.com@HADOOP.COM");
        assert_eq!(kerberos.ticket_lifetime, Duration::from_secs(20));
        assert_eq!(kerberos.token_lifetime, None);
        assert_eq!((security.tls, security.zookeeper_tls), (Tls::Mutual, Tls::On));
        assert_eq!(security.zookeeper_sasl, ZooKeeperSasl::Required);
        assert!(security.authorization && !security.plaintext);
        let kerberos = parse("up --kerberos").unwrap().kerberos.unwrap();
        assert_eq!(kerberos.protection_list(), "authentication,integrity,privacy");
    }

    #[test]
    fn kerberos_options_need_kerberos() {
        for line in [
            "up --protection privacy",
            "up --authorization",
            "up --kerberos --protection secret",
            "up --tls yes",
        ] {
            parse(line).unwrap_err();
        }
    }
}
