//! Creates a table, shows it and its cluster, and deletes it; with Kerberos and TLS on a secured cluster.
//!
//! ```text
//! cargo run -p hbase-rs --example administration -- 127.0.0.1:2181 example
//! cargo run -p hbase-rs --example administration --features kerberos,rustls -- \
//!     127.0.0.1:2181 example user.keytab hbase/_HOST@EXAMPLE.COM ca.pem
//! ```

use std::{error::Error, path::PathBuf};

use hbase_rs::{
    Client, ClientConfig, TableName,
    admin::{FamilyDescriptor, TableDescriptor},
    discovery::ZooKeeperDiscovery,
    security::{
        Authentication, KerberosConfig, KerberosLogin, Protection, SecurityConfig, TlsConfig,
    },
};

/// Returns a description of the cluster and of the new table.
pub(crate) async fn run(client: &Client, name: &TableName) -> Result<String, Box<dyn Error>> {
    let admin = client.admin();
    let family = FamilyDescriptor::new("f").versions(1).ttl_secs(30 * 86_400);
    let table = TableDescriptor::new(name.clone()).family(family);
    let splits = [0x40, 0x80, 0xc0].map(|first| vec![first].into());
    admin.create_table(&table, splits).await?;
    let status = admin.cluster_status().await?;
    let regions = client.table(name.clone()).regions().await?;
    let text = format!("{} servers, {} regions in {name}", status.servers.len(), regions.len());
    admin.disable_table(name).await?;
    admin.delete_table(name).await?;
    Ok(text)
}

/// Kerberos by a keytab, and TLS with the authorities of a file. Messages are encrypted by TLS, so that SASL need not.
fn security(keytab: PathBuf, servers: String, authorities: PathBuf) -> SecurityConfig {
    let login = KerberosLogin::Keytab { file: keytab, principal: None };
    let mut kerberos = KerberosConfig::new(login, servers);
    kerberos.protections = vec![Protection::Authentication];
    SecurityConfig {
        authentication: Authentication::Kerberos(kerberos),
        tls: Some(TlsConfig { authorities: Some(authorities), ..TlsConfig::default() }),
        ..SecurityConfig::default()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let quorum = arguments.next().ok_or("missing argument: ZooKeeper quorum")?;
    let table = arguments.next().ok_or("missing argument: name of a new table")?.parse()?;
    let mut config = ClientConfig::new("example");
    if let (Some(keytab), Some(servers), Some(authorities)) =
        (arguments.next(), arguments.next(), arguments.next())
    {
        let security = security(keytab.into(), servers, authorities.into());
        // All clients of a cluster share the transport, which has the tickets.
        config.transport = security.transport()?;
    }
    let client = Client::new(config, ZooKeeperDiscovery::new(&quorum, "/hbase"));
    println!("{}", run(&client, &table).await?);
    Ok(())
}
