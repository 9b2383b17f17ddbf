//! Threads that a store cannot work without.
//!
//! A store whose committer or compactor has ended would accept connections but never write. So a
//! panic of such a thread ends the process, with the cause as the last log message. Acknowledged
//! writes are in the log.

use std::{
    any::Any,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    thread::{Builder, JoinHandle},
};

/// Starts a thread whose panic aborts the process.
///
/// The panic unwinds the thread first, which drops its values, so callers that wait for the thread
/// get an error.
///
/// # Errors
///
/// Fails if the operating system cannot start a thread.
pub fn spawn_critical(
    name: &'static str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let work = move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
            let cause = panic_text(&*panic);
            tracing::error!(
                thread = name,
                cause,
                "a thread of the store panicked; the process ends"
            );
            process::abort();
        }
    };
    Builder::new().name(name.to_owned()).spawn(work)
}

/// The message of a panic.
#[must_use]
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "no message",
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn thread_that_returns_is_joined() {
        let (sender, received) = std::sync::mpsc::channel();
        let thread = spawn_critical("critical", move || sender.send(7).unwrap()).unwrap();
        assert_eq!(received.recv().unwrap(), 7);
        thread.join().unwrap();
    }

    #[test]
    fn panic_has_a_text() {
        let text = |work: fn()| panic_text(&*catch_unwind(work).unwrap_err()).to_owned();
        assert_eq!(text(|| panic!("literal")), "literal");
        assert_eq!(text(|| panic!("number {}", 5)), "number 5");
        assert_eq!(text(|| std::panic::panic_any(7)), "no message");
    }
}
