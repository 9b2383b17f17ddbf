//! Starts the threads of a store, and awaits their ends.

use std::thread;

use tokio::sync::oneshot;
use tsd_files::spawn_critical;

use crate::OpenError;

/// Starts a thread that the store cannot work without, so that its panic ends the process. The receiver resolves
/// when the thread ends.
pub(super) fn spawn_worker(
    name: &'static str,
    work: impl FnOnce() + Send + 'static,
) -> Result<oneshot::Receiver<()>, OpenError> {
    let (sender, ended) = oneshot::channel();
    let work = move || {
        work();
        let _ = sender.send(());
    };
    spawn_critical(name, work).map_err(|_| OpenError::Thread(name))?;
    Ok(ended)
}

/// Starts a thread. The receiver resolves when the thread ends.
fn spawn<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<oneshot::Receiver<T>, OpenError> {
    let (sender, ended) = oneshot::channel();
    // A panic drops the sender.
    let work = move || {
        let _ = sender.send(work());
    };
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|_| OpenError::Thread(name))?;
    Ok(ended)
}

/// Runs blocking work in its own thread.
pub(super) async fn in_thread<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, OpenError> {
    spawn(name, work)?.await.map_err(|_| OpenError::Thread(name))
}
