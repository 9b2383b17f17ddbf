//! What steps of the faults check in addition to the workloads: tables that are created during a fault, and lookups
//! of servers.

use std::time::{Duration, Instant};

use cluster::Cluster;
use hbase_rs::{
    Client, ClientConfig, Get, Put, ServerName, TableName,
    admin::{FamilyDescriptor, TableDescriptor},
    discovery::{Discovery, ZooKeeperDiscovery},
};
use tokio::task::JoinHandle;
use tsd_testkit::hbase_workload::error_chain;

use crate::regions::{ScenarioResult, wait_until};

/// Tables that are created during a fault.
const TABLES: usize = 8;
const FAMILY: &[u8] = b"f";
/// HBase's root node in ZooKeeper.
const ROOT: &str = "/hbase";
/// Session timeout, shorter than each fault.
const SESSION_TIMEOUT: Duration = Duration::from_secs(4);
/// Time of a lookup; the reason why ZooKeeper grants no session is known after nine seconds.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(11);

/// Creates tables one after the other, writes to each, and deletes it.
pub(crate) struct TableCreation(JoinHandle<ScenarioResult<()>>);

impl TableCreation {
    pub(crate) fn start(client: Client, round: usize) -> Self {
        Self(tokio::spawn(async move {
            for number in 0..TABLES {
                let begun = Instant::now();
                let name: TableName = format!("created-{round}-{number}").parse()?;
                let table =
                    TableDescriptor::new(name.clone()).family(FamilyDescriptor::new(FAMILY));
                let admin = client.admin();
                admin.create_table(&table, ["m".into()]).await?;
                let rows = client.table(name.clone());
                for row in ["a", "z"] {
                    rows.mutate(Put::try_new(row)?.cell(FAMILY, b"q", 1, b"v")?).await?;
                    if rows.get(&Get::try_new(row)?).await?.is_empty() {
                        return Err(format!("{name}: row {row} is missing").into());
                    }
                }
                admin.disable_table(&name).await?;
                admin.delete_table(&name).await?;
                println!("{name} was created, used and deleted in {:.1?}", begun.elapsed());
            }
            Ok(())
        }))
    }

    /// Waits until all of them are done.
    pub(crate) async fn finish(self) -> ScenarioResult<()> {
        self.0.await?
    }
}

/// Looks up servers in ZooKeeper with a session of its own, which is shorter than the faults.
pub(crate) struct Discoverer {
    discovery: ZooKeeperDiscovery,
    quorum: String,
}

impl Discoverer {
    pub(crate) fn new(quorum: &str) -> Self {
        let discovery = ZooKeeperDiscovery::new(quorum, ROOT).session_timeout(SESSION_TIMEOUT);
        Self { discovery, quorum: quorum.to_owned() }
    }

    /// Waits until the servers are found.
    pub(crate) async fn succeed(&self) -> ScenarioResult<()> {
        wait_until("ZooKeeper tells the servers", async || {
            let found: [Result<ServerName, _>; 2] =
                [self.discovery.master().await, self.discovery.meta_server().await];
            Ok(found.iter().all(Result::is_ok))
        })
        .await
    }

    /// Looks up the servers with the session, and a row with a new client.
    pub(crate) async fn fail(&self, cluster: &Cluster) -> ScenarioResult<()> {
        let found = self.discovery.meta_server().await;
        self.check(
            "a lookup in a known session",
            found.err().map(|error| error_chain(&error)).as_deref(),
        )?;
        let table = cluster.client_with(ClientConfig::new("faults")).table(TableName::meta());
        let get = Get::try_new("faults")?;
        let found = table.with_timeout(LOOKUP_TIMEOUT).get(&get).await;
        self.check("a new client", found.err().map(|error| error_chain(&error)).as_deref())
    }

    fn check(&self, what: &str, error: Option<&str>) -> ScenarioResult<()> {
        println!("{what}: {}", error.unwrap_or("no error"));
        let names = |text: &str| text.contains(&self.quorum) && text.contains("ZooKeeper");
        match error {
            Some(text) if names(text) => Ok(()),
            _ => Err(format!("{what}: {error:?} does not name ZooKeeper").into()),
        }
    }
}
