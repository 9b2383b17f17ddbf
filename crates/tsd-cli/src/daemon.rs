//! `tsdb tsd`: runs the daemon from start to shutdown.

use std::{process, time::Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use crate::{
    config::{Config, Settings},
    node::Node,
    open_files,
};

/// Number of scheduler ticks between two polls for I/O events.
const SOCKET_INTERVAL: u32 = 8;

/// Runs a daemon until a signal or a client stops it.
pub(crate) fn run(config: &Config, settings: &Settings) -> anyhow::Result<()> {
    let started = Instant::now();
    open_files::raise_limit();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(settings.worker_threads)
        // Bounds the I/O latency while large responses keep every thread busy.
        .event_interval(SOCKET_INTERVAL)
        .enable_all()
        .build()?
        .block_on(serve(config, started))
}

async fn serve(config: &Config, started: Instant) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let node = tokio::select! {
        node = Node::start(config) => node?,
        signal = signals.next() => {
            info!(signal, "stopped during start-up");
            return Ok(());
        }
    };
    let (replayed_cells, replayed_bytes) = node.replayed();
    info!(
        address = %node.address(),
        data = %node.directory().map_or_else(|| "memory".into(), |path| path.to_string_lossy()),
        replayed_cells,
        replayed_bytes,
        took_ms = started.elapsed().as_millis() as u64,
        "ready to serve"
    );
    tokio::select! {
        signal = signals.next() => info!(signal, "stopping; a second signal exits at once"),
        () = node.stop_requested() => info!("stopping: requested by a client"),
    }
    let stopping = Instant::now();
    let second = tokio::spawn(async move {
        let signal = signals.next().await;
        warn!(signal, "exiting at once; unacknowledged points may be lost");
        process::exit(1);
    });
    node.shutdown().await?;
    second.abort();
    info!(took_ms = stopping.elapsed().as_millis() as u64, "stopped");
    Ok(())
}

/// Signals that end a daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
