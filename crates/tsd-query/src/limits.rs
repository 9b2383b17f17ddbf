//! Limits of long computations.

use crate::error::QueryError;

/// Ends long computations early: on cancellation, at a deadline, or at a memory limit.
pub trait ExecutionLimits {
    /// Called about every thousand values; an error ends the computation.
    fn check(&mut self) -> Result<(), QueryError>;

    /// Called before approximately `bytes` are allocated until the end of the computation; an error
    /// ends it.
    fn reserve(&mut self, bytes: usize) -> Result<(), QueryError>;
}

/// No limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl ExecutionLimits for Unlimited {
    fn check(&mut self) -> Result<(), QueryError> {
        Ok(())
    }

    fn reserve(&mut self, _bytes: usize) -> Result<(), QueryError> {
        Ok(())
    }
}
