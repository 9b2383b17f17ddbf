//! Faults of servers, tickets and keys while a daemon is under load: nothing acknowledged is lost, and tickets and keys
//! cost no failed put.

use std::{fs, thread, time::Duration};

use cluster::{Cluster, Kerberos, Node};
use tokio::task::block_in_place;

use crate::{
    TestResult,
    client::SecureClient,
    failures::seconds,
    load::{Load, LoadReport},
    programs::{Watched, daemon},
    rows::{start, stop, tool},
};

/// A fault under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadFault {
    /// Tickets are good for 20 s, and connections break every 10 s.
    ShortTickets,
    ServerKilled,
    /// Tickets are good for 20 s, and the KDC is gone for a minute.
    ServerKilledWithoutKdc,
    /// The servers get a new key, and connections break.
    Rekeyed,
    /// A ticket cache has expired when the daemon starts, and is renewed later.
    CacheRenewed,
}

impl LoadFault {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ShortTickets => "tickets of 20 s under load for two minutes",
            Self::ServerKilled => "region server killed under load",
            Self::ServerKilledWithoutKdc => {
                "KDC stopped for 60 s, tickets of 20 s, region server killed under load"
            }
            Self::Rekeyed => "servers get a new key under load",
            Self::CacheRenewed => "expired cache, then kinit",
        }
    }
}

/// Lifetime of short tickets.
const SHORT: Duration = Duration::from_secs(20);
/// Lifetime of other tickets.
const LONG: Duration = Duration::from_hours(10);
/// Time of load before a fault.
const LOAD: Duration = Duration::from_secs(5);
/// How long the KDC is gone.
const WITHOUT_KDC: Duration = Duration::from_mins(1);
/// The server that is killed. It has the table of points.
const KILLED: Node = Node::RegionServer(0);

/// Puts points through a daemon during a fault, and reads them back.
pub(crate) async fn run(
    cluster: &mut Cluster,
    client: SecureClient,
    fault: LoadFault,
    at: usize,
) -> TestResult<String> {
    if fault == LoadFault::CacheRenewed {
        return renew_cache(cluster, client).await;
    }
    let realm = cluster.realm().ok_or("the cluster has no Kerberos")?;
    let directory = tempfile::tempdir()?;
    let mut settings = client.settings(cluster, directory.path()).await?;
    settings.set("tsd.storage.hbase.hosts", cluster.links().hosts_setting());
    let name = format!("load{at}");
    settings.set_tables(&name);
    let file = directory.path().join("opentsdb.conf");
    settings.write(&file)?;
    block_in_place(|| tool(&settings, &file, &["table", "create"]))?;
    cluster.move_region(&format!("{name}-data").parse()?, b"", 0).await?;
    let short = matches!(fault, LoadFault::ShortTickets | LoadFault::ServerKilledWithoutKdc);
    realm.set_ticket_lifetime(Kerberos::USER, if short { SHORT } else { LONG })?;
    let daemon = block_in_place(|| start(&settings, &file, &directory.path().join("data")))?;
    let load = Load::start(daemon.address(), "secure.load");
    load.await_progress()?;
    block_in_place(|| thread::sleep(LOAD));
    let recovery = apply(cluster, fault, &load).await;
    realm.set_ticket_lifetime(Kerberos::USER, LONG)?;
    let recovery = recovery?;
    let report = block_in_place(|| load.finish())?;
    block_in_place(|| stop(daemon))?;
    check(fault, &report)?;
    Ok(format!("{report}, puts go on after {}", seconds(recovery)))
}

/// Applies the fault and ends it; returns the time until puts go on.
async fn apply(cluster: &mut Cluster, fault: LoadFault, load: &Load) -> TestResult<Duration> {
    let progress = || block_in_place(|| load.await_progress());
    match fault {
        LoadFault::ShortTickets => {
            let mut longest = Duration::ZERO;
            for _ in 0..12 {
                block_in_place(|| thread::sleep(SHORT / 2));
                break_connections(cluster);
                longest = longest.max(progress()?);
            }
            Ok(longest)
        }
        LoadFault::ServerKilled => {
            cluster.kill(KILLED)?;
            let recovery = progress()?;
            cluster.restart(KILLED).await?;
            progress()?;
            Ok(recovery)
        }
        LoadFault::ServerKilledWithoutKdc => {
            cluster.kill(Node::Kdc)?;
            block_in_place(|| thread::sleep(SHORT));
            cluster.kill(KILLED)?;
            block_in_place(|| thread::sleep(WITHOUT_KDC.saturating_sub(SHORT)));
            cluster.restart(Node::Kdc).await?;
            let recovery = progress()?;
            cluster.restart(KILLED).await?;
            progress()?;
            Ok(recovery)
        }
        LoadFault::Rekeyed => {
            let realm = cluster.realm().ok_or("the cluster has no Kerberos")?;
            realm.rekey(Kerberos::HBASE)?;
            break_connections(cluster);
            let recovery = progress()?;
            break_connections(cluster);
            Ok(recovery.max(progress()?))
        }
        LoadFault::CacheRenewed => Ok(Duration::ZERO),
    }
}

/// Breaks the daemon's connections to all servers of HBase.
fn break_connections(cluster: &Cluster) {
    let nodes = cluster.nodes().filter(|node| node.is_master() || is_region_server(*node));
    nodes.for_each(|node| cluster.links().break_connections(node));
}

const fn is_region_server(node: Node) -> bool {
    matches!(node, Node::RegionServer(_))
}

/// Puts fail only while a region server or the KDC is down.
fn check(fault: LoadFault, report: &LoadReport) -> TestResult<()> {
    let may_fail = matches!(fault, LoadFault::ServerKilled | LoadFault::ServerKilledWithoutKdc);
    if may_fail || report.failed == 0 {
        return Ok(());
    }
    Err(format!("{report}; the last: {}", report.last_failure).into())
}

/// Starts a daemon with an expired cache, which waits; renews the cache.
async fn renew_cache(cluster: &Cluster, client: SecureClient) -> TestResult<String> {
    let realm = cluster.realm().ok_or("the cluster has no Kerberos")?;
    let directory = tempfile::tempdir()?;
    let mut settings = client.settings(cluster, directory.path()).await?;
    settings.set_tables("renewed");
    let file = directory.path().join("opentsdb.conf");
    settings.write(&file)?;
    let cache = directory.path().join("tickets");
    let expired = fs::read(&cache)?;
    realm.kinit(Kerberos::USER, &cache, None)?;
    block_in_place(|| tool(&settings, &file, &["table", "create"]))?;
    fs::write(&cache, expired)?;
    block_in_place(|| {
        let program = daemon(&settings, &file, directory.path());
        let mut program = Watched::start(program, &directory.path().join("log"))?;
        let reported = program.await_texts(&["expired", "kinit"])?;
        realm.kinit(Kerberos::USER, &cache, None)?;
        let renewed = program.running();
        let serves = program.await_texts(&["ready to serve"])?.saturating_sub(renewed);
        let (reported, serves) = (seconds(reported), seconds(serves));
        Ok(format!("reported after {reported}, serves {serves} after kinit"))
    })
}
