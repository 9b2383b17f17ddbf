//! The two daemons, with equal settings.

use std::{
    error::Error,
    io::{ErrorKind, Write},
    net::SocketAddr,
    path::Path,
    process::Command,
};

use cluster::{Cluster, ClusterConfig};
use tempfile::TempDir;
use tokio::task::block_in_place;
use tsd_testkit::{Daemon, DaemonBuilder, HttpResponse, connect, try_http};

use crate::request::Request;

/// Path of the binary under test.
const TSDB: &str = env!("CARGO_BIN_EXE_tsdb");

/// Settings of both.
const SETTINGS: &[(&str, &str)] = &[
    ("tsd.core.auto_create_metrics", "true"),
    ("tsd.core.meta.enable_tsuid_tracking", "true"),
    ("tsd.core.timezone", "UTC"),
    ("tsd.storage.fix_duplicates", "true"),
    ("tsd.http.show_stack_trace", "false"),
];

/// Settings of OpenTSDB: points are visible at once, and rows are not rewritten while they are compared.
const OPENTSDB_SETTINGS: &[(&str, &str)] = &[
    ("hbase.rpcs.buffered_flush_interval", "20"),
    ("tsd.storage.compaction.min_flush_threshold", "1000000"),
];

/// Our settings: key layout as OpenTSDB's by default.
const OUR_SETTINGS: &[(&str, &str)] = &[("tsd.storage.salt.width", "0")];

/// OpenTSDB and our daemon.
pub(crate) struct Servers {
    pub(crate) theirs: SocketAddr,
    pub(crate) ours: SocketAddr,
    started: Option<(Cluster, Daemon, TempDir)>,
}

impl Servers {
    /// Servers that run already.
    pub(crate) fn running(theirs: SocketAddr, ours: SocketAddr) -> Self {
        Self { theirs, ours, started: None }
    }

    /// Starts HBase with OpenTSDB, and our daemon with the embedded store or on HBase.
    pub(crate) async fn start(on_hbase: bool) -> Result<Self, Box<dyn Error>> {
        let mut config = ClusterConfig::new(1);
        config.opentsdb = true;
        config.region_server_heap_mb = 400;
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        config.opentsdb_settings = SETTINGS.iter().chain(OPENTSDB_SETTINGS).map(owned).collect();
        let cluster = Cluster::start(config).await?;
        let theirs = cluster.opentsdb_address().ok_or("OpenTSDB does not run")?.parse()?;
        let directory = tempfile::tempdir()?;
        let daemon = block_in_place(|| start_ours(&cluster, directory.path(), on_hbase))?;
        Ok(Self { theirs, ours: daemon.address(), started: Some((cluster, daemon, directory)) })
    }

    pub(crate) async fn stop(self) {
        let Some((cluster, daemon, directory)) = self.started else { return };
        drop(daemon);
        if let Err(error) = cluster.shut_down().await {
            println!("differential: shutdown of the cluster: {error}");
        }
        drop(directory);
    }
}

fn start_ours(cluster: &Cluster, data: &Path, on_hbase: bool) -> Result<Daemon, Box<dyn Error>> {
    let mut settings: Vec<(String, String)> = SETTINGS
        .iter()
        .chain(OUR_SETTINGS)
        .map(|(name, value)| (name.to_uppercase().replace('.', "_"), (*value).to_owned()))
        .collect();
    if on_hbase {
        let mut set = |name: &str, value: &str| settings.push((name.to_owned(), value.to_owned()));
        set("TSD_STORAGE_ENGINE", "hbase");
        set("TSD_STORAGE_HBASE_ZK_QUORUM", &cluster.quorum());
        for table in ["data", "uid", "tree", "meta"] {
            let variable = format!("TSD_STORAGE_HBASE_{}_TABLE", table.to_uppercase());
            set(&variable, &format!("ours-{table}"));
        }
        let mut create = Command::new(TSDB);
        create.args(["table", "create"]).envs(settings.iter().cloned());
        let output = create.output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
    }
    let daemon = DaemonBuilder::new(TSDB, data).args(&["--log-level", "warn,tsd_cli=info"]);
    let daemon = settings.iter().fold(daemon, |daemon, (name, value)| daemon.env(name, value));
    Ok(daemon.start())
}

/// Sends a request to one of them. A connection that is closed without a response has status 0.
pub(crate) fn send(address: SocketAddr, request: &Request) -> HttpResponse {
    if let Some(lines) = &request.telnet {
        let mut stream = connect(address);
        // Errors of lines are answered before the connection is closed by `exit`.
        let sent = stream.write_all(format!("{lines}\nexit\n").as_bytes());
        let mut received = Vec::new();
        let _ = sent.and_then(|()| std::io::Read::read_to_end(&mut stream, &mut received));
        let body = received.iter().map(|byte| char::from(*byte)).collect();
        return HttpResponse { status: 200, body };
    }
    let body = request.body_text();
    match try_http(address, request.method, &request.uri(), body.as_deref()) {
        Ok(response) => response,
        // A daemon that ended would differ in every request.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            panic!("{address} does not answer any more, at {request}")
        }
        Err(error) => HttpResponse { status: 0, body: error.kind().to_string() },
    }
}
