//! Tests of the client against a running HBase. `HBASE_QUORUM` is its ZooKeeper quorum; without `--ignored` none runs.
//!
//! Each test creates and deletes its own table. For a secured HBase:
//!
//! | variable | value |
//! |---|---|
//! | `HBASE_KEYTAB`, `HBASE_PRINCIPAL` | keytab of the client, principal of the servers: Kerberos |
//! | `HBASE_TOKEN` | file with a delegation token |
//! | `HBASE_PROTECTION` | list of protections, by default `authentication` |
//! | `HBASE_AUTHORITY`, `HBASE_IDENTITY` | PEM files of the trusted authority, and of the client's certificate and key: TLS |

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests and their helpers fail by panicking"
)]

mod filters;
mod regions;
mod registry;
mod rows;
mod scans;
mod secured;
mod tokens;

use std::env;

use hbase_rs::{
    Action, Client, ClientConfig, Put, Table, TableName,
    admin::{Admin, FamilyDescriptor, TableDescriptor},
    discovery::ZooKeeperDiscovery,
    security::{
        Authentication, KerberosConfig, KerberosLogin, Protection, SecurityConfig, TlsConfig,
        TokenConfig,
    },
};

fn client_with(change: impl FnOnce(&mut ClientConfig)) -> Client {
    let quorum = env::var("HBASE_QUORUM").unwrap();
    let mut config = ClientConfig::new("live");
    config.transport = security().transport().unwrap();
    change(&mut config);
    Client::new(config, ZooKeeperDiscovery::new(&quorum, "/hbase"))
}

/// Returns the security of the environment's variables.
fn security() -> SecurityConfig {
    let protections = env::var("HBASE_PROTECTION").unwrap_or("authentication".to_owned());
    let protections = Protection::parse_list(&protections).unwrap();
    let authentication = if let Ok(file) = env::var("HBASE_KEYTAB") {
        let login = KerberosLogin::Keytab { file: file.into(), principal: None };
        let principal = env::var("HBASE_PRINCIPAL").unwrap();
        Authentication::Kerberos(KerberosConfig {
            protections,
            ..KerberosConfig::new(login, principal)
        })
    } else if let Ok(file) = env::var("HBASE_TOKEN") {
        Authentication::Token(TokenConfig { file: file.into(), protections })
    } else {
        Authentication::Simple
    };
    let file = |name| env::var_os(name).map(Into::into);
    let (authorities, identity) = (file("HBASE_AUTHORITY"), file("HBASE_IDENTITY"));
    let tls =
        authorities.is_some().then(|| TlsConfig { authorities, identity, ..TlsConfig::default() });
    SecurityConfig { authentication, tls, ..SecurityConfig::default() }
}

/// A table of three regions for one test.
struct Fixture {
    client: Client,
    table: Table,
}

impl Fixture {
    async fn new(name: &str) -> Self {
        let client = client_with(|_| {});
        let name: TableName = name.parse().unwrap();
        let admin = client.admin();
        remove(&admin, &name).await;
        let family = FamilyDescriptor::new("f").versions(3);
        let table = TableDescriptor::new(name.clone()).family(family);
        admin.create_table(&table, ["g".into(), "p".into()]).await.unwrap();
        Self { table: client.table(name), client }
    }

    fn admin(&self) -> Admin {
        self.client.admin()
    }

    /// Writes rows `a000` to `z038` with their keys as values.
    async fn fill(&self) -> Vec<String> {
        let rows: Vec<_> = ('a'..='z')
            .flat_map(|letter| (0..39).map(move |at| format!("{letter}{at:03}")))
            .collect();
        let actions: Vec<Action> = rows.iter().map(|row| put(row, row).into()).collect();
        for outcome in self.table.batch(actions).await {
            outcome.unwrap();
        }
        rows
    }

    async fn delete(self) {
        remove(&self.admin(), self.table.name()).await;
    }
}

async fn remove(admin: &Admin, name: &TableName) {
    if admin.table_state(name).await.unwrap().is_some() {
        let _ = admin.disable_table(name).await;
        admin.delete_table(name).await.unwrap();
    }
}

fn put(row: &str, value: &str) -> Put {
    Put::try_new(row.to_owned())
        .unwrap()
        .cell(b"f", b"q", 1_700_000_000_000, value.as_bytes())
        .unwrap()
}
