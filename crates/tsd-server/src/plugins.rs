//! Built-in plug-ins that get points: publishers to a file, a TCP or an HTTP receiver, and the spool of
//! points that the store refused.
//!
//! Each plug-in has one task, which takes from its queue of the engine. A delivery that fails is repeated
//! after a pause, until it succeeds or the daemon stops; meanwhile the queue fills up, and what happens
//! then is its setting. So a receiver may get a point twice, and never gets it out of order.

mod file_publisher;
mod http_publisher;
mod json_lines;
mod sink;
mod spool;
mod tcp_publisher;

use std::{
    io,
    path::PathBuf,
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use tsd_engine::{LogLimit, PluginBatch, PluginItems, Rollups};

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

/// Bytes of records that are delivered at once.
const BATCH_BYTES: usize = 1 << 20;
/// Pause after the first failure; doubled with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Time between two calls of an idle sink.
const IDLE: Duration = Duration::from_secs(10);
/// Minimum interval between two messages about failures.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Where the real-time publisher sends points.
#[derive(Clone, Debug)]
pub enum PublisherConfig {
    /// A file of JSON lines. When it is full it is renamed to `PATH.1`, that to `PATH.2`, and so on.
    File {
        /// The file.
        path: PathBuf,
        /// Size at which it is renamed, bytes.
        max_bytes: u64,
        /// Number of renamed files that are kept.
        keep: u32,
    },
    /// JSON lines to `HOST:PORT`.
    Tcp(String),
    /// JSON lines in the bodies of requests.
    Http(PublisherUrl),
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
/// If its file cannot be opened.
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
        PublisherConfig::Http(url) => Ok(PluginTask::start(HttpPublisher::new(url), items)),
    }
}

/// Starts the spool of points that the store refused; `rollups` is the configuration of those that are put.
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

    /// Delivers what is queued, for at most so long, and stops.
    pub async fn stop(mut self, limit: Duration) {
        self.stopping.cancel();
        if tokio::time::timeout(limit, &mut self.task).await.is_err() {
            error!(
                plugin = self.plugin,
                "points were left in the queue of a plug-in at the shutdown"
            );
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
    }
    sink.close().await;
}

/// Delivers a batch, again and again until it is delivered or refused.
async fn deliver(sink: &mut impl Sink, batch: PluginBatch, items: &PluginItems, log: &LogLimit) {
    let queue = items.queue();
    let (mut pause, mut failed_since) = (FIRST_PAUSE, None::<Instant>);
    loop {
        match sink.deliver(&batch).await {
            Ok(without_form) => {
                batch.delivered(without_form, "the plug-in has no form for them");
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
                    warn!(plugin, reason, queued, suppressed, "a plug-in fails and will try again");
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
            "a plug-in works again"
        );
    }
}
