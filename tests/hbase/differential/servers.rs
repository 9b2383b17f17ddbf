//! OpenTSDB and our daemons, with equal settings.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::SocketAddr,
    thread::sleep,
    time::Duration,
};

use cluster::{Cluster, Node};
use tempfile::TempDir;
use tokio::task::block_in_place;
use tsd_testkit::{Daemon, HttpResponse, connect, try_http};

use crate::{
    differential::request::Request,
    regions::ScenarioResult,
    table_set::{SETTINGS, TableSet, rollups},
    tsd,
};

/// Longest time until OpenTSDB has sent a delete, which it does not await.
const DELETE_TIME: Duration = Duration::from_millis(60);

/// Storage engine of our daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Embedded,
    HBase,
}

/// A daemon of ours.
#[derive(Clone, Copy)]
pub(crate) struct Ours {
    /// Printed name of the engine.
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
}

/// OpenTSDB and our daemons.
pub(crate) struct Servers {
    pub(crate) theirs: SocketAddr,
    pub(crate) ours: Vec<Ours>,
    /// Daemons that this test started, and their directories.
    _started: Option<(Vec<Daemon>, TempDir)>,
}

impl Servers {
    /// Uses running servers.
    pub(crate) const fn running(theirs: SocketAddr, ours: Vec<Ours>) -> Self {
        Self { theirs, ours, _started: None }
    }

    /// Restarts the OpenTSDB of a cluster and starts a daemon of ours for each engine, each on its own tables.
    pub(crate) async fn start(cluster: &mut Cluster, engines: &[Engine]) -> ScenarioResult<Self> {
        let tables = TableSet::new("differential-theirs", &[]);
        tables.create(cluster)?;
        let theirs = tables.restart_theirs(cluster, Node::OpenTsdb, &[]).await?;
        let directory = tempfile::tempdir()?;
        let (mut ours, mut daemons) = (Vec::new(), Vec::new());
        for engine in engines {
            let name = if *engine == Engine::HBase { "hbase" } else { "embedded" };
            let data = directory.path().join(name);
            let daemon = if *engine == Engine::HBase {
                let tables = TableSet::new("differential-ours", &[]);
                tables.create(cluster)?;
                tsd::start(cluster, &data, &tables.with(&[]))
            } else {
                let rollups = rollups("tsdb");
                let own = [("tsd.storage.salt.width", "0"), ("tsd.rollups.config", &*rollups)];
                let environment = tsd::environment(&[SETTINGS, &own].concat());
                let daemon = tsd::builder(&environment, &data, tsd::LOG_LEVEL);
                block_in_place(|| daemon.start())
            };
            ours.push(Ours { name, address: daemon.address() });
            daemons.push(daemon);
        }
        Ok(Self { theirs, ours, _started: Some((daemons, directory)) })
    }

    /// Addresses of all.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let ours = self.ours.iter().map(|ours| ours.address);
        std::iter::once(self.theirs).chain(ours).collect()
    }
}

/// Sends a request to one server. A connection that closes without a response has status 0.
pub(crate) fn send(address: SocketAddr, request: &Request) -> HttpResponse {
    if let Some(lines) = &request.telnet {
        let mut stream = connect(address);
        // Errors of lines are answered before the connection is closed by `exit`.
        let sent = stream.write_all(format!("{lines}\nexit\n").as_bytes());
        let mut received = Vec::new();
        let _ = sent.and_then(|()| stream.read_to_end(&mut received));
        let body = received.iter().map(|byte| char::from(*byte)).collect();
        return HttpResponse { status: 200, body };
    }
    let body = request.body_text();
    let response = match try_http(address, request.method, &request.uri(), body.as_deref()) {
        Ok(response) => response,
        // A dead daemon would differ in every request.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            panic!("{address} does not answer any more, at {request}")
        }
        Err(error) => HttpResponse { status: 0, body: error.kind().to_string() },
    };
    if request.is_delete() {
        sleep(DELETE_TIME);
    }
    response
}
