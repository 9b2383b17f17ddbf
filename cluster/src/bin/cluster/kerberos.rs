//! Commands of a cluster with Kerberos: tickets, tokens, keys.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use clap::Subcommand;
use cluster::{Cluster, Kerberos};

use crate::print_line;

/// Tickets, tokens and keys of a cluster with Kerberos.
#[derive(Debug, Subcommand)]
pub(crate) enum KerberosCommand {
    /// Get a ticket by a keytab, into a credential cache file
    Kinit {
        /// The credential cache file
        cache: PathBuf,
        /// tsdb, guest, hbase or zookeeper
        #[arg(long, default_value = Kerberos::USER)]
        user: String,
        /// Ask for a ticket with this lifetime
        #[arg(long, value_name = "SECONDS")]
        lifetime: Option<u64>,
    },
    /// Get a delegation token of HBase, into a credentials file of Hadoop
    Token {
        /// The credentials file
        file: PathBuf,
        /// tsdb or guest
        #[arg(long, default_value = Kerberos::USER)]
        user: String,
    },
    /// Give a user or service a new key, and replace its keytab
    Rekey {
        /// tsdb, guest, hbase or zookeeper
        name: String,
    },
    /// Set the longest lifetime of a user's tickets
    TicketLifetime {
        /// tsdb or guest
        user: String,
        /// Seconds
        seconds: u64,
    },
}

/// Runs a command and prints its result.
pub(crate) async fn apply(cluster: &Cluster, command: KerberosCommand) -> anyhow::Result<()> {
    let realm = cluster.realm().context("the cluster has no Kerberos")?;
    match command {
        KerberosCommand::Kinit { cache, user, lifetime } => {
            realm.kinit(&user, &cache, lifetime.map(Duration::from_secs))?;
            print_line(format!("{} has a ticket in {}", realm.principal(&user), cache.display()));
        }
        KerberosCommand::Token { file, user } => {
            cluster.write_token(&user, &file).await?;
            print_line(format!("{} has a token in {}", realm.principal(&user), file.display()));
        }
        KerberosCommand::Rekey { name } => {
            realm.rekey(&name)?;
            let keytab = realm.keytab(&name);
            print_line(format!("{} has a new key in {}", realm.principal(&name), keytab.display()));
        }
        KerberosCommand::TicketLifetime { user, seconds } => {
            realm.set_ticket_lifetime(&user, Duration::from_secs(seconds))?;
            print_line(format!("tickets of {} live {seconds} s", realm.principal(&user)));
        }
    }
    Ok(())
}
