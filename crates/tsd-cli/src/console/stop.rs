//! Signals that stop a command: the first asks its work to end in an orderly way, a second one ends the process.

use std::{
    fmt, io, process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use indicatif::ProgressBar;
use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::SetOnce,
};

use crate::tell;

/// A signal that stops a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGINT, as by Ctrl-C.
    Interrupt = 2,
    /// SIGTERM.
    Terminate = 15,
}

impl StopSignal {
    /// Exit status of a process that the signal stopped, as a shell reports it.
    pub(crate) const fn exit_status(self) -> u8 {
        128 + self as u8
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

/// Receives SIGINT and SIGTERM, which no longer end the process.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Installs the handlers; needs a runtime.
    pub(crate) fn new() -> io::Result<Self> {
        let (interrupt, terminate) = (SignalKind::interrupt(), SignalKind::terminate());
        Ok(Self { interrupt: signal(interrupt)?, terminate: signal(terminate)? })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.interrupt.recv() => StopSignal::Interrupt,
            _ = self.terminate.recv() => StopSignal::Terminate,
        }
    }
}

/// A signal stopped the command.
#[derive(Debug, thiserror::Error)]
#[error("{signal}: stopped; {hint}")]
pub(crate) struct Stopped {
    /// The signal.
    pub(crate) signal: StopSignal,
    /// What remains of the work, or how to continue it.
    pub(crate) hint: &'static str,
}

/// The request of the first signal. The default is never requested.
#[derive(Debug, Default)]
pub(crate) struct StopRequest {
    /// True after the signal, for work that polls.
    pub(crate) flag: Arc<AtomicBool>,
    signal: Arc<SetOnce<StopSignal>>,
}

impl StopRequest {
    /// Listens until the process ends, on a thread of its own: some commands have no runtime, and others close the
    /// store after their work. If the handlers cannot be installed, the first signal ends the process.
    pub(crate) fn listen(bar: ProgressBar) -> Self {
        let request = Self::default();
        let (flag, signal) = (Arc::clone(&request.flag), Arc::clone(&request.signal));
        let listener = move || -> io::Result<()> {
            let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
            runtime.block_on(async {
                let mut signals = StopSignals::new()?;
                let first = signals.next().await;
                bar.suspend(|| tell!("tsdb: {first}: stopping; a second signal exits at once"));
                // It is empty until here, and set before the flag, so that stopped work does not look complete.
                let _ = signal.set(first);
                flag.store(true, Ordering::Release);
                let second = signals.next().await;
                tell!("tsdb: {second}: exiting at once; the last writes may be stored or not");
                process::exit(i32::from(second.exit_status()))
            })
        };
        drop(thread::Builder::new().name("signals".to_owned()).spawn(listener));
        request
    }

    /// The signal, if one was received.
    pub(crate) fn signal(&self) -> Option<StopSignal> {
        self.signal.get().copied()
    }

    /// Waits for the signal.
    pub(crate) async fn requested(&self) -> StopSignal {
        *self.signal.wait().await
    }

    /// Fails if the signal was received.
    pub(crate) fn check(&self, hint: &'static str) -> Result<(), Stopped> {
        self.signal().map_or(Ok(()), |signal| Err(Stopped { signal, hint }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_received_signal_is_an_error_with_a_hint() {
        let stop = StopRequest::default();
        assert!(stop.check("").is_ok() && stop.signal.set(StopSignal::Terminate).is_ok());
        assert_eq!(stop.requested().await, StopSignal::Terminate);
        let text = stop.check("nothing was changed").map_err(|stopped| stopped.to_string());
        assert_eq!(text, Err("SIGTERM: stopped; nothing was changed".to_owned()));
        assert_eq!(StopSignal::Interrupt.exit_status(), 130);
    }
}
