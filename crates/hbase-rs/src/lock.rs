//! Locks whose state is valid even after a panic of their owner.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. Its state is changed in single steps, so that a panic in between does no harm.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
