//! Signals that stop an import, a copy or a check.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::task::AbortOnDropHandle;

use crate::tell;

/// A signal that stopped a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGINT, as by Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl StopSignal {
    /// Exit status of a process that the signal stopped, as a shell reports it.
    pub(crate) const fn exit_status(self) -> u8 {
        match self {
            Self::Interrupt => 128 + 2,
            Self::Terminate => 128 + 15,
        }
    }
}

impl fmt::Display for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        })
    }
}

/// Waits for signals.
pub(super) struct Stop {
    signals: Option<(Signal, Signal)>,
}

impl Stop {
    /// Ignores signals.
    pub(super) const fn never() -> Self {
        Self { signals: None }
    }

    /// Stops on SIGINT and SIGTERM. If the handlers cannot be installed, the signals end the process.
    pub(super) fn on_signals() -> Self {
        let signals =
            signal(SignalKind::interrupt()).ok().zip(signal(SignalKind::terminate()).ok());
        Self { signals }
    }

    /// Waits for the next signal.
    pub(super) async fn requested(&mut self) -> StopSignal {
        match &mut self.signals {
            Some((interrupt, terminate)) => tokio::select! {
                _ = interrupt.recv() => StopSignal::Interrupt,
                _ = terminate.recv() => StopSignal::Terminate,
            },
            None => std::future::pending().await,
        }
    }

    /// Ends the process at the next signal.
    pub(super) async fn exit_at_next(&mut self) {
        let signal = self.requested().await;
        tell!(
            "tsdb: {signal}: exiting at once; the points since the last report may be stored or not"
        );
        std::process::exit(i32::from(signal.exit_status()));
    }
}

/// Signals for work that polls a flag. A second signal ends the process at once.
pub(crate) struct StopRequest {
    pub(crate) flag: Arc<AtomicBool>,
    signal: Arc<OnceLock<StopSignal>>,
    _waiter: AbortOnDropHandle<()>,
}

impl StopRequest {
    pub(crate) fn listen() -> Self {
        let (flag, signal) = (Arc::<AtomicBool>::default(), Arc::<OnceLock<_>>::default());
        let (flagged, received) = (Arc::clone(&flag), Arc::clone(&signal));
        let waiter = tokio::spawn(async move {
            let mut requests = Stop::on_signals();
            // The cell is empty until here.
            let _ = received.set(requests.requested().await);
            flagged.store(true, Ordering::Relaxed);
            requests.exit_at_next().await;
        });
        Self { flag, signal, _waiter: AbortOnDropHandle::new(waiter) }
    }

    /// The signal, if one was received.
    pub(crate) fn signal(&self) -> Option<StopSignal> {
        self.signal.get().copied()
    }
}
