//! Keeps HBase running: kills a region server on request and starts it again, and restarts servers that ended by
//! themselves.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cluster::{Cluster, Node};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tsd_testkit::hbase_workload::error_chain;

use super::{PATIENCE, SERVERS, load::KillLoad};
use crate::regions::ScenarioResult;

const WATCHED: [Node; 4] = [Node::ZooKeeper, Node::Master, SERVERS[0], SERVERS[1]];
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// A region server to be killed, and the time until it starts again.
#[derive(Clone, Copy, Debug)]
struct ServerKill {
    server: usize,
    down: Duration,
}

/// Owns the processes of HBase.
#[derive(Debug)]
pub(super) struct HBaseKeeper<'a> {
    cluster: &'a mut Cluster,
    kills: mpsc::Receiver<ServerKill>,
    all_serve: Arc<AtomicBool>,
    load: Arc<KillLoad>,
}

/// Requests kills. Dropping it ends the keeper.
#[derive(Debug)]
pub(super) struct ServerKiller {
    kills: mpsc::Sender<ServerKill>,
    all_serve: Arc<AtomicBool>,
}

impl ServerKiller {
    /// True if all servers of HBase run.
    pub(super) fn all_serve(&self) -> bool {
        self.all_serve.load(Ordering::SeqCst)
    }

    /// Kills a region server.
    pub(super) async fn kill(&self, server: usize, down: Duration) -> ScenarioResult<()> {
        self.all_serve.store(false, Ordering::SeqCst);
        Ok(self.kills.send(ServerKill { server, down }).await?)
    }

    /// Waits until all servers of HBase run.
    pub(super) async fn wait_until_all_serve(&self) -> ScenarioResult<()> {
        let all_serve = async {
            while !self.all_serve() {
                sleep(WATCH_INTERVAL).await;
            }
        };
        timeout(PATIENCE, all_serve).await.map_err(|_| "HBase does not start again".into())
    }
}

impl<'a> HBaseKeeper<'a> {
    pub(super) fn new(cluster: &'a mut Cluster, load: Arc<KillLoad>) -> (Self, ServerKiller) {
        let (sender, kills) = mpsc::channel(1);
        let all_serve = Arc::new(AtomicBool::new(true));
        let killer = ServerKiller { kills: sender, all_serve: Arc::clone(&all_serve) };
        (Self { cluster, kills, all_serve, load }, killer)
    }

    /// Runs until the last [`ServerKiller`] is dropped.
    pub(super) async fn keep(mut self) -> ScenarioResult<()> {
        loop {
            match timeout(WATCH_INTERVAL, self.kills.recv()).await {
                Ok(None) => return Ok(()),
                Ok(Some(kill)) => self.kill(kill).await?,
                Err(_) => self.start_ended().await?,
            }
        }
    }

    async fn kill(&mut self, kill: ServerKill) -> ScenarioResult<()> {
        let node = SERVERS[kill.server];
        self.all_serve.store(false, Ordering::SeqCst);
        self.cluster.kill(node)?;
        sleep(kill.down).await;
        self.restart(node).await;
        self.start_ended().await
    }

    /// Starts servers that ended by themselves, such as a region server that lost its session on a busy machine.
    async fn start_ended(&mut self) -> ScenarioResult<()> {
        for node in WATCHED {
            if !self.cluster.is_running(node)? {
                self.all_serve.store(false, Ordering::SeqCst);
                self.load.report.record_incident(format!("{node} has ended by itself"));
                self.restart(node).await;
            }
        }
        self.all_serve.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Restarts a server. The next check retries a failed start.
    async fn restart(&mut self, node: Node) {
        match self.cluster.restart(node).await {
            Ok(()) => self.load.report.record_incident(format!("{node} serves again")),
            Err(error) => {
                self.load.report.record_incident(format!("{node}: {}", error_chain(&error)));
            }
        }
    }
}
