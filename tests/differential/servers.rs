//! OpenTSDB and our daemons, with equal settings.

use std::{
    error::Error,
    io::{ErrorKind, Read as _, Write as _},
    net::SocketAddr,
    path::Path,
    process::Command,
    thread::sleep,
    time::Duration,
};

use cluster::{Cluster, ClusterConfig};
use hbase_rs::{FamilyDescriptor, TableDescriptor, TableName};
use tempfile::TempDir;
use tokio::task::block_in_place;
use tsd_testkit::{Daemon, DaemonBuilder, HttpResponse, connect, try_http};

use crate::request::Request;

/// Path of the binary under test.
const TSDB: &str = env!("CARGO_BIN_EXE_tsdb");

/// Settings of all.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    ("tsd.core.auto_create_metrics", "true"),
    ("tsd.core.meta.enable_tsuid_tracking", "true"),
    ("tsd.core.timezone", "UTC"),
    ("tsd.storage.fix_duplicates", "true"),
    ("tsd.http.show_stack_trace", "false"),
    ("tsd.http.query.allow_delete", "true"),
    ("tsd.core.histograms.config", r#"{"net.opentsdb.core.SimpleHistogramDecoder":42}"#),
    ("tsd.rollups.enable", "true"),
    ("tsd.rollups.tag_raw", "false"),
];

/// Settings of OpenTSDB: points are visible at once, and rows are not rewritten while they are compared.
pub(crate) const OPENTSDB_SETTINGS: &[(&str, &str)] = &[
    ("hbase.rpcs.buffered_flush_interval", "20"),
    ("tsd.storage.compaction.min_flush_threshold", "1000000"),
];

/// Our settings: key layout as OpenTSDB's by default.
const OUR_SETTINGS: &[(&str, &str)] = &[("tsd.storage.salt.width", "0")];

/// Tables of rollups, after the name of the data table and a dash.
const ROLLUP_TABLES: &[&str] = &["agg", "11m", "agg-11m", "22m", "agg-22m"];

/// Longest time that OpenTSDB takes to send a delete, which it does not wait for.
const DELETE_TIME: Duration = Duration::from_millis(60);

/// Rollups of intervals that divide none of those of the other queries, which would read rollups otherwise.
pub(crate) fn rollups(data_table: &str) -> String {
    let interval = |interval: &str| {
        format!(
            r#",{{"table":"{data_table}-{interval}","preAggregationTable":"{data_table}-agg-{interval}","interval":"{interval}","rowSpan":"1d"}}"#
        )
    };
    format!(
        r#"{{"aggregationIds":{{"sum":0,"count":1,"min":2,"max":3}},"intervals":[{{"table":"{data_table}","preAggregationTable":"{data_table}-agg","interval":"1m","rowSpan":"1h","defaultInterval":true}}{}{}]}}"#,
        interval("11m"),
        interval("22m")
    )
}

/// Where the points of our daemon are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Embedded,
    HBase,
}

/// A daemon of ours.
#[derive(Clone, Copy)]
pub(crate) struct Ours {
    /// Its engine, as it is printed.
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
}

/// OpenTSDB and our daemons.
pub(crate) struct Servers {
    pub(crate) theirs: SocketAddr,
    pub(crate) ours: Vec<Ours>,
    started: Option<(Cluster, Vec<Daemon>, TempDir)>,
}

impl Servers {
    /// Servers that run already.
    pub(crate) const fn running(theirs: SocketAddr, ours: Vec<Ours>) -> Self {
        Self { theirs, ours, started: None }
    }

    /// Starts HBase with OpenTSDB, and a daemon of ours for each engine.
    pub(crate) async fn start(engines: &[Engine]) -> Result<Self, Box<dyn Error>> {
        let mut config = ClusterConfig::new(1);
        config.opentsdb = true;
        config.region_server_heap_mb = 400;
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        config.opentsdb_settings = SETTINGS.iter().chain(OPENTSDB_SETTINGS).map(owned).collect();
        config.opentsdb_settings.push(("tsd.rollups.config".to_owned(), rollups("tsdb")));
        let cluster = Cluster::start(config).await?;
        create_rollup_tables(&cluster).await?;
        let theirs = cluster.opentsdb_address().ok_or("OpenTSDB does not run")?.parse()?;
        let directory = tempfile::tempdir()?;
        let (mut ours, mut daemons) = (Vec::new(), Vec::new());
        for engine in engines {
            let name = if *engine == Engine::HBase { "hbase" } else { "embedded" };
            let data = directory.path().join(name);
            let daemon = block_in_place(|| start_ours(&cluster, &data, *engine))?;
            ours.push(Ours { name, address: daemon.address() });
            daemons.push(daemon);
        }
        Ok(Self { theirs, ours, started: Some((cluster, daemons, directory)) })
    }

    /// Addresses of all.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let ours = self.ours.iter().map(|ours| ours.address);
        std::iter::once(self.theirs).chain(ours).collect()
    }

    pub(crate) async fn stop(self) {
        let Some((cluster, daemons, directory)) = self.started else { return };
        drop(daemons);
        if let Err(error) = cluster.shut_down().await {
            println!("differential: shutdown of the cluster: {error}");
        }
        drop(directory);
    }
}

async fn create_rollup_tables(cluster: &Cluster) -> Result<(), Box<dyn Error>> {
    let admin = cluster.client().admin();
    for table in ROLLUP_TABLES {
        let name: TableName = format!("tsdb-{table}").parse()?;
        let table = TableDescriptor::new(name).family(FamilyDescriptor::new("t".to_owned()));
        admin.create_table(&table, []).await?;
    }
    Ok(())
}

fn start_ours(cluster: &Cluster, data: &Path, engine: Engine) -> Result<Daemon, Box<dyn Error>> {
    let mut settings: Vec<(String, String)> = SETTINGS
        .iter()
        .chain(OUR_SETTINGS)
        .map(|(name, value)| (name.to_uppercase().replace('.', "_"), (*value).to_owned()))
        .collect();
    let mut set = |name: &str, value: &str| settings.push((name.to_owned(), value.to_owned()));
    if engine == Engine::Embedded {
        set("TSD_ROLLUPS_CONFIG", &rollups("tsdb"));
    } else {
        set("TSD_ROLLUPS_CONFIG", &rollups("ours-data"));
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
        let _ = sent.and_then(|()| stream.read_to_end(&mut received));
        let body = received.iter().map(|byte| char::from(*byte)).collect();
        return HttpResponse { status: 200, body };
    }
    let body = request.body_text();
    let response = match try_http(address, request.method, &request.uri(), body.as_deref()) {
        Ok(response) => response,
        // A daemon that ended would differ in every request.
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
