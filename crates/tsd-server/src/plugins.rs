//! Built-in plug-ins that receive points: publishers to a file, a TCP or an HTTP receiver, and the spool of
//! points that the store rejected.
//!
//! Each plug-in has one task, which reads from its queue in the engine. The task retries a failed delivery
//! after a pause, until it succeeds or the daemon stops. Meanwhile the queue fills up; a setting decides what
//! happens when it is full. So a receiver may get a point twice, but never out of order.

mod file_publisher;
mod http_publisher;
mod json_lines;
mod sink;
mod spool;
mod tcp_publisher;

use std::{
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use tsd_engine::{LogLimit, PluginBatch, PluginItems, Rollups};
use tsd_tls::{ClientFiles, ClientTls};

use self::{
    file_publisher::FilePublisher,
    http_publisher::HttpPublisher,
    sink::{Sink, SinkError, blocking},
    spool::Spool,
    tcp_publisher::TcpPublisher,
};
pub use self::{
    http_publisher::{PublisherUrl, PublisherUrlError},
    spool::SpoolConfig,
};

/// Maximum bytes of records in a delivery.
const BATCH_BYTES: usize = 1 << 20;
/// Pause after the first failure; doubled after each further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Time between two calls of an idle sink.
const IDLE: Duration = Duration::from_secs(10);
/// Minimum interval between two messages about failures.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Where the real-time publisher sends points.
#[derive(Clone, Debug)]
pub enum PublisherConfig {
    /// A file of JSON lines. A full file becomes `PATH.1`, the former `PATH.1` becomes `PATH.2`, and so on.
    File {
        /// The file.
        path: PathBuf,
        /// Size at which the file is renamed, bytes.
        max_bytes: u64,
        /// Number of renamed files to keep.
        keep: u32,
    },
    /// JSON lines to `HOST:PORT`.
    Tcp(String),
    /// JSON lines in the bodies of requests.
    Http {
        /// The URL of the receiver.
        url: PublisherUrl,
        /// File of the authorities of a receiver with `https`; `None` for the authorities of the system.
        authorities: Option<PathBuf>,
    },
}

/// A running plug-in.
#[derive(Debug)]
pub struct PluginTask {
    plugin: &'static str,
    stopping: CancellationToken,
    task: JoinHandle<()>,
}

/// Starts the real-time publisher.
///
/// # Errors
///
/// If its file, or the file of authorities, cannot be opened.
pub async fn start_publisher(
    config: PublisherConfig,
    items: PluginItems,
) -> io::Result<PluginTask> {
    match config {
        PublisherConfig::File { path, max_bytes, keep } => {
            let open = move || FilePublisher::open(path, max_bytes, keep);
            Ok(PluginTask::start(blocking(open).await?, items))
        }
        PublisherConfig::Tcp(address) => Ok(PluginTask::start(TcpPublisher::new(address), items)),
        PublisherConfig::Http { url, authorities } => {
            let load = || ClientTls::load(ClientFiles { authorities, identity: None });
            let tls = url.is_encrypted().then(load).transpose().map_err(io::Error::other)?;
            Ok(PluginTask::start(HttpPublisher::new(url, tls.map(Arc::new)), items))
        }
    }
}

/// Starts the spool of points that the store rejected. `rollups` is the configuration of rollups.
///
/// # Errors
///
/// If its directory cannot be created or read.
pub async fn start_spool(
    config: SpoolConfig,
    rollups: Option<Rollups>,
    items: PluginItems,
) -> io::Result<PluginTask> {
    Ok(PluginTask::start(blocking(move || Spool::open(config, rollups)).await?, items))
}

impl PluginTask {
    fn start(sink: impl Sink, items: PluginItems) -> Self {
        let stopping = CancellationToken::new();
        let plugin = items.queue().plugin();
        let task = tokio::spawn(run(sink, items, stopping.clone()));
        Self { plugin, stopping, task }
    }

    /// Delivers queued records for at most `limit`, and stops.
    pub async fn stop(mut self, limit: Duration) {
        self.stopping.cancel();
        if tokio::time::timeout(limit, &mut self.task).await.is_err() {
            error!(plugin = self.plugin, "the shutdown dropped points from the queue of a plug-in");
            self.task.abort();
        }
    }
}

impl Drop for PluginTask {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}

async fn run(mut sink: impl Sink, mut items: PluginItems, stopping: CancellationToken) {
    let log = LogLimit::new(LOG_INTERVAL);
    let mut is_closed = false;
    loop {
        let batch = tokio::select! {
            batch = items.next_batch(BATCH_BYTES) => batch,
            () = stopping.cancelled(), if !is_closed => {
                items.close();
                is_closed = true;
                continue;
            }
            () = tokio::time::sleep(IDLE) => {
                sink.idle().await;
                continue;
            }
        };
        let Some(batch) = batch else { break };
        deliver(&mut sink, batch, &items, &log).await;
        // With a full queue and a receiver that is always ready, the task would block the thread.
        tokio::task::yield_now().await;
    }
    sink.close().await;
}

/// Delivers a batch, and retries until it is delivered or rejected.
async fn deliver(sink: &mut impl Sink, batch: PluginBatch, items: &PluginItems, log: &LogLimit) {
    let queue = items.queue();
    let (mut pause, mut failed_since) = (FIRST_PAUSE, None::<Instant>);
    loop {
        match sink.deliver(&batch).await {
            Ok(without_form) => {
                batch.delivered(without_form, "the plug-in cannot represent them");
                break;
            }
            Err(SinkError::Refused(reason)) => {
                queue.note_failure();
                batch.refused(&reason);
                break;
            }
            Err(SinkError::Retry(reason)) => {
                queue.note_failure();
                failed_since.get_or_insert_with(Instant::now);
                if let Some(suppressed) = log.admit() {
                    let (plugin, queued) = (queue.plugin(), queue.queued_bytes());
                    warn!(
                        plugin,
                        reason, queued, suppressed, "a delivery of a plug-in failed; retrying"
                    );
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
    if let Some(since) = failed_since {
        info!(
            plugin = queue.plugin(),
            after_s = since.elapsed().as_secs(),
            "the deliveries of a plug-in succeed again"
        );
    }
}
