//! Who is asked, while something long is worked out, whether to go on.

use crate::error::QueryError;

/// Lets long work be ended early: by a deadline, a cancel, or a memory limit.
pub trait ExecutionLimits {
    /// Called for every thousand or so values; an error ends the work.
    fn check(&mut self) -> Result<(), QueryError>;

    /// Called before about that many bytes are taken, which live until the work is done.
    fn reserve(&mut self, bytes: usize) -> Result<(), QueryError>;
}

/// Lets everything pass.
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
