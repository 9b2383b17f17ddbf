//! Tells work on the processors that nobody waits for it any more.
//!
//! Dropping a query drops its tasks, but a task is only dropped where it waits. Loops that never
//! wait look at this flag instead.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tsd_query::{QueryError, Watch};

use super::{run::QueryRun, scheduler::Slice};

/// Set once a query has ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Halt(Arc<AtomicBool>);

/// Sets the flag when dropped.
#[derive(Debug)]
pub(crate) struct HaltGuard(Halt);

impl Halt {
    /// Whether the query has ended.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once the query has ended. Whoever could read it is gone.
    pub(crate) fn check(&self) -> Result<(), QueryError> {
        if self.is_set() { Err(QueryError::internal("the query was cancelled")) } else { Ok(()) }
    }

    /// Sets the flag when what is returned is dropped.
    pub(crate) fn when_dropped(&self) -> HaltGuard {
        HaltGuard(self.clone())
    }
}

impl Drop for HaltGuard {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Watches long arithmetic: whether its query goes on, the turns it needs, and the memory it takes.
#[derive(Debug)]
pub(crate) struct Watcher<'a> {
    halt: &'a Halt,
    run: &'a QueryRun,
    /// Gone once the query has ended.
    slice: Option<Slice>,
}

impl<'a> Watcher<'a> {
    /// Watches work that has its first turn.
    pub(crate) const fn new(halt: &'a Halt, run: &'a QueryRun, slice: Slice) -> Self {
        Self { halt, run, slice: Some(slice) }
    }

    /// Whether it is time to let others go.
    pub(crate) fn is_over(&self) -> bool {
        self.slice.as_ref().is_none_or(Slice::is_over)
    }
}

impl Watch for Watcher<'_> {
    fn go_on(&mut self) -> Result<(), QueryError> {
        if let Some(slice) = self.slice.take() {
            self.slice = self.run.renew(slice, || self.halt.is_set());
        }
        self.halt.check()?;
        let mut run = self.run;
        run.go_on()
    }

    fn hold(&mut self, bytes: usize) -> Result<(), QueryError> {
        let mut run = self.run;
        Watch::hold(&mut run, bytes)
    }
}
