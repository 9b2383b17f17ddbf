//! `tsdb tsd`: the daemon from start-up to its end.

use std::{process, time::Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use crate::{
    config::{Config, Settings},
    node::Node,
    open_files,
};

/// Turns of tasks after which a thread looks for sockets that have become ready.
const SOCKET_INTERVAL: u32 = 8;

/// Runs a daemon until it is told to stop.
pub(crate) fn run(config: &Config, settings: &Settings) -> anyhow::Result<()> {
    let started = Instant::now();
    open_files::raise_limit();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(settings.worker_threads)
        // While large answers keep every thread busy, sockets are looked at only this often.
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
            info!(signal, "stopped before it served");
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
        () = node.stop_requested() => info!("stopping, as a client asked"),
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
